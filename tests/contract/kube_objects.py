"""The contract of `ports.kube.KubeApi` about single objects: create, read, replace, patch, delete, errors."""

from __future__ import annotations

import asyncio

import pytest

from sentinel.core.json import Json
from sentinel.ports.kube import (
    AlreadyExists,
    Cause,
    Conflict,
    InvalidObject,
    KubeKind,
    KubeObject,
    ObjectNotFound,
)
from sentinel.testing.kube.kinds import CONFIG_MAP, EVENT, LEASE, SECRET, STATEFUL_SET
from tests.support.kube.objects import config_map, labelled, owners, stateful_set
from tests.support.kube.server import USER_AGENT, Kube
from tests.support.kube.watching import member, version
from tests.support.kube.widgets import WIDGET, widget

MISSING_KIND = KubeKind("contract.example.com", "v1", "Gadget", "gadgets")
CLIENT = USER_AGENT.partition("/")[0]


def causes(error: InvalidObject) -> dict[str, str]:
    """Return the reason of each cause by field."""
    return {cause.field: cause.reason for cause in error.causes}


class KubeObjectContract:
    """For every client of every server."""

    async def test_a_created_object_has_what_the_server_sets(self, kube: Kube) -> None:
        created = await kube.api.create(CONFIG_MAP, config_map("a", x="1"), namespace=kube.namespace)

        assert (created["apiVersion"], created["kind"], created["data"]) == ("v1", "ConfigMap", {"x": "1"})
        assert member(created, "metadata", "namespace") == kube.namespace
        for name in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
            assert member(created, "metadata", name)

    async def test_a_created_object_can_be_read(self, kube: Kube) -> None:
        created = await kube.api.create(CONFIG_MAP, config_map("a", x="1"), namespace=kube.namespace)

        assert await kube.api.get(CONFIG_MAP, "a", namespace=kube.namespace) == created

    async def test_a_taken_name_already_exists(self, kube: Kube) -> None:
        await kube.api.create(CONFIG_MAP, config_map("a"), namespace=kube.namespace)

        with pytest.raises(AlreadyExists) as caught:
            await kube.api.create(CONFIG_MAP, config_map("a"), namespace=kube.namespace)

        assert (caught.value.status, caught.value.reason) == (409, "AlreadyExists")
        assert str(caught.value) == 'configmaps "a" already exists'

    async def test_a_name_can_be_generated(self, kube: Kube) -> None:
        body: KubeObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "a-"}}

        first = await kube.api.create(CONFIG_MAP, body, namespace=kube.namespace)
        second = await kube.api.create(CONFIG_MAP, body, namespace=kube.namespace)

        names = [str(member(each, "metadata", "name")) for each in (first, second)]
        assert all(name.startswith("a-") for name in names)
        assert names[0] != names[1]

    async def test_a_dry_run_creates_nothing(self, kube: Kube) -> None:
        created = await kube.api.create(
            CONFIG_MAP, config_map("a", x="1"), namespace=kube.namespace, is_dry_run=True
        )

        assert created["data"] == {"x": "1"}
        with pytest.raises(ObjectNotFound):
            await kube.api.get(CONFIG_MAP, "a", namespace=kube.namespace)

    async def test_what_is_missing_is_not_found(self, kube: Kube) -> None:
        with pytest.raises(ObjectNotFound) as caught:
            await kube.api.get(CONFIG_MAP, "missing", namespace=kube.namespace)

        assert (caught.value.status, caught.value.reason) == (404, "NotFound")
        assert str(caught.value) == 'configmaps "missing" not found'

    async def test_writes_to_a_missing_object_do_not_find_it(self, kube: Kube) -> None:
        ns = kube.namespace
        with pytest.raises(ObjectNotFound):
            await kube.api.replace(CONFIG_MAP, config_map("missing"), namespace=ns)
        with pytest.raises(ObjectNotFound):
            await kube.api.merge_patch(CONFIG_MAP, "missing", {"data": {"x": "1"}}, namespace=ns)
        with pytest.raises(ObjectNotFound):
            await kube.api.json_patch(CONFIG_MAP, "missing", [], namespace=ns)
        with pytest.raises(ObjectNotFound):
            await kube.api.delete(CONFIG_MAP, "missing", namespace=ns)

    async def test_a_kind_that_is_not_served_is_not_found(self, kube: Kube) -> None:
        with pytest.raises(ObjectNotFound):
            await kube.api.get(MISSING_KIND, "a", namespace=kube.namespace)

    async def test_a_namespace_must_exist(self, kube: Kube) -> None:
        with pytest.raises(ObjectNotFound, match='namespaces "missing" not found'):
            await kube.api.create(CONFIG_MAP, config_map("a"), namespace="missing")

    async def test_an_invalid_name_is_a_cause(self, kube: Kube) -> None:
        with pytest.raises(InvalidObject) as caught:
            await kube.api.create(CONFIG_MAP, config_map("Not Valid"), namespace=kube.namespace)

        assert (caught.value.status, caught.value.reason) == (422, "Invalid")
        assert causes(caught.value) == {"metadata.name": "FieldValueInvalid"}

    async def test_a_body_must_be_of_the_kind_and_place_of_the_call(self, kube: Kube) -> None:
        elsewhere: KubeObject = {**config_map("a"), "metadata": {"name": "a", "namespace": "elsewhere"}}

        with pytest.raises(InvalidObject) as other_kind:
            await kube.api.create(CONFIG_MAP, {**config_map("a"), "kind": "Secret"}, namespace=kube.namespace)
        with pytest.raises(InvalidObject) as other_place:
            await kube.api.create(CONFIG_MAP, elsewhere, namespace=kube.namespace)

        assert (other_kind.value.status, other_place.value.status) == (400, 400)

    async def test_text_in_a_secret_is_stored_as_data(self, kube: Kube) -> None:
        body: KubeObject = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "a"},
            "stringData": {"x": "text"},
        }

        created = await kube.api.create(SECRET, body, namespace=kube.namespace)

        assert created["data"] == {"x": "dGV4dA=="}
        assert "stringData" not in created

    async def test_an_event_is_created_for_an_object(self, kube: Kube) -> None:
        body: KubeObject = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": "a."},
            "involvedObject": {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "namespace": kube.namespace},
            "reason": "Started",
            "message": "the pulse started",
            "type": "Normal",
            "firstTimestamp": "2026-03-01T12:00:00Z",
            "lastTimestamp": "2026-03-01T12:00:00Z",
            "count": 1,
            "reportingComponent": "sentinel",
            "source": {"component": "sentinel"},
        }

        created = await kube.api.create(EVENT, body, namespace=kube.namespace)

        found = await kube.api.get(EVENT, str(member(created, "metadata", "name")), namespace=kube.namespace)
        assert (found["reason"], found["type"], found["count"]) == ("Started", "Normal", 1)


