"""Types for ASGI, so that only one module depends on the framework that finds routes, and one on the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, Protocol, TypeAlias

from sentinel.runtime.lifecycle.stopping import Stopping

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

CONNECTION: Final = "sentinel.connection"
"""The key of a scope under which `server.Server` offers the request's `ClientConnection`."""


class ClientConnection(Protocol):
    """What an application may know about the connection of a request, and ASGI does not offer."""

    @property
    def stopping(self) -> Stopping:
        """Requested when the server stops: an answer without an end has to end now."""

    def close(self) -> None:
        """Close it once what was sent is delivered, or shortly after if the client does not take it."""

    def abort(self) -> None:
        """Drop it now, with whatever is not delivered yet."""


class _UnknownConnection:
    """For servers that do not offer one: streams end when the client goes, and by themselves."""

    def __init__(self) -> None:
        self.stopping = Stopping()

    def close(self) -> None: ...

    def abort(self) -> None: ...


def connection_of(scope: Scope) -> ClientConnection:
    """The connection of a request."""
    connection: ClientConnection | None = scope.get(CONNECTION)
    return _UnknownConnection() if connection is None else connection


def client_address(scope: Scope) -> str:
    """Of the peer; empty where there is none to speak of."""
    client = scope.get("client")
    # Who listens on every interface sees IPv4 as IPv6; logs and audit should call one client by one address.
    return str(client[0]).removeprefix("::ffff:") if client else ""


def encode_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Headers as ASGI wants them."""
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
