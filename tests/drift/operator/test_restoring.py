"""What is patched after an apply, what is left to others, and which objects are deleted and created again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from sentinel.core.drift.rules import OPENBAO
from sentinel.core.json import Json
from sentinel.core.kube import objects
from sentinel.drift.operator.restoring import Restorer, content_patch
from sentinel.drivers.kube.access import find_access
from sentinel.drivers.kube.client import KubeClient
from sentinel.drivers.kube.connection import ApiConnection
from sentinel.ports.kube import Conflict, InvalidObject, KubeObject
from sentinel.runtime.log import get_logger
from sentinel.testing.kube import FakeKubeServer
from sentinel.testing.kube.kinds import STATEFUL_SET


def make(kind: str, annotations: dict[str, Json] | None = None, **content: Json) -> KubeObject:
    return {"kind": kind, "metadata": {"name": "x", "annotations": annotations or {}}, **content}


def test_data_that_is_as_wanted_needs_no_patch() -> None:
    wanted = make("ConfigMap", data={"a": "1"})

    assert content_patch(wanted, wanted, rules=OPENBAO) == []


def test_added_data_is_replaced_and_removed() -> None:
    live = make("ConfigMap", data={"a": "1", "b": "2"}, binaryData={"c": "eA=="}, immutable=True)

    patch = content_patch(live, make("ConfigMap", data={"a": "1"}), rules=OPENBAO)

    assert patch == [
        {"op": "add", "path": "/data", "value": {"a": "1"}},
        {"op": "remove", "path": "/binaryData"},
        {"op": "remove", "path": "/immutable"},
    ]


@pytest.mark.parametrize("kind", ["StatefulSet", "Service", "Deployment"])
def test_a_spec_is_always_sent_because_its_defaults_are_unknown(kind: str) -> None:
    wanted = make(kind, spec={"replicas": 1})

    assert content_patch(wanted, wanted, rules=OPENBAO) == [
        {"op": "add", "path": "/spec", "value": {"replicas": 1}}
    ]


def test_of_other_kinds_only_wanted_fields_are_restored() -> None:
    live = make("ServiceAccount", imagePullSecrets=[{"name": "added-by-a-controller"}])

    assert content_patch(live, make("ServiceAccount"), rules=OPENBAO) == []


def test_of_annotations_only_those_with_the_prefix_are_removed() -> None:
    names = OPENBAO.annotations
    live = make(
        "ConfigMap",
        {"example.com/a": "1", names.ignore: "true", names.fingerprint: "x", "openbao.org/other": "1"},
    )

    patch = content_patch(live, make("ConfigMap", {names.fingerprint: "x"}), rules=OPENBAO)

    assert patch == [{"op": "remove", "path": "/metadata/annotations/openbao.org~1other"}]


class TestReplacing:
    """Of an object that does not accept the apply. `tests/kube/test_drift_restoring.py` shows why it may not."""

    def stateful_set(self, *owners: Json, replicas: int = 3) -> KubeObject:
        metadata: KubeObject = {"name": "prod", "namespace": "default", "ownerReferences": list(owners)}
        return {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": metadata,
            "spec": {"replicas": replicas},
        }

    def owner(self, uid: str) -> KubeObject:
        return {"apiVersion": "x/v1", "kind": "X", "name": "x", "uid": uid, "controller": True}

    def live(self, server: FakeKubeServer) -> KubeObject:
        return server.get(STATEFUL_SET, "prod", namespace="default")

    @pytest.fixture
    async def server(self) -> AsyncIterator[FakeKubeServer]:
        async with FakeKubeServer() as server:
            server.create(STATEFUL_SET, self.stateful_set(replicas=0))
            yield server

    @pytest.fixture
    async def restorer(self, server: FakeKubeServer, tmp_path: Path) -> AsyncIterator[Restorer]:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_bytes(server.kubeconfig())
        api = KubeClient(ApiConnection(find_access(kubeconfig=kubeconfig, environ={}), user_agent="test"))
        try:
            yield Restorer(api, rules=OPENBAO, field_manager="operator", log=get_logger("test"))
        finally:
            await api.close()

    async def test_foreign_content_is_removed_before_the_next_apply(
        self, server: FakeKubeServer, restorer: Restorer
    ) -> None:
        before = self.live(server)
        server.fail_next(422, verb="patch")

        await restorer.restore(STATEFUL_SET, self.stateful_set())

        assert [each.method for each in server.requests] == ["PATCH", "GET", "PATCH", "PATCH", "PATCH"]
        assert self.live(server)["spec"] == {"replicas": 3}
        assert objects.uid(self.live(server)) == objects.uid(before)

    async def test_an_object_that_cannot_be_changed_is_created_again(
        self, server: FakeKubeServer, restorer: Restorer
    ) -> None:
        before = self.live(server)
        server.fail_next(422, verb="patch", count=2)

        await restorer.restore(STATEFUL_SET, self.stateful_set())

        assert self.live(server)["spec"] == {"replicas": 3}
        assert objects.uid(self.live(server)) != objects.uid(before)
        assert OPENBAO.annotations.ignore not in objects.read_annotations(self.live(server))
        assert len(server.objects(STATEFUL_SET)) == 1

    async def test_an_object_is_opted_out_before_it_is_deleted(
        self, server: FakeKubeServer, restorer: Restorer
    ) -> None:
        server.fail_next(422, verb="patch", count=2)
        server.fail_next(409, verb="delete")

        with pytest.raises(Conflict):
            await restorer.restore(STATEFUL_SET, self.stateful_set())

        assert objects.read_annotations(self.live(server)) == {OPENBAO.annotations.ignore: "true"}

    async def test_nothing_is_deleted_if_the_desired_object_is_invalid(
        self, server: FakeKubeServer, restorer: Restorer
    ) -> None:
        before = self.live(server)
        server.fail_next(422, verb="patch", count=3)

        with pytest.raises(InvalidObject):
            await restorer.restore(STATEFUL_SET, self.stateful_set())

        assert "dryRun" in server.requests[-1].query
        assert self.live(server) == before

    async def test_an_object_of_another_controller_is_not_deleted(
        self, server: FakeKubeServer, restorer: Restorer
    ) -> None:
        references: KubeObject = {"metadata": {"ownerReferences": [self.owner("2")]}}
        server.merge_patch(STATEFUL_SET, "prod", references, namespace="default")
        before = self.live(server)
        server.fail_next(422, verb="patch", count=2)

        with pytest.raises(InvalidObject):
            await restorer.restore(STATEFUL_SET, self.stateful_set(self.owner("1")))

        assert self.live(server) == before

    async def test_an_object_that_has_changed_meanwhile_is_not_deleted(
        self, server: FakeKubeServer, restorer: Restorer
    ) -> None:
        server.fail_next(422, verb="patch", count=2)
        restoring = asyncio.create_task(restorer.restore(STATEFUL_SET, self.stateful_set()))
        async with asyncio.timeout(60):
            await server.wait_for_request(lambda each: "dryRun" in each.query)
        server.merge_patch(STATEFUL_SET, "prod", {"spec": {"replicas": 7}}, namespace="default")

        with pytest.raises(Conflict):
            await restoring

        assert self.live(server)["spec"] == {"replicas": 7}

    async def test_an_object_that_was_created_again_meanwhile_is_not_deleted(
        self, server: FakeKubeServer, restorer: Restorer
    ) -> None:
        server.fail_next(422, verb="patch", count=2)
        server.delay_responses(timedelta(milliseconds=20))
        restoring = asyncio.create_task(restorer.restore(STATEFUL_SET, self.stateful_set()))
        async with asyncio.timeout(60):
            await server.wait_for_request(lambda each: each.method == "DELETE")
        server.delete(STATEFUL_SET, "prod", namespace="default")
        server.create(STATEFUL_SET, self.stateful_set(replicas=7))

        with pytest.raises(Conflict):
            await restoring

        assert self.live(server)["spec"] == {"replicas": 7}

    async def test_an_object_that_is_gone_meanwhile_is_created(
        self, server: FakeKubeServer, restorer: Restorer
    ) -> None:
        server.fail_next(422, verb="patch")
        server.fail_next(404, verb="get")

        await restorer.restore(STATEFUL_SET, self.stateful_set())

        assert self.live(server)["spec"] == {"replicas": 3}
