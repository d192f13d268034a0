"""The drift operator on a real API server, with its own account, RBAC and the admission policy."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sentinel.core.drift.rules import OPENBAO
from sentinel.drift.operator import policy
from tests.kube.drift_world import ACCOUNT, RBAC, World, apps, core, create_account
from tests.kube.openbao import (
    BINDING_PATH,
    TRIGGER,
    cluster_body,
    clusters,
    install_openbao_crd,
    install_policy,
    wait_until,
)
from tests.support.kube.manifests import read_manifest
from tests.support.kube.patch_types import APPLY, MERGE_PATCH
from tests.support.kube.service_accounts import ServiceAccount, open_service_account
from tests.support.processes.drift_operator import DriftOperatorProcess
from tools.services.kube_apiserver import AuditEntry, AuditLog, KubeApiServer, KubeClient

Permission = tuple[str, str, str]
"""The verb, the group, and the resource with its subresource."""


def permissions(*kinds: str) -> set[Permission]:
    """Return what the manifests grant the operator."""
    return {
        (verb, group, resource)
        for kind in kinds
        for rule in read_manifest(RBAC, kind)["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def used(entries: Sequence[AuditEntry]) -> set[Permission]:
    """Return the permissions that requests needed."""
    return {
        (each.verb, each.group, f"{each.resource}/{each.subresource}" if each.subresource else each.resource)
        for each in entries
    }


def object_paths(world: World) -> list[str]:
    """Return the paths of the objects of the cluster `prod`."""
    return [
        core(world.namespace, "configmaps", "prod-config"),
        core(world.namespace, "services", "prod"),
        core(world.namespace, "secrets", "prod-tls"),
        apps(world.namespace, "statefulsets", "prod"),
        apps(world.namespace, "deployments", "prod-sentinel"),
    ]


def recreate(admin: KubeClient, path: str, **spec: Any) -> None:
    """Delete an object, and create another one with its name."""
    found = admin.get(path)
    admin.delete(path)
    content = {name: value for name, value in (found["spec"] | spec).items() if value is not None}
    admin.create(path.rpartition("/")[0], {"metadata": {"name": found["metadata"]["name"]}, "spec": content})


@pytest.fixture
def account(kube_admin: KubeClient, namespace: str, tmp_path: Path) -> ServiceAccount:
    """The operator's account, on a server with the kind and the policy."""
    install_openbao_crd(kube_admin)
    install_policy(kube_admin)
    return create_account(kube_admin, namespace, tmp_path)


@pytest.fixture
async def world(kube_admin: KubeClient, account: ServiceAccount) -> AsyncIterator[World]:
    async with DriftOperatorProcess(account.kubeconfig, environ={"OPERATOR_VERSION": "9.9.9"}) as operator:
        yield World(kube_admin, account, operator)
        assert await operator.stop() == 0


