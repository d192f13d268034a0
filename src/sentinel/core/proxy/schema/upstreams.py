"""Rows of `upstreams`: where requests go."""

from __future__ import annotations

from typing import Final

from sentinel.core.proxy.problem import Severity
from sentinel.core.proxy.schema.row import Entry, Kind, Repeated, Row, unread, value
from sentinel.core.proxy.schema.secrets import secret_row
from sentinel.core.proxy.schema.types import (
    BOOLEAN,
    COUNT,
    DURATION,
    HEADER_VALUE,
    PATH,
    POSITIVE,
    SECONDS,
    STATUS,
    TEXT,
    Choice,
    Either,
    HostPort,
    Integer,
    Pattern,
)

LOAD_BALANCING: Final = Choice(
    (
        "round_robin",
        "least_connections",
        "weighted",
        "weighted_round_robin",
        "ip_hash",
        "random",
        "consistent_hash",
        "p2c",
        "adaptive",
        "least_tokens",
        "maglev",
        "locality_aware",
        "peak_ewma",
        "subset",
        "wlc",
        "sticky",
    ),
    (
        "roundrobin",
        "leastconnections",
        "weighted-round-robin",
        "iphash",
        "consistenthash",
        "power_of_two_choices",
        "least_tokens_queued",
        "leasttokensqueued",
        "localityaware",
        "locality",
        "peakewma",
        "ewma",
        "deterministic_subset",
        "subsetting",
        "weighted_least_connections",
        "weighted_least_conn",
        "sticky_session",
        "stickysession",
    ),
    is_any_case=True,
    fallback="round_robin",
)

CIRCUIT_BREAKER_ROWS: Final = (
    Row("failure-threshold", "Failures that open it.", value(POSITIVE)),
    Row("success-threshold", "Successes that close it.", value(POSITIVE)),
    Row("timeout-seconds", "How long it stays open.", value(Integer(1, unit="seconds"))),
    Row("half-open-max-requests", "Requests to try while it is half open.", value(POSITIVE)),
)

_TARGET: Final = Row(
    "target",
    'A server, `target "host:port" weight=2`. Address and weight may also be properties or children.',
    (Entry(HostPort(), "address", is_required=False),),
    properties=(
        Entry(HostPort(), "address", is_required=False),
        Entry(COUNT, "weight", is_required=False),
    ),
    rows=(
        Row("address", "HOST:PORT.", value(HostPort()), implemented=True),
        Row("weight", "Share of the requests.", value(COUNT), default=1, implemented=True),
    ),
    repeated=Repeated.ALL,
    value_name="address",
    implemented=True,
)

_HEALTH_CHECK: Final = Row(
    "health-check",
    "Which targets get requests.",
    rows=(
        Row(
            "type",
            'How to check, `type "http" { path "/health" }`.',
            value(Choice(("http", "tcp", "grpc", "inference"), is_any_case=True)),
            rows=(
                Row("path", "Path to ask for (http).", value(TEXT), default="/health", implemented=True),
                Row(
                    "expected-status",
                    "Status of a healthy target (http).",
                    value(Either((STATUS, Pattern("its digits", "[1-5][0-9][0-9]", "200")))),
                    default=200,
                    implemented=True,
                ),
                Row("host", "Host header of the check (http).", value(HEADER_VALUE), implemented=True),
                Row("service", "Service to check (grpc).", value(TEXT), default="grpc.health.v1.Health"),
                Row("endpoint", "Path of the models (inference).", value(TEXT), default="/v1/models"),
                Row("expected-models", "Models to expect (inference).", value(TEXT, is_many=True)),
                Row("readiness", "Further checks (inference).", is_open=True),
            ),
            default="tcp",
            implemented=True,
        ),
        Row("interval-secs", "Time between checks.", value(SECONDS), default=10, implemented=True),
        Row("timeout-secs", "Timeout of a check.", value(SECONDS), default=5, implemented=True),
        Row("healthy-threshold", "Successes to be healthy again.", value(COUNT), default=2, implemented=True),
        Row("unhealthy-threshold", "Failures to be unhealthy.", value(COUNT), default=3, implemented=True),
    ),
    implemented=True,
)

