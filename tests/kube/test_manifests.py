"""A real API server accepts every manifest and example, and what it makes of them is what was promised."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sentinel.operator import manifests
from sentinel.version import __version__
from tests.kube.crds import ROOT
from tests.support.kube.manifests import NAMESPACE, Manifest, apply_manifest, read_manifest
from tools.services.kube_apiserver import KubeClient

pytestmark = pytest.mark.usefixtures("sentinel_config_crd", "openbao_crd", "hyperfleet_system")

DEPLOY, EXAMPLES, DOCS = ROOT / "deploy", ROOT / "examples", ROOT / "docs"
PROMISED = ROOT / "tests" / "golden" / "sentinelconfig"
NOT_SERVED = "monitoring.coreos.com/"
"""The group of the Prometheus operator, which the server does not know."""
FENCED = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def texts() -> Iterator[tuple[Path, str]]:
    """Yield the YAML of every file that may hold objects for users to apply."""
    for folder in (DEPLOY / "crds", DEPLOY / "manifests", EXAMPLES):
        for file in sorted(folder.rglob("*.yaml")):
            yield file, file.read_text()
    for file in sorted((*DOCS.rglob("*.md"), *DEPLOY.rglob("*.md"), ROOT / "README.md")):
        for fenced in FENCED.findall(file.read_text()):
            yield file, fenced


def objects() -> Iterator[tuple[str, Manifest]]:
    """Yield every object for users to apply, with a name for its test."""
    for file, text in texts():
        for document in yaml.safe_load_all(text):
            if not isinstance(document, dict) or not {"apiVersion", "kind", "metadata"} <= document.keys():
                continue
            if not document["apiVersion"].startswith(NOT_SERVED):
                yield f"{file.relative_to(ROOT)} {document['kind']} {document['metadata']['name']}", document


OBJECTS = dict(objects())


def normalized(admin: KubeClient, manifest: Manifest) -> Manifest:
    """Return what the server makes of an object, with its defaults and without its own metadata."""
    response = apply_manifest(admin, manifest, is_dry_run=True)
    assert response.status in (200, 201), response.body
    body: Manifest = response.body
    known = ("name", "namespace", "labels")
    return {
        **{key: value for key, value in body.items() if key != "status"},
        "metadata": {key: body["metadata"][key] for key in known if key in body["metadata"]},
    }


def flat(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield the path of each scalar and of each empty collection."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from flat(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from flat(inner, f"{path}[{index}]")
    else:
        yield path, value


def differences(ours: Manifest, promised: Manifest) -> dict[str, object]:
    """Return our value of each path at which two objects differ; None if only the other one has it."""
    left, right = dict(flat(ours)), dict(flat(promised))
    return {path: left.get(path) for path in left.keys() | right.keys() if left.get(path) != right.get(path)}


def as_stored(manifest: Manifest) -> Manifest:
    """Return an object as the server returns it: the texts of a Secret are encoded."""
    stored = {key: value for key, value in manifest.items() if key != "stringData"}
    if "stringData" in manifest:
        stored["data"] = {
            key: base64.b64encode(text.encode()).decode() for key, text in manifest["stringData"].items()
        }
    return stored


@pytest.fixture(scope="module")
def hyperfleet_system(kube_admin: KubeClient) -> None:
    """The namespace of all manifests. It stays: without controllers, it could not be created again."""
    response = kube_admin.send("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    assert response.status in (201, 409)


class TestAcceptance:
    def test_every_kind_is_found(self) -> None:
        kinds = [manifest["kind"] for manifest in OBJECTS.values()]

        assert {"CustomResourceDefinition", "ServiceAccount", "Role", "RoleBinding"} <= set(kinds)
        assert (kinds.count("Deployment"), kinds.count("SentinelConfig")) >= (5, 6)

    @pytest.mark.parametrize("name", OBJECTS.keys())
    def test_an_object_is_accepted_without_warnings(self, kube_admin: KubeClient, name: str) -> None:
        manifest = OBJECTS[name]

        response = apply_manifest(kube_admin, manifest, is_dry_run=True)

        assert response.status in (200, 201), response.body
        assert response.warnings == ()

    @pytest.mark.parametrize("name", OBJECTS.keys())
    def test_the_server_keeps_every_field_as_written(self, kube_admin: KubeClient, name: str) -> None:
        manifest = OBJECTS[name]

        stored = apply_manifest(kube_admin, manifest, is_dry_run=True).body

        written = dict(flat(as_stored(manifest)))
        assert {path: value for path, value in flat(stored) if path in written} == written

    @pytest.mark.parametrize("name", [name for name in OBJECTS if OBJECTS[name]["kind"] == "SentinelConfig"])
    def test_a_config_runs_as_the_server_returns_it(self, kube_admin: KubeClient, name: str) -> None:
        loaded = manifests.read_object(apply_manifest(kube_admin, OBJECTS[name], is_dry_run=True).body)

        written = manifests.read_object(OBJECTS[name]).settings
        assert (loaded.problems, loaded.warnings) == ((), ())
        assert loaded.settings is not None
        assert written is not None
        assert loaded.settings.spec == written.spec

    def test_a_misspelt_field_would_be_refused(self, kube_admin: KubeClient) -> None:
        manifest = read_manifest(DEPLOY / "manifests" / "deployment.yaml", "Deployment")
        manifest["spec"]["replica"] = manifest["spec"].pop("replicas")

        response = apply_manifest(kube_admin, manifest, is_dry_run=True)

        assert response.body["message"].endswith(".spec.replica: field not declared in schema")

    @pytest.mark.parametrize("name", [name for name in OBJECTS if OBJECTS[name]["kind"] == "Deployment"])
    def test_a_deployment_obeys_the_restricted_pod_security_standard(
        self, kube_admin: KubeClient, namespace: str, name: str
    ) -> None:
        label = {"pod-security.kubernetes.io/warn": "restricted"}
        kube_admin.merge_patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": label}})
        promised = read_manifest(PROMISED / "promised-deployment.yaml", "Deployment", namespace=namespace)
        ours = {**OBJECTS[name], "metadata": {**OBJECTS[name]["metadata"], "namespace": namespace}}

        responses = [apply_manifest(kube_admin, each, is_dry_run=True) for each in (promised, ours)]

        assert [each.status for each in responses] == [201, 201]
        assert [len(each.warnings) for each in responses] == [1, 0], responses[1].warnings


class TestPromises:
    def test_the_deployment_differs_from_the_promised_one_only_here(self, kube_admin: KubeClient) -> None:
        ours, promised = (
            normalized(kube_admin, read_manifest(file, "Deployment"))
            for file in (
                DEPLOY / "manifests" / "pubsub" / "deployment.yaml",
                PROMISED / "promised-deployment.yaml",
            )
        )

        pod, container = "spec.template.spec", "spec.template.spec.containers[0]"
        assert differences(ours, promised) == {
            # One Deployment runs every SentinelConfig.
            "metadata.name": "hyperfleet-sentinel",
            "metadata.labels.app": "hyperfleet-sentinel",
            "metadata.labels.sentinel.hyperfleet.io/resource-type": "all",
            "spec.selector.matchLabels.app": "hyperfleet-sentinel",
            "spec.template.metadata.labels.app": "hyperfleet-sentinel",
            "spec.template.metadata.labels.app.kubernetes.io/name": "hyperfleet-sentinel",
            "spec.template.metadata.labels.app.kubernetes.io/component": "operator",
            "spec.template.metadata.labels.sentinel.hyperfleet.io/resource-type": "all",
            # Two at once would publish every event twice.
            "spec.strategy.type": "Recreate",
            "spec.strategy.rollingUpdate.maxSurge": None,
            "spec.strategy.rollingUpdate.maxUnavailable": None,
            # The command is the first argument.
            f"{container}.image": f"quay.io/hyperfleet/sentinel:{__version__}",
            f"{container}.args[0]": "operator",
            # The restricted Pod Security Standard.
            f"{pod}.securityContext": None,
            f"{pod}.securityContext.runAsNonRoot": True,
            f"{pod}.securityContext.seccompProfile.type": "RuntimeDefault",
            f"{container}.securityContext.allowPrivilegeEscalation": False,
            f"{container}.securityContext.readOnlyRootFilesystem": True,
            f"{container}.securityContext.capabilities.drop[0]": "ALL",
        }

    def test_the_role_grants_more_than_the_promised_one_only_here(self, kube_admin: KubeClient) -> None:
        ours, promised = (
            normalized(kube_admin, read_manifest(file, "Role"))["rules"]
            for file in (DEPLOY / "manifests" / "rbac.yaml", PROMISED / "promised-rbac.yaml")
        )

        assert differences({"rules": ours}, {"rules": promised}) == {
            "rules[1].verbs[1]": "patch",  # of the status
            "rules[2].apiGroups[0]": "",
            "rules[2].resources[0]": "events",
            "rules[2].verbs[0]": "create",
        }

    @pytest.mark.parametrize("kind", ["ServiceAccount", "RoleBinding"])
    def test_the_account_is_the_promised_one_with_labels(self, kube_admin: KubeClient, kind: str) -> None:
        ours, promised = (
            normalized(kube_admin, read_manifest(file, kind))
            for file in (DEPLOY / "manifests" / "rbac.yaml", PROMISED / "promised-rbac.yaml")
        )

        assert differences(ours, promised) == {
            "metadata.labels.app.kubernetes.io/name": "hyperfleet-sentinel",
            "metadata.labels.app.kubernetes.io/component": "operator",
        }

    def test_the_promised_config_is_an_example(self, kube_admin: KubeClient) -> None:
        ours, promised = (
            normalized(kube_admin, read_manifest(file, "SentinelConfig"))
            for file in (EXAMPLES / "sentinelconfig-us-east.yaml", PROMISED / "promised-config.yaml")
        )

        assert ours == promised

    def test_the_promised_config_may_use_rabbitmq_instead(self, kube_admin: KubeClient) -> None:
        promised = read_manifest(PROMISED / "promised-config.yaml", "SentinelConfig")
        del promised["spec"]["broker"]["projectID"]
        promised["spec"]["broker"] |= {
            "type": "rabbitmq",
            "url": "amqp://guest:guest@rabbitmq:5672/",
            "exchange": "hyperfleet-events",
        }

        assert manifests.read_object(normalized(kube_admin, promised)).problems == ()
