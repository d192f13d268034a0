"""The contract of `ports.kube.KubeApi.watch`: changes in order, bookmarks, and versions that expire."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import timedelta

from sentinel.ports.kube import (
    Bookmark,
    KubeApi,
    KubeKind,
    KubeObject,
    ObjectChanged,
    ObjectDeleted,
    ResourceExpired,
    WatchEvent,
)
from sentinel.testing.kube.kinds import CONFIG_MAP, NAMESPACE, SECRET
from tests.support.kube.objects import config_map, labelled
from tests.support.kube.server import Kube
from tests.support.kube.watching import member, version, watching
from tests.support.kube.widgets import WIDGET, widget

BOOKMARKED = SECRET
"""Bookmarks are tested on a kind whose versions are not expired; see `ControlledServer`."""


async def current_version(kube: Kube, kind: KubeKind = CONFIG_MAP) -> str:
    """Return the version of the server now."""
    chunks = [chunk async for chunk in kube.api.list(kind, namespace=kube.namespace)]
    return chunks[-1].resource_version


async def watch_from_now(kube: Kube, *, label_selector: str = "") -> AsyncGenerator[WatchEvent, None]:
    """Watch the ConfigMaps of the test's namespace."""
    return kube.api.watch(
        CONFIG_MAP,
        namespace=kube.namespace,
        resource_version=await current_version(kube),
        label_selector=label_selector,
    )