class KubeReplaceContract:
    async def test_a_replaced_object_has_a_new_version(self, kube: Kube) -> None:
        created = await kube.api.create(CONFIG_MAP, config_map("a", x="1"), namespace=kube.namespace)

        replaced = await kube.api.replace(CONFIG_MAP, {**created, "data": {"y": "2"}}, namespace=kube.namespace)

        assert replaced["data"] == {"y": "2"}
        assert version(replaced) != version(created)
        assert member(replaced, "metadata", "uid") == member(created, "metadata", "uid")
        assert await kube.api.get(CONFIG_MAP, "a", namespace=kube.namespace) == replaced

    async def test_an_outdated_version_is_a_conflict(self, kube: Kube) -> None:
        created = await kube.api.create(CONFIG_MAP, config_map("a", x="1"), namespace=kube.namespace)
        newer = await kube.api.replace(CONFIG_MAP, {**created, "data": {"x": "2"}}, namespace=kube.namespace)

        with pytest.raises(Conflict) as caught:
            await kube.api.replace(CONFIG_MAP, {**created, "data": {"x": "3"}}, namespace=kube.namespace)

        assert (caught.value.status, caught.value.reason) == (409, "Conflict")
        assert await kube.api.get(CONFIG_MAP, "a", namespace=kube.namespace) == newer

    async def test_a_replacement_without_a_version_wins(self, kube: Kube) -> None:
        await kube.api.create(CONFIG_MAP, config_map("a", x="1"), namespace=kube.namespace)

        replaced = await kube.api.replace(CONFIG_MAP, config_map("a", x="2"), namespace=kube.namespace)

        assert replaced["data"] == {"x": "2"}

    async def test_custom_resources_and_leases_need_a_version(self, kube: Kube) -> None:
        await kube.api.create(WIDGET, widget("a"), namespace=kube.namespace)
        await kube.api.create(LEASE, lease("a", holder="me"), namespace=kube.namespace)

        for kind, body in ((WIDGET, widget("a", size=2)), (LEASE, lease("a", holder="you"))):
            with pytest.raises(InvalidObject) as caught:
                await kube.api.replace(kind, body, namespace=kube.namespace)

            assert causes(caught.value) == {"metadata.resourceVersion": "FieldValueInvalid"}

    async def test_a_replacement_that_changes_nothing_keeps_the_version(self, kube: Kube) -> None:
        created = await kube.api.create(CONFIG_MAP, config_map("a", x="1"), namespace=kube.namespace)

        again = await kube.api.replace(CONFIG_MAP, created, namespace=kube.namespace)

        assert version(again) == version(created)

    async def test_another_uid_is_a_conflict(self, kube: Kube) -> None:
        created = await kube.api.create(CONFIG_MAP, config_map("a"), namespace=kube.namespace)
        await kube.api.delete(CONFIG_MAP, "a", namespace=kube.namespace)
        await kube.api.create(CONFIG_MAP, config_map("a"), namespace=kube.namespace)
        metadata = {"name": "a", "uid": member(created, "metadata", "uid")}

        with pytest.raises(Conflict):
            await kube.api.replace(
                CONFIG_MAP, {**config_map("a", x="2"), "metadata": metadata}, namespace=kube.namespace
            )

    async def test_one_of_many_concurrent_holders_gets_a_lease(self, kube: Kube) -> None:
        created = await kube.api.create(LEASE, lease("a", holder=""), namespace=kube.namespace)

        async def acquire(holder: str) -> bool:
            spec: KubeObject = {"holderIdentity": holder, "leaseDurationSeconds": 15}
            try:
                await kube.api.replace(LEASE, {**created, "spec": spec}, namespace=kube.namespace)
            except Conflict:
                return False
            return True

        acquired = await asyncio.gather(*(acquire(f"holder-{number}") for number in range(5)))

        found = await kube.api.get(LEASE, "a", namespace=kube.namespace)
        assert sum(acquired) == 1
        assert member(found, "spec", "holderIdentity") == f"holder-{acquired.index(True)}"


