"""An in-process client of the fleet API: requests go directly into the application."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from prometheus_client import CollectorRegistry

from sentinel.api import access as fleet_access
from sentinel.api import routes as fleet_routes
from sentinel.api.change_feed import ChangeFeed
from sentinel.api.kinds import Kinds
from sentinel.api.resource_streams import ResourceStreams
from sentinel.api.service import FleetService
from sentinel.api.telemetry import FleetTelemetry
from sentinel.core.access import Identity, combine
from sentinel.core.fleet.documents import KindRules
from sentinel.core.pulse.decision import Policy
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import get_logger
from sentinel.testing.clock import ManualClock
from sentinel.testing.identities import MemoryIdentities
from sentinel.web import audit as server_audit
from sentinel.web.app import build_app
from sentinel.web.asgi import App, Message
from sentinel.web.audit import Auditor, audit_routes
from sentinel.web.identity import Guard
from tests.support.databases import backends
from tests.support.databases.backends import Backend
from tests.support.fleet import http_client
from tests.support.fleet.http_client import ROOT, Body

PERMISSIONS = combine(fleet_access.PERMISSIONS, server_audit.PERMISSIONS)

KINDS = Kinds(
    (
        KindRules("clusters", "Cluster", "", ("validation", "dns")),
        KindRules("nodepools", "NodePool", "clusters", ("validation",)),
        KindRules("machines", "Machine", "nodepools"),
        KindRules("manifests", "Manifest"),
    )
)

THREE_LEVELS = Kinds(
    (
        KindRules("clusters", "Cluster"),
        KindRules("nodepools", "NodePool", "clusters"),
        KindRules("machines", "Machine", "nodepools", ("validation",)),
    )
)
"""Only the lowest level requires an adapter."""


class ApiReply(http_client.Reply, frozen=True):
    """A response. Its headers have lower-case names."""

    @property
    def etag(self) -> str:
        return self.headers["etag"]

    @property
    def fields(self) -> list[str]:
        """The fields that a problem names, in order."""
        return [error["field"] for error in self.json.get("errors", ())]

    def assert_problem(self, status: int, *fields: str, code: str = "") -> Body:
        """Assert that this is a problem with this status and exactly these fields. Return its document."""
        assert self.status == status, self
        assert self.headers["content-type"] == "application/problem+json"
        document = self.json
        assert set(document) - {"errors", "request_id"} == {"type", "title", "status", "detail", "code"}
        assert document["status"] == status
        assert document["detail"]
        assert document["code"].startswith("HYPERFLEET-")
        assert self.fields == list(fields), self
        assert code in ("", document["code"]), self
        return document


SCOPE: Mapping[str, object] = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "http_version": "1.1",
    "scheme": "http",
    "root_path": "",
    "client": ("127.0.0.1", 50000),
    "server": ("127.0.0.1", 8000),
}
"""The part of a request's scope that all requests have in common."""


