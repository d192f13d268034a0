"""The contract of `ports.kube.KubeApi.apply`: server-side apply."""

from __future__ import annotations

import pytest

from sentinel.core.json import Json
from sentinel.ports.kube import Conflict, InvalidObject, KubeObject, ObjectNotFound
from sentinel.testing.kube.kinds import CONFIG_MAP, STATEFUL_SET
from tests.support.kube.objects import config_map, container, labelled, owners, stateful_set
from tests.support.kube.server import Kube
from tests.support.kube.watching import member, version
from tests.support.kube.widgets import WIDGET, widget


async def apply(kube: Kube, body: KubeObject, manager: str, *, is_forced: bool = False) -> KubeObject:
    """Apply a ConfigMap, a Widget or a StatefulSet."""
    kind = next(each for each in (CONFIG_MAP, WIDGET, STATEFUL_SET) if each.kind == body["kind"])
    return await kube.api.apply(kind, body, field_manager=manager, namespace=kube.namespace, is_forced=is_forced)


class KubeApplyContract:
    """For every client of every server."""

    async def test_an_apply_creates_the_object(self, kube: Kube) -> None:
        applied = await apply(kube, config_map("a", x="1"), "one")

        assert applied["data"] == {"x": "1"}
        assert owners(applied) == {"one Apply": {"f:data": {"f:x": {}}}}
        assert await kube.api.get(CONFIG_MAP, "a", namespace=kube.namespace) == applied

    async def test_the_same_apply_changes_nothing(self, kube: Kube) -> None:
        first = await apply(kube, config_map("a", x="1"), "one")

        assert await apply(kube, config_map("a", x="1"), "one") == first

    async def test_an_omitted_field_is_removed(self, kube: Kube) -> None:
        await apply(kube, config_map("a", x="1", y="1"), "one")

        applied = await apply(kube, config_map("a", x="1"), "one")

        assert applied["data"] == {"x": "1"}
        assert owners(applied) == {"one Apply": {"f:data": {"f:x": {}}}}

    async def test_fields_of_others_stay(self, kube: Kube) -> None:
        await apply(kube, config_map("a", x="1"), "one")
        await apply(kube, config_map("a", y="1"), "two")

        applied = await apply(kube, config_map("a", z="1"), "one")

        assert applied["data"] == {"y": "1", "z": "1"}

    async def test_another_value_is_a_conflict(self, kube: Kube) -> None:
        first = await apply(kube, config_map("a", x="1"), "one")

        with pytest.raises(Conflict) as caught:
            await apply(kube, config_map("a", x="2", y="2"), "two")

        [cause] = caught.value.causes
        assert (cause.field, cause.reason) == (".data.x", "FieldManagerConflict")
        assert cause.message == 'conflict with "one"'
        assert str(caught.value) == 'Apply failed with 1 conflict: conflict with "one": .data.x'
        assert await kube.api.get(CONFIG_MAP, "a", namespace=kube.namespace) == first

    async def test_every_conflict_is_a_cause(self, kube: Kube) -> None:
        await apply(kube, config_map("a", x="1", y="1"), "one")

        with pytest.raises(Conflict) as caught:
            await apply(kube, config_map("a", x="2", y="2"), "two")

        assert sorted(cause.field for cause in caught.value.causes) == [".data.x", ".data.y"]

    async def test_a_forced_apply_takes_the_field(self, kube: Kube) -> None:
        await apply(kube, config_map("a", x="1", y="1"), "one")

        applied = await apply(kube, config_map("a", x="2"), "two", is_forced=True)

        assert applied["data"] == {"x": "2", "y": "1"}
        assert owners(applied) == {
            "one Apply": {"f:data": {"f:y": {}}},
            "two Apply": {"f:data": {"f:x": {}}},
        }

    async def test_the_same_value_is_shared(self, kube: Kube) -> None:
        await apply(kube, config_map("a", x="1"), "one")
        shared = await apply(kube, config_map("a", x="1"), "two")

        left = await apply(kube, config_map("a"), "one")

        assert owners(shared) == {
            "one Apply": {"f:data": {"f:x": {}}},
            "two Apply": {"f:data": {"f:x": {}}},
        }
        assert left["data"] == {"x": "1"}
        assert owners(left) == {"two Apply": {"f:data": {"f:x": {}}}}

    async def test_an_update_takes_the_field_without_a_conflict(self, kube: Kube) -> None:
        await apply(kube, config_map("a", x="1", y="1"), "one")

        patched = await kube.api.merge_patch(
            CONFIG_MAP, "a", {"data": {"x": "2"}}, namespace=kube.namespace, field_manager="editor"
        )

        assert owners(patched) == {
            "one Apply": {"f:data": {"f:y": {}}},
            "editor Update": {"f:data": {"f:x": {}}},
        }

    async def test_what_an_update_took_is_a_conflict_until_forced(self, kube: Kube) -> None:
        await apply(kube, config_map("a", x="1"), "one")
        await kube.api.merge_patch(
            CONFIG_MAP, "a", {"data": {"x": "2"}}, namespace=kube.namespace, field_manager="editor"
        )

        with pytest.raises(Conflict) as caught:
            await apply(kube, config_map("a", x="1"), "one")
        applied = await apply(kube, config_map("a", x="1"), "one", is_forced=True)

        assert caught.value.causes[0].message.startswith('conflict with "editor" using v1')
        assert owners(applied) == {"one Apply": {"f:data": {"f:x": {}}}}

    async def test_a_removed_field_comes_back_with_the_next_apply(self, kube: Kube) -> None:
        await apply(kube, config_map("a", x="1", y="1"), "one")
        await kube.api.merge_patch(
            CONFIG_MAP, "a", {"data": {"x": None}}, namespace=kube.namespace, field_manager="editor"
        )

        applied = await apply(kube, config_map("a", x="1", y="1"), "one")

        assert applied["data"] == {"x": "1", "y": "1"}

    async def test_a_dry_run_stores_nothing(self, kube: Kube) -> None:
        first = await apply(kube, config_map("a", x="1"), "one")

        planned = await kube.api.apply(
            CONFIG_MAP, config_map("a", x="2"), field_manager="one", namespace=kube.namespace, is_dry_run=True
        )
        with pytest.raises(Conflict):
            await kube.api.apply(
                CONFIG_MAP, config_map("a", x="2"), field_manager="two", namespace=kube.namespace, is_dry_run=True
            )

        assert planned["data"] == {"x": "2"}
        assert await kube.api.get(CONFIG_MAP, "a", namespace=kube.namespace) == first

    async def test_an_apply_may_name_the_version_it_expects(self, kube: Kube) -> None:
        first = await apply(kube, config_map("a", x="1"), "one")
        locked: KubeObject = {
            **config_map("a", x="2"),
            "metadata": {"name": "a", "resourceVersion": version(first)},
        }
        await apply(kube, locked, "one")

        with pytest.raises(Conflict) as caught:
            await apply(kube, {**locked, "data": {"x": "3"}}, "one")

        assert caught.value.causes == ()

    async def test_an_apply_must_not_have_managed_fields(self, kube: Kube) -> None:
        applied = await apply(kube, config_map("a", x="1"), "one")

        with pytest.raises(InvalidObject, match="managedFields"):
            await apply(kube, applied, "one")

    async def test_an_applied_object_is_validated(self, kube: Kube) -> None:
        with pytest.raises(InvalidObject) as caught:
            await apply(kube, widget("a", color="green"), "one")

        assert [cause.field for cause in caught.value.causes] == ["spec.color"]


