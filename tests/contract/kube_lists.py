"""The contract of `ports.kube.KubeApi.list`: consistent lists in chunks."""

from __future__ import annotations

import asyncio

import pytest

from sentinel.ports.kube import InvalidObject, KubeKind, ListChunk, ObjectNotFound, ResourceExpired
from sentinel.testing.kube.kinds import CONFIG_MAP, NAMESPACE
from tests.support.kube.objects import config_map, labelled
from tests.support.kube.server import Kube
from tests.support.kube.watching import TIMEOUT, member, watching
from tests.support.kube.widgets import WIDGET, widget

MISSING_KIND = KubeKind("contract.example.com", "v1", "Gadget", "gadgets")


def names(*chunks: ListChunk) -> list[str]:
    return [str(member(item, "metadata", "name")) for chunk in chunks for item in chunk.items]


async def create_many(kube: Kube, *wanted: str) -> None:
    for name in wanted:
        await kube.api.create(CONFIG_MAP, config_map(name), namespace=kube.namespace)


async def read(kube: Kube, **options: str | int) -> list[ListChunk]:
    """Read all chunks of the ConfigMaps in the test's namespace."""
    async with asyncio.timeout(TIMEOUT.total_seconds()):
        chunks = kube.api.list(CONFIG_MAP, **{"namespace": kube.namespace, **options})  # type: ignore[arg-type]
        return [chunk async for chunk in chunks]


class KubeListContract:
    """For every client of every server."""

    async def test_an_empty_list_is_one_chunk_with_a_version(self, kube: Kube) -> None:
        [chunk] = await read(kube)

        assert chunk.items == []
        assert int(chunk.resource_version) > 0

    async def test_items_have_their_kind_and_are_in_order(self, kube: Kube) -> None:
        await create_many(kube, "b", "a", "c")

        [chunk] = await read(kube)

        assert names(chunk) == ["a", "b", "c"]
        assert {(item["apiVersion"], item["kind"]) for item in chunk.items} == {("v1", "ConfigMap")}

    async def test_an_item_is_the_object(self, kube: Kube) -> None:
        created = await kube.api.create(WIDGET, widget("a"), namespace=kube.namespace)

        chunks = [chunk async for chunk in kube.api.list(WIDGET, namespace=kube.namespace)]

        assert [list(chunk.items) for chunk in chunks] == [[created]]

    async def test_chunks_have_a_size_and_one_version(self, kube: Kube) -> None:
        await create_many(kube, "a", "b", "c", "d", "e")

        chunks = await read(kube, chunk_size=2)

        assert [names(chunk) for chunk in chunks] == [["a", "b"], ["c", "d"], ["e"]]
        assert len({chunk.resource_version for chunk in chunks}) == 1

    async def test_later_chunks_are_as_of_the_first(self, kube: Kube) -> None:
        await create_many(kube, "a", "b", "d")
        chunks = kube.api.list(CONFIG_MAP, namespace=kube.namespace, chunk_size=1)
        first = await anext(chunks)

        await kube.api.delete(CONFIG_MAP, "b", namespace=kube.namespace)
        await create_many(kube, "c")
        rest = [chunk async for chunk in chunks]

        assert names(first, *rest) == ["a", "b", "d"]
        assert {chunk.resource_version for chunk in rest} == {first.resource_version}
        assert names(*await read(kube)) == ["a", "c", "d"]

    async def test_a_list_that_expires_cannot_be_continued(self, kube: Kube) -> None:
        await create_many(kube, "a", "b", "c")
        chunks = kube.api.list(CONFIG_MAP, namespace=kube.namespace, chunk_size=1)
        await anext(chunks)

        await create_many(kube, "d", "e")
        await kube.expire_versions()

        with pytest.raises(ResourceExpired) as caught:
            await anext(chunks)
        assert (caught.value.status, caught.value.reason) == (410, "Expired")
        assert names(*await read(kube)) == ["a", "b", "c", "d", "e"]

    async def test_labels_select(self, kube: Kube) -> None:
        for name, team in (("a", "x"), ("b", "y"), ("c", "x")):
            await kube.api.create(CONFIG_MAP, labelled(config_map(name), team=team), namespace=kube.namespace)
        await create_many(kube, "d")

        assert names(*await read(kube, label_selector="team=x")) == ["a", "c"]
        assert names(*await read(kube, label_selector="team notin (x)")) == ["b", "d"]
        assert names(*await read(kube, label_selector="team in (x,y),team!=y")) == ["a", "c"]
        assert names(*await read(kube, label_selector="!team")) == ["d"]

    async def test_selected_items_come_in_chunks_too(self, kube: Kube) -> None:
        for name, team in (("a", "x"), ("b", "y"), ("c", "x"), ("d", "x")):
            await kube.api.create(CONFIG_MAP, labelled(config_map(name), team=team), namespace=kube.namespace)

        chunks = await read(kube, label_selector="team=x", chunk_size=2)

        assert names(*chunks) == ["a", "c", "d"]

    async def test_fields_select(self, kube: Kube) -> None:
        await create_many(kube, "a", "b")

        assert names(*await read(kube, field_selector="metadata.name=b")) == ["b"]
        assert names(*await read(kube, field_selector="metadata.name!=b")) == ["a"]

    async def test_all_namespaces_can_be_listed(self, kube: Kube) -> None:
        await create_many(kube, "only-in-this-test")
        selector = f"metadata.namespace={kube.namespace}"

        assert names(*await read(kube, namespace="", field_selector=selector)) == ["only-in-this-test"]

    async def test_kinds_without_namespaces_can_be_listed(self, kube: Kube) -> None:
        selector = f"metadata.name={kube.namespace}"

        chunks = [chunk async for chunk in kube.api.list(NAMESPACE, field_selector=selector)]

        assert names(*chunks) == [kube.namespace]

    async def test_a_watch_continues_from_a_list(self, kube: Kube) -> None:
        await create_many(kube, "a")
        [chunk] = await read(kube)
        await create_many(kube, "b")

        changes = kube.api.watch(CONFIG_MAP, namespace=kube.namespace, resource_version=chunk.resource_version)

        async with watching(changes) as watch:
            assert await watch.changes(1) == ["changed b"]

    async def test_a_wrong_selector_is_invalid(self, kube: Kube) -> None:
        with pytest.raises(InvalidObject) as labels:
            await read(kube, label_selector="a in b")
        with pytest.raises(InvalidObject) as fields:
            await read(kube, field_selector="data.x=1")

        assert (labels.value.status, fields.value.status) == (400, 400)

    async def test_a_kind_that_is_not_served_is_not_found(self, kube: Kube) -> None:
        with pytest.raises(ObjectNotFound):
            await anext(kube.api.list(MISSING_KIND, namespace=kube.namespace))
