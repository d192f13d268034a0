"""Rows of `routes`: which requests go where."""

from __future__ import annotations

from typing import Final

from sentinel.core.proxy.problem import Severity
from sentinel.core.proxy.schema.inference import INFERENCE
from sentinel.core.proxy.schema.row import Entry, Kind, Repeated, Row, unread, value
from sentinel.core.proxy.schema.types import (
    ANY_TEXT,
    BOOLEAN,
    BYTES,
    COUNT,
    HEADER_NAME,
    HEADER_VALUE,
    MILLISECONDS,
    PATH,
    POSITIVE,
    SECONDS,
    STATUS,
    TEXT,
    Choice,
    Either,
    Integer,
    Number,
    Pattern,
    Regex,
)

PRIORITIES: Final = {"low": 10, "normal": 50, "high": 100, "critical": 1000}
PRIORITY: Final = Either((Choice(tuple(PRIORITIES), is_any_case=True), Integer(-(2**31), 2**31 - 1)))

_HEADER: Final = (Entry(HEADER_NAME), Entry(ANY_TEXT, "value", is_required=False))
_PARAMETER: Final = (Entry(TEXT, "name"), Entry(ANY_TEXT, "value", is_required=False))

_MATCHES: Final = Row(
    "matches",
    "What a request must look like. All of them must match.",
    rows=(
        Row("path", "The whole path.", value(TEXT), repeated=Repeated.ALL, implemented=True),
        Row("path-prefix", "The start of the path.", value(TEXT), repeated=Repeated.ALL, implemented=True),
        Row(
            "path-regex",
            "A regular expression that is found in the path, in the syntax of Rust.",
            value(Regex()),
            repeated=Repeated.ALL,
            implemented=True,
        ),
        Row("host", "The host.", value(TEXT), repeated=Repeated.ALL, implemented=True),
        Row("header", "A header, with its value or any.", _HEADER, repeated=Repeated.ALL, implemented=True),
        Row(
            "method",
            "The method; only the first argument counts.",
            value(TEXT),
            repeated=Repeated.ALL,
            implemented=True,
        ),
        Row(
            "query-param",
            "A parameter, with its value or any.",
            _PARAMETER,
            repeated=Repeated.ALL,
            implemented=True,
        ),
    ),
    implemented=True,
)


def _headers(name: str, description: str, value_type: Pattern) -> Row:
    return Row(
        name,
        description,
        is_open=True,
        open_names=HEADER_NAME,
        open_values=Entry(value_type),
        implemented=True,
    )


HEADER_ROWS: Final = (
    _headers("set", "Headers to set.", HEADER_VALUE),
    _headers("add", "Headers to add.", HEADER_VALUE),
    _headers("rename", "Headers to rename.", HEADER_NAME),
    Row("remove", "Headers to remove.", value(HEADER_NAME, is_many=True), implemented=True),
)

_POLICIES: Final = Row(
    "policies",
    "Changes to requests and responses.",
    rows=(
        Row("request-headers", "Headers of requests.", rows=HEADER_ROWS, implemented=True),
        Row("response-headers", "Headers of responses.", rows=HEADER_ROWS, implemented=True),
        unread("timeout-secs", uses="the timeouts of the upstream", advice="timeouts in the upstream"),
        unread("failure-mode", uses="the failure-mode of each agent", advice="failure-mode in the agent"),
        unread("max-body-size", uses="the max-body-size of limits", advice="max-body-size in limits"),
        unread("rate-limit", uses="no limit but those of its filters", advice="a filter of type rate-limit"),
    ),
    implemented=True,
)

_STATIC_FILES: Final = Row(
    "static-files",
    "Serve files instead of an upstream.",
    rows=(
        Row("root", "Directory on the proxy's host.", value(PATH), is_required=True, implemented=True),
        Row("index", "File for a directory.", value(TEXT), default="index.html", implemented=True),
        Row("directory-listing", "Whether to list directories.", value(BOOLEAN), default=False),
        Row(
            "cache-control",
            "Cache-Control of responses.",
            value(HEADER_VALUE),
            default="public, max-age=3600",
            implemented=True,
        ),
        Row("compress", "Whether to compress.", value(BOOLEAN), default=True),
        Row("fallback", "File for what is not found.", value(TEXT), implemented=True),
    ),
    implemented=True,
)

_RETRY_POLICY: Final = Row(
    "retry-policy",
    "When to try again.",
    rows=(Row("max-attempts", "Attempts in all.", value(POSITIVE), implemented=True),),
    unknown=Severity.ERROR,
    implemented=True,
)

_CACHE: Final = Row(
    "cache",
    "Caching of responses.",
    rows=(
        Row("enabled", "Whether to cache.", value(BOOLEAN), default=False),
        Row("default-ttl-secs", "Lifetime of responses that have none.", value(SECONDS), default=3600),
        Row("max-size-bytes", "Largest response.", value(BYTES), default=10_485_760),
        Row("cache-private", "Whether to cache private responses.", value(BOOLEAN), default=False),
        Row("stale-while-revalidate-secs", "How long to serve stale ones.", value(SECONDS), default=60),
        Row("stale-if-error-secs", "How long after an error.", value(SECONDS), default=300),
        Row("cacheable-methods", "Methods to cache.", value(TEXT, is_many=True)),
        Row("cacheable-status-codes", "Statuses to cache.", value(STATUS, is_many=True)),
        Row("vary-headers", "Headers that make a difference.", value(TEXT, is_many=True)),
        Row("ignore-query-params", "Parameters that make none.", value(TEXT, is_many=True)),
        Row("exclude-extensions", "Extensions not to cache.", value(TEXT, is_many=True)),
        Row("exclude-paths", "Paths not to cache.", value(TEXT, is_many=True)),
    ),
)