class KubeWatchContract:
    """For every client of every server."""

    async def test_every_change_comes_in_order(self, kube: Kube) -> None:
        ns = kube.namespace
        async with watching(await watch_from_now(kube)) as watch:
            await kube.api.create(CONFIG_MAP, config_map("a", x="1"), namespace=ns)
            await kube.api.create(CONFIG_MAP, config_map("b"), namespace=ns)
            await kube.api.merge_patch(CONFIG_MAP, "a", {"data": {"x": "2"}}, namespace=ns)
            await kube.api.delete(CONFIG_MAP, "b", namespace=ns)
            await kube.api.delete(CONFIG_MAP, "a", namespace=ns)

            assert await watch.changes(5) == ["changed a", "changed b", "changed a", "deleted b", "deleted a"]

    async def test_an_event_has_the_object(self, kube: Kube) -> None:
        async with watching(await watch_from_now(kube)) as watch:
            created = await kube.api.create(CONFIG_MAP, config_map("a", x="1"), namespace=kube.namespace)
            patched = await kube.api.merge_patch(CONFIG_MAP, "a", {"data": {"x": "2"}}, namespace=kube.namespace)

            assert await watch.next() == ObjectChanged(created)
            assert await watch.next() == ObjectChanged(patched)

    async def test_a_deletion_has_the_last_state_and_a_newer_version(self, kube: Kube) -> None:
        created = await kube.api.create(CONFIG_MAP, config_map("a", x="1"), namespace=kube.namespace)
        async with watching(await watch_from_now(kube)) as watch:
            await kube.api.delete(CONFIG_MAP, "a", namespace=kube.namespace)

            event = await watch.next()

        assert isinstance(event, ObjectDeleted)
        assert event.object["data"] == {"x": "1"}
        assert int(version(event.object)) > int(version(created))

    async def test_what_happened_before_the_watch_comes_too(self, kube: Kube) -> None:
        start = await current_version(kube)
        await kube.api.create(CONFIG_MAP, config_map("a"), namespace=kube.namespace)
        await kube.api.delete(CONFIG_MAP, "a", namespace=kube.namespace)

        changes = kube.api.watch(CONFIG_MAP, namespace=kube.namespace, resource_version=start)

        async with watching(changes) as watch:
            assert await watch.changes(2) == ["changed a", "deleted a"]

    async def test_a_watch_continues_after_any_event(self, kube: Kube) -> None:
        start = await current_version(kube)
        for name in ("a", "b", "c"):
            await kube.api.create(CONFIG_MAP, config_map(name), namespace=kube.namespace)
        first = kube.api.watch(CONFIG_MAP, namespace=kube.namespace, resource_version=start)
        async with watching(first) as watch:
            event = await watch.next()

        second = kube.api.watch(CONFIG_MAP, namespace=kube.namespace, resource_version=version(event.object))

        async with watching(second) as watch:
            assert await watch.changes(2) == ["changed b", "changed c"]

    async def test_objects_that_lose_the_label_are_deleted(self, kube: Kube) -> None:
        ns = kube.namespace
        async with watching(await watch_from_now(kube, label_selector="team=x")) as watch:
            await kube.api.create(CONFIG_MAP, labelled(config_map("a", v="1"), team="x"), namespace=ns)
            await kube.api.create(CONFIG_MAP, labelled(config_map("b"), team="y"), namespace=ns)
            left = await kube.api.merge_patch(
                CONFIG_MAP, "a", {"metadata": {"labels": {"team": None}}, "data": {"v": "2"}}, namespace=ns
            )
            await kube.api.merge_patch(CONFIG_MAP, "b", {"metadata": {"labels": {"team": "x"}}}, namespace=ns)
            await kube.api.delete(CONFIG_MAP, "a", namespace=ns)
            await kube.api.delete(CONFIG_MAP, "b", namespace=ns)

            entered, lost = await watch.next(), await watch.next()
            assert isinstance(entered, ObjectChanged)
            assert isinstance(lost, ObjectDeleted)
            assert member(lost.object, "metadata", "name") == "a"
            assert lost.object["data"] == {"v": "1"}
            assert version(lost.object) == version(left)
            assert await watch.changes(2) == ["changed b", "deleted b"]

    async def test_fields_select(self, kube: Kube) -> None:
        changes = kube.api.watch(
            CONFIG_MAP,
            namespace=kube.namespace,
            resource_version=await current_version(kube),
            field_selector="metadata.name=b",
        )
        async with watching(changes) as watch:
            for name in ("a", "b", "c"):
                await kube.api.create(CONFIG_MAP, config_map(name), namespace=kube.namespace)
            await kube.api.delete(CONFIG_MAP, "b", namespace=kube.namespace)

            assert await watch.changes(2) == ["changed b", "deleted b"]

    async def test_only_the_namespace_is_watched(self, kube: Kube) -> None:
        async with watching(await watch_from_now(kube)) as watch:
            other = f"{kube.namespace}-other"
            await kube.api.create(NAMESPACE, {"metadata": {"name": other}})
            await kube.api.create(CONFIG_MAP, config_map("there"), namespace=other)
            await kube.api.create(CONFIG_MAP, config_map("here"), namespace=kube.namespace)

            assert await watch.changes(1) == ["changed here"]

    async def test_all_namespaces_can_be_watched(self, kube: Kube) -> None:
        changes = kube.api.watch(
            WIDGET, resource_version=await current_version(kube, WIDGET), label_selector=f"of={kube.namespace}"
        )
        async with watching(changes) as watch:
            await kube.api.create(WIDGET, labelled(widget("a"), of=kube.namespace), namespace=kube.namespace)

            assert await watch.changes(1) == ["changed a"]

    async def test_a_status_is_a_change_too(self, kube: Kube) -> None:
        await kube.api.create(WIDGET, widget("a"), namespace=kube.namespace)
        start = await current_version(kube, WIDGET)
        async with watching(kube.api.watch(WIDGET, namespace=kube.namespace, resource_version=start)) as watch:
            written = await kube.api.merge_patch(
                WIDGET, "a", {"status": {"phase": "x"}}, namespace=kube.namespace, subresource="status"
            )

            assert await watch.next() == ObjectChanged(written)

    async def test_a_write_that_changes_nothing_is_no_event(self, kube: Kube) -> None:
        body = config_map("a", x="1")
        await kube.api.apply(CONFIG_MAP, body, field_manager="one", namespace=kube.namespace)
        async with watching(await watch_from_now(kube)) as watch:
            await kube.api.apply(CONFIG_MAP, body, field_manager="one", namespace=kube.namespace)
            await kube.api.create(CONFIG_MAP, config_map("b"), namespace=kube.namespace)

            assert await watch.changes(1) == ["changed b"]

    async def test_a_finalizer_makes_two_events_of_a_deletion(self, kube: Kube) -> None:
        metadata: KubeObject = {"name": "a", "finalizers": ["contract.example.com/hold"]}
        await kube.api.create(CONFIG_MAP, {**config_map("a"), "metadata": metadata}, namespace=kube.namespace)
        async with watching(await watch_from_now(kube)) as watch:
            await kube.api.delete(CONFIG_MAP, "a", namespace=kube.namespace)
            await kube.api.merge_patch(
                CONFIG_MAP, "a", {"metadata": {"finalizers": None}}, namespace=kube.namespace
            )

            assert await watch.changes(2) == ["changed a", "deleted a"]


