"""Calls the REST API of an application in this process."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sentinel.core.access import Identity, Role
from sentinel.testing.identities import MemoryIdentities
from sentinel.web.asgi import App
from tests.web.asgi_client import ReceivedResponse, call

ROOT = "/api/v1"
ADMIN = "root-token"


class RestCaller:
    """Calls an application whose admin has the token `ADMIN`."""

    app: App

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str = ADMIN,
        query: str = "",
        headers: Mapping[str, str] | None = None,
        address: str = "127.0.0.1",
    ) -> ReceivedResponse:
        given = {"content-type": "application/json", **(headers or {})}
        if token:
            given["authorization"] = f"Bearer {token}"
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        given["content-length"] = str(len(content))
        return await call(
            self.app, method, f"{ROOT}/{path}", query=query, headers=given, body=content, address=address
        )


def identities() -> MemoryIdentities:
    """Return the admin, and one identity of each other role, whose token is the name of the role."""
    return MemoryIdentities(
        {ADMIN: Identity("root", Role.ADMIN)} | {role.value: Identity(role.value, role) for role in Role}
    )
