"""The admission policy on a real API server: what a sidecar's own token may write, and what it may not."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.kube.openbao import (
    TRIGGER,
    TRIGGER_RESOURCE,
    cluster_body,
    clusters,
    create_sidecar_account,
    install_openbao_crd,
    install_policy,
    wait_until,
    wait_until_enforced,
)
from tests.support.kube.patch_types import APPLY, JSON_PATCH, MERGE_PATCH
from tests.support.kube.service_accounts import ServiceAccount
from tools.services.kube_apiserver import KubeClient, KubeResponse

TIME = "2026-11-18T09:00:00.123456789Z"
BEFORE = {"example.com/owner": "security", TRIGGER: "2026-11-18T08:00:00Z"}
"""The annotations of each cluster."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """A namespace with two clusters, and the sidecar of the first."""

    namespace: str
    account: ServiceAccount
    client: KubeClient
    """With the sidecar's token."""
    admin: KubeClient

    @property
    def path(self) -> str:
        return f"{clusters(self.namespace)}/one"

    @property
    def neighbour(self) -> str:
        return f"{clusters(self.namespace)}/two"

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = self.admin.get(self.path)
        return found

    def resource(self, kind: str = "StatefulSet", name: str = "one") -> str:
        return f"{kind}/{self.namespace}/{name}"

    def annotate(self, annotations: Mapping[str, str | None], path: str = "") -> KubeResponse:
        return self.patch({"metadata": {"annotations": annotations}}, path)

    def patch(self, patch: dict[str, Any], path: str = "") -> KubeResponse:
        return self.client.send("PATCH", path or self.path, patch, content_type=MERGE_PATCH)


def grant_everything(world: World) -> None:
    """Give the sidecar all permissions in its namespace, so that only the policy is in the way."""
    admin, account = world.admin, world.account
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{account.namespace}"
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    admin.create(f"{rbac}/roles", {"metadata": {"name": "everything"}, "rules": [everything]})
    admin.create(
        f"{rbac}/rolebindings",
        {
            "metadata": {"name": "everything"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "everything"},
            "subjects": [{"kind": "ServiceAccount", "name": account.name, "namespace": account.namespace}],
        },
    )
    wait_until(lambda: world.client.send("GET", world.neighbour).status == 200, "the account is powerful")


