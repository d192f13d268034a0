"""The hub's REST API in this process, on a store in memory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from sentinel.core.hub.instance import Timeouts
from sentinel.core.proxy.facts import Resolve
from sentinel.hub import access, deployment_routes, routes
from sentinel.hub.checking import ConfigChecker
from sentinel.hub.configs import Configs
from sentinel.hub.dead_letters import DeadLetters
from sentinel.hub.deployment_http import DeploymentHandlers
from sentinel.hub.event_feed import EventFeed
from sentinel.hub.event_streams import EventStreams
from sentinel.hub.http import ConfigHandlers, DeadLetterHandlers, InstanceHandlers, SecretHandlers
from sentinel.hub.instance_reads import InstanceReads
from sentinel.hub.instances import Instances
from sentinel.hub.registry import Registry
from sentinel.hub.secrets import Secrets
from sentinel.ports.audit import AuditEntry, AuditQuery
from sentinel.ports.hub_store import HubEvent, InstanceRecord
from sentinel.runtime.log import get_logger
from sentinel.testing.clock import ManualClock
from sentinel.testing.proxy_facts import FakeProxyFacts
from sentinel.web.app import Component, build_app
from sentinel.web.audit import Auditor
from sentinel.web.identity import Guard
from tests.hub.rest.running_rollouts import NO_OBSERVER, RunningRollouts
from tests.support.databases import backends
from tests.support.hub import store_records
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
    """Configurations, instances and events of a hub."""

    def __init__(self, *, resolve: Resolve = Resolve.ERROR) -> None:
        self.clock = ManualClock()
        self.backend = backends.memory()
        self.store = self.backend.hub
        self.facts = FakeProxyFacts()
        auditor = Auditor()
        self.secrets = Secrets(store=self.backend.secrets, clock=self.clock, auditor=auditor)
        checker = ConfigChecker(facts=self.facts, secrets=self.secrets, resolve=resolve, clock=self.clock)
        configs = Configs(
            store=self.store,
            checker=checker,
            clock=self.clock,
            auditor=auditor,
        )
        self.registry = Registry(self.store)
        self.streams = EventStreams(self.store, clock=self.clock)
        log = get_logger("test")
        self.feed = EventFeed(self.store, readers=[self.registry, self.streams], clock=self.clock, log=log)
        instances = InstanceHandlers(
            reads=InstanceReads(store=self.store, registry=self.registry),
            instances=Instances(
                store=self.store,
                registry=self.registry,
                timeouts=Timeouts(),
                clock=self.clock,
                observer=NO_OBSERVER,
                auditor=auditor,
            ),
            streams=self.streams,
        )
        self.rollouts = RunningRollouts(
            self.store, registry=self.registry, checker=checker, clock=self.clock, auditor=auditor
        )
        dead_letters = DeadLetters(store=self.backend.webhooks, clock=self.clock, auditor=auditor)
        self.routes = [
            *routes.config_routes(ConfigHandlers(configs)),
            *routes.instance_routes(instances),
            *deployment_routes.deployment_routes(DeploymentHandlers(self.rollouts)),
            *routes.secret_routes(SecretHandlers(self.secrets)),
            *routes.webhook_routes(DeadLetterHandlers(dead_letters)),
        ]
        component = Component(
            routes=self.routes,
            permissions=access.PERMISSIONS,
            tags={**routes.TAGS, **deployment_routes.TAGS},
        )
        guard = Guard(identities=[identities()])
        self.app = build_app(components=[component], guard=guard, log=get_logger("test"))
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> RestHub:
        await self.backend.database.open()
        self._stack.push_async_callback(self.backend.database.close)
        await self._stack.enter_async_context(self.rollouts.running())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

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

    async def add(self, *instances: InstanceRecord) -> None:
        """Store instances as if they had registered."""
        await self.store.transact(store_records.saving(*instances))

    async def deploy(
        self, config_id: str, version: int, *, ids: Sequence[str], strategy: str = "rolling", **more: object
    ) -> dict[str, Any]:
        """Create a deployment to these instances."""
        body = {
            "config_id": config_id,
            "version": version,
            "targets": {"ids": [*ids]},
            "strategy": strategy,
            **more,
        }
        response = await self.call("POST", "deployments", body)
        assert response.status == 201, response
        created: dict[str, Any] = response.json
        return created

    async def events(self) -> list[HubEvent]:
        return list(await self.store.events(0, limit=100))

    async def audit(self) -> list[AuditEntry]:
        """The entries, newest first."""
        return list(await self.backend.audit.find(AuditQuery(limit=100)))
