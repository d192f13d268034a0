"""Which proxy a server is reached through, as the environment says: HTTP_PROXY, HTTPS_PROXY and NO_PROXY.

aiohttp can read them by itself (`trust_env`), but then it also sends what it finds in .netrc, looks at both files
and variables again for every request, and sends requests to loopback addresses through the proxy. So the choice is
made here, once for each client.

Loopback addresses never go through a proxy: on the proxy's machine they are another server.
"""

from __future__ import annotations

import base64
import ipaddress
import socket
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import msgspec
from yarl import URL

from sentinel.ports.errors import Misconfigured
from sentinel.runtime.secrets import Secret

_Address: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"


class Proxy(msgspec.Struct, frozen=True):
    """One proxy."""

    url: str
    """Without credentials."""
    variable: str
    """Which variable names it."""
    authorization: Secret | None = None
    """The value of Proxy-Authorization."""
    secrets: tuple[Secret, ...] = ()
    """What no error may show."""

    def __str__(self) -> str:
        return f"{self.url} ({self.variable})"


class Proxies:
    """The proxies that an environment names."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Variables are read in lower case first, as everywhere; an empty one means none."""
        self._by_scheme = {
            scheme: (name, value)
            for scheme in ("http", "https")
            for name, value in _variable(environ, f"{scheme}_proxy")
        }
        self._exceptions = [
            exception
            for _, value in _variable(environ, "no_proxy")
            for exception in value.replace(",", " ").lower().split()
        ]

    def __repr__(self) -> str:
        return f"Proxies({', '.join(name for name, _ in self._by_scheme.values())})"

    def choose(self, url: URL) -> Proxy | None:
        """The proxy for this URL, None to connect directly; raises `Misconfigured` for one that cannot be used."""
        named = self._by_scheme.get(url.scheme)
        host = (url.raw_host or "").rstrip(".").lower()
        if named is None or _is_loopback(host) or self._is_excepted(host, url.port):
            return None
        return _proxy(*named)

    def _is_excepted(self, host: str, port: int | None) -> bool:
        return any(exception == "*" or _covers(exception, host, port) for exception in self._exceptions)


def _variable(environ: Mapping[str, str], name: str) -> Iterator[tuple[str, str]]:
    """The variable and its value; nothing where it is not set, or empty."""
    spelled = name if name in environ else name.upper()
    if value := environ.get(spelled, "").strip():
        yield spelled, value


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = _address(host)
    return address is not None and (address.is_loopback or address.is_unspecified)


def _address(host: str) -> _Address | None:
    """The address that a host is written as; None for a name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            # Resolvers also take 127.1 and 0x7f.1 for addresses.
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except (OSError, ValueError):
            return None
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped or address
    return address


def _covers(exception: str, host: str, port: int | None) -> bool:
    """Whether an entry of NO_PROXY is about this host: a name with all below it, an address or a network."""
    address = _address(host)
    if address is not None:
        try:
            return address in ipaddress.ip_network(exception.strip("[]"), strict=False)
        except ValueError:
            pass
    name, colon, only = exception.rpartition(":")
    if colon and only.isdecimal():
        if int(only) != port:
            return False
        exception = name
    if address is not None:
        return _address(exception.strip("[]")) == address
    domain = exception.removeprefix("*").strip(".")
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))


def _proxy(variable: str, value: str) -> Proxy:
    try:
        url = URL(value if "://" in value else f"http://{value}")
    except ValueError:
        url = URL()
    if url.scheme != "http" or not url.host or url.path not in ("", "/") or url.query_string or url.fragment:
        raise Misconfigured(f"{variable}: expected a proxy such as http://proxy.example:3128")
    if url.user is None and url.password is None:
        return Proxy(str(url.origin()), variable)
    user, password = url.user or "", url.password or ""
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    return Proxy(
        str(url.origin()),
        variable,
        Secret(f"Basic {encoded}"),
        # A user without a password is a token in the place of a name.
        (Secret(encoded), Secret(password or user)),
    )


NO_PROXIES = Proxies({})
