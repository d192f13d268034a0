"""OpenBaoCluster on a real API server: its definition, the admission policy, and the accounts of sidecars."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from sentinel.drift.operator import policy
from sentinel.drift.operator.openbao import sidecar_objects
from sentinel.drift.operator.openbao.cluster import OPENBAO_CLUSTER, read_cluster
from tests.kube.crds import ROOT
from tests.support.kube.manifests import apply_manifest, read_manifest, read_manifests
from tests.support.kube.patch_types import MERGE_PATCH
from tests.support.kube.service_accounts import ServiceAccount, open_service_account, wait_until_allowed
from tools.services.kube_apiserver import KubeClient

CRD_FILE = ROOT / "deploy" / "crds" / f"{OPENBAO_CLUSTER}.yaml"
MANIFESTS = ROOT / "deploy" / "manifests" / "drift-operator"
POLICY_FILE = MANIFESTS / "admission-policy.yaml"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICY_PATH = f"{ADMISSION}/{policy.POLICY.plural}/{policy.NAME}"
BINDING_PATH = f"{ADMISSION}/{policy.BINDING.plural}/{policy.NAME}"
TRIGGER = "openbao.org/sentinel-trigger"
TRIGGER_RESOURCE = "openbao.org/sentinel-trigger-resource"

_TIMEOUT = timedelta(seconds=90)
_POLL_INTERVAL = timedelta(milliseconds=20)


def wait_until(is_true: Callable[[], object], what: str) -> None:
    """Wait until the server has taken over what was written."""
    deadline = time.monotonic() + _TIMEOUT.total_seconds()
    while not is_true():
        assert time.monotonic() < deadline, f"{what}: not within {_TIMEOUT}"
        time.sleep(_POLL_INTERVAL.total_seconds())


def install_openbao_crd(admin: KubeClient) -> None:
    """Define OpenBaoCluster, and wait until it is served. Changes nothing if it is there."""
    response = apply_manifest(admin, read_manifest(CRD_FILE, "CustomResourceDefinition"))
    assert response.status in (200, 201), response
    path = f"/apis/{OPENBAO_CLUSTER.api_version}"
    wait_until(
        lambda: (
            {admin.send("GET", each).status for each in (path, f"{path}/{OPENBAO_CLUSTER.plural}?limit=1")}
            == {200}
        ),
        "OpenBaoCluster is served",
    )


def install_policy(admin: KubeClient) -> None:
    """Apply the policy and its binding."""
    for manifest in read_manifests(POLICY_FILE):
        response = apply_manifest(admin, manifest)
        assert response.status in (200, 201), response
        assert response.warnings == ()


def clusters(namespace: str) -> str:
    """Return the path of the clusters of a namespace."""
    return f"/apis/{OPENBAO_CLUSTER.api_version}/namespaces/{namespace}/{OPENBAO_CLUSTER.plural}"


def cluster_body(name: str, *, sentinel: bool = True, **spec: Any) -> dict[str, Any]:
    """Return a cluster with what a sidecar must not change."""
    return {
        "apiVersion": OPENBAO_CLUSTER.api_version,
        "kind": OPENBAO_CLUSTER.kind,
        "metadata": {
            "name": name,
            "labels": {"team": "security"},
            "annotations": {"example.com/owner": "security"},
        },
        "spec": {"version": "2.4.1", "replicas": 3, **({"sentinel": {}} if sentinel else {}), **spec},
    }


def create_sidecar_account(admin: KubeClient, cluster: dict[str, Any], directory: Path) -> ServiceAccount:
    """Create the account that the operator creates for the sidecar of a cluster, and a token for it."""
    read = read_cluster(cluster)
    for kind, body in sidecar_objects.objects(read, operator_version="1"):
        if kind != sidecar_objects.DEPLOYMENT:
            response = apply_manifest(admin, body)
            assert response.status in (200, 201), response
    account = open_service_account(admin, namespace=read.namespace, name=read.sentinel_name, directory=directory)
    role = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{read.namespace}/roles/{read.sentinel_name}"
    wait_until_allowed(admin, account, admin.get(role)["rules"])
    return account


def wait_until_enforced(client: KubeClient, cluster_path: str) -> None:
    """Wait until the policy refuses a write of a sidecar that RBAC allows."""
    patch = {"metadata": {"annotations": {"example.com/probe": "1"}}}
    wait_until(
        lambda: client.send("PATCH", f"{cluster_path}?dryRun=All", patch, content_type=MERGE_PATCH).status == 403,
        "the policy is enforced",
    )
