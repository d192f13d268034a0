"""Rows of `filters`: named steps that routes refer to. Which keys are read depends on the type."""

from __future__ import annotations

from typing import Final

import msgspec

from sentinel.core.proxy.schema.routes import HEADER_ROWS
from sentinel.core.proxy.schema.row import Kind, Repeated, Row, When, value
from sentinel.core.proxy.schema.types import (
    ANY_TEXT,
    BOOLEAN,
    BYTES,
    COUNT,
    MILLISECONDS,
    PATH,
    SECONDS,
    STATUS,
    TEXT,
    Choice,
    Either,
    Integer,
    Pattern,
    Url,
)

TYPES: Final = (
    "rate-limit",
    "agent",
    "headers",
    "compress",
    "cors",
    "timeout",
    "log",
    "geo",
    "redirect",
    "url-rewrite",
)
ANSWERING_TYPES: Final = frozenset(("redirect", "url-rewrite"))
"""Types of filters that let a route do without an upstream."""

RATE_LIMIT_KEY: Final = Either(
    (
        Choice(("client-ip", "path", "route", "client-ip-and-path"), ("client_ip", "ip", "client_ip_and_path")),
        Pattern("header:NAME", "header:.+", "header:X-Api-Key"),
    )
)
_PHASE: Final = Choice(("request", "response", "both"))
_FAILURE_MODE: Final = Choice(("open", "closed"))
_LEVEL: Final = Choice(("trace", "debug", "info", "warn", "error"), ("warning",), is_any_case=True)


def _of(types: tuple[str, ...], *rows: Row) -> tuple[Row, ...]:
    """Return rows that are read only in filters of these types."""
    return tuple(msgspec.structs.replace(each, read_when=When("type", types)) for each in rows)


def _backend(name: str, scheme: tuple[str, ...], url: str) -> tuple[Row, ...]:
    return (
        Row(f"{name}-url", "Where it is.", value(Url(scheme)), default=url),
        Row(f"{name}-prefix", "Prefix of keys.", value(ANY_TEXT)),
        Row(f"{name}-pool-size", "Connections.", value(COUNT), default=10),
        Row(f"{name}-timeout-ms", "Timeout of a call.", value(MILLISECONDS), default=50),
        Row(f"{name}-fallback", "Whether to limit locally if it fails.", value(BOOLEAN), default=True),
    )


_KEY: Final = Row("key", "What is counted by.", value(RATE_LIMIT_KEY), default="client-ip")

_RATE_LIMIT: Final = _of(
    ("rate-limit",),
    Row("max-rps", "Requests a second.", value(COUNT), default=100),
    Row("burst", "Requests at once.", value(COUNT), default=10),
    _KEY,
    Row("on-limit", "What to do.", value(Choice(("reject", "delay", "log-only"))), default="reject"),
    Row("message", "Text of a refusal.", value(ANY_TEXT)),
    Row("limit-message", "Text of a refusal.", value(ANY_TEXT)),
    Row("max-delay-ms", "Longest delay.", value(MILLISECONDS), default=5000),
    Row(
        "backend",
        "Where counts are kept.",
        value(Choice(("local", "redis", "memcached"), ("memcache",))),
        default="local",
        is_open=True,
    ),
    *_backend("redis", ("redis", "rediss"), "redis://127.0.0.1:6379"),
    *_backend("memcached", ("memcache", "memcached"), "memcache://127.0.0.1:11211"),
    Row("memcached-ttl", "Lifetime of counts.", value(SECONDS), default=2),
)

_AGENT: Final = (
    Row(
        "agent",
        "The agent to ask.",
        value(TEXT, refers_to=Kind.AGENT),
        required_when=When("type", ("agent",)),
        read_when=When("type", ("agent",)),
    ),
    *_of(
        ("agent",),
        Row("timeout-ms", "Timeout of the agent.", value(MILLISECONDS)),
        Row("failure-mode", "What to do if it fails.", value(_FAILURE_MODE)),
        Row("inspect-body", "Whether it sees bodies.", value(BOOLEAN), default=False),
        Row("max-body-bytes", "Largest body it sees.", value(BYTES)),
    ),
)

