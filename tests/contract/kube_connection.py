"""The contract of `ports.kube.KubeApi` when connections fail, and when the server restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

import pytest

from sentinel.ports.kube import KubeUnavailable, WatchEvent
from sentinel.testing.kube.kinds import CONFIG_MAP
from tests.contract.kube_watch import current_version, watch_from_now
from tests.support.kube.objects import config_map
from tests.support.kube.server import Kube
from tests.support.kube.watching import TIMEOUT, member, version, watching
from tests.support.loop_time import HOUR, LoopTime

T = TypeVar("T")
SHORT = timedelta(milliseconds=200)


async def eventually(call: Callable[[], Awaitable[T]]) -> T:
    """Retry a call until the server is available."""
    async with asyncio.timeout(TIMEOUT.total_seconds()):
        while True:
            try:
                return await call()
            except KubeUnavailable:
                await asyncio.sleep(0.05)


class KubeConnectionContract:
    """For every client of every server. The faults are those of a proxy, and the same for all."""

    async def test_a_refused_connection_is_unavailable_until_it_is_accepted(self, kube: Kube) -> None:
        await kube.api.create(CONFIG_MAP, config_map("a"), namespace=kube.namespace)
        await kube.proxy.cut()

        with pytest.raises(KubeUnavailable):
            await kube.api.get(CONFIG_MAP, "a", namespace=kube.namespace)
        await kube.proxy.accept()

        assert await kube.api.get(CONFIG_MAP, "a", namespace=kube.namespace)

    async def test_a_server_that_does_not_respond_is_unavailable(self, kube: Kube) -> None:
        await kube.api.create(CONFIG_MAP, config_map("a"), namespace=kube.namespace)
        client = kube.client(timeout=SHORT)
        kube.proxy.hold_responses()

        with pytest.raises(KubeUnavailable):
            await client.get(CONFIG_MAP, "a", namespace=kube.namespace)
        kube.proxy.release_responses()

        assert await kube.api.get(CONFIG_MAP, "a", namespace=kube.namespace)

    async def test_a_list_that_is_cut_is_unavailable(self, kube: Kube) -> None:
        for name in ("a", "b"):
            await kube.api.create(CONFIG_MAP, config_map(name), namespace=kube.namespace)
        chunks = kube.api.list(CONFIG_MAP, namespace=kube.namespace, chunk_size=1)
        await anext(chunks)
        await kube.proxy.cut()

        with pytest.raises(KubeUnavailable):
            await anext(chunks)

    @pytest.mark.parametrize("how", ["cut", "reset"])
    async def test_a_lost_watch_is_unavailable_and_can_be_continued(self, kube: Kube, how: str) -> None:
        async with watching(await watch_from_now(kube)) as watch:
            created = await kube.direct.create(CONFIG_MAP, config_map("a"), namespace=kube.namespace)
            assert await watch.changes(1) == ["changed a"]
            await (kube.proxy.cut() if how == "cut" else kube.proxy.reset())

            assert isinstance(await watch.end(), KubeUnavailable)
        await kube.direct.delete(CONFIG_MAP, "a", namespace=kube.namespace)
        await kube.proxy.accept()

        again = kube.api.watch(CONFIG_MAP, namespace=kube.namespace, resource_version=version(created))

        async with watching(again) as watch:
            assert await watch.changes(1) == ["deleted a"]

    async def test_a_silent_watch_ends_normally(self, kube: Kube) -> None:
        loop_time = LoopTime()
        client = kube.client(idle_timeout=HOUR)
        start = await current_version(kube)

        async with watching(client.watch(CONFIG_MAP, namespace=kube.namespace, resource_version=start)) as watch:
            await kube.direct.create(CONFIG_MAP, config_map("a"), namespace=kube.namespace)
            await watch.changes(1)
            kube.proxy.hold_responses()
            await loop_time.advance_until(lambda: watch.has_ended)

            assert await watch.end() is None

    async def test_the_server_ends_a_watch_after_its_time(self, kube: Kube) -> None:
        client = kube.client(watch_timeout=timedelta(seconds=1))
        start = await current_version(kube)

        async with watching(client.watch(CONFIG_MAP, namespace=kube.namespace, resource_version=start)) as watch:
            assert await watch.end() is None

    async def test_closing_the_iterator_closes_the_connection(self, kube: Kube) -> None:
        changes = await watch_from_now(kube)
        async with watching(changes) as watch:
            await kube.direct.create(CONFIG_MAP, config_map("a"), namespace=kube.namespace)
            await watch.changes(1)
            connections = kube.proxy.open

        async with asyncio.timeout(TIMEOUT.total_seconds()):
            while kube.proxy.open >= connections:  # noqa: ASYNC110 - the proxy has no event for it
                await asyncio.sleep(0.01)

    async def test_closing_the_client_ends_its_watches(self, kube: Kube) -> None:
        client = kube.client()
        start = await current_version(kube)
        async with watching(client.watch(CONFIG_MAP, namespace=kube.namespace, resource_version=start)) as watch:
            await kube.direct.create(CONFIG_MAP, config_map("a"), namespace=kube.namespace)
            await watch.changes(1)

            await client.close()
            await client.close()

            await watch.end()

    async def test_objects_and_versions_survive_a_restart(self, kube: Kube) -> None:
        created = await kube.api.create(CONFIG_MAP, config_map("a", x="1"), namespace=kube.namespace)

        await kube.restart()

        found = await eventually(lambda: kube.api.get(CONFIG_MAP, "a", namespace=kube.namespace))
        assert found == created

    async def test_a_restart_ends_watches_and_they_can_be_continued(self, kube: Kube) -> None:
        async with watching(await watch_from_now(kube)) as watch:
            created = await kube.api.create(CONFIG_MAP, config_map("a"), namespace=kube.namespace)
            await watch.changes(1)

            await kube.restart()

            error = await watch.end()
        assert error is None or isinstance(error, KubeUnavailable)
        await eventually(
            lambda: kube.api.merge_patch(CONFIG_MAP, "a", {"data": {"x": "2"}}, namespace=kube.namespace)
        )

        def again() -> AsyncGenerator[WatchEvent, None]:
            return kube.api.watch(CONFIG_MAP, namespace=kube.namespace, resource_version=version(created))

        async def next_change() -> object:
            async with watching(again()) as watch:
                event = await watch.next()
                return member(event.object, "data", "x")

        assert await next_change() == "2"
