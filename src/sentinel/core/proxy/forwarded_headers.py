"""The headers of a message on its way through the proxy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from sentinel.core.proxy.model import HeaderPolicy

Headers: TypeAlias = list[tuple[str, str]]

_HOP_BY_HOP: Final = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
"""They concern one connection (RFC 9110, 7.6.1)."""
UNCHANGEABLE: Final = _HOP_BY_HOP | {"content-length", "expect"}
"""Names in lower case that no policy may change: the proxy writes them, and some say where a message ends."""
_OURS: Final = frozenset(("expect", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"))


def end_to_end(headers: Iterable[tuple[str, str]], *, connection: str = "") -> Headers:
    """Return the headers without those of the connection, also those that its Connection header names."""
    dropped = _HOP_BY_HOP
    if connection:
        # A client must not be able to strip what a receiver relies on for reading the message.
        named = {name.strip().lower() for name in connection.split(",")} - {"content-length", "host"}
        dropped |= named
    return [pair for pair in headers if pair[0].lower() not in dropped]


def with_forwarding(headers: Headers, *, client: str, host: str, scheme: str) -> Headers:
    """Add X-Forwarded-For, -Host and -Proto to the headers of a request.

    The client is appended to the list that came. The others are replaced, because nobody can tell who wrote them.
    `Expect` is dropped: the proxy has responded to it.
    """
    earlier = [value for name, value in headers if name.lower() == "x-forwarded-for"]
    kept = [pair for pair in headers if pair[0].lower() not in _OURS]
    kept.append(("X-Forwarded-For", ", ".join((*earlier, client))))
    kept.append(("X-Forwarded-Host", host))
    kept.append(("X-Forwarded-Proto", scheme))
    return kept


def apply(policy: HeaderPolicy, headers: Headers) -> Headers:
    """Return the headers after a policy: rename, set, add, remove, in this order."""
    if policy.rename:
        names = {old.lower(): new for old, new in policy.rename}
        headers = [(names.get(name.lower(), name), value) for name, value in headers]
    if policy.set:
        replaced = {name.lower() for name, _ in policy.set}
        headers = [pair for pair in headers if pair[0].lower() not in replaced]
        headers += policy.set
    if policy.add:
        headers = [*headers, *policy.add]
    if policy.remove:
        removed = {name.lower() for name in policy.remove}
        headers = [pair for pair in headers if pair[0].lower() not in removed]
    return headers
