"""Documents as people write them, broken at random, and what has to hold for whatever comes out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from random import Random
from typing import Final

from sentinel.core import kdl
from sentinel.core.kdl.characters import NEWLINE

_CURRENT = """\
/- kdl-version 2
schema-version "1.0"
system {
    worker-threads 4 // one a core
    auto-reload #false
    pid-file "/run/proxy.pid"
}
listeners {
    listener "web" {
        address "0.0.0.0:8443"; protocol "https"
        tls { cert secret="api-cert"; key vault="secret/data/api/tls#key" }
    }
    /-listener "old" { address "0.0.0.0:80" }
}
routes {
    route "api" {
        priority 100
        matches { path-prefix "/api/"; host #"api\\.example\\.com"#; header "X-A" "1" }
        upstream "backend"
        policies { request-headers { set { X-Forwarded-Proto https }; remove "X-Debug" "X-Trace" } }
    }
}
upstreams {
    upstream "backend" \\
        region=(zone)eu {
        target "10.0.0.1:80" weight=3 enabled=#true
        target "10.0.0.2:80" weight=0x1_0 share=1.5e-3 /* half */
        load-balancing "least_connections"
    }
}
note \"\"\"
    Several "lines",
      indented \\
      and joined.
    \"\"\"
"""
_OLD = """\
// Version 1, and what is in no version.
server { daemon true; workers 4; user null }
listener "web" { address r#"0.0.0.0:"80""#; methods ["GET", "POST", 3]; path /api/v1 }
errors { 404 { page "/404.html" }; 5xx { retry 10s .5 } }
text "two
lines" é=🎉
filters [ "a", // first
  "b" ] {
"""
DOCUMENTS: Final = tuple(text.encode() for text in (_CURRENT, _OLD, _CURRENT.replace("\n", "\r\n")))

_TOKENS: Final = tuple(
    token.encode()
    for token in (
        *("{", "}", "(", ")", "=", ";", "[", "]", ",", "\\", "/", "#", '"', " ", "\n", "\r", "\t"),
        *(
            '"""',
            '#"',
            '"#',
            'r"',
            'r#"',
            "/-",
            "//",
            "/*",
            "*/",
            "\\\n",
            "\\u{",
            "\\u{110000}",
            "#true",
            "true",
            "#nan",
        ),
        *(
            "1e999",
            "0x",
            "-.5",
            "+",
            "(u8)",
            "k=",
            "\ufeff",
            "\u2028",
            "\u202e",
            "\x00",
            "9" * 450,
            "'",
            "“",
            "'a b'",
            "/a/* ",
            '"k":',
            "f(x)",
            "[a]:",
            "{" * 70,
            "/*" * 9,
        ),
    )
)
_INVALID: Final = (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\x80\x80")


def fuzz(*, seeds: Callable[[int], int], duration: timedelta) -> int:
    """Check broken documents for some time. Returns how many."""
    end, count = time.monotonic() + duration.total_seconds(), 0
    while time.monotonic() < end:
        check(broken(Random(seeds(count))))  # noqa: S311  # reproducible
        count += 1
    return count


def broken(random: Random) -> bytes:
    """Return a document with one to ten changes or, sometimes, random bytes."""
    if random.random() < 0.05:
        return random.randbytes(random.randrange(200))
    data = random.choice(DOCUMENTS)
    for _ in range(random.randint(1, 10)):
        data = random.choice(_CHANGES)(random, data)
    return data


def check(data: bytes) -> None:
    """Assert what holds for every file."""
    parsed = kdl.parse(data)
    lines = NEWLINE.split(data.decode("utf-8", "surrogateescape").removeprefix("\ufeff"))
    for problems in (parsed.problems, parsed.warnings):
        places = [(problem.line or 0, problem.column or 0) for problem in problems]
        assert all(_is_inside(place, lines) for place in places), data
        assert places == sorted(places), data
        texts = [f"{problem.message}{problem.suggestion}" for problem in problems]
        assert all(text.isprintable() and len(text) <= 1_000 for text in texts), data
    for node in parsed.document.nodes:
        _check_places(node, lines, data)
    printed = kdl.print_document(parsed.document)
    again = kdl.parse(printed)
    if "\x1a" not in printed:
        assert again.is_valid, data
        assert kdl.print_document(again.document) == printed, data
    upgraded = kdl.upgrade(data)
    if parsed.is_valid and not data.startswith(b"/- kdl-version 1"):
        assert upgraded.text.encode() == data


def _check_places(node: kdl.Node, lines: Sequence[str], data: bytes) -> None:
    places = [
        (node.line, node.column),
        *((value.line, value.column) for value in node.arguments),
        *((each.line, each.column) for each in node.properties),
        *((each.value.line, each.value.column) for each in node.properties),
    ]
    places += [(each.line, each.column) for each in (node.block, node.type) if each is not None]
    assert all(_is_inside(place, lines) for place in places), data
    for child in node.children:
        _check_places(child, lines, data)


def _is_inside(place: tuple[int, int], lines: Sequence[str]) -> bool:
    line, column = place
    return 1 <= line <= len(lines) and 1 <= column <= len(lines[line - 1]) + 1


def _slice(random: Random, data: bytes) -> tuple[int, int]:
    start = random.randint(0, len(data))
    return start, min(len(data), start + random.choice((1, 2, 8, 40)))


def _insert(random: Random, data: bytes) -> bytes:
    at = random.randint(0, len(data))
    return data[:at] + random.choice(_TOKENS if random.random() < 0.9 else _INVALID) + data[at:]


def _remove(random: Random, data: bytes) -> bytes:
    start, end = _slice(random, data)
    return data[:start] + data[end:]


def _repeat(random: Random, data: bytes) -> bytes:
    start, end = _slice(random, data)
    return data[:end] + data[start:end] * random.choice((1, 2, 5)) + data[end:]


def _move(random: Random, data: bytes) -> bytes:
    start, end = _slice(random, data)
    at = random.randint(0, start)
    return data[:at] + data[start:end] + data[at:start] + data[end:]


def _flip(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + bytes(byte ^ (1 << random.randrange(8)) for byte in data[at : at + 1]) + data[at + 1 :]


def _cut(random: Random, data: bytes) -> bytes:
    return data[: random.randint(0, len(data))]


_CHANGES: Final = (_insert, _insert, _insert, _remove, _remove, _repeat, _move, _flip, _cut)
