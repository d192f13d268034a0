"""Addresses to listen on, and sockets for them."""

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

_RESOLVE_TIMEOUT = timedelta(seconds=5)


class ListenError(OSError):
    """Listening failed. The message names the address and the reason."""


class Address(msgspec.Struct, frozen=True):
    """A host and a port."""

    host: str
    """Empty for all interfaces."""
    port: int
    """0 for any free port."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address | None:
    """Parse a bind address in Go's syntax. Returns None for `0` and for an empty text, which disable listening.

    `:8080` is all interfaces, `127.0.0.1:0` a free port on loopback, `[::1]:8080` IPv6.
    """
    if text in ("", "0"):
        return None
    match = re.fullmatch(r"(?:\[(?P<v6>[^\[\]]*)\]|(?P<host>[^\[\]:\s]*)):(?P<port>[0-9]{1,5})", text)
    if match is None or int(match["port"]) > 65535:
        raise ValueError(f'expected HOST:PORT such as ":8080" or "127.0.0.1:8080", or "0" for none, got "{text}"')
    return Address(match["v6"] or match["host"] or "", int(match["port"]))


def is_loopback(host: str) -> bool:
    """Whether this is a loopback name or address."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


async def bind(address: Address) -> socket.socket:
    """Return one listening socket. Raises `ListenError`.

    asyncio would open several sockets for one name or for all interfaces, and with port 0 each would get its own
    port.
    """
    try:
        if not address.host:
            if socket.has_dualstack_ipv6():
                return socket.create_server(
                    ("", address.port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG
                )
            return socket.create_server(("", address.port), backlog=BACKLOG)
        async with asyncio.timeout(_RESOLVE_TIMEOUT.total_seconds()):
            found = await asyncio.get_running_loop().getaddrinfo(
                address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        # Prefer IPv4 if a name has both, as Go does.
        family, _, _, _, resolved = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        return socket.create_server((resolved[0], resolved[1]), family=family, backlog=BACKLOG)
    except TimeoutError as error:
        raise ListenError(f"cannot listen on {address}: resolving the name timed out") from error
    except OSError as error:
        # create_server's text repeats the address, so use the plain error text.
        number = error.errno or 0
        reason = os.strerror(number) if number in errno.errorcode else error.strerror or str(error)
        raise ListenError(f"cannot listen on {address}: {reason.lower()}") from error