class KubeBookmarkContract:
    """A server sends a bookmark only if something changed after the watch had begun."""

    async def test_a_bookmark_says_that_other_objects_changed(self, kube: Kube) -> None:
        start = await current_version(kube, BOOKMARKED)

        changed, bookmark = await self.bookmark_after_change(kube, start)

        assert int(bookmark.resource_version) >= int(changed)

    async def test_a_watch_continues_from_a_bookmark(self, kube: Kube) -> None:
        start = await current_version(kube, BOOKMARKED)
        _, bookmark = await self.bookmark_after_change(kube, start)
        await self.create_secret(kube, "selected", team="x")

        second = self.watch(kube.api, kube, bookmark.resource_version)

        async with watching(second) as watch:
            assert await watch.changes(1) == ["changed selected"]

    def watch(self, client: KubeApi, kube: Kube, start: str) -> AsyncGenerator[WatchEvent, None]:
        return client.watch(BOOKMARKED, namespace=kube.namespace, resource_version=start, label_selector="team=x")

    async def create_secret(self, kube: Kube, name: str, **labels: str) -> str:
        body = labelled({**config_map(name), "kind": "Secret"}, **labels)
        return version(await kube.api.create(BOOKMARKED, body, namespace=kube.namespace))

    async def bookmark_after_change(self, kube: Kube, start: str) -> tuple[str, Bookmark]:
        """Change an object that a watch does not select, and return its version and the bookmark after it."""
        client = kube.client(watch_timeout=timedelta(seconds=4))  # a bookmark comes 2 seconds before the end
        async with watching(self.watch(client, kube, start)) as watch:
            await self.create_secret(kube, "first", team="x")
            await watch.next()  # the watch is open now
            changed = await self.create_secret(kube, "other")
            while int((bookmark := await watch.bookmark()).resource_version) < int(changed):
                pass
            return changed, bookmark


class KubeExpiryContract:
    async def test_an_old_version_has_expired(self, kube: Kube) -> None:
        for kind, body in ((CONFIG_MAP, config_map("a")), (WIDGET, widget("a"))):
            start = await current_version(kube, kind)
            await kube.api.create(kind, body, namespace=kube.namespace)
            await kube.api.delete(kind, "a", namespace=kube.namespace)
            await kube.expire_versions()

            async with watching(kube.api.watch(kind, namespace=kube.namespace, resource_version=start)) as watch:
                error = await watch.end()

            assert isinstance(error, ResourceExpired)
            assert (error.status, error.reason) == (410, "Expired")

    async def test_the_current_version_has_not_expired(self, kube: Kube) -> None:
        await kube.api.create(CONFIG_MAP, config_map("a"), namespace=kube.namespace)
        await kube.expire_versions()
        start = await current_version(kube)
        await kube.api.create(CONFIG_MAP, config_map("b"), namespace=kube.namespace)

        changes = kube.api.watch(CONFIG_MAP, namespace=kube.namespace, resource_version=start)

        async with watching(changes) as watch:
            assert await watch.changes(1) == ["changed b"]

    async def test_an_open_watch_goes_on_when_its_version_expires(self, kube: Kube) -> None:
        async with watching(await watch_from_now(kube)) as watch:
            await kube.api.create(CONFIG_MAP, config_map("a"), namespace=kube.namespace)
            assert await watch.changes(1) == ["changed a"]
            await kube.api.create(WIDGET, widget("a"), namespace=kube.namespace)
            await kube.expire_versions()
            await kube.api.create(CONFIG_MAP, config_map("b"), namespace=kube.namespace)

            assert await watch.changes(1) == ["changed b"]

    async def test_a_deletion_in_the_gap_is_in_the_next_list(self, kube: Kube) -> None:
        for name in ("a", "b"):
            await kube.api.create(CONFIG_MAP, config_map(name), namespace=kube.namespace)
        start = await current_version(kube)
        await kube.api.delete(CONFIG_MAP, "a", namespace=kube.namespace)
        await kube.api.create(CONFIG_MAP, config_map("c"), namespace=kube.namespace)
        await kube.expire_versions()
        async with watching(kube.api.watch(CONFIG_MAP, namespace=kube.namespace, resource_version=start)) as watch:
            assert isinstance(await watch.end(), ResourceExpired)

        chunks = [chunk async for chunk in kube.api.list(CONFIG_MAP, namespace=kube.namespace)]

        found = [member(item, "metadata", "name") for chunk in chunks for item in chunk.items]
        assert found == ["b", "c"]
