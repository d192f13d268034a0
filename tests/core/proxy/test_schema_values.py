"""The values and defaults of the real proxy, written down once more: a slip in the table must not pass unnoticed.

The other tests of the table build their documents from it, so they accept whatever it says.
"""

from __future__ import annotations

import pytest

from sentinel.core.kdl import Scalar
from sentinel.core.proxy.problem import Severity
from sentinel.core.proxy.schema import CURRENT, Row, When
from sentinel.core.proxy.schema.types import Choice, Either, Fault, ValueType

ROWS = {" ".join(path): row for path, row in CURRENT.walk()}

DEFAULTS: dict[str, dict[str, Scalar]] = {
    "system": {
        "worker-threads": 0,
        "max-connections": 10_000,
        "graceful-shutdown-timeout-secs": 30,
        "trace-id-format": "tinyflake",
        "auto-reload": False,
        "route-cache-size": 1000,
    },
    "listeners listener": {
        "protocol": "http",
        "request-timeout-secs": 60,
        "keepalive-timeout-secs": 75,
        "max-concurrent-streams": 100,
    },
    "routes route": {"priority": "normal"},
    "upstreams upstream": {"load-balancing": "round_robin"},
    "upstreams upstream health-check": {
        "interval-secs": 10,
        "timeout-secs": 5,
        "healthy-threshold": 2,
        "unhealthy-threshold": 3,
    },
    "upstreams upstream connection-pool": {"max-connections": 100, "max-idle": 20, "idle-timeout": 60},
    "upstreams upstream timeouts": {"connect": 10, "request": 60, "read": 30, "write": 30},
    "agents agent": {"timeout-ms": 1000},
    "observability metrics": {"address": "0.0.0.0:9090", "path": "/metrics"},
}
CHOICES = {
    "system trace-id-format": "tinyflake uuid",
    "listeners listener protocol": "http https h2 h3",
    "listeners listener tls acme challenge-type": "http-01 dns-01",
    "routes route priority": "low normal high critical",
    "routes route builtin-handler": "status health metrics config upstreams not-found cache-purge cache-stats",
    "upstreams upstream load-balancing": (
        "round_robin least_connections weighted weighted_round_robin ip_hash random consistent_hash p2c adaptive"
        " least_tokens maglev locality_aware peak_ewma subset wlc sticky"
    ),
    "upstreams upstream health-check type": "http tcp grpc inference",
    "filters filter type": "rate-limit agent headers compress cors timeout log geo redirect url-rewrite",
    "filters filter backend": "local redis memcached",
    "agents agent failure-mode": "open closed",
    "agents agent events": (
        "request_headers request_body response_headers response_body log websocket_frame guardrail"
    ),
    "agents agent request-body-mode": "buffer stream hybrid",
    "agents agent response-body-mode": "buffer stream hybrid",
    "waf mode": "off detection prevention",
    "cache backend": "memory disk hybrid",
}
CHILDREN = {
    "routes route matches": "path path-prefix path-regex host header method query-param",
    "routes route static-files": "root index directory-listing cache-control compress fallback",
    "routes route retry-policy": "max-attempts",
    "routes route policies request-headers": "set add rename remove",
    "routes route policies response-headers": "set add rename remove",
    "upstreams upstream circuit-breaker": (
        "failure-threshold success-threshold timeout-seconds half-open-max-requests"
    ),
    "upstreams upstream http-version": "min-version max-version h2-ping-interval max-h2-streams",
    "namespace": "limits listeners upstreams routes agents filters service exports",
    "rate-limits global": "max-rps burst key",
}
REQUIRED = (
    "listeners listener",
    "listeners listener address",
    "listeners listener tls cert-file",
    "listeners listener tls key-file",
    "listeners listener tls acme email",
    "listeners listener tls acme domains",
    "routes route static-files root",
    "filters filter type",
    "rate-limits global max-rps",
)
REQUIRED_WHEN = {
    "listeners listener tls": ("protocol", ("https", "h2", "h3")),
    "listeners listener tls acme dns-provider": ("challenge-type", ("dns-01", "dns01", "dns")),
    "filters filter agent": ("type", ("agent",)),
    "cache disk-path": ("backend", ("disk", "hybrid")),
}
ONE_OF = {
    "upstreams upstream": ("target", "targets", "address"),
    "agents agent": ("unix-socket", "grpc", "http"),
}
POSITIVE = (
    "system route-cache-size",
    "routes route retry-policy max-attempts",
    "upstreams upstream circuit-breaker failure-threshold",
    "upstreams upstream circuit-breaker success-threshold",
    "upstreams upstream circuit-breaker timeout-seconds",
    "upstreams upstream circuit-breaker half-open-max-requests",
    "agents agent timeout-ms",
)


