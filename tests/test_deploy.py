"""The manifests of the operator: what users were promised, and nothing that grants more."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from sentinel.version import __version__
from tests.support.missing_service import skip_or_fail

ROOT = Path(__file__).parent.parent
MANIFESTS = ROOT / "deploy" / "manifests"
WITHOUT_NAMESPACE = (
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)
NAME, NAMESPACE = "hyperfleet-sentinel", "hyperfleet-system"


def read(name: str, folder: Path = MANIFESTS) -> dict[str, Any]:
    """Return the objects of a file by kind."""
    documents = list(yaml.safe_load_all((folder / name).read_text()))
    return {document["kind"]: document for document in documents}


def container_of(deployment: dict[str, Any]) -> dict[str, Any]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def rule(group: str, resource: str, *verbs: str) -> dict[str, list[str]]:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


@pytest.mark.parametrize(
    ("file", "name", "rules"),
    [
        (
            "rbac.yaml",
            NAME,
            [
                rule("hyperfleet.redhat.com", "sentinelconfigs", "get", "list", "watch"),
                rule("hyperfleet.redhat.com", "sentinelconfigs/status", "get", "patch"),
                rule("", "events", "create"),
            ],
        ),
        (
            "leader-election/rbac.yaml",
            f"{NAME}-leases",
            [rule("coordination.k8s.io", "leases", "get", "create", "update")],
        ),
        ("secrets/rbac.yaml", f"{NAME}-secrets", [rule("", "secrets", "get")]),
    ],
)
def test_a_role_grants_exactly_what_its_feature_needs(file: str, name: str, rules: list[dict[str, Any]]) -> None:
    objects = read(file)
    role, binding = objects["Role"], objects["RoleBinding"]

    assert role["rules"] == rules
    assert [each["metadata"]["name"] for each in (role, binding)] == [name, name]
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}]


def test_the_deployment_is_as_promised() -> None:
    deployment = read("deployment.yaml")["Deployment"]
    container = container_of(deployment)
    pod = deployment["spec"]["template"]["spec"]

    assert deployment["spec"]["replicas"] == 1
    assert deployment["metadata"]["labels"].keys() == {
        "app",
        "app.kubernetes.io/name",
        "app.kubernetes.io/component",
        "sentinel.hyperfleet.io/resource-type",
    }
    assert pod["serviceAccountName"] == read("rbac.yaml")["ServiceAccount"]["metadata"]["name"] == NAME
    assert (container["name"], container["imagePullPolicy"]) == ("sentinel", "IfNotPresent")
    assert container["image"] == f"quay.io/hyperfleet/sentinel:{__version__}"
    assert container["command"] == ["/sentinel"]
    assert container["args"] == [
        "operator",
        "--namespace=hyperfleet-system",
        "--metrics-bind-address=:8080",
        "--health-probe-bind-address=:8081",
    ]
    assert container["env"] == [
        {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
    ]
    assert [(port["name"], port["containerPort"]) for port in container["ports"]] == [
        ("metrics", 8080),
        ("health", 8081),
    ]
    assert container["livenessProbe"] == {
        "httpGet": {"path": "/healthz", "port": "health"},
        "initialDelaySeconds": 15,
        "periodSeconds": 20,
    }
    assert container["readinessProbe"] == {
        "httpGet": {"path": "/readyz", "port": "health"},
        "initialDelaySeconds": 5,
        "periodSeconds": 10,
    }
    assert container["resources"] == {
        "requests": {"cpu": "50m", "memory": "64Mi"},
        "limits": {"cpu": "100m", "memory": "128Mi"},
    }
    assert "volumes" not in pod


def test_the_variant_for_pubsub_only_adds_the_key() -> None:
    plain, variant = (read(file)["Deployment"] for file in ("deployment.yaml", "pubsub/deployment.yaml"))
    container = container_of(variant)

    assert variant["spec"]["template"]["spec"].pop("volumes") == [
        {"name": "gcp-credentials", "secret": {"secretName": "gcp-pubsub-credentials"}}
    ]
    assert container.pop("volumeMounts") == [
        {"name": "gcp-credentials", "mountPath": "/var/secrets/google", "readOnly": True}
    ]
    assert container["env"].pop() == {
        "name": "GOOGLE_APPLICATION_CREDENTIALS",
        "value": "/var/secrets/google/key.json",
    }
    assert variant == plain


def test_everything_is_in_one_namespace() -> None:
    files = [*MANIFESTS.rglob("*.yaml"), *(ROOT / "examples").glob("sentinelconfig-*.yaml")]

    found = {
        document["metadata"]["namespace"]
        for file in files
        for document in yaml.safe_load_all(file.read_text())
        if document is not None and document["kind"] not in WITHOUT_NAMESPACE
    }

    assert len(files) > 5
    assert found == {NAMESPACE}


def test_each_deployment_of_the_sharding_example_runs_its_config() -> None:
    documents = list(yaml.safe_load_all((ROOT / "examples" / "sentinelconfig-sharding.yaml").read_text()))
    by_kind = {
        kind: [each for each in documents if each["kind"] == kind] for kind in ("SentinelConfig", "Deployment")
    }
    plain = container_of(read("deployment.yaml")["Deployment"])

    assert len(by_kind["SentinelConfig"]) == len(by_kind["Deployment"]) == 3
    for config, deployment in zip(by_kind["SentinelConfig"], by_kind["Deployment"], strict=True):
        name, labels = config["metadata"]["name"], deployment["metadata"]["labels"]
        container = container_of(deployment)
        assert deployment["metadata"]["name"] == labels["app"] == name
        assert deployment["spec"]["selector"]["matchLabels"] == {"app": name}
        assert deployment["spec"]["template"]["metadata"]["labels"]["app"] == name
        assert labels["sentinel.hyperfleet.io/resource-type"] == config["spec"]["resourceType"]
        assert container["args"] == ["operator", f"--config={name}", *plain["args"][1:]]
        assert {key: container[key] for key in ("image", "resources", "livenessProbe", "ports")} == {
            key: plain[key] for key in ("image", "resources", "livenessProbe", "ports")
        }


def test_the_readme_names_every_manifest() -> None:
    readme = (ROOT / "deploy" / "README.md").read_text()

    for file in MANIFESTS.rglob("*.yaml"):
        assert f"({file.relative_to(ROOT / 'deploy')})" in readme


def test_systemd_accepts_the_unit_of_the_agent(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        skip_or_fail("systemd-analyze is not installed")
    text = (ROOT / "deploy" / "systemd" / "sentinel-agent.service").read_text()
    assert "ExecStart=/usr/bin/sentinel agent --config " in text
    unit = tmp_path / "sentinel-agent.service"
    unit.write_text(text.replace("/usr/bin/sentinel", sys.executable))

    verified = subprocess.run([program, "verify", str(unit)], capture_output=True, text=True, timeout=60)

    assert (verified.returncode, verified.stderr) == (0, "")