_POOL: Final = Row(
    "connection-pool",
    "Connections to keep.",
    rows=(
        Row("max-connections", "Connections in all.", value(COUNT), default=100, implemented=True),
        Row("max-idle", "Idle connections.", value(COUNT), default=20),
        Row("idle-timeout", "How long an idle connection is kept.", value(SECONDS), default=60, implemented=True),
        Row("max-lifetime", "How long any connection is kept.", value(SECONDS)),
        unread("idle-timeout-secs", instead="idle-timeout"),
        unread("max-lifetime-secs", instead="max-lifetime"),
    ),
    implemented=True,
)

_TIMEOUTS: Final = Row(
    "timeouts",
    "Timeouts of requests to the targets.",
    rows=(
        Row("connect", "To connect.", value(SECONDS), default=10, implemented=True),
        Row("request", "For the whole request.", value(SECONDS), default=60, implemented=True),
        Row("read", "Between two pieces of the response.", value(SECONDS), default=30, implemented=True),
        Row("write", "Between two pieces of the request.", value(SECONDS), default=30),
        *(unread(f"{name}-secs", instead=name) for name in ("connect", "request", "read", "write")),
    ),
    implemented=True,
)

_CERTIFICATES: Final = ("client-cert", "cert")
_KEYS: Final = ("client-key", "key")

_TLS: Final = Row(
    "tls",
    "TLS to the targets.",
    rows=(
        Row("sni", "Name to ask for.", value(TEXT), implemented=True),
        Row(
            "insecure-skip-verify",
            "Whether to accept any certificate.",
            value(BOOLEAN),
            default=False,
            implemented=True,
        ),
        Row("client-cert", "Certificate to present.", value(PATH), needs=_KEYS, implemented=True),
        Row("client-key", "Its private key.", value(PATH), needs=_CERTIFICATES, implemented=True),
        Row("ca-cert", "CA of the targets' certificates.", value(PATH), implemented=True),
        secret_row("cert", "Certificate from a secret; becomes `client-cert`.", needs=_KEYS),
        secret_row("key", "Private key from a secret; becomes `client-key`.", needs=_CERTIFICATES),
    ),
    at_most_one=(_CERTIFICATES, _KEYS),
    implemented=True,
)

UPSTREAMS: Final = Row(
    "upstreams",
    "Where requests go.",
    rows=(
        Row(
            "upstream",
            "A group of servers.",
            value(TEXT, name="id"),
            rows=(
                _TARGET,
                Row(
                    "targets",
                    "Several targets.",
                    rows=(_TARGET,),
                    repeated=Repeated.ALL,
                    at_least_one=(("target",),),
                    implemented=True,
                ),
                Row("address", "The only target.", value(HostPort()), implemented=True),
                Row(
                    "load-balancing",
                    "How to choose a target.",
                    value(LOAD_BALANCING),
                    rows=(
                        Row("cookie-name", "Cookie (sticky).", value(TEXT), default="SERVERID"),
                        Row("cookie-ttl", "Its lifetime (sticky).", value(DURATION), default=3600),
                        Row("cookie-path", "Its path (sticky).", value(TEXT), default="/"),
                        Row("cookie-secure", "Whether only over TLS (sticky).", value(BOOLEAN), default=True),
                        Row(
                            "cookie-same-site",
                            "Its SameSite policy (sticky).",
                            value(Choice(("lax", "strict", "none"), is_any_case=True)),
                            default="lax",
                        ),
                        Row(
                            "fallback",
                            "What to do without a cookie (sticky).",
                            value(LOAD_BALANCING),
                            default="round_robin",
                        ),
                    ),
                    default="round_robin",
                    implemented=True,
                ),
                _HEALTH_CHECK,
                _POOL,
                _TIMEOUTS,
                _TLS,
                Row(
                    "http-version",
                    "What targets speak.",
                    rows=(
                        Row("min-version", "1 or 2.", value(Integer(1, 3)), default=1),
                        Row("max-version", "1 or 2.", value(Integer(1, 3)), default=2),
                        Row("h2-ping-interval", "Time between pings; 0 for none.", value(SECONDS), default=0),
                        Row("max-h2-streams", "Streams of a connection.", value(COUNT), default=100),
                    ),
                ),
                Row(
                    "circuit-breaker",
                    "When to stop sending requests.",
                    rows=CIRCUIT_BREAKER_ROWS,
                    unknown=Severity.ERROR,
                ),
            ),
            repeated=Repeated.ALL,
            defines=Kind.UPSTREAM,
            at_least_one=(("target", "targets", "address"),),
            implemented=True,
        ),
    ),
    repeated=Repeated.ALL,
    implemented=True,
)
