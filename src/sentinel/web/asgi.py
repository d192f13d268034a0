"""ASGI in types of our own, so that only one module needs to know which framework finds the routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


def client_address(scope: Scope) -> str:
    """Of the peer; empty where there is none to speak of."""
    client = scope.get("client")
    # Who listens on every interface sees IPv4 as IPv6; logs and audit should call one client by one address.
    return str(client[0]).removeprefix("::ffff:") if client else ""