_SHADOW: Final = Row(
    "shadow",
    "Copy requests to another upstream.",
    rows=(
        Row("upstream", "Where copies go.", value(TEXT, refers_to=Kind.UPSTREAM), is_required=True),
        Row(
            "percentage",
            "Share of the requests.",
            value(Either((Number(0, 100), Pattern("its digits", r"[0-9]+(\.[0-9]+)?", "10")))),
            default=100,
        ),
        Row("sample-header", "Only requests with this header.", (Entry(TEXT, "name"), Entry(TEXT, "value"))),
        Row("timeout-ms", "Timeout of a copy.", value(MILLISECONDS), default=5000),
        Row("buffer-body", "Whether to copy bodies.", value(BOOLEAN), default=False),
        Row("max-body-bytes", "Largest body to copy.", value(BYTES), default=1_048_576),
    ),
)

_FALLBACK: Final = Row(
    "fallback",
    "Other upstreams to try.",
    rows=(
        Row("max-attempts", "Attempts in all.", value(COUNT), default=3),
        Row(
            "triggers",
            "When to try them.",
            rows=(
                Row("on-health-failure", "If the upstream is unhealthy.", value(BOOLEAN), default=True),
                Row("on-budget-exhausted", "If a token budget is used up.", value(BOOLEAN), default=False),
                Row("on-latency-threshold-ms", "If it is slower.", value(MILLISECONDS)),
                Row("on-error-codes", "If it answers with one of these.", value(STATUS, is_many=True)),
                Row("on-connection-error", "If it cannot be reached.", value(BOOLEAN), default=True),
            ),
        ),
        Row(
            "fallback-upstream",
            "An upstream to try.",
            value(TEXT, refers_to=Kind.UPSTREAM),
            rows=(
                Row("provider", "Its API.", value(Choice(("generic", "openai", "anthropic"))), default="generic"),
                Row("skip-if-unhealthy", "Whether to skip it then.", value(BOOLEAN), default=False),
                Row("model-mapping", "Names of models there.", is_open=True, open_values=Entry(ANY_TEXT)),
            ),
            repeated=Repeated.ALL,
        ),
    ),
)

_API_SCHEMA: Final = Row(
    "api-schema",
    "Check requests against a schema.",
    rows=(
        Row("schema-file", "File with an OpenAPI document.", value(PATH)),
        Row("schema-content", "The document itself.", value(TEXT)),
        Row("request-schema", "JSON schema of requests.", is_open=True),
        Row("response-schema", "JSON schema of responses.", is_open=True),
        Row("validate-requests", "Whether to check requests.", value(BOOLEAN), default=True),
        Row("validate-responses", "Whether to check responses.", value(BOOLEAN), default=False),
        Row("strict-mode", "Whether to refuse unknown fields.", value(BOOLEAN), default=False),
    ),
    at_most_one=(("schema-file", "schema-content"),),
)

_HANDLERS: Final = Choice(
    ("status", "health", "metrics", "config", "upstreams", "not-found", "cache-purge", "cache-stats"),
    ("not_found", "cache_purge", "cache_stats"),
)

ROUTES: Final = Row(
    "routes",
    "Which requests go where.",
    rows=(
        Row(
            "route",
            "Requests that are treated alike. At equal priority the most specific route wins.",
            value(TEXT, name="id"),
            rows=(
                Row(
                    "priority",
                    "The highest wins. The names stand for 10, 50, 100 and 1000.",
                    value(PRIORITY),
                    default="normal",
                    implemented=True,
                ),
                _MATCHES,
                Row("upstream", "Where requests go.", value(TEXT, refers_to=Kind.UPSTREAM), implemented=True),
                Row("filters", "Filters, in order.", value(TEXT, is_many=True, refers_to=Kind.FILTER)),
                _STATIC_FILES,
                Row("builtin-handler", "Let the proxy answer.", value(_HANDLERS), implemented=True),
                _POLICIES,
                _RETRY_POLICY,
                _CACHE,
                _SHADOW,
                _FALLBACK,
                INFERENCE,
                _API_SCHEMA,
                Row(
                    "service-type", "What the route serves; derived from the rest.", value(TEXT), implemented=True
                ),
                Row("waf-enabled", "Whether the firewall looks at requests.", value(BOOLEAN), default=False),
                Row(
                    "websocket",
                    "Whether WebSocket connections are allowed.",
                    value(BOOLEAN),
                    default=False,
                    unread_block="websocket #true",
                ),
                Row("websocket-inspection", "Whether agents see their frames.", value(BOOLEAN), default=False),
                unread(
                    "circuit-breaker",
                    uses="the circuit-breaker of the upstream",
                    advice="circuit-breaker in the upstream",
                ),
            ),
            repeated=Repeated.ALL,
            defines=Kind.ROUTE,
            at_most_one=(("upstream", "static-files"),),
            implemented=True,
        ),
    ),
    repeated=Repeated.ALL,
    implemented=True,
)
