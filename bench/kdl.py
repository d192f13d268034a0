"""Checking the proxy's configuration: CPU for a small and a large file, and memory relative to the file.

    python -m bench.kdl [--rounds N] [--output json]

CPU time of this process, the minimum of several rounds, because other load only adds to it: of reading, of
checking at all three levels what was read, and of the whole command `sentinel hub config check` without the start
of Python. The memory is the peak of what Python allocates while it reads, for a file of ordinary nodes and for the
shortest possible nodes.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench.budget import Budget, table
from bench.command_line import DEFAULT_ROUNDS, main
from sentinel.cli.hub.config_check import check as command
from sentinel.core import kdl
from sentinel.core.proxy.check import check

SMALL, LARGE = 5_000, 1_000_000
SMALL_BUDGET = 20.0
"""CPU milliseconds for a file of 5 kB, validation included."""
LARGE_BUDGET = 5_000.0
"""CPU milliseconds for a file of 1 MB, validation included."""
MEMORY_BUDGET = 100.0
"""Times the size of the file."""

_HUNGRY = 200_000
_LISTENER = """\
    listener "web-{0}" {{
        address "0.0.0.0:{0}" // public
        protocol "https"
        tls {{
            cert-file "/etc/certs/{0}.pem"
            key-file "/etc/certs/{0}.key"
        }}
        request-timeout-secs 60
    }}
"""
_ROUTE = """\
    route "route-{0}" {{
        priority 100
        matches {{
            host "{0}.example.com"
            path-prefix "/api/"
        }}
        upstream "backend-{0}"
    }}
"""
_UPSTREAM = """\
    upstream "backend-{0}" {{
        target "10.0.0.1:80" weight=3
        load-balancing "least_connections"
    }}
"""


class KdlFigures(msgspec.Struct, frozen=True):
    """CPU milliseconds, and memory as a multiple of the file."""

    small_read: float
    small_checked: float
    """Of the three levels, without reading."""
    small_command: float
    """Of the whole command: reading and checking, and printing that it is ok."""
    large_read: float
    large_checked: float
    large_command: float
    memory: float
    hungriest: float
    """The same for `a;a;a;`: the shortest nodes weigh most."""


def measure(*, rounds: int = DEFAULT_ROUNDS) -> KdlFigures:
    """Check the same configurations repeatedly."""
    small, large = _configuration(SMALL), _configuration(LARGE)
    return KdlFigures(
        *_milliseconds(small, rounds),
        *_milliseconds(large, max(1, rounds // 3)),
        memory=_memory(large),
        hungriest=_memory(b"a;" * (_HUNGRY // 2)),
    )


def budgets(figures: KdlFigures) -> list[Budget]:
    return [
        Budget("KDL: CPU of `hub config check`, 5 kB", figures.small_command, "ms", SMALL_BUDGET),
        Budget("KDL: CPU of `hub config check`, 1 MB", figures.large_command, "ms", LARGE_BUDGET),
        Budget("KDL: memory, as a multiple of the file", figures.hungriest, "×", MEMORY_BUDGET),
    ]


def section(figures: KdlFigures) -> list[str]:
    """Return the section of the performance page."""
    return [
        "\n## KDL\n",
        "Checking the proxy's configuration: reading it into a document in which everything has its position,",
        "checking that at all three levels, and the whole command without the start of Python. Memory is that of",
        "reading.\n",
        *table(
            ("what", "5 kB", "1 MB"),
            (
                ("read", f"{figures.small_read:.1f} ms CPU", f"{figures.large_read:.0f} ms CPU"),
                ("check", f"{figures.small_checked:.1f} ms CPU", f"{figures.large_checked:.0f} ms CPU"),
                ("the command", f"{figures.small_command:.1f} ms CPU", f"{figures.large_command:.0f} ms CPU"),
                ("peak memory, as a multiple of the file", "", f"{figures.memory:.0f}"),
                ("the same for the shortest nodes, `a;a;a;`", "", f"{figures.hungriest:.0f}"),
            ),
        ),
    ]


def _configuration(size: int) -> bytes:
    """Return a valid configuration of about this size."""
    blocks = {"listeners": _LISTENER, "routes": _ROUTE, "upstreams": _UPSTREAM}
    count = size // sum(len(text.format(10_000)) for text in blocks.values())
    parts = [
        f"{name} {{\n{''.join(text.format(10_000 + number) for number in range(count))}}}\n"
        for name, text in blocks.items()
    ]
    return "".join(("system {\n    worker-threads 4\n}\n", *parts)).encode()


def _milliseconds(source: bytes, rounds: int) -> tuple[float, float, float]:
    """Return the CPU for reading, for checking what was read, and for the command."""
    parsed = kdl.parse(source)
    assert check(parsed).problems == ()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "proxy.kdl")
        file.write_bytes(source)
        return (
            _minimum(lambda: kdl.parse(source), rounds),
            _minimum(lambda: check(parsed), rounds),
            _minimum(lambda: _run(file), rounds),
        )


def _run(file: Path) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        command.main([str(file)], standalone_mode=False)
    assert printed.getvalue().endswith(": ok\n"), printed.getvalue()[:1_000]


def _minimum(work: Callable[[], object], rounds: int) -> float:
    seconds: list[float] = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return min(seconds) * 1e3


def _memory(source: bytes) -> float:
    tracemalloc.start()
    try:
        kdl.parse(source)
        return tracemalloc.get_traced_memory()[1] / len(source)
    finally:
        tracemalloc.stop()


if __name__ == "__main__":
    sys.exit(main("kdl", __doc__, measure, budgets, section, rounds=DEFAULT_ROUNDS))
