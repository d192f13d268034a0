"""What fixed pieces of work cost on this machine, so that figures of two machines can be compared.

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

_ROUNDS = 7
_SOCKET_BYTES = 64 * 1024
_FILE_BYTES = 16 * 1024
_MEMORY_BYTES = 1024 * 1024


def measure() -> Mapping[str, float]:
    """Return the CPU of each piece of work in microseconds, the cheapest of several rounds."""
    return {
        "a thousand additions in Python": _cheapest(_add, 200),
        "64 KiB through a local socket": _through_a_socket(),
        "16 KiB from a cached file": _from_a_cached_file(),
        "1 MiB of fresh memory": _cheapest(_touch_fresh_memory, 50),
    }


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
