"""What fixed pieces of work cost on this machine, so that pages written on two machines can be compared.

Interpreting Python depends on the processor. Sockets, files and fresh memory depend on the kernel, and cost
several times as much on some virtual machines.
"""

from __future__ import annotations

import mmap
import os
import socket
import tempfile
import time
from collections.abc import Callable, Mapping

from bench.budget import table

_ROUNDS = 7
_SOCKET_BYTES = 64 * 1024
_FILE_BYTES = 16 * 1024
_MEMORY_BYTES = 1024 * 1024


def measure() -> Mapping[str, float]:
    """Return the CPU of each piece of work in microseconds, the cheapest of several rounds."""
    return {
        "add a thousand integers in Python": _cheapest(_add, 200),
        "write 64 KiB to a local socket and read them": _through_a_socket(),
        "read 16 KiB of a file that the kernel has cached": _from_a_cached_file(),
        "get 1 MiB of memory from the kernel and write to each page": _cheapest(_touch_fresh_memory, 50),
    }


def section(figures: Mapping[str, float]) -> list[str]:
    """Return the section of the page."""
    return [
        "\n## The machine\n",
        "The same work on every machine. Compare these rows before you compare pages of two machines.\n",
        *table(("work", "CPU"), ((work, f"{microseconds:.1f} µs") for work, microseconds in figures.items())),
    ]


def _cheapest(work: Callable[[], object], repetitions: int) -> float:
    rounds = []
    for _ in range(_ROUNDS):
        started = time.process_time_ns()
        for _ in range(repetitions):
            work()
        rounds.append((time.process_time_ns() - started) / repetitions / 1_000)
    return min(rounds)


def _add() -> int:
    total = 0
    for number in range(1_000):
        total += number
    return total


def _through_a_socket() -> float:
    content = bytes(_SOCKET_BYTES)
    sender, receiver = socket.socketpair()
    with sender, receiver:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * _SOCKET_BYTES)

        def pass_through() -> None:
            sender.sendall(content)
            left = _SOCKET_BYTES
            while left:
                left -= len(receiver.recv(left))

        return _cheapest(pass_through, 500)


def _from_a_cached_file() -> float:
    with tempfile.TemporaryFile() as file:
        file.write(os.urandom(_FILE_BYTES))
        file.flush()
        return _cheapest(lambda: os.pread(file.fileno(), _FILE_BYTES, 0), 2_000)


def _touch_fresh_memory() -> None:
    with mmap.mmap(-1, _MEMORY_BYTES) as memory:
        for offset in range(0, _MEMORY_BYTES, mmap.PAGESIZE):
            memory[offset] = 1