def choices(type_: ValueType) -> list[str]:
    """Return the values that the reference lists for a type."""
    if isinstance(type_, Either):
        return [value for each in type_.types for value in choices(each)]
    return list(type_.values) if isinstance(type_, Choice) else []


def test_the_top_level_is_that_of_the_proxy() -> None:
    assert set(CURRENT.top.children) == {
        *("schema-version", "version", "system", "server", "listeners", "routes", "upstreams", "filters"),
        *("agents", "waf", "namespace", "limits", "observability", "rate-limits", "cache"),
    }
    assert {row.name for row in CURRENT.top.rows if row.is_required} == {"system", "listeners"}
    assert {row.name for row in CURRENT.top.rows if row.needs_restart} == {"system", "server", "listeners"}


@pytest.mark.parametrize("block", DEFAULTS)
def test_a_default_is_that_of_the_proxy(block: str) -> None:
    assert {name: ROWS[f"{block} {name}"].default for name in DEFAULTS[block]} == DEFAULTS[block]


def test_what_the_proxy_requires_is_required() -> None:
    assert [path for path in REQUIRED if not ROWS[path].is_required] == []
    assert {path: ROWS[path].at_least_one for path in ONE_OF} == {path: (group,) for path, group in ONE_OF.items()}


@pytest.mark.parametrize("path", REQUIRED_WHEN)
def test_what_the_proxy_requires_beside_a_value_is_required_there(path: str) -> None:
    sibling, values = REQUIRED_WHEN[path]

    assert ROWS[path].required_when == When(sibling, values)


@pytest.mark.parametrize("path", POSITIVE)
def test_zero_is_refused_where_the_proxy_refuses_it(path: str) -> None:
    type_ = ROWS[path].arguments[0].type

    assert (type_.fault(0), type_.fault(1)) == (Fault.RANGE, None)


@pytest.mark.parametrize("path", CHOICES)
def test_the_choices_are_those_of_the_proxy(path: str) -> None:
    assert choices(ROWS[path].arguments[0].type) == CHOICES[path].split()


@pytest.mark.parametrize("path", CHILDREN)
def test_the_names_in_a_block_are_those_of_the_proxy(path: str) -> None:
    assert sorted(name for name, row in ROWS[path].children.items() if row.is_read) == sorted(
        CHILDREN[path].split()
    )


def test_unknown_names_are_an_error_where_the_proxy_refuses_them() -> None:
    def refuses(row: Row) -> bool:
        return row.unknown is Severity.ERROR

    assert {path for path, row in ROWS.items() if refuses(row) and not path.startswith("namespace ")} == {
        "routes route retry-policy",
        "upstreams upstream circuit-breaker",
        "namespace",
    }
    assert refuses(CURRENT.top)


def test_what_the_proxy_never_reads_is_in_the_table() -> None:
    unread = {path for path, row in ROWS.items() if not row.is_read and not path.startswith("namespace ")}

    assert unread == {
        *(f"upstreams upstream timeouts {name}-secs" for name in ("connect", "request", "read", "write")),
        *(f"upstreams upstream connection-pool {name}-secs" for name in ("idle-timeout", "max-lifetime")),
        *(f"limits {name}-bytes" for name in ("max-header-size", "max-body-size")),
        *(
            f"routes route policies {name}"
            for name in ("timeout-secs", "failure-mode", "max-body-size", "rate-limit")
        ),
        "routes route circuit-breaker",
        "agents agent transport",
    }
