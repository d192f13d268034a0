"""The small proxy says what it ignores."""

from __future__ import annotations

import pytest

from sentinel.core import kdl
from sentinel.core.proxy.schema import CURRENT
from sentinel.core.proxy.unimplemented import unimplemented


def ignored(text: str) -> tuple[str, ...]:
    return unimplemented(kdl.parse(text).document)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('waf { mode "off" }; limits; rate-limits', ("waf", "limits", "rate-limits")),
        ("system { worker-threads 4; daemon #false; auto-reload #true }", ("worker-threads", "auto-reload")),
        ('routes { route "a" { filters "f" }; route "b" { filters "g" } }', ("filters",)),
        ('routes { route "a" { websocket #true; upstream "u"; matches { path "/" } } }', ("websocket",)),
        ('upstreams { upstream "u" { timeouts { connect 1; write 2 } } }', ("timeouts.write",)),
        ('upstreams { upstream "u" { load-balancing Weighted } }', ()),
        ('upstreams { upstream "u" { load-balancing "ip_hash" } }', ('load-balancing "ip_hash"',)),
        ('upstreams { upstream "u" { load-balancing } }', ()),
        ('upstreams { upstream "u" { load-balancing "ip-hash" } }', ()),
        ('listeners { listener "l" { protocol "h2" } }', ('protocol "h2"',)),
        ('listeners { listener "l" { protocol "H3" } }', ('protocol "H3"',)),
        ('listeners { listener "l" { tls { acme; cert-file "c" } } }', ("tls.acme",)),
        ('routes { route "r" { matches { path-regex "a+"; path-regex "(" } } }', ()),
        ('routes { route "r" { matches { path-regex "a**" } } }', ('path-regex "a**"',)),
        ('routes { route "r" { builtin-handler "cache-purge" } }', ('builtin-handler "cache-purge"',)),
        ('upstreams { upstream "u" { health-check { type "grpc" { service "s" } } } }', ('type "grpc"',)),
    ],
)
def test_what_is_ignored_is_named_once_and_defaults_are_not(text: str, expected: tuple[str, ...]) -> None:
    found = ignored(text)

    assert len(found) == len(expected)
    assert all(path.endswith(end) for path, end in zip(found, expected, strict=True))


def test_what_the_real_proxy_ignores_too_is_not_mentioned() -> None:
    assert ignored('nonsense; upstreams { upstream "u" { timeouts { connect-secs 1 } } }') == ()


def test_what_is_implemented_is_below_what_is_implemented() -> None:
    rows = dict(CURRENT.walk())

    orphans = [path for path, row in rows.items() if row.implemented and not all_implemented(path[:-1])]

    assert [path for path in orphans if path[0] != "namespace"] == []


def all_implemented(path: tuple[str, ...]) -> bool:
    rows = dict(CURRENT.walk())
    return all(rows[path[:end]].implemented for end in range(1, len(path) + 1))
