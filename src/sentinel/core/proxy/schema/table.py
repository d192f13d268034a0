"""The whole table: what may stand at the top level of a configuration, by version of the schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from sentinel.core import kdl
from sentinel.core.proxy.problem import Severity
from sentinel.core.proxy.schema.agents import AGENTS
from sentinel.core.proxy.schema.filters import FILTERS, RATE_LIMITS
from sentinel.core.proxy.schema.listeners import LISTENERS, SERVER, SERVICE_LISTENER, SYSTEM
from sentinel.core.proxy.schema.routes import ROUTES
from sentinel.core.proxy.schema.row import Kind, Repeated, Row, When, unread, value, walk
from sentinel.core.proxy.schema.types import (
    BOOLEAN,
    BYTES,
    COUNT,
    PATH,
    POSITIVE,
    SECONDS,
    TEXT,
    Address,
    Choice,
    Integer,
    Number,
    Pattern,
    Url,
)
from sentinel.core.proxy.schema.upstreams import UPSTREAMS


class Schema(msgspec.Struct, frozen=True, eq=False):
    """A version of the schema."""

    version: tuple[int, int]
    """Major and minor, as in `schema-version "1.0"`."""
    top: Row
    """The document itself: its rows are the top-level blocks."""

    def walk(self) -> Iterator[tuple[tuple[str, ...], Row]]:
        """Yield every row with the names that lead to it."""
        return walk(self.top.rows)

    def match(self, document: kdl.Document) -> Iterator[tuple[tuple[str, ...], kdl.Node, Row]]:
        """Yield every node that has a row, with the names that lead to it and the row."""
        return _match(document.nodes, self.top, ())


def _match(
    nodes: Sequence[kdl.Node], row: Row, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], kdl.Node, Row]]:
    for node in nodes:
        found = row.children.get(node.name)
        if found is not None:
            here = (*path, node.name)
            yield here, node, found
            yield from _match(node.children, found, here)


_VERSION: Final = Pattern("a version such as 1.0, in quotes", r"[0-9]{1,9}\.[0-9]{1,9}", "1.0")
_ENABLED: Final = Row("enabled", "Whether it is on.", value(BOOLEAN), default=True)
_BUFFER: Final = Row("buffer-size", "Size of the buffer.", value(BYTES), default=8192)

LIMITS: Final = Row(
    "limits",
    "Limits of requests and connections.",
    rows=(
        Row("max-header-size", "Headers of a request.", value(Integer(1, unit="bytes")), default=8192),
        Row("max-header-count", "Headers of a request.", value(POSITIVE), default=100),
        Row("max-body-size", "Body of a request.", value(BYTES), default=10_485_760),
        Row("max-connections-per-client", "Connections of a client.", value(COUNT), default=100),
        Row("max-total-connections", "Connections in all.", value(COUNT), default=10_000),
        Row("max-in-flight-requests", "Requests at the same time.", value(COUNT), default=10_000),
        unread("max-header-size-bytes", instead="max-header-size"),
        unread("max-body-size-bytes", instead="max-body-size"),
    ),
    repeated=Repeated.LAST,
)

_OBSERVABILITY: Final = Row(
    "observability",
    "Metrics, logs and traces.",
    rows=(
        Row(
            "metrics",
            "Metrics for Prometheus.",
            rows=(
                Row("enabled", "Whether they are served.", value(BOOLEAN), default=True, implemented=True),
                Row("address", "Where.", value(Address()), default="0.0.0.0:9090", implemented=True),
                Row("path", "Their path.", value(TEXT), default="/metrics", implemented=True),
                Row("high-cardinality", "Whether to add labels with many values.", value(BOOLEAN), default=False),
            ),
            implemented=True,
        ),
        Row(
            "logging",
            "Logs.",
            rows=(
                Row("level", "Lowest level.", value(TEXT), default="info"),
                Row("format", "json or pretty.", value(TEXT), default="json"),
                Row("timestamps", "Whether to write times.", value(BOOLEAN), default=True),
                Row("file", "File; otherwise standard output.", value(PATH)),
                Row(
                    "access-log",
                    "A line for each request.",
                    rows=(
                        _ENABLED,
                        Row("file", "File.", value(PATH)),
                        Row("format", "Format of a line.", value(TEXT)),
                        _BUFFER,
                    ),
                    is_open=True,
                ),
                Row(
                    "error-log",
                    "Errors.",
                    rows=(
                        _ENABLED,
                        Row("file", "File.", value(PATH)),
                        Row("level", "Lowest level.", value(TEXT)),
                        _BUFFER,
                    ),
                    is_open=True,
                ),
                Row(
                    "audit-log",
                    "Decisions.",
                    rows=(
                        _ENABLED,
                        Row("file", "File.", value(PATH)),
                        _BUFFER,
                        Row("log-blocked", "Requests that were refused.", value(BOOLEAN)),
                        Row("log-agent-decisions", "What agents decided.", value(BOOLEAN)),
                        Row("log-waf-events", "What the firewall found.", value(BOOLEAN)),
                    ),
                    is_open=True,
                ),
            ),
        ),
        Row(
            "tracing",
            "Traces.",
            rows=(
                Row(
                    "backend",
                    "Where they go.",
                    value(Choice(("otlp", "jaeger", "zipkin"), is_any_case=True)),
                    rows=(Row("endpoint", "Its URL.", value(Url())),),
                    is_required=True,
                ),
                Row("sampling-rate", "Share of the requests.", value(Number(0, 1)), default=0.01),
                Row("service-name", "Name in traces.", value(TEXT)),
            ),
        ),
    ),
    repeated=Repeated.LAST,
    implemented=True,
)

_CACHE: Final = Row(
    "cache",
    "Where responses are cached.",
    rows=(
        Row("enabled", "Whether to cache.", value(BOOLEAN), default=True),
        Row(
            "backend",
            "Kind of storage.",
            value(Choice(("memory", "disk", "hybrid"), is_any_case=True)),
            default="memory",
        ),
        Row("max-size", "Size in memory.", value(BYTES), default=104_857_600),
        Row("eviction-limit", "Size at which to evict.", value(BYTES)),
        Row("lock-timeout", "How long to wait for another request.", value(SECONDS), default=10),
        Row("disk-path", "Directory.", value(PATH), required_when=When("backend", ("disk", "hybrid"))),
        Row("disk-shards", "Directories to spread over.", value(COUNT), default=16),
        Row("disk-max-size", "Size on disk.", value(BYTES)),
        Row("status-header", "Whether responses say if they were cached.", value(BOOLEAN)),
        Row("status-header-name", "The name of that header.", value(TEXT)),
    ),
    repeated=Repeated.LAST,
)

_WAF: Final = Row(
    "waf",
    "Web application firewall. The proxy refuses every mode but off.",
    rows=(
        Row(
            "mode",
            "What it does.",
            value(Choice(("off", "detection", "prevention"), ("detect", "prevent", "block"), is_any_case=True)),
            only="off",
        ),
        Row("engine", "Engine.", value(TEXT)),
        Row("audit-log", "Whether to log what it finds.", value(BOOLEAN)),
        Row("ruleset", "Rules.", is_open=True),
        Row("body-inspection", "Bodies to look at.", is_open=True),
    ),
    repeated=Repeated.LAST,
)

_EXPORTS: Final = Row(
    "exports",
    "What other namespaces may use.",
    rows=(
        Row("upstreams", "Upstreams.", value(TEXT, is_many=True, refers_to=Kind.UPSTREAM)),
        Row("agents", "Agents.", value(TEXT, is_many=True, refers_to=Kind.AGENT)),
        Row("filters", "Filters.", value(TEXT, is_many=True, refers_to=Kind.FILTER)),
    ),
    repeated=Repeated.LAST,
)


def _scoped(each: Row) -> Row:
    """Return a block of the top level as it is inside a namespace, where the small proxy ignores it."""
    return msgspec.structs.replace(each, is_required=False, implemented=False)


_SCOPE: Final = tuple(_scoped(each) for each in (LIMITS, UPSTREAMS, ROUTES, AGENTS, FILTERS))

_NAMESPACE: Final = Row(
    "namespace",
    "A scope with names of its own.",
    value(TEXT, name="id"),
    rows=(
        *_SCOPE,
        _scoped(LISTENERS),
        Row(
            "service",
            "A scope inside the namespace.",
            value(TEXT, name="id"),
            rows=(*_SCOPE, SERVICE_LISTENER),
            repeated=Repeated.ALL,
            defines=Kind.SERVICE,
        ),
        _EXPORTS,
    ),
    repeated=Repeated.ALL,
    defines=Kind.NAMESPACE,
    unknown=Severity.ERROR,
)

TOP_LEVEL: Final = (
    Row("schema-version", "Version of the schema, major.minor.", value(_VERSION), default="1.0", implemented=True),
    Row("version", "The same as `schema-version`.", value(_VERSION), implemented=True),
    SYSTEM,
    SERVER,
    LISTENERS,
    ROUTES,
    UPSTREAMS,
    FILTERS,
    AGENTS,
    LIMITS,
    RATE_LIMITS,
    _CACHE,
    _OBSERVABILITY,
    _WAF,
    _NAMESPACE,
)

CURRENT: Final = Schema((1, 0), Row("", "The document.", rows=TOP_LEVEL, unknown=Severity.ERROR))
"""The schema of version 1.0, as the proxy reads it."""