_GEO: Final = (
    Row(
        "database-path",
        "Database of countries, .mmdb or .bin.",
        value(PATH),
        required_when=When("type", ("geo",)),
        read_when=When("type", ("geo",)),
    ),
    *_of(
        ("geo",),
        Row("database-type", "Its format.", value(Choice(("maxmind", "ip2location")))),
        Row("action", "What to do.", value(Choice(("block", "allow", "log-only"))), default="block"),
        Row("countries", "Country codes, with commas between them.", value(TEXT, is_many=True)),
        Row("on-failure", "What to do if it is not found.", value(_FAILURE_MODE), default="open"),
        Row("block-message", "Text of a refusal.", value(ANY_TEXT)),
        Row("cache-ttl-secs", "How long results are kept.", value(SECONDS), default=3600),
        Row("add-country-header", "Whether to add X-Country-Code.", value(BOOLEAN), default=True),
    ),
)

FILTERS: Final = Row(
    "filters",
    "Named steps for routes.",
    rows=(
        Row(
            "filter",
            "A step.",
            value(TEXT, name="id"),
            rows=(
                Row("type", "What it does.", value(Choice(TYPES)), is_required=True),
                *_RATE_LIMIT,
                *_AGENT,
                *_of(("headers",), *(msgspec.structs.replace(each, implemented=False) for each in HEADER_ROWS)),
                *_of(
                    ("compress",),
                    Row("algorithms", "gzip, br, deflate, zstd.", value(TEXT, is_many=True), default="gzip,br"),
                    Row("min-size", "Smallest body.", value(BYTES), default=1024),
                    Row("content-types", "Types to compress.", value(TEXT, is_many=True)),
                ),
                *_of(
                    ("cors",),
                    Row("allowed-origins", "Origins.", value(TEXT, is_many=True)),
                    Row("allowed-methods", "Methods.", value(TEXT, is_many=True)),
                    Row("allowed-headers", "Headers of requests.", value(TEXT, is_many=True)),
                    Row("exposed-headers", "Headers of responses.", value(TEXT, is_many=True)),
                    Row("allow-credentials", "Whether cookies are allowed.", value(BOOLEAN), default=False),
                    Row("max-age-secs", "How long a preflight holds.", value(SECONDS), default=86_400),
                ),
                *_of(
                    ("timeout",),
                    Row("request-timeout-secs", "For the whole request.", value(SECONDS)),
                    Row("upstream-timeout-secs", "For the upstream.", value(SECONDS)),
                    Row("connect-timeout-secs", "To connect.", value(SECONDS)),
                ),
                *_of(
                    ("log",),
                    Row("log-request", "Whether to log requests.", value(BOOLEAN), default=True),
                    Row("log-response", "Whether to log responses.", value(BOOLEAN), default=True),
                    Row("log-body", "Whether to log bodies.", value(BOOLEAN), default=False),
                    Row("max-body-log-size", "Largest part of a body.", value(BYTES), default=4096),
                    Row("fields", "Headers to log.", value(TEXT, is_many=True)),
                ),
                *_GEO,
                *_of(("rate-limit", "geo"), Row("status-code", "Status of a refusal.", value(STATUS))),
                *_of(("agent", "headers"), Row("phase", "When it runs.", value(_PHASE), default="request")),
                *_of(
                    ("compress", "log"),
                    Row(
                        "level",
                        "Compression 1 to 9, or the level of the log.",
                        value(Either((Integer(1, 22), _LEVEL))),
                    ),
                ),
            ),
            open_when=When("type", ("redirect", "url-rewrite")),
            repeated=Repeated.ALL,
            defines=Kind.FILTER,
        ),
    ),
    repeated=Repeated.ALL,
)

RATE_LIMITS: Final = Row(
    "rate-limits",
    "Limits for all routes.",
    rows=(
        Row("default-rps", "Requests a second of routes without a limit.", value(COUNT)),
        Row("default-burst", "Requests at once of routes without a limit.", value(COUNT)),
        _KEY,
        Row(
            "global",
            "Limit of the whole proxy.",
            rows=(
                Row("max-rps", "Requests a second.", value(COUNT), is_required=True),
                Row("burst", "Requests at once.", value(COUNT), default=10),
                _KEY,
            ),
        ),
    ),
    repeated=Repeated.LAST,
)