class KubePatchContract:
    async def test_a_merge_patch_sets_and_removes_members(self, kube: Kube) -> None:
        await kube.api.create(CONFIG_MAP, config_map("a", x="1", y="1"), namespace=kube.namespace)

        patched = await kube.api.merge_patch(
            CONFIG_MAP, "a", {"data": {"x": None, "z": "2"}}, namespace=kube.namespace
        )

        assert patched["data"] == {"y": "1", "z": "2"}

    async def test_a_merge_patch_replaces_lists(self, kube: Kube) -> None:
        parts: list[Json] = [{"name": "a"}, {"name": "b"}]
        await kube.api.create(WIDGET, widget("a", parts=parts), namespace=kube.namespace)

        patched = await kube.api.merge_patch(
            WIDGET, "a", {"spec": {"parts": [{"name": "c"}]}}, namespace=kube.namespace
        )

        assert member(patched, "spec", "parts") == [{"name": "c"}]

    async def test_a_merge_patch_may_name_the_version_it_expects(self, kube: Kube) -> None:
        created = await kube.api.create(CONFIG_MAP, config_map("a", x="1"), namespace=kube.namespace)
        expected: dict[str, Json] = {"metadata": {"resourceVersion": version(created)}, "data": {"x": "2"}}

        await kube.api.merge_patch(CONFIG_MAP, "a", expected, namespace=kube.namespace)

        with pytest.raises(Conflict):
            await kube.api.merge_patch(CONFIG_MAP, "a", {**expected, "data": {"x": "3"}}, namespace=kube.namespace)

    async def test_a_json_patch_applies_its_operations_in_order(self, kube: Kube) -> None:
        await kube.api.create(CONFIG_MAP, config_map("a", x="1", y="1"), namespace=kube.namespace)

        patched = await kube.api.json_patch(
            CONFIG_MAP,
            "a",
            [
                {"op": "test", "path": "/data/x", "value": "1"},
                {"op": "replace", "path": "/data/x", "value": "2"},
                {"op": "add", "path": "/data/z", "value": "3"},
                {"op": "move", "from": "/data/y", "path": "/data/moved"},
                {"op": "copy", "from": "/data/x", "path": "/data/copied"},
                {"op": "remove", "path": "/data/z"},
            ],
            namespace=kube.namespace,
        )

        assert patched["data"] == {"x": "2", "moved": "1", "copied": "2"}

    @pytest.mark.parametrize(
        "operation",
        [
            {"op": "test", "path": "/data/x", "value": "other"},
            {"op": "replace", "path": "/missing/x", "value": "1"},
            {"op": "remove", "path": "/data/missing"},
        ],
    )
    async def test_a_json_patch_that_does_not_fit_changes_nothing(
        self, kube: Kube, operation: dict[str, Json]
    ) -> None:
        created = await kube.api.create(CONFIG_MAP, config_map("a", x="1"), namespace=kube.namespace)
        before: dict[str, Json] = {"op": "add", "path": "/data/y", "value": "1"}

        with pytest.raises(InvalidObject) as caught:
            await kube.api.json_patch(CONFIG_MAP, "a", [before, operation], namespace=kube.namespace)

        assert caught.value.status == 422
        assert await kube.api.get(CONFIG_MAP, "a", namespace=kube.namespace) == created

    async def test_a_patch_that_changes_nothing_keeps_the_version(self, kube: Kube) -> None:
        created = await kube.api.create(CONFIG_MAP, config_map("a", x="1"), namespace=kube.namespace)

        patched = await kube.api.merge_patch(CONFIG_MAP, "a", {"data": {"x": "1"}}, namespace=kube.namespace)

        assert version(patched) == version(created)

    async def test_the_manager_of_a_patch_owns_what_it_changed(self, kube: Kube) -> None:
        await kube.api.create(CONFIG_MAP, config_map("a", x="1"), namespace=kube.namespace)

        patched = await kube.api.merge_patch(
            CONFIG_MAP, "a", {"data": {"y": "1"}}, namespace=kube.namespace, field_manager="patcher"
        )

        assert owners(patched) == {
            f"{CLIENT} Update": {"f:data": {".": {}, "f:x": {}}},
            "patcher Update": {"f:data": {"f:y": {}}},
        }

    async def test_without_a_name_the_manager_is_the_user_agent(self, kube: Kube) -> None:
        created = await kube.api.create(CONFIG_MAP, config_map("a", x="1"), namespace=kube.namespace)

        patched = await kube.api.merge_patch(CONFIG_MAP, "a", {"data": {"x": "2"}}, namespace=kube.namespace)

        assert owners(patched) == owners(created) == {f"{CLIENT} Update": {"f:data": {".": {}, "f:x": {}}}}

    async def test_a_removal_leaves_no_manager(self, kube: Kube) -> None:
        await kube.api.create(CONFIG_MAP, config_map("a", x="1", y="1"), namespace=kube.namespace)

        patched = await kube.api.merge_patch(
            CONFIG_MAP, "a", {"data": {"x": None}}, namespace=kube.namespace, field_manager="remover"
        )

        assert owners(patched) == {f"{CLIENT} Update": {"f:data": {".": {}, "f:y": {}}}}