class KubeApplyListContract:
    """Lists in server-side apply."""

    async def test_containers_have_owners_by_name(self, kube: Kube) -> None:
        ports: list[Json] = [{"containerPort": 8200}]
        await apply(kube, stateful_set("a", container("app", ports=ports)), "one")

        applied = await apply(kube, stateful_set("a", container("sidecar")), "two")

        assert _names(member(applied, "spec", "template", "spec", "containers")) == ["app", "sidecar"]
        found = member(_fields(applied, "two Apply"), "f:spec", "f:template", "f:spec", "f:containers")
        assert found == {'k:{"name":"sidecar"}': {".": {}, "f:image": {}, "f:name": {}}}
        one = member(_fields(applied, "one Apply"), "f:spec", "f:template", "f:spec", "f:containers")
        assert member({"x": one}, "x", 'k:{"name":"app"}', "f:ports") == {
            'k:{"containerPort":8200,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}
        }

    async def test_an_image_in_a_keyed_list_is_a_conflict(self, kube: Kube) -> None:
        await apply(kube, stateful_set("a", container("app", image="x:1")), "one")

        with pytest.raises(Conflict) as caught:
            await apply(kube, stateful_set("a", container("app", image="x:2")), "two")

        assert [cause.field for cause in caught.value.causes] == [
            '.spec.template.spec.containers[name="app"].image'
        ]

    async def test_an_omitted_item_is_removed(self, kube: Kube) -> None:
        await apply(kube, stateful_set("a", container("app"), container("sidecar")), "one")

        applied = await apply(kube, stateful_set("a", container("app")), "one")

        assert _names(member(applied, "spec", "template", "spec", "containers")) == ["app"]

    async def test_items_of_a_custom_resource_merge_by_key(self, kube: Kube) -> None:
        await apply(kube, widget("a", parts=[{"name": "x", "weight": 1}]), "one")
        second: KubeObject = {**widget("a"), "spec": {"parts": [{"name": "x", "note": "n"}, {"name": "y"}]}}

        applied = await apply(kube, second, "two")

        assert member(applied, "spec", "parts") == [{"name": "x", "weight": 1, "note": "n"}, {"name": "y"}]
        assert owners(applied)["two Apply"] == {
            "f:spec": {
                "f:parts": {
                    'k:{"name":"x"}': {".": {}, "f:name": {}, "f:note": {}},
                    'k:{"name":"y"}': {".": {}, "f:name": {}},
                }
            }
        }

    async def test_sets_merge_by_value(self, kube: Kube) -> None:
        await apply(kube, widget("a", tags=["x"]), "one")
        second: KubeObject = {**widget("a"), "spec": {"tags": ["y"]}}

        applied = await apply(kube, second, "two")
        left = await apply(kube, widget("a"), "one")

        assert member(applied, "spec", "tags") == ["x", "y"]
        assert owners(applied)["two Apply"] == {"f:spec": {"f:tags": {'v:"y"': {}}}}
        assert member(left, "spec", "tags") == ["y"]

    async def test_a_plain_list_has_one_owner(self, kube: Kube) -> None:
        await apply(kube, widget("a", steps=["x"]), "one")
        second: KubeObject = {**widget("a"), "spec": {"steps": ["x", "y"]}}

        with pytest.raises(Conflict) as caught:
            await apply(kube, second, "two")

        assert [cause.field for cause in caught.value.causes] == [".spec.steps"]

    async def test_members_of_a_map_have_owners(self, kube: Kube) -> None:
        await apply(kube, widget("a", labels={"x": "1"}), "one")
        second: KubeObject = {**widget("a"), "spec": {"labels": {"y": "1"}}}

        applied = await apply(kube, second, "two")

        assert member(applied, "spec", "labels") == {"x": "1", "y": "1"}
        assert owners(applied)["two Apply"] == {"f:spec": {"f:labels": {"f:y": {}}}}


