"""Choosing the proxy of a server, usually from the environment: HTTP_PROXY, HTTPS_PROXY and NO_PROXY.

aiohttp can do this too (`trust_env`), but then it also sends credentials from .netrc, reads files and variables
for every request, and uses the proxy for loopback addresses. Here the proxy is chosen once per client, and
loopback addresses never use one: on the proxy's machine they are another server.
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
    """A proxy and its credentials."""

    url: str
    """Without credentials."""
    variable: str
    """The environment variable, or other setting, that has its URL."""
    authorization: Secret | None = None
    """The value of Proxy-Authorization."""
    secrets: tuple[Secret, ...] = ()
    """To redact in errors."""

    def __str__(self) -> str:
        return f"{self.url} ({self.variable})"


class Proxies:
    """The proxies of an environment."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Lower-case variables win over upper-case ones, as in curl; an empty variable counts as unset."""
        self._by_scheme = {
            scheme: (name, value)
            for scheme in ("http", "https")
            for name, value in _variable(environ, f"{scheme}_proxy")
        }
        self._exclusions = [
            exclusion
            for _, value in _variable(environ, "no_proxy")
            for exclusion in value.replace(",", " ").lower().split()
        ]
        self._fixed: Proxy | None = None

    @classmethod
    def fixed(cls, url: str, *, name: str) -> Proxies:
        """Return one proxy for every server, also on loopback. `name` is the setting that has its URL.

        Raises `Misconfigured` if the URL is invalid.
        """
        proxies = cls({})
        proxies._fixed = _parse_proxy(name, url)
        return proxies

    def __repr__(self) -> str:
        return f"Proxies({', '.join(name for name, _ in self._by_scheme.values())})"

    def choose(self, url: URL) -> Proxy | None:
        """Return the proxy for this URL, or None to connect directly. Raises `Misconfigured` if it is invalid."""
        if self._fixed is not None:
            return self._fixed
        variable = self._by_scheme.get(url.scheme)
        host = (url.raw_host or "").rstrip(".").lower()
        if variable is None or _is_loopback(host) or self._is_excluded(host, url.port):
            return None
        return _parse_proxy(*variable)

    def _is_excluded(self, host: str, port: int | None) -> bool:
        return any(exclusion == "*" or _covers(exclusion, host, port) for exclusion in self._exclusions)


def _variable(environ: Mapping[str, str], name: str) -> Iterator[tuple[str, str]]:
    """Yield the variable's name and value if it is set and not empty."""
    found = name if name in environ else name.upper()
    if value := environ.get(found, "").strip():
        yield found, value


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = _address(host)
    return address is not None and (address.is_loopback or address.is_unspecified)


def _address(host: str) -> _Address | None:
    """Parse the host as an IP address; None if it is a name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            # Resolvers also accept 127.1 and 0x7f.1 as addresses.
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except (OSError, ValueError):
            return None
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped or address
    return address


def _covers(exclusion: str, host: str, port: int | None) -> bool:
    """Whether an entry of NO_PROXY covers this host: a domain with its subdomains, an address or a network."""
    address = _address(host)
    if address is not None:
        try:
            return address in ipaddress.ip_network(exclusion.strip("[]"), strict=False)
        except ValueError:
            pass
    name, colon, only_port = exclusion.rpartition(":")
    if colon and only_port.isdecimal():
        if int(only_port) != port:
            return False
        exclusion = name
    if address is not None:
        return _address(exclusion.strip("[]")) == address
    domain = exclusion.removeprefix("*").strip(".")
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))


def _parse_proxy(variable: str, value: str) -> Proxy:
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
        # A user without a password is a token.
        (Secret(encoded), Secret(password or user)),
    )


NO_PROXIES = Proxies({})