class KubeStatusContract:
    async def test_only_the_subresource_writes_status(self, kube: Kube) -> None:
        body: KubeObject = {**widget("a"), "status": {"phase": "created"}}
        created = await kube.api.create(WIDGET, body, namespace=kube.namespace)

        patched = await kube.api.merge_patch(
            WIDGET, "a", {"status": {"phase": "patched"}}, namespace=kube.namespace
        )
        written = await kube.api.merge_patch(
            WIDGET, "a", {"status": {"phase": "written"}}, namespace=kube.namespace, subresource="status"
        )

        assert "status" not in created
        assert "status" not in patched
        assert written["status"] == {"phase": "written"}

    async def test_the_subresource_writes_only_status(self, kube: Kube) -> None:
        created = await kube.api.create(WIDGET, widget("a", size=1), namespace=kube.namespace)
        body: KubeObject = {**labelled(created, x="1"), "spec": {"size": 2}, "status": {"phase": "replaced"}}

        replaced = await kube.api.replace(WIDGET, body, namespace=kube.namespace, subresource="status")

        assert member(replaced, "spec", "size") == 1
        assert member(replaced, "metadata", "labels") is None
        assert replaced["status"] == {"phase": "replaced"}

    async def test_a_replacement_keeps_the_status(self, kube: Kube) -> None:
        await kube.api.create(WIDGET, widget("a"), namespace=kube.namespace)
        current = await kube.api.merge_patch(
            WIDGET, "a", {"status": {"phase": "x"}}, namespace=kube.namespace, subresource="status"
        )
        without = {name: value for name, value in current.items() if name != "status"}

        replaced = await kube.api.replace(WIDGET, {**without, "spec": {"size": 2}}, namespace=kube.namespace)

        assert replaced["status"] == {"phase": "x"}

    async def test_a_status_has_managers_of_its_own(self, kube: Kube) -> None:
        await kube.api.create(WIDGET, widget("a"), namespace=kube.namespace)

        written = await kube.api.merge_patch(
            WIDGET, "a", {"status": {"phase": "x"}}, namespace=kube.namespace, subresource="status"
        )

        assert owners(written)[f"{CLIENT} Update status"] == {"f:status": {".": {}, "f:phase": {}}}

    async def test_a_changed_spec_is_a_new_generation_and_nothing_else_is(self, kube: Kube) -> None:
        ns = kube.namespace
        generations = []
        created = await kube.api.create(WIDGET, widget("a"), namespace=ns)
        generations.append(member(created, "metadata", "generation"))
        changes: list[tuple[KubeObject, str]] = [
            ({"metadata": {"labels": {"x": "1"}}}, ""),
            ({"status": {"phase": "x"}}, "status"),
            ({"spec": {"size": 2}}, ""),
            ({"spec": {"size": 2}}, ""),
        ]
        for patch, subresource in changes:
            patched = await kube.api.merge_patch(WIDGET, "a", patch, namespace=ns, subresource=subresource)
            generations.append(member(patched, "metadata", "generation"))

        assert generations == [1, 1, 1, 2, 2]

    async def test_a_built_in_kind_has_generations_and_status_alike(self, kube: Kube) -> None:
        ns = kube.namespace
        created = await kube.api.create(STATEFUL_SET, stateful_set("a"), namespace=ns)
        status = await kube.api.merge_patch(
            STATEFUL_SET, "a", {"status": {"replicas": 1}}, namespace=ns, subresource="status"
        )
        ignored = await kube.api.merge_patch(STATEFUL_SET, "a", {"status": {"replicas": 3}}, namespace=ns)
        changed = await kube.api.merge_patch(STATEFUL_SET, "a", {"spec": {"replicas": 2}}, namespace=ns)

        steps = (created, status, ignored, changed)
        assert [member(each, "metadata", "generation") for each in steps] == [1, 1, 1, 2]
        assert member(changed, "status", "replicas") == 1