@pytest.fixture(scope="module")
def limited(kube_admin: KubeClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A sidecar with the permissions that the operator gives it."""
    yield from make_world(kube_admin, tmp_path_factory.mktemp("limited"))


@pytest.fixture(scope="module")
def powerful(kube_admin: KubeClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A sidecar that RBAC allows everything in its namespace: the policy alone has to stop it."""
    for world in make_world(kube_admin, tmp_path_factory.mktemp("powerful")):
        grant_everything(world)
        yield world


def make_world(admin: KubeClient, directory: Path) -> Iterator[World]:
    install_openbao_crd(admin)
    install_policy(admin)
    namespace = f"test-{secrets.token_hex(6)}"
    admin.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    created = [admin.create(clusters(namespace), cluster_body(name)) for name in ("one", "two")]
    account = create_sidecar_account(admin, created[0], directory)
    world = World(namespace=namespace, account=account, client=KubeClient(account.access), admin=admin)
    wait_until_enforced(world.client, world.path)
    yield world
    admin.delete(f"/api/v1/namespaces/{namespace}")


@pytest.fixture(params=["limited", "powerful"])
def world(request: pytest.FixtureRequest) -> World:
    """Two clusters in their first state. Every test runs with and without the help of RBAC."""
    world: World = request.getfixturevalue(request.param)
    for path in (world.path, world.neighbour):
        annotations = {**BEFORE, TRIGGER_RESOURCE: world.resource(name="first")}
        world.admin.merge_patch(path, {"metadata": {"annotations": annotations}})
    return world


def refused(response: KubeResponse, text: str = "") -> bool:
    """Whether RBAC or the policy refused a request; with a text, the policy and for this reason."""
    return response.status == 403 and text in response.body["message"]


class TestAllowed:
    def test_the_trigger_with_its_resource_is_allowed(self, world: World) -> None:
        response = world.annotate({TRIGGER: TIME, TRIGGER_RESOURCE: world.resource()})

        assert response.status == 200, response.body
        annotations = world.read()["metadata"]["annotations"]
        assert annotations == {**BEFORE, TRIGGER: TIME, TRIGGER_RESOURCE: world.resource()}

    def test_the_trigger_alone_is_allowed(self, world: World) -> None:
        assert world.annotate({TRIGGER: TIME}).status == 200

    def test_the_trigger_on_a_cluster_without_annotations_is_allowed(self, world: World) -> None:
        world.admin.merge_patch(world.path, {"metadata": {"annotations": None}})

        assert world.annotate({TRIGGER: TIME, TRIGGER_RESOURCE: world.resource()}).status == 200

    @pytest.mark.parametrize(
        "time", ["2026-11-18T09:00:00Z", "2026-11-18T09:00:00.5Z", "2026-11-18T10:00:00+01:00"]
    )
    def test_any_time_in_rfc_3339_is_allowed(self, world: World, time: str) -> None:
        assert world.annotate({TRIGGER: time}).status == 200

    def test_a_write_that_changes_nothing_is_allowed(self, world: World) -> None:
        assert world.annotate(BEFORE).status == 200

    def test_a_server_side_apply_of_the_trigger_alone_is_allowed(self, world: World) -> None:
        body = {**cluster_body("one"), "metadata": {"name": "one", "annotations": {TRIGGER: TIME}}}
        del body["spec"]

        query = "fieldManager=sidecar&force=true"
        response = world.client.send("PATCH", f"{world.path}?{query}", body, content_type=APPLY)

        assert response.status == 200, response.body

    def test_a_status_that_the_operator_wrote_is_no_obstacle(self, world: World) -> None:
        status = {"drift": {"driftCorrectionCount": 3}, "steps": {"certs": {"lastRun": "2026-11-18T09:00:00Z"}}}
        world.admin.merge_patch(f"{world.path}/status", {"status": status})

        assert world.annotate({TRIGGER: TIME}).status == 200

    def test_other_users_are_not_limited(self, world: World) -> None:
        world.admin.merge_patch(
            world.path, {"metadata": {"annotations": {TRIGGER: "now"}, "labels": {"team": "platform"}}}
        )

        assert world.read()["metadata"]["labels"] == {"team": "platform"}


class TestForbiddenWrites:
    def test_a_change_of_the_spec_is_refused(self, world: World) -> None:
        assert refused(world.patch({"spec": {"replicas": 1}}), "the spec")

    def test_a_change_of_the_spec_beside_a_valid_trigger_is_refused(self, world: World) -> None:
        patch = {"metadata": {"annotations": {TRIGGER: TIME}}, "spec": {"paused": True}}

        assert refused(world.patch(patch), "the spec")

    def test_removing_a_field_of_the_spec_is_refused(self, world: World) -> None:
        assert refused(world.patch({"spec": {"sentinel": None}}), "the spec")

    def test_removing_the_spec_is_refused(self, world: World) -> None:
        assert refused(world.patch({"spec": None}), "the spec")

    def test_a_write_of_the_status_is_refused(self, world: World) -> None:
        response = world.patch({"status": {"version": "1"}}, f"{world.path}/status")

        assert refused(response)
        assert world.read().get("status", {}).get("version") is None

    def test_the_status_beside_a_valid_trigger_is_dropped(self, world: World) -> None:
        # As for every resource with this subresource, the server ignores it here.
        world.patch({"metadata": {"annotations": {TRIGGER: TIME}}, "status": {"version": "1"}})

        assert world.read().get("status", {}).get("version") is None

    def test_a_change_of_a_label_is_refused(self, world: World) -> None:
        assert refused(world.patch({"metadata": {"labels": {"team": "attackers"}}}), "the labels")

    def test_removing_a_label_is_refused(self, world: World) -> None:
        assert refused(world.patch({"metadata": {"labels": None}}), "the labels")

    def test_a_new_label_is_refused(self, world: World) -> None:
        assert refused(world.patch({"metadata": {"labels": {"new": "label"}}}), "the labels")

    def test_a_new_finalizer_is_refused(self, world: World) -> None:
        assert refused(world.patch({"metadata": {"finalizers": ["example.com/keep"]}}), "the finalizers")

    def test_a_new_owner_is_refused(self, world: World) -> None:
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "0-0"}

        assert refused(world.patch({"metadata": {"ownerReferences": [owner]}}), "the owners")

    def test_a_generated_name_is_refused(self, world: World) -> None:
        assert refused(world.patch({"metadata": {"generateName": "x-"}}), "the generated name")

    def test_a_new_annotation_is_refused(self, world: World) -> None:
        assert refused(world.annotate({"example.com/new": "1"}), "only add or change the annotations")

    def test_another_annotation_beside_a_valid_trigger_is_refused(self, world: World) -> None:
        response = world.annotate({TRIGGER: TIME, "example.com/owner": "attackers"})

        assert refused(response, "only add or change the annotations")

    def test_an_exchange_of_annotations_that_keeps_their_number_is_refused(self, world: World) -> None:
        response = world.annotate({TRIGGER: TIME, "example.com/owner": None, "example.com/new": "1"})

        assert refused(response, "A sentinel may ")

    @pytest.mark.parametrize("mode", ["openbao.org/sentinel-mode", "openbao.org/sentinel-maintenance-until"])
    def test_annotations_that_disable_the_sidecar_are_refused(self, world: World, mode: str) -> None:
        assert refused(world.annotate({mode: "off"}), "only add or change the annotations")

    def test_removing_an_annotation_is_refused(self, world: World) -> None:
        assert refused(world.annotate({"example.com/owner": None}), "not remove annotations")

    def test_removing_all_annotations_is_refused(self, world: World) -> None:
        assert refused(world.patch({"metadata": {"annotations": None}}), "not remove annotations")

    def test_removing_the_trigger_is_refused(self, world: World) -> None:
        assert refused(world.annotate({TRIGGER: None}), "not remove annotations")

    def test_removing_the_resource_is_refused(self, world: World) -> None:
        response = world.annotate({TRIGGER: TIME, TRIGGER_RESOURCE: None})

        assert refused(response, "not remove annotations")

    def test_the_resource_without_a_new_trigger_is_refused(self, world: World) -> None:
        assert refused(world.annotate({TRIGGER_RESOURCE: world.resource()}), "together with")

    @pytest.mark.parametrize(
        "time",
        [
            "",
            "now",
            "1700000000",
            "2026-11-18",
            "2026-13-18T09:00:00Z",
            "2026-11-18T25:00:00Z",
            "2026-11-18T09:00:00",
            "2026-11-18T09:00:00Z\n",
            "2026-11-18T09:00:00Z; rm -rf /",
            "x" * 100_000,
        ],
        ids=lambda text: text[:30] or "empty",
    )
    def test_a_trigger_that_is_no_time_is_refused(self, world: World, time: str) -> None:
        assert refused(world.annotate({TRIGGER: time}), "has to be a time")

    @pytest.mark.parametrize(
        "resource",
        [
            "",
            "StatefulSet",
            "StatefulSet/one",
            "{namespace}/StatefulSet/one",
            "StatefulSet/{namespace}/one/two",
            "StatefulSet/{namespace}/",
            "StatefulSet/other-namespace/one",
            "Kind-with-dashes/{namespace}/one",
            "K" * 64 + "/{namespace}/one",
            "StatefulSet/{namespace}/" + "n" * 254,
            "StatefulSet/{namespace}/one\nlevel=error",
        ],
        ids=lambda text: text[:40] or "empty",
    )
    def test_a_resource_that_names_no_object_of_the_namespace_is_refused(
        self, world: World, resource: str
    ) -> None:
        named = resource.replace("{namespace}", world.namespace)

        response = world.annotate({TRIGGER: TIME, TRIGGER_RESOURCE: named})

        assert refused(response, "has to be KIND/NAMESPACE/NAME")

    def test_a_trigger_on_another_cluster_is_refused(self, world: World) -> None:
        response = world.annotate({TRIGGER: TIME}, world.neighbour)

        assert refused(response)

    def test_replacing_the_object_is_refused(self, world: World) -> None:
        response = world.client.send("PUT", world.path, {**world.read(), "spec": {"replicas": 1}})

        assert refused(response)

    def test_a_json_patch_of_the_spec_is_refused(self, world: World) -> None:
        patch: Any = [{"op": "replace", "path": "/spec/replicas", "value": 1}]

        assert refused(world.client.send("PATCH", world.path, patch, content_type=JSON_PATCH), "the spec")

    def test_owning_fields_of_the_spec_without_a_change_is_refused(self, world: World) -> None:
        body = {**cluster_body("one"), "metadata": {"name": "one"}}

        query = "fieldManager=sidecar&force=true"
        response = world.client.send("PATCH", f"{world.path}?{query}", body, content_type=APPLY)

        assert refused(response, "own fields")

    def test_removing_the_owners_of_fields_is_refused(self, world: World) -> None:
        assert refused(world.patch({"metadata": {"managedFields": [{}]}}), "own fields")

    def test_creating_a_cluster_is_refused(self, world: World) -> None:
        assert refused(world.client.send("POST", clusters(world.namespace), cluster_body("three")))

    def test_creating_a_cluster_by_apply_is_refused(self, world: World) -> None:
        path = f"{clusters(world.namespace)}/three?fieldManager=sidecar"

        assert refused(world.client.send("PATCH", path, cluster_body("three"), content_type=APPLY))

    def test_deleting_its_cluster_is_refused(self, world: World) -> None:
        assert refused(world.client.send("DELETE", world.path))

    def test_deleting_all_clusters_is_refused(self, world: World) -> None:
        response = world.client.send("DELETE", clusters(world.namespace))

        assert refused(response)


