"""Where a server listens: addresses as people write them, and sockets that say clearly why they cannot be had."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import re
import socket
from datetime import timedelta

import msgspec

BACKLOG = 128

_RESOLVE = timedelta(seconds=5)


class ListenError(OSError):
    """An address cannot be listened on; the text says which, and why."""


class Address(msgspec.Struct, frozen=True):
    """Where to listen, or where one listens."""

    host: str
    """Empty for all interfaces."""
    port: int
    """0 for any that is free."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address | None:
    """Reads a bind address as Go programs write it; None for `0` and for nothing at all, which mean: do not.

    `:8080` is every interface, `127.0.0.1:0` a free port on loopback, `[::1]:8080` IPv6.
    """
    if text in ("", "0"):
        return None
    match = re.fullmatch(r"(?:\[(?P<v6>[^\[\]]*)\]|(?P<host>[^\[\]:\s]*)):(?P<port>[0-9]{1,5})", text)
    if match is None or int(match["port"]) > 65535:
        raise ValueError(f'expected HOST:PORT such as ":8080" or "127.0.0.1:8080", or "0" for none, got "{text}"')
    return Address(match["v6"] or match["host"] or "", int(match["port"]))


def is_loopback(host: str) -> bool:
    """Whether this is a name or an address of the machine itself, and of nothing else."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


async def bind(address: Address) -> socket.socket:
    """A listening socket of our own, rather than the several that asyncio opens for one name or for all
    interfaces: with port 0, each of those would get a port of its own."""
    try:
        if not address.host:
            if socket.has_dualstack_ipv6():
                return socket.create_server(
                    ("", address.port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG
                )
            return socket.create_server(("", address.port), backlog=BACKLOG)
        async with asyncio.timeout(_RESOLVE.total_seconds()):
            found = await asyncio.get_running_loop().getaddrinfo(
                address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        # IPv4 first where a name has both, as Go does.
        family, _, _, _, where = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        return socket.create_server((where[0], where[1]), family=family, backlog=BACKLOG)
    except TimeoutError as error:
        raise ListenError(f"cannot listen on {address}: the name was not resolved in time") from error
    except OSError as error:
        # create_server repeats the address in its text; the plain words for the number read better.
        number = error.errno or 0
        reason = os.strerror(number) if number in errno.errorcode else error.strerror or str(error)
        raise ListenError(f"cannot listen on {address}: {reason.lower()}") from error