class TestObjects:
    async def test_a_cluster_gets_all_its_objects(self, world: World) -> None:
        world.create(config="ui = true")
        await world.ready()

        namespace = world.namespace
        config = world.admin.get(core(namespace, "configmaps", "prod-config"))
        secret = world.admin.get(core(namespace, "secrets", "prod-tls"))
        deployment = world.admin.get(apps(namespace, "deployments", "prod-sentinel"))
        assert config["data"] == {"config.hcl": "ui = true"}
        assert set(secret["data"]) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
        assert (
            deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "openbao/operator-sentinel:9.9.9"
        )
        assert world.reasons()["Degraded"] == "False/AdmissionPoliciesReady"
        assert set(world.cluster()["status"]["steps"]) == {"certs", "infra", "upgrade", "backup"}

    async def test_sidecars_get_the_configuration_that_the_operator_names(
        self, kube_admin: KubeClient, account: ServiceAccount
    ) -> None:
        async with DriftOperatorProcess(account.kubeconfig, "--sidecar-config=sidecars") as operator:
            world = World(kube_admin, account, operator)
            world.create()
            await world.ready()
            assert await operator.stop() == 0

        pod = kube_admin.get(apps(world.namespace, "deployments", "prod-sentinel"))["spec"]["template"]["spec"]
        role = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{world.namespace}/roles/prod-sentinel"
        assert pod["containers"][0]["args"] == ["drift", "--config=/etc/sentinel/config.yaml"]
        assert pod["volumes"][0]["configMap"]["name"] == "sidecars"
        assert kube_admin.get(role)["rules"][-1] == {
            "apiGroups": [""],
            "resources": ["events"],
            "verbs": ["create"],
        }

    async def test_a_pass_over_objects_as_wanted_changes_nothing(self, world: World) -> None:
        world.create()
        await world.ready()
        paths = [*object_paths(world), core(world.namespace, "serviceaccounts", "prod-sentinel")]
        before = [world.admin.get(path)["metadata"]["resourceVersion"] for path in paths]

        await world.heal(paths[0])

        assert [world.admin.get(path)["metadata"]["resourceVersion"] for path in paths] == before

    async def test_a_name_that_its_objects_cannot_have_is_refused(
        self, kube_admin: KubeClient, namespace: str
    ) -> None:
        install_openbao_crd(kube_admin)

        for name in ("a" * 53, "a.b", "1a"):
            response = kube_admin.send("POST", clusters(namespace), cluster_body(name))
            assert response.status == 422
            assert "metadata.name: expected at most 52" in response.body["message"]

    @pytest.mark.parametrize("seconds", [0, 61, "2"])
    async def test_a_window_out_of_range_is_refused(
        self, kube_admin: KubeClient, namespace: str, seconds: object
    ) -> None:
        install_openbao_crd(kube_admin)
        body = cluster_body("prod", sentinel=False) | {"spec": {"sentinel": {"debounceWindowSeconds": seconds}}}

        assert kube_admin.send("POST", clusters(namespace), body).status == 422

    @pytest.mark.parametrize(("quantity", "status"), [(1, 201), ("64Mi", 201), ("1e3", 201), ("much", 422)])
    async def test_quantities_are_numbers_with_units(
        self, kube_admin: KubeClient, namespace: str, quantity: object, status: int
    ) -> None:
        install_openbao_crd(kube_admin)
        sentinel = {"resources": {"limits": {"memory": quantity}}}
        body = cluster_body("prod", sentinel=False) | {"spec": {"sentinel": sentinel}}

        assert kube_admin.send("POST", clusters(namespace), body).status == status

    async def test_the_defaults_of_a_sentinel_are_the_promised_ones(
        self, kube_admin: KubeClient, namespace: str
    ) -> None:
        install_openbao_crd(kube_admin)

        created = kube_admin.create(clusters(namespace), cluster_body("prod"))

        assert created["spec"]["sentinel"] == {"enabled": True, "debounceWindowSeconds": 2}


class TestHealing:
    async def test_an_edit_scale_and_injected_container_are_reverted(self, world: World) -> None:
        world.create()
        await world.ready()
        path = apps(world.namespace, "statefulsets", "prod")
        wanted = world.admin.get(path)["spec"]
        containers = [*wanted["template"]["spec"]["containers"], {"name": "miner", "image": "example.com/miner"}]

        world.admin.merge_patch(f"{path}/scale", {"spec": {"replicas": 0}})
        world.admin.merge_patch(path, {"spec": {"template": {"spec": {"containers": containers}}}})
        world.admin.merge_patch(path, {"spec": {"template": {"spec": {"hostNetwork": True}}}})
        world.admin.merge_patch(path, {"spec": {"revisionHistoryLimit": 3}})

        assert (await world.heal(path))["spec"] == wanted

    async def test_a_port_by_server_side_apply_of_another_manager_is_removed(self, world: World) -> None:
        world.create()
        await world.ready()
        path = core(world.namespace, "services", "prod")
        wanted = world.admin.get(path)["spec"]
        body = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "prod"},
            "spec": {"ports": [{"name": "shell", "port": 22, "protocol": "TCP"}], "externalIPs": ["192.0.2.1"]},
        }

        response = world.admin.send("PATCH", f"{path}?fieldManager=intruder&force=true", body, content_type=APPLY)

        assert response.status == 200, response.body
        assert (await world.heal(path))["spec"] == wanted

    async def test_data_is_restored_after_a_replacement(self, world: World) -> None:
        world.create(config="ui = true")
        await world.ready()
        path = core(world.namespace, "configmaps", "prod-config")
        found = world.admin.get(path)

        replaced = {**found, "data": {"config.hcl": "ui = false", "more": "x"}, "binaryData": {"b": "eA=="}}
        assert world.admin.send("PUT", path, replaced).status == 200

        healed = await world.heal(path)
        assert healed["data"] == {"config.hcl": "ui = true"}
        assert "binaryData" not in healed

    async def test_an_immutable_config_map_is_made_again(self, world: World) -> None:
        world.create(config="ui = true")
        await world.ready()
        path = core(world.namespace, "configmaps", "prod-config")

        world.admin.merge_patch(path, {"data": {"config.hcl": "x"}, "immutable": True})

        healed = await world.heal(path)
        assert (healed["data"], healed.get("immutable")) == ({"config.hcl": "ui = true"}, None)

    async def test_lost_labels_and_fingerprints_return(self, world: World) -> None:
        world.create()
        await world.ready()
        path = core(world.namespace, "services", "prod")
        before = world.admin.get(path)["metadata"]

        world.admin.merge_patch(path, {"metadata": {"labels": None, "annotations": None}})

        healed = (await world.heal(path))["metadata"]
        assert (healed["labels"], healed["annotations"]) == (before["labels"], before["annotations"])
        assert OPENBAO.annotations.fingerprint in healed["annotations"]

    async def test_deleted_objects_are_made_again(self, world: World) -> None:
        world.create()
        await world.ready()
        paths = object_paths(world)

        for path in paths:
            world.admin.delete(path)
        await world.heal(f"{clusters(world.namespace)}/prod")

        assert [world.admin.send("GET", path).status for path in paths] == [200] * len(paths)

    async def test_the_status_tells_what_happened(self, world: World) -> None:
        world.create()
        await world.ready()

        await world.heal(f"{clusters(world.namespace)}/prod")
        await world.until(lambda: world.cluster()["status"]["drift"]["consecutiveFastPaths"] == 0)

        drift = world.cluster()["status"]["drift"]
        assert drift["driftCorrectionCount"] == 1
        assert drift["lastDriftResource"] == f"StatefulSet/{world.namespace}/prod"
        assert drift["lastDriftDetected"] == "2026-11-18T09:00:00Z"
        assert {"lastCorrectionTime", "lastFullReconcileTime"} <= drift.keys()
        metrics = await world.operator.metrics_text()
        labels = f'name="prod",namespace="{world.namespace}",resource_kind="StatefulSet"'
        assert f"openbao_drift_detected_total{{{labels}}} 1.0" in metrics


