"""The reflector on every API server: it sees every change, whatever happens to its connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from sentinel.ports.kube import KubeApi, KubeObject
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.kube.changes import Added, Change, Deleted, Listed, ListReason, Modified, Observation
from sentinel.runtime.kube.reflector import Reflector
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import get_logger
from sentinel.testing.kube.kinds import CONFIG_MAP
from tests.contract.kube_connection import eventually
from tests.support.kube.objects import config_map
from tests.support.kube.server import Kube
from tests.support.kube.watching import TIMEOUT

_QUICK = Backoff(initial=timedelta(milliseconds=20), maximum=timedelta(milliseconds=200))


class Reflecting:
    """A reflector that runs, and what it tells."""

    def __init__(self, api: KubeApi, namespace: str) -> None:
        self._changes: asyncio.Queue[str] = asyncio.Queue()
        self.lists: list[ListReason] = []
        self.reflector = Reflector[KubeObject](
            api=api,
            kind=CONFIG_MAP,
            namespace=namespace,
            handler=self._handle,
            observe=self._observe,
            clock=SystemClock(),
            log=get_logger("test"),
            backoff=_QUICK,
        )

    async def changes(self, count: int) -> list[str]:
        """Return the next changes as texts: `added a`, `deleted b`."""
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            return [await self._changes.get() for _ in range(count)]

    def _handle(self, change: Change[KubeObject]) -> None:
        match change:
            case Added():
                verb = "added"
            case Modified():
                verb = "modified"
            case Deleted():
                verb = "deleted"
        self._changes.put_nowait(f"{verb} {change.key.name}")

    def _observe(self, observation: Observation) -> None:
        if isinstance(observation, Listed):
            self.lists.append(observation.reason)


@asynccontextmanager
async def reflecting(api: KubeApi, namespace: str) -> AsyncIterator[Reflecting]:
    """Run a reflector that has synced."""
    running, stopping = Reflecting(api, namespace), Stopping()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(running.reflector.run(stopping))
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            await running.reflector.wait_until_synced()
        try:
            yield running
        finally:
            stopping.request()


class KubeReflectorContract:
    """For every client of every server."""

    async def test_a_reflector_tells_every_change(self, kube: Kube) -> None:
        await kube.direct.create(CONFIG_MAP, config_map("a"), namespace=kube.namespace)
        async with reflecting(kube.api, kube.namespace) as running:
            assert await running.changes(1) == ["added a"]

            await kube.direct.create(CONFIG_MAP, config_map("b"), namespace=kube.namespace)
            await kube.direct.merge_patch(CONFIG_MAP, "a", {"data": {"x": "1"}}, namespace=kube.namespace)
            await kube.direct.delete(CONFIG_MAP, "a", namespace=kube.namespace)

            assert await running.changes(3) == ["added b", "modified a", "deleted a"]
            assert running.reflector.problem() is None

    async def test_a_reflector_resumes_after_a_reset(self, kube: Kube) -> None:
        async with reflecting(kube.api, kube.namespace) as running:
            await kube.proxy.reset()
            await kube.direct.create(CONFIG_MAP, config_map("a"), namespace=kube.namespace)

            assert await running.changes(1) == ["added a"]
            assert running.lists == [ListReason.FIRST]

    async def test_a_reflector_resumes_when_connections_are_accepted_again(self, kube: Kube) -> None:
        await kube.direct.create(CONFIG_MAP, config_map("a"), namespace=kube.namespace)
        async with reflecting(kube.api, kube.namespace) as running:
            await running.changes(1)
            await kube.proxy.cut()
            await kube.direct.delete(CONFIG_MAP, "a", namespace=kube.namespace)
            await kube.proxy.accept()

            assert await running.changes(1) == ["deleted a"]

    async def test_a_reflector_sees_a_deletion_in_an_expired_gap(self, kube: Kube) -> None:
        for name in ("a", "b"):
            await kube.direct.create(CONFIG_MAP, config_map(name), namespace=kube.namespace)
        async with reflecting(kube.api, kube.namespace) as running:
            await running.changes(2)
            await kube.proxy.cut()
            await kube.direct.delete(CONFIG_MAP, "a", namespace=kube.namespace)
            for number in range(5):
                patch: KubeObject = {"data": {"x": str(number)}}
                await kube.direct.merge_patch(CONFIG_MAP, "b", patch, namespace=kube.namespace)
            await kube.expire_versions()
            await kube.proxy.accept()

            assert sorted(await running.changes(2)) == ["deleted a", "modified b"]
            assert running.lists == [ListReason.FIRST, ListReason.EXPIRED]

    async def test_a_reflector_notices_a_dead_stream(self, kube: Kube) -> None:
        client = kube.client(idle_timeout=timedelta(milliseconds=300), timeout=timedelta(seconds=1))
        async with reflecting(client, kube.namespace) as running:
            kube.proxy.hold_responses()
            await kube.direct.create(CONFIG_MAP, config_map("a"), namespace=kube.namespace)
            kube.proxy.release_responses()

            assert await running.changes(1) == ["added a"]

    async def test_a_reflector_survives_a_restarted_server(self, kube: Kube) -> None:
        async with reflecting(kube.api, kube.namespace) as running:
            await kube.restart()
            await eventually(lambda: kube.direct.create(CONFIG_MAP, config_map("a"), namespace=kube.namespace))

            assert await running.changes(1) == ["added a"]