class KubeApplyStatusContract:
    """The status subresource in server-side apply."""

    async def test_a_status_is_applied_and_owned_separately(self, kube: Kube) -> None:
        await apply(kube, widget("a"), "one")

        applied = await self.apply_status(kube, "Ready", "one")
        kept = await apply(kube, widget("a", size=2), "one")

        assert member(applied, "status", "conditions") == [{"type": "Ready", "status": "True"}]
        assert kept["status"] == applied["status"]
        assert owners(kept)["one Apply status"] == {
            "f:status": {"f:conditions": {'k:{"type":"Ready"}': {".": {}, "f:status": {}, "f:type": {}}}}
        }

    async def test_conditions_of_two_managers_merge(self, kube: Kube) -> None:
        await apply(kube, widget("a"), "one")
        await self.apply_status(kube, "Ready", "one")

        applied = await self.apply_status(kube, "Running", "two")

        conditions = member(applied, "status", "conditions")
        assert isinstance(conditions, list)
        assert [each["type"] for each in conditions if isinstance(each, dict)] == ["Ready", "Running"]

    async def test_a_status_of_the_main_endpoint_is_ignored(self, kube: Kube) -> None:
        applied = await apply(kube, {**widget("a"), "status": {"phase": "x"}}, "one")

        assert "status" not in applied
        assert owners(applied) == {"one Apply": {"f:spec": {"f:size": {}}}}

    async def test_an_apply_of_status_ignores_everything_else(self, kube: Kube) -> None:
        await apply(kube, widget("a", size=1), "one")
        body: KubeObject = {**labelled(widget("a", size=2), x="1"), "status": {"phase": "x"}}

        applied = await kube.api.apply(
            WIDGET, body, field_manager="two", namespace=kube.namespace, subresource="status"
        )

        assert member(applied, "spec", "size") == 1
        assert member(applied, "metadata", "labels") is None
        assert owners(applied)["two Apply status"] == {"f:status": {"f:phase": {}}}

    async def test_a_status_needs_its_object(self, kube: Kube) -> None:
        with pytest.raises(ObjectNotFound):
            await self.apply_status(kube, "Ready", "one")

    async def apply_status(self, kube: Kube, condition: str, manager: str) -> KubeObject:
        body: KubeObject = {
            "apiVersion": WIDGET.api_version,
            "kind": WIDGET.kind,
            "metadata": {"name": "a"},
            "status": {"conditions": [{"type": condition, "status": "True"}]},
        }
        return await kube.api.apply(
            WIDGET, body, field_manager=manager, namespace=kube.namespace, subresource="status"
        )


def _fields(body: KubeObject, owner: str) -> KubeObject:
    fields = owners(body)[owner]
    assert isinstance(fields, dict)
    return fields


def _names(items: Json) -> list[Json]:
    assert isinstance(items, list)
    return [item["name"] for item in items if isinstance(item, dict)]