class TestNeighbours:
    async def test_two_clusters_in_a_namespace_share_nothing(self, world: World) -> None:
        world.create("one")
        world.create("two")
        await world.ready("one")
        await world.ready("two")

        world.admin.merge_patch(f"{clusters(world.namespace)}/one", {"spec": {"sentinel": {"enabled": False}}})
        await world.until(lambda: world.reasons("one").get("Degraded") == "False/SentinelDisabled")

        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{world.namespace}"
        for name, status in (("one", 404), ("two", 200)):
            paths = [
                apps(world.namespace, "deployments", f"{name}-sentinel"),
                core(world.namespace, "serviceaccounts", f"{name}-sentinel"),
                f"{rbac}/roles/{name}-sentinel",
                f"{rbac}/rolebindings/{name}-sentinel",
            ]
            assert [world.admin.send("GET", path).status for path in paths] == [status] * 4, name

    async def test_a_sidecar_may_trigger_its_own_cluster_alone(self, world: World, tmp_path: Path) -> None:
        world.create("one")
        world.create("two")
        await world.ready("one")
        await world.ready("two")
        sidecar = KubeClient(
            open_service_account(
                world.admin, namespace=world.namespace, name="one-sentinel", directory=tmp_path
            ).access
        )
        patch = {"metadata": {"annotations": {TRIGGER: "2026-11-18T09:00:00Z"}}}

        statuses = [
            sidecar.send("PATCH", f"{clusters(world.namespace)}/{name}", patch, content_type=MERGE_PATCH).status
            for name in ("one", "two")
        ]

        assert statuses == [200, 403]
        await world.until(lambda: TRIGGER not in world.annotations("one"))
        assert world.cluster("one")["status"]["drift"]["driftCorrectionCount"] == 1


