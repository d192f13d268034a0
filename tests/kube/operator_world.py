"""A cluster for operators: a real API server with the CRD, a real fleet API, a queue on a real RabbitMQ."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from sentinel.core.json import Json
from sentinel.drivers.kube.access import find_access
from sentinel.drivers.kube.client import KubeClient
from sentinel.drivers.kube.connection import ApiConnection
from sentinel.operator.sentinel_config import SENTINEL_CONFIG
from sentinel.ports.kube import KubeKind, KubeObject, ObjectNotFound
from tests.support.brokers.rabbitmq import Inbox, open_inbox
from tests.support.fleet.http_client import FleetHttp
from tests.support.processes.service import ApiProcess

EVENT = KubeKind("", "v1", "Event", "events")
LEASE = KubeKind("coordination.k8s.io", "v1", "Lease", "leases")
NAMESPACE = KubeKind("", "v1", "Namespace", "namespaces", is_namespaced=False)
TIMEOUT = timedelta(seconds=90)
_LOOK_EVERY = 0.02


class ReceivedEvent(msgspec.Struct, frozen=True):
    """An event from the queue."""

    resource_id: str
    data: Mapping[str, Any]
    at: float
    """When it arrived, by the event loop's clock."""


class OperatorWorld:
    """Everything around an operator in one namespace."""

    def __init__(
        self, *, api: KubeClient, namespace: str, kubeconfig: Path, fleet: FleetHttp, fleet_url: str, inbox: Inbox
    ) -> None:
        self.api = api
        self.namespace = namespace
        self.kubeconfig = kubeconfig
        self.fleet = fleet
        self.received: list[ReceivedEvent] = []
        self._fleet_url = fleet_url
        self._inbox = inbox

    def spec(self, **spec: Json) -> dict[str, Json]:
        """A spec that polls twice a second."""
        return {
            "resourceType": "clusters",
            "pollInterval": "500ms",
            "backoffNotReady": "3s",
            "backoffReady": "1h",
            "hyperfleetAPI": {"url": self._fleet_url},
            "broker": {"type": "rabbitmq", "topic": self._inbox.exchange, "url": self._inbox.url},
            **spec,
        }

    async def create(self, name: str, **spec: Json) -> KubeObject:
        body: KubeObject = {
            "apiVersion": SENTINEL_CONFIG.api_version,
            "kind": SENTINEL_CONFIG.kind,
            "metadata": {"name": name},
            "spec": self.spec(**spec),
        }
        return await self.api.apply(SENTINEL_CONFIG, body, namespace=self.namespace, field_manager="test")

    async def edit(self, name: str, **spec: Json) -> None:
        await self.api.merge_patch(SENTINEL_CONFIG, name, {"spec": dict(spec)}, namespace=self.namespace)

    async def delete(self, name: str) -> None:
        await self.api.delete(SENTINEL_CONFIG, name, namespace=self.namespace)

    async def status(self, name: str) -> dict[str, Any]:
        try:
            found = await self.api.get(SENTINEL_CONFIG, name, namespace=self.namespace)
        except ObjectNotFound:
            return {}
        status = found.get("status")
        return status if isinstance(status, dict) else {}

    async def reasons(self, name: str) -> dict[str, str]:
        """Return the conditions of a SentinelConfig as `status/reason` by type."""
        conditions = (await self.status(name)).get("conditions") or []
        return {each["type"]: f"{each['status']}/{each['reason']}" for each in conditions}

    async def until_reasons(self, name: str, **reasons: str) -> None:
        """Wait until the conditions of a SentinelConfig are these."""
        last: dict[str, str] = {}
        try:
            async with asyncio.timeout(TIMEOUT.total_seconds()):
                while not reasons.items() <= (last := await self.reasons(name)).items():  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_EVERY)
        except TimeoutError:
            raise AssertionError(f"expected {reasons}, got {last}") from None

    async def event_reasons(self) -> list[str]:
        found = [each async for chunk in self.api.list(EVENT, namespace=self.namespace) for each in chunk.items]
        return [str(event["reason"]) for event in found]

    async def until(self, is_true: Callable[[], object]) -> None:
        """Wait until a claim about received events holds."""
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            while not is_true():  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_EVERY)

    def times(self, resource_id: str) -> list[float]:
        """When the events of a resource arrived."""
        return [event.at for event in self.received if event.resource_id == resource_id]

    async def receive(self) -> None:
        """Receive events until cancelled."""
        while True:
            (message,) = await self._inbox.receive(1, timeout=timedelta(hours=1))
            body = msgspec.json.decode(message.body)
            now = asyncio.get_running_loop().time()
            self.received.append(ReceivedEvent(body["subject"], body["data"], now))


@asynccontextmanager
async def operator_world(
    *, kubeconfig: Path, namespace: str, rabbitmq_url: str, directory: Path
) -> AsyncIterator[OperatorWorld]:
    """Yield a world in this namespace of a server with the CRD. Operators are processes that the test starts."""
    async with AsyncExitStack() as stack:
        api = KubeClient(ApiConnection(find_access(kubeconfig=kubeconfig, environ={}), user_agent="test"))
        stack.push_async_callback(api.close)
        server = await stack.enter_async_context(
            ApiProcess(
                f"sqlite:///{directory / 'fleet.db'}",
                kinds=[{"plural": "clusters", "kind": "Cluster", "required_adapters": ["validation"]}],
                directory=directory,
            )
        )
        url = await server.url()
        fleet = await stack.enter_async_context(FleetHttp(url))
        inbox = await stack.enter_async_context(open_inbox(rabbitmq_url))
        world = OperatorWorld(
            api=api, namespace=namespace, kubeconfig=kubeconfig, fleet=fleet, fleet_url=url, inbox=inbox
        )
        receiving = asyncio.create_task(world.receive())
        try:
            yield world
        finally:
            receiving.cancel()
            await asyncio.wait({receiving})