class KubeSchemaContract:
    """Custom resources and their schema."""

    async def test_an_absent_field_gets_its_default(self, kube: Kube) -> None:
        created = await kube.api.create(WIDGET, widget("a"), namespace=kube.namespace)

        assert created["spec"] == {"size": 1, "color": "red"}

    async def test_every_wrong_field_is_a_cause(self, kube: Kube) -> None:
        body: KubeObject = {**widget("a"), "spec": {"color": "green", "steps": "one", "labels": {"x": 1}}}

        with pytest.raises(InvalidObject) as caught:
            await kube.api.create(WIDGET, body, namespace=kube.namespace)

        assert caught.value.status == 422
        found = causes(caught.value)
        assert found["spec.size"] == "FieldValueRequired"
        assert found["spec.color"] == "FieldValueNotSupported"
        assert found["spec.steps"] == "FieldValueTypeInvalid"
        assert found["spec.labels.x"] == "FieldValueTypeInvalid"

    async def test_a_cause_has_a_message(self, kube: Kube) -> None:
        with pytest.raises(InvalidObject) as caught:
            await kube.api.create(WIDGET, widget("a", size=0), namespace=kube.namespace)

        message = "Invalid value: 0: spec.size in body should be greater than or equal to 1"
        assert Cause("spec.size", message, "FieldValueInvalid") in caught.value.causes
        assert message in str(caught.value)

    async def test_a_repeated_key_is_a_cause(self, kube: Kube) -> None:
        parts: list[Json] = [{"name": "a"}, {"name": "a"}]

        with pytest.raises(InvalidObject) as caught:
            await kube.api.create(WIDGET, widget("a", parts=parts), namespace=kube.namespace)

        assert causes(caught.value) == {"spec.parts[1]": "FieldValueDuplicate"}

    async def test_a_patch_is_validated_as_a_whole(self, kube: Kube) -> None:
        created = await kube.api.create(WIDGET, widget("a"), namespace=kube.namespace)

        with pytest.raises(InvalidObject):
            await kube.api.merge_patch(WIDGET, "a", {"spec": {"size": None}}, namespace=kube.namespace)

        assert await kube.api.get(WIDGET, "a", namespace=kube.namespace) == created

    async def test_an_unknown_field_is_not_created(self, kube: Kube) -> None:
        with pytest.raises(InvalidObject, match=r"spec\.unknown"):
            await kube.api.create(WIDGET, widget("a", unknown=1), namespace=kube.namespace)

    async def test_an_unknown_field_is_dropped_by_a_replacement(self, kube: Kube) -> None:
        created = await kube.api.create(WIDGET, widget("a"), namespace=kube.namespace)
        spec: KubeObject = {"size": 2, "unknown": 1, "free": {"any": {"thing": 1}}}

        replaced = await kube.api.replace(WIDGET, {**created, "spec": spec}, namespace=kube.namespace)

        assert replaced["spec"] == {"size": 2, "color": "red", "free": {"any": {"thing": 1}}}