class TestPermissions:
    """What RBAC alone refuses."""

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("GET", "/api/v1/namespaces/{namespace}/secrets"),
            ("GET", "/api/v1/namespaces/{namespace}/secrets/one-tls"),
            ("POST", "/api/v1/namespaces/{namespace}/configmaps"),
            ("PUT", "/api/v1/namespaces/{namespace}/configmaps/one-config"),
            ("PATCH", "/api/v1/namespaces/{namespace}/services/one"),
            ("DELETE", "/api/v1/namespaces/{namespace}/services/one"),
            ("PATCH", "/apis/apps/v1/namespaces/{namespace}/statefulsets/one"),
            ("PATCH", "/apis/apps/v1/namespaces/{namespace}/statefulsets/one/scale"),
            ("GET", "/apis/apps/v1/namespaces/{namespace}/deployments"),
            ("GET", "/api/v1/namespaces/{namespace}/pods"),
            ("POST", "/api/v1/namespaces/{namespace}/pods"),
            ("POST", "/api/v1/namespaces/{namespace}/serviceaccounts/one-sentinel/token"),
            ("PATCH", "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles/one-sentinel"),
            ("GET", "/apis/openbao.org/v1alpha1/namespaces/{namespace}/openbaoclusters"),
            ("GET", "/apis/openbao.org/v1alpha1/namespaces/{namespace}/openbaoclusters/two"),
            ("GET", "/apis/openbao.org/v1alpha1/openbaoclusters"),
            ("GET", "/api/v1/namespaces/default/configmaps"),
            ("GET", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"),
        ],
    )
    def test_whatever_else_it_tries_is_forbidden(self, limited: World, method: str, path: str) -> None:
        content_type = MERGE_PATCH if method == "PATCH" else "application/json"
        body: dict[str, Any] | None = {} if method in ("POST", "PUT", "PATCH") else None

        response = limited.client.send(
            method, path.format(namespace=limited.namespace), body, content_type=content_type
        )

        assert response.status == 403, response.body

    @pytest.mark.parametrize(
        "path",
        [
            "/apis/apps/v1/namespaces/{namespace}/statefulsets",
            "/api/v1/namespaces/{namespace}/services",
            "/api/v1/namespaces/{namespace}/configmaps",
            "/apis/openbao.org/v1alpha1/namespaces/{namespace}/openbaoclusters?fieldSelector=metadata.name=one",
            "/apis/openbao.org/v1alpha1/namespaces/{namespace}/openbaoclusters/one",
        ],
    )
    def test_what_it_watches_may_be_read(self, limited: World, path: str) -> None:
        assert limited.client.send("GET", path.format(namespace=limited.namespace)).status == 200

    def test_its_own_cluster_may_be_watched(self, limited: World) -> None:
        query = "watch=true&timeoutSeconds=1&fieldSelector=metadata.name=one"

        assert limited.client.send("GET", f"{clusters(limited.namespace)}?{query}").status == 200
