"""ASGI types and helpers, so that only `web.app` imports Starlette and only `web.server` and `web.connection`
import uvicorn."""

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
"""The scope key under which `server.Server` provides the request's `ClientConnection`."""


class ClientDisconnected(Exception):
    """The client has disconnected, so no response can reach it."""


class ClientConnection(Protocol):
    """What ASGI does not tell an application about the connection of a request."""

    @property
    def stopping(self) -> Stopping:
        """Requested when the server stops. Streams have to end then."""

    def close(self) -> None:
        """Close once all data is delivered, or shortly after if the client does not read it."""

    def abort(self) -> None:
        """Close now and drop data that is not delivered yet."""


class _UnknownConnection:
    """For other servers: streams end on their own or when the client disconnects."""

    def __init__(self) -> None:
        self.stopping = Stopping()

    def close(self) -> None: ...

    def abort(self) -> None: ...


def connection_of(scope: Scope) -> ClientConnection:
    """Return the connection of a request."""
    connection: ClientConnection | None = scope.get(CONNECTION)
    return _UnknownConnection() if connection is None else connection


def client_address(scope: Scope) -> str:
    """Return the peer's address, empty if unknown."""
    client = scope.get("client")
    # A listener on all interfaces sees IPv4 clients as IPv6. Logs and audit should show one address for a client.
    return str(client[0]).removeprefix("::ffff:") if client else ""


def encode_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Convert headers to ASGI's form."""
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
