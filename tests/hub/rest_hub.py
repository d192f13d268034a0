"""The hub's REST API in this process, on a store in memory."""

from __future__ import annotations

from typing import Any

from sentinel.core.proxy.facts import Resolve
from sentinel.hub import access, routes
from sentinel.hub.checking import ConfigChecker
from sentinel.hub.configs import Configs
from sentinel.hub.http import ConfigHandlers
from sentinel.ports.audit import AuditEntry, AuditQuery
from sentinel.ports.hub_store import HubEvent
from sentinel.runtime.log import get_logger
from sentinel.testing.clock import ManualClock
from sentinel.testing.proxy_facts import FakeProxyFacts
from sentinel.web.app import Component, build_app
from sentinel.web.audit import Auditor
from sentinel.web.identity import Guard
from tests.support.databases import backends
from tests.web.rest_caller import RestCaller, identities

VALID = """
schema-version "1.0"
system { worker-threads 2 }
listeners {
    listener "web" { address "127.0.0.1:8088" }
}
routes {
    route "health" {
        matches { path "/health" }
        builtin-handler "health"
    }
}
"""
WITH_OTHER_ROUTE = VALID.replace("/health", "/ready")
WITH_OTHER_LISTENER = VALID.replace("8088", "8089")


class RestHub(RestCaller):
    """Configurations of a hub."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.backend = backends.memory()
        self.store = self.backend.hub
        self.facts = FakeProxyFacts()
        configs = Configs(
            store=self.store,
            checker=ConfigChecker(facts=self.facts, resolve=Resolve.ERROR, clock=self.clock),
            clock=self.clock,
            auditor=Auditor(),
        )
        component = Component(
            routes=routes.config_routes(ConfigHandlers(configs)), permissions=access.PERMISSIONS, tags=routes.TAGS
        )
        guard = Guard(identities=[identities()])
        self.app = build_app(components=[component], guard=guard, log=get_logger("test"))

    async def __aenter__(self) -> RestHub:
        await self.backend.database.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.backend.database.close()

    async def push(self, config_id: str, *contents: str) -> dict[str, Any]:
        """Create a configuration with these versions. Returns the last one."""
        first, *others = contents
        response = await self.call("POST", "configs", {"id": config_id, "content": first})
        assert response.status == 201, response
        for content in others:
            response = await self.call("POST", f"configs/{config_id}/versions", {"content": content})
            assert response.status == 201, response
        saved: dict[str, Any] = response.json
        return saved

    async def events(self) -> list[HubEvent]:
        return list(await self.store.events(0, limit=100))

    async def audit(self) -> list[AuditEntry]:
        """The entries, newest first."""
        return list(await self.backend.audit.find(AuditQuery(limit=100)))
