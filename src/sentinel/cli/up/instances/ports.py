"""The ports of the instances, chosen once and kept in the data directory.

A configuration names the ports that a proxy listens on, and all instances run the same one. So each has a number
that is added to them (`sentinel proxy --port-offset`), and the configurations stay valid from start to start.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

import msgspec

MAX_INSTANCES: Final = 40

LOOPBACK: Final = "127.0.0.1"

_PREFERRED: Final = 8100
_FIRST, _LAST = 10_000, 32_000
"""Below the range from which systems take the ports of outgoing connections."""
_BLOCK: Final = 100
_METRICS: Final = 50
_UPSTREAM: Final = 98
_ATTEMPTS: Final = 100


class NoFreePorts(Exception):
    """No block of ports is free."""


class Ports(msgspec.Struct, frozen=True):
    """A block of ports on loopback."""

    base: int

    @property
    def listener(self) -> int:
        """What configurations have as the port of the listener. Nothing listens there itself."""
        return self.base

    @property
    def metrics(self) -> int:
        """What configurations have as the port of the metrics."""
        return self.base + _METRICS

    @property
    def upstream(self) -> int:
        """The upstream of the first configuration."""
        return self.base + _UPSTREAM

    @property
    def next_upstream(self) -> int:
        """The next release of the upstream, which is broken."""
        return self.base + _UPSTREAM + 1

    @property
    def all(self) -> range:
        return range(self.base, self.base + _BLOCK)


def load_or_choose(file: Path, *, random: Random, is_free: Callable[[int], bool]) -> Ports:
    """Return the ports in the file, or choose some that are free and write it.

    Raises `NoFreePorts`, or `OSError` if the file cannot be written.
    """
    with suppress(FileNotFoundError, msgspec.DecodeError):
        return msgspec.json.decode(file.read_bytes(), type=Ports)
    chosen = _choose(random, is_free)
    file.write_bytes(msgspec.json.encode(chosen) + b"\n")
    return chosen


def _choose(random: Random, is_free: Callable[[int], bool]) -> Ports:
    candidates = [_PREFERRED, *(random.randrange(_FIRST, _LAST, _BLOCK) for _ in range(_ATTEMPTS))]
    for base in candidates:
        ports = Ports(base)
        if all(map(is_free, ports.all)):
            return ports
    raise NoFreePorts(f"expected {_BLOCK} free ports in a row on {LOOPBACK}, found none in {_ATTEMPTS} attempts")


def is_free(port: int) -> bool:
    """Whether nothing listens on this port of loopback."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
