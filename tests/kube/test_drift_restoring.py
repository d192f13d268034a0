"""What others write to an object on a real API server, however they write it, is replaced by the desired state."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sentinel.core.drift.rules import OPENBAO
from sentinel.core.json import Json
from sentinel.drift.operator.openbao import server_objects, sidecar_objects
from sentinel.drift.operator.openbao.cluster import OpenBaoCluster, read_cluster
from sentinel.drift.operator.openbao.status import StatusWriter
from sentinel.drift.operator.restoring import Restorer
from sentinel.drivers.kube.access import find_access
from sentinel.drivers.kube.client import KubeClient as KubeDriver
from sentinel.drivers.kube.connection import ApiConnection
from sentinel.ports.kube import InvalidObject, KubeKind, KubeObject
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.log import get_logger
from tests.kube.openbao import cluster_body, clusters
from tests.support.kube.patch_types import JSON_PATCH, MERGE_PATCH
from tools.services.kube_apiserver import KubeClient

POD = "/spec/template/spec"
NO_CLUSTER_IP = {"clusterIP": None, "clusterIPs": None}


class World:
    """The objects of a cluster, and someone who may write to them."""

    def __init__(self, admin: KubeClient, restorer: Restorer, cluster: OpenBaoCluster) -> None:
        self.admin = admin
        self.restorer = restorer
        sidecar = dict(sidecar_objects.objects(cluster, operator_version="1"))
        self._desired: dict[KubeKind, KubeObject] = {
            server_objects.CONFIG_MAP: server_objects.config_map(cluster),
            server_objects.SERVICE: server_objects.service(cluster),
            server_objects.STATEFUL_SET: server_objects.stateful_set(cluster),
            **{kind: sidecar[kind] for kind in (sidecar_objects.DEPLOYMENT, sidecar_objects.ROLE_BINDING)},
        }

    def path(self, kind: KubeKind, name: str = "") -> str:
        metadata: Any = self._desired[kind]["metadata"]
        api = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
        return f"{api}/namespaces/{metadata['namespace']}/{kind.plural}/{name or metadata['name']}"

    async def restore(self, kind: KubeKind, **content: Json) -> KubeObject:
        return await self.restorer.restore(kind, {**self._desired[kind], **content})

    def content(self, kind: KubeKind) -> dict[str, Any]:
        """Return the object without what differs between two that are equal."""
        found = self.admin.get(self.path(kind))
        content = {name: value for name, value in found.items() if name not in ("metadata", "status")}
        return {
            **content,
            "labels": found["metadata"]["labels"],
            "annotations": found["metadata"].get("annotations"),
        }


Write = Callable[[World, KubeKind], None]


def merge(patch: dict[str, Any]) -> Write:
    """Change an object by a merge patch."""

    def write(world: World, kind: KubeKind) -> None:
        path = f"{world.path(kind)}?fieldManager=kubectl-edit"
        response = world.admin.send("PATCH", path, patch, content_type=MERGE_PATCH)
        assert response.status == 200, response.body

    return write


def put(pointer: str, value: Any) -> Write:
    """Replace a part of an object."""

    def write(world: World, kind: KubeKind) -> None:
        patch: Any = [{"op": "replace", "path": pointer, "value": value}]
        path = f"{world.path(kind)}?fieldManager=kubectl-edit"
        response = world.admin.send("PATCH", path, patch, content_type=JSON_PATCH)
        assert response.status == 200, response.body

    return write


def recreate(change: Callable[[Any], object]) -> Write:
    """Delete an object, and create another one with its name and labels."""

    def write(world: World, kind: KubeKind) -> None:
        body = world.admin.get(world.path(kind))
        world.admin.delete(world.path(kind))
        body["metadata"] = {name: body["metadata"][name] for name in ("name", "labels")}
        body.pop("status", None)
        change(body)
        collection = world.path(kind).rpartition("/")[0]
        response = world.admin.send("POST", f"{collection}?fieldManager=kubectl-create", body)
        assert response.status == 201, response.body

    return write


def select_others(body: Any) -> None:
    body["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    body["spec"]["template"]["metadata"]["labels"] = {"app": "other"}


WRITES: list[tuple[str, KubeKind, Write]] = [
    (
        "volume of another type",
        server_objects.STATEFUL_SET,
        put(f"{POD}/volumes/0", {"name": "config", "hostPath": {"path": "/"}}),
    ),
    (
        "probe of another type",
        server_objects.STATEFUL_SET,
        put(f"{POD}/containers/0/readinessProbe", {"exec": {"command": ["true"]}}),
    ),
    (
        "other update strategy",
        server_objects.STATEFUL_SET,
        merge({"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}}),
    ),
    (
        "StatefulSet with another Service",
        server_objects.STATEFUL_SET,
        recreate(lambda body: body["spec"].update(serviceName="other")),
    ),
    ("StatefulSet with other pods", server_objects.STATEFUL_SET, recreate(select_others)),
    (
        "key in binaryData",
        server_objects.CONFIG_MAP,
        merge({"data": None, "binaryData": {"config.hcl": "eA=="}}),
    ),
    ("immutable data", server_objects.CONFIG_MAP, merge({"data": {"config.hcl": "x"}, "immutable": True})),
    (
        "Service that is another name",
        server_objects.SERVICE,
        merge({"spec": {"type": "ExternalName", "externalName": "other.example.com", **NO_CLUSTER_IP}}),
    ),
    (
        "Service with an address",
        server_objects.SERVICE,
        recreate(lambda body: [body["spec"].pop(name) for name in NO_CLUSTER_IP]),
    ),
    ("Deployment with other pods", sidecar_objects.DEPLOYMENT, recreate(select_others)),
    (
        "RoleBinding to another Role",
        sidecar_objects.ROLE_BINDING,
        recreate(lambda body: body["roleRef"].update(name="other")),
    ),
]


@pytest.fixture
async def world(kube_admin: KubeClient, namespace: str, kubeconfig: Path) -> AsyncIterator[World]:
    metadata: KubeObject = {"name": "prod", "namespace": namespace, "uid": "1c0d3bb0-0000-4000-8000-000000000001"}
    body = cluster_body("prod", config="ui = true")
    cluster = read_cluster({**body, "metadata": {**metadata, "resourceVersion": "1", "generation": 1}})
    access = find_access(kubeconfig=kubeconfig, environ={})
    api = KubeDriver(ApiConnection(access, user_agent="test"))
    restorer = Restorer(api, rules=OPENBAO, field_manager="openbao-operator", log=get_logger("test"))
    try:
        yield World(kube_admin, restorer, cluster)
    finally:
        await api.close()


@pytest.mark.parametrize(("kind", "write"), [each[1:] for each in WRITES], ids=[each[0] for each in WRITES])
async def test_it_is_replaced_by_the_desired_state(world: World, kind: KubeKind, write: Write) -> None:
    await world.restore(kind)
    desired = world.content(kind)
    write(world, kind)
    assert world.content(kind) != desired

    await world.restore(kind)

    assert world.content(kind) == desired


async def test_an_object_that_can_be_changed_is_not_deleted(world: World) -> None:
    kind = server_objects.SERVICE
    before = await world.restore(kind)
    merge({"spec": {"type": "ExternalName", "externalName": "other.example.com", **NO_CLUSTER_IP}})(world, kind)

    after = await world.restore(kind)

    assert uid(after) == uid(before)


async def test_nothing_is_deleted_for_a_desired_state_that_is_invalid(world: World) -> None:
    kind = server_objects.CONFIG_MAP
    before = await world.restore(kind)

    with pytest.raises(InvalidObject, match="data"):
        await world.restore(kind, data={"not a key": "x"})

    assert uid(world.admin.get(world.path(kind))) == uid(before)


async def test_an_object_of_another_controller_is_not_deleted(world: World) -> None:
    kind = server_objects.STATEFUL_SET
    await world.restore(kind)
    owner = {"apiVersion": "example.com/v1", "kind": "Other", "name": "x", "uid": "2", "controller": True}

    def take_over(body: Any) -> None:
        body["spec"]["serviceName"] = "other"
        body["metadata"]["ownerReferences"] = [owner]

    recreate(take_over)(world, kind)

    with pytest.raises(InvalidObject):
        await world.restore(kind)

    assert world.admin.get(world.path(kind))["spec"]["serviceName"] == "other"


async def test_a_cluster_that_was_created_again_gets_no_old_status(
    kube_admin: KubeClient, openbao_crd: None, namespace: str, kubeconfig: Path
) -> None:
    old = read_cluster(kube_admin.create(clusters(namespace), cluster_body("prod")))
    kube_admin.delete(f"{clusters(namespace)}/prod")
    kube_admin.create(clusters(namespace), cluster_body("prod"))
    api = KubeDriver(ApiConnection(find_access(kubeconfig=kubeconfig, environ={}), user_agent="test"))

    await StatusWriter(api, field_manager="test", clock=SystemClock()).merge(old, {"version": "1"})
    await api.close()

    assert "status" not in kube_admin.get(f"{clusters(namespace)}/prod")


def uid(found: Any) -> str:
    return msgspec.convert(found["metadata"]["uid"], str)