class TestPermissions:
    async def test_the_operator_needs_what_it_was_granted(
        self, kube_admin: KubeClient, account: ServiceAccount, namespace: str, audit_log: AuditLog
    ) -> None:
        async with DriftOperatorProcess(account.kubeconfig) as operator:
            world = World(kube_admin, account, operator)
            world.create()
            await world.ready()
            config = core(namespace, "configmaps", "prod-config")
            kube_admin.merge_patch(config, {"data": {"config.hcl": "x"}, "immutable": True})
            recreate(kube_admin, core(namespace, "services", "prod"), clusterIP=None, clusterIPs=None)
            recreate(kube_admin, apps(namespace, "statefulsets", "prod"), serviceName="other")
            await world.heal(config)
            secret = core(namespace, "secrets", "prod-tls")
            kube_admin.merge_patch(secret, {"data": {"more": "eA=="}, "immutable": True})
            world.trigger(f"ConfigMap/{namespace}/prod-config", "2026-11-18T09:00:00.000000002Z")
            await world.until(lambda: TRIGGER not in world.annotations())
            kube_admin.merge_patch(f"{clusters(namespace)}/prod", {"spec": {"sentinel": None}})
            await world.until(lambda: world.reasons().get("Degraded") == "False/SentinelDisabled")
            assert await operator.stop() == 0
        await audit_log.wait_for(
            lambda entry: entry.user == account.user and entry.verb == "watch" and entry.is_complete
        )
        requests = audit_log.entries(user=account.user)

        granted = permissions("Role", "ClusterRole")
        assert [each for each in requests if each.code == 403] == []
        assert used(requests) <= granted
        assert {each.namespace for each in requests if each.group != policy.POLICY.group} == {namespace}
        applied = {(group, resource) for verb, group, resource in used(requests) if verb == "patch"}
        assert granted - used(requests) == {
            # An apply that creates needs it, and the log shows a patch.
            *(("create", *each) for each in applied if "openbaoclusters" not in each[1]),
            # It may only grant sidecars what it may do itself.
            *((verb, "", plural) for verb in ("list", "watch") for plural in ("configmaps", "services")),
            *((verb, "apps", "statefulsets") for verb in ("list", "watch")),
        }

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("GET", "/api/v1/namespaces/{namespace}/secrets"),
            ("GET", "/api/v1/namespaces/default/secrets"),
            ("GET", "/api/v1/namespaces/default/configmaps"),
            ("GET", "/api/v1/namespaces/{namespace}/pods"),
            ("POST", "/api/v1/namespaces/{namespace}/pods"),
            ("POST", "/api/v1/namespaces/{namespace}/serviceaccounts/prod-sentinel/token"),
            ("DELETE", "/api/v1/namespaces/{namespace}/persistentvolumeclaims/data-prod-0"),
            ("POST", "/apis/openbao.org/v1alpha1/namespaces/{namespace}/openbaoclusters"),
            ("DELETE", "/apis/openbao.org/v1alpha1/namespaces/{namespace}/openbaoclusters/prod"),
            ("GET", "/apis/openbao.org/v1alpha1/openbaoclusters"),
            ("GET", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"),
            ("DELETE", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/" + policy.NAME),
            ("PATCH", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/" + policy.NAME),
            ("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
        ],
    )
    def test_whatever_else_it_tries_is_forbidden(self, account: ServiceAccount, method: str, path: str) -> None:
        content_type = MERGE_PATCH if method == "PATCH" else "application/json"
        body: dict[str, Any] | None = {} if method in ("POST", "PATCH") else None

        response = KubeClient(account.access).send(
            method, path.format(namespace=account.namespace), body, content_type=content_type
        )

        assert response.status == 403, response.body

    def test_an_apply_that_creates_needs_the_permission_to_create(
        self, kube_admin: KubeClient, account: ServiceAccount
    ) -> None:
        client, path = KubeClient(account.access), core(account.namespace, "configmaps", "new")
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}}
        role = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{account.namespace}/roles/{ACCOUNT}"
        rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}]
        kube_admin.merge_patch(role, {"rules": rules})

        wait_until(
            lambda: (
                client.send("PATCH", f"{path}?fieldManager=x&dryRun=All", body, content_type=APPLY).status == 403
            ),
            "the apply is refused",
        )

    def test_it_may_not_grant_more_than_it_has(self, account: ServiceAccount) -> None:
        role = {"metadata": {"name": "x"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{account.namespace}/roles"

        response = KubeClient(account.access).send("POST", path, role)

        assert response.status == 403
        assert "attempting to grant RBAC permissions not currently held" in response.body["message"]


class TestPolicy:
    """On a server of its own: the policy is one for all namespaces."""

    @pytest.fixture
    def private_admin(self, private_kube_apiserver: KubeApiServer) -> Iterator[KubeClient]:
        admin = KubeClient(private_kube_apiserver.admin)
        install_openbao_crd(admin)
        yield admin
        install_policy(admin)

    async def test_without_the_policy_no_sidecar_is_deployed(
        self, private_admin: KubeClient, tmp_path: Path
    ) -> None:
        admin = private_admin
        for path in (BINDING_PATH, BINDING_PATH.replace("policybindings", "policies")):
            admin.send("DELETE", path)
        namespace = f"policy-{secrets.token_hex(6)}"
        admin.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        account = create_account(admin, namespace, tmp_path)

        async with DriftOperatorProcess(account.kubeconfig) as operator:
            world = World(admin, account, operator)
            deployment = apps(namespace, "deployments", "prod-sentinel")
            world.create()
            await world.ready()
            await world.until(lambda: world.reasons().get("Degraded") == "True/AdmissionPoliciesNotReady")
            absent = admin.send("GET", deployment).status
            install_policy(admin)
            await world.until(lambda: admin.send("GET", deployment).status == 200, timeout=60)
            await world.until(lambda: world.reasons().get("Degraded") == "False/AdmissionPoliciesReady")
            admin.merge_patch(BINDING_PATH, {"spec": {"validationActions": ["Audit"]}})
            await world.until(lambda: admin.send("GET", deployment).status == 404, timeout=60)
            await world.until(lambda: world.reasons().get("Degraded") == "True/AdmissionPoliciesNotReady")
            assert await operator.stop() == 0

        assert absent == 404