class KubeDeletionContract:
    async def test_a_deleted_object_is_gone(self, kube: Kube) -> None:
        await kube.api.create(CONFIG_MAP, config_map("a"), namespace=kube.namespace)

        await kube.api.delete(CONFIG_MAP, "a", namespace=kube.namespace)

        with pytest.raises(ObjectNotFound):
            await kube.api.get(CONFIG_MAP, "a", namespace=kube.namespace)

    async def test_an_object_with_another_uid_is_not_deleted(self, kube: Kube) -> None:
        created = await kube.api.create(CONFIG_MAP, config_map("a"), namespace=kube.namespace)

        with pytest.raises(Conflict):
            await kube.api.delete(
                CONFIG_MAP, "a", namespace=kube.namespace, uid="b3c9a2ae-0000-4000-8000-000000000000"
            )

        uid = str(member(created, "metadata", "uid"))
        await kube.api.delete(CONFIG_MAP, "a", namespace=kube.namespace, uid=uid)

    async def test_an_object_that_changed_is_not_deleted(self, kube: Kube) -> None:
        created = await kube.api.create(CONFIG_MAP, config_map("a", x="1"), namespace=kube.namespace)
        newer = await kube.api.merge_patch(CONFIG_MAP, "a", {"data": {"x": "2"}}, namespace=kube.namespace)

        with pytest.raises(Conflict):
            await kube.api.delete(CONFIG_MAP, "a", namespace=kube.namespace, resource_version=version(created))

        await kube.api.delete(CONFIG_MAP, "a", namespace=kube.namespace, resource_version=version(newer))

    async def test_a_finalizer_delays_the_deletion(self, kube: Kube) -> None:
        body: KubeObject = {**widget("a"), "metadata": {"name": "a", "finalizers": ["contract.example.com/hold"]}}
        await kube.api.create(WIDGET, body, namespace=kube.namespace)

        await kube.api.delete(WIDGET, "a", namespace=kube.namespace)

        waiting = await kube.api.get(WIDGET, "a", namespace=kube.namespace)
        assert member(waiting, "metadata", "deletionTimestamp")
        assert member(waiting, "metadata", "generation") == 2
        await kube.api.merge_patch(WIDGET, "a", {"metadata": {"finalizers": None}}, namespace=kube.namespace)
        with pytest.raises(ObjectNotFound):
            await kube.api.get(WIDGET, "a", namespace=kube.namespace)

    async def test_no_finalizer_is_added_to_a_deleted_object(self, kube: Kube) -> None:
        body: KubeObject = {**widget("a"), "metadata": {"name": "a", "finalizers": ["contract.example.com/hold"]}}
        await kube.api.create(WIDGET, body, namespace=kube.namespace)
        await kube.api.delete(WIDGET, "a", namespace=kube.namespace)

        more: dict[str, Json] = {
            "metadata": {"finalizers": ["contract.example.com/hold", "contract.example.com/more"]}
        }
        with pytest.raises(InvalidObject) as caught:
            await kube.api.merge_patch(WIDGET, "a", more, namespace=kube.namespace)

        assert causes(caught.value) == {"metadata.finalizers": "FieldValueForbidden"}

    async def test_the_next_object_of_a_name_is_another(self, kube: Kube) -> None:
        first = await kube.api.create(CONFIG_MAP, config_map("a"), namespace=kube.namespace)
        await kube.api.delete(CONFIG_MAP, "a", namespace=kube.namespace)

        second = await kube.api.create(CONFIG_MAP, config_map("a"), namespace=kube.namespace)

        assert member(first, "metadata", "uid") != member(second, "metadata", "uid")


def lease(name: str, *, holder: str) -> KubeObject:
    """Return a Lease."""
    return {
        "apiVersion": LEASE.api_version,
        "kind": LEASE.kind,
        "metadata": {"name": name},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15} if holder else {},
    }