class ApiClient:
    """A fleet API whose clock only moves with `later`."""

    def __init__(
        self,
        *,
        kinds: Kinds = KINDS,
        backend: Backend | None = None,
        identities: Sequence[Identity] = (),
        emits_public_names: bool = False,
        policies: Mapping[str, Policy] | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.kinds = kinds
        self.backend = backend or backends.memory()
        self.store = self.backend.fleet
        self.registry = CollectorRegistry()
        log = get_logger("test")
        self.telemetry = FleetTelemetry(
            kinds=kinds, store=self.store, clock=self.clock, registry=self.registry, log=log
        )
        self.service = FleetService(
            store=self.store,
            kinds=kinds,
            clock=self.clock,
            observer=self.telemetry,
            auditor=Auditor(),
            emits_public_names=emits_public_names,
            policies=policies,
        )
        self.feed = ChangeFeed(self.backend.changes, log=log)
        self.streams = ResourceStreams(
            store=self.store,
            changes=self.backend.changes,
            feed=self.feed,
            observer=self.telemetry,
            retention=timedelta(hours=1),
            log=log,
        )
        self._stopping = Stopping()
        self._loops: list[asyncio.Task[None]] = []
        self.routes = [*fleet_routes.routes(kinds, self.service, self.streams), *audit_routes(self.backend.audit)]
        self.identities = MemoryIdentities({identity.name: identity for identity in identities})
        self.known = self.identities.known
        """Identities by token."""
        guard = Guard(
            identities=[self.identities] if identities else [],
            permissions=PERMISSIONS,
            is_insecure=not identities,
        )
        self.app: App = build_app(self.routes, guard=guard, log=log)

    async def __aenter__(self) -> ApiClient:
        await self.backend.database.open()
        loops = (self.feed.run, self.streams.end_with_tokens)
        self._loops = [asyncio.create_task(loop(self._stopping)) for loop in loops]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping.request()
        await asyncio.gather(*self._loops)
        await self.backend.database.close()

    async def send(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, object] | bytes | None = None,
    ) -> ApiReply:
        """Send a request with a raw body. The path is percent-decoded."""
        fields = {"host": "localhost", "content-length": str(len(body))} | {
            name.lower(): value for name, value in (headers or {}).items()
        }
        unread = [body]
        sent: list[Message] = []

        async def receive() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        scope: dict[str, Any] = {
            **SCOPE,
            "method": method,
            "path": path,
            "raw_path": quote(path, errors="replace").encode(),
            "query_string": query if isinstance(query, bytes) else urlencode(query or {}).encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in fields.items()],
            "state": {},
        }
        await self.app(scope, receive, send)
        start = sent[0]
        return ApiReply(
            start["status"],
            {name.decode(): value.decode("latin-1") for name, value in start["headers"]},
            b"".join(message.get("body", b"") for message in sent[1:]),
        )

    async def call(
        self,
        method: str,
        path: str,
        json: object = None,
        *,
        token: str = "",
        headers: Mapping[str, str] | None = None,
        **query: object,
    ) -> ApiReply:
        """Send a request. A path without a leading slash is below the API's root."""
        fields = {name.lower(): value for name, value in (headers or {}).items()}
        if token:
            fields["authorization"] = f"Bearer {token}"
        if json is not None:
            fields.setdefault("content-type", "application/json")
        where = path if path.startswith("/") else f"{ROOT}/{path}"
        body = b"" if json is None else msgspec.json.encode(json)
        return await self.send(method, where, body, headers=fields, query=query)

    async def create(self, plural: str = "clusters", name: str = "one", **fields: object) -> Body:
        """Create a resource."""
        reply = await self.call("POST", plural, {"name": name, **fields})
        assert reply.status == 201, reply
        return reply.json

    async def get(self, path: str, **query: object) -> Body:
        """Return the body of a GET."""
        reply = await self.send("GET", f"{ROOT}/{path}" if path[0] != "/" else path, query=query)
        assert reply.status == 200, reply
        return reply.json

    def report(
        self,
        adapter: str = "dns",
        *,
        available: str = "True",
        generation: int = 1,
        at: datetime | None = None,
        finalized: bool = False,
        **fields: object,
    ) -> Body:
        """Return the body of a report, by default observed now."""
        conditions = [
            {"type": "Applied", "status": "True", "reason": "Done", "message": ""},
            {"type": "Available", "status": available, "reason": "Said", "message": "as it is"},
            {"type": "Health", "status": "True", "reason": "NoErrors", "message": ""},
        ]
        if finalized:
            conditions.append({"type": "Finalized", "status": "True"})
        return {
            "adapter": adapter,
            "observed_generation": generation,
            "observed_time": at or self.clock.now(),
            "conditions": conditions,
            **fields,
        }

    async def reports(self, path: str, *adapters: str, generation: int = 1, **more: Any) -> ApiReply:
        """Report as each of these adapters. Return the last response."""
        reply = None
        for adapter in adapters:
            reply = await self.call(
                "POST", f"{path}/statuses", self.report(adapter, generation=generation, **more)
            )
        assert reply is not None
        return reply

    async def later(self, seconds: float = 1) -> datetime:
        """Advance the clock. Return the new time."""
        await self.clock.advance(timedelta(seconds=seconds))
        return self.clock.now()
