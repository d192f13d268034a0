"""A hub in the process of a test: a store in memory, gRPC on loopback, and time that the test drives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any, Self

import grpc

from sentinel.cli.wiring.hub import AgentSecurity, BuiltHub, build_hub
from sentinel.core.access import ANONYMOUS, Identity, Role
from sentinel.core.hub import versions
from sentinel.core.hub.states import State
from sentinel.core.hub.versions import VersionName, content_hash
from sentinel.drivers.identity.session_tokens import JwtSessionTokens
from sentinel.hub.settings import HubSettings
from sentinel.ports.hub_store import Config, ConfigVersion, HubTransaction, InstanceRecord
from sentinel.ports.peer_certificates import PeerCertificates
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.listening import Address
from sentinel.testing.clock import ManualClock
from sentinel.testing.hub_agent import HubAgent
from sentinel.testing.identities import MemoryIdentities
from sentinel.testing.proxy_facts import FakeProxyFacts
from sentinel.testing.signing_keys import MemorySigningKeys
from sentinel.testing.task_http import FakeHttp
from sentinel.web.audit import Auditor
from sentinel.web.routing import Caller
from tests.support.databases import backends
from tests.support.databases.backends import MemoryBackend

FLEET_TOKEN = "fleet-token"
IDENTITIES: Mapping[str, Identity] = {
    FLEET_TOKEN: Identity("fleet", Role.AGENT),
    "other-token": Identity("other", Role.AGENT),
    "edge-2-token": Identity("edge-2", Role.AGENT, instance="edge-2"),
    "operator-token": Identity("ops", Role.OPERATOR),
    "admin-token": Identity("root", Role.ADMIN),
}
"""By registration token."""
USER = Caller(ANONYMOUS, "127.0.0.1", "request-1")
SECOND = timedelta(seconds=1)


class InProcessHub:
    """A hub that runs while the context is open."""

    def __init__(
        self,
        *,
        backend: MemoryBackend | None = None,
        clock: ManualClock | None = None,
        settings: HubSettings | None = None,
        certificates: PeerCertificates | None = None,
        credentials: grpc.ServerCredentials | None = None,
        is_insecure: bool = False,
        identities: Mapping[str, Identity] = IDENTITIES,
    ) -> None:
        self.clock = clock or ManualClock()
        self.backend = backend or backends.memory()
        self.store = self.backend.hub
        self.settings = settings or HubSettings()
        self.identities = MemoryIdentities(identities)
        self.http = FakeHttp()
        self.tokens = JwtSessionTokens(MemorySigningKeys(self.backend.memory), clock=self.clock)
        self.built: BuiltHub = build_hub(
            self.settings,
            store=self.store,
            secret_store=self.backend.secrets,
            webhook_store=self.backend.webhooks,
            http=self.http,
            facts=FakeProxyFacts(),
            security=AgentSecurity(
                identities=self.identities,
                tokens=self.tokens,
                certificates=certificates,
                credentials=credentials,
                is_insecure=is_insecure,
            ),
            address=Address("127.0.0.1", 0),
            unavailable_reason=self.backend.database.unavailable_reason,
            auditor=Auditor(),
            clock=self.clock,
        )
        self.sleeping_loops = 0
        """How many loops of the hub sleep while it has nothing to do."""
        self._stopping = Stopping()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self.backend.database.open()
        part, listener = self.built.component.part, self.built.listener
        await listener.open()
        asleep = len(self.clock.wake_times)
        tasks = [asyncio.create_task(loop(self._stopping)) for loop in (*part.loops, listener.run)]
        # All but the feed, which waits for events, and the runner, which waits for deployments.
        self.sleeping_loops = len(tasks) - 2
        await self.clock.until_asleep(asleep + self.sleeping_loops)

        async def stop() -> None:
            self._stopping.request()
            await asyncio.gather(*tasks)
            await self.built.flusher.close()

        self._stack.push_async_callback(stop)
        return self

    async def __aexit__(self, *details: object) -> None:
        await self._stack.aclose()

    @property
    def address(self) -> str:
        return str(self.built.listener.address)

    def agent(self, instance_id: str = "edge-1", *, token: str = FLEET_TOKEN, **options: Any) -> HubAgent:
        """An agent that is closed with the hub."""
        agent = HubAgent(self.address, instance_id, registration_token=token, clock=self.clock, **options)
        self._stack.push_async_callback(agent.close)
        return agent

    async def registered(self, instance_id: str = "edge-1", **options: Any) -> HubAgent:
        """An agent that has a session."""
        agent = self.agent(instance_id, **options)
        await agent.register()
        return agent

    async def instance(self, instance_id: str = "edge-1") -> InstanceRecord:
        """The instance as it is stored, after what heartbeats have reported was flushed."""
        await self.built.flusher.flush()
        found = await self.store.instance(instance_id)
        assert found is not None
        return found

    async def state(self, instance_id: str = "edge-1") -> State:
        return (await self.instance(instance_id)).life.state

    async def save_versions(
        self, config_id: str, *contents: str, summary: str = "change", secrets: Sequence[str] = ()
    ) -> None:
        """Store a configuration with these versions, which name these secrets. Nothing is assigned."""
        now = self.clock.now()

        def work(transaction: HubTransaction) -> None:
            transaction.add_config(
                Config(
                    id=config_id,
                    latest_version=len(contents),
                    created_time=now,
                    created_by="ops",
                    updated_time=now,
                )
            )
            for number, content in enumerate(contents, 1):
                transaction.add_version(
                    ConfigVersion(
                        config_id=config_id,
                        version=number,
                        hash=content_hash(content),
                        content=content,
                        change_summary=f"{summary} {number}",
                        secrets=secrets,
                        created_time=now,
                        created_by="ops",
                    )
                )

        await self.store.transact(work)

    async def save_secrets(self, **values: str) -> None:
        """Store secrets, as an admin does."""
        for name, value in values.items():
            await self.built.secrets.put(USER, name, value)

    async def assign(self, version: str, instance_id: str = "edge-1") -> None:
        """Assign a version by hand."""
        await self.built.instances.assign(USER, instance_id, named(version))

    def count(self, name: str, **labels: str) -> float:
        """The value of one of the hub's metrics; 0 if it has no sample with these labels."""
        registry = self.built.component.part.registry
        assert registry is not None
        return registry.get_sample_value(name, labels) or 0.0

    async def sweep(self) -> None:
        """Let the sweeper do its work now."""
        await self.built.sweeper.sweep()


def named(version: str) -> VersionName:
    """Parse a version's name."""
    name = versions.parse(version)
    assert name is not None
    return name


@asynccontextmanager
async def refused(status: grpc.StatusCode) -> AsyncIterator[None]:
    """Expect that a call is refused with this status."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        assert error.code() is status, error
        assert error.details()
    else:
        raise AssertionError(f"expected {status}, but the call succeeded")
