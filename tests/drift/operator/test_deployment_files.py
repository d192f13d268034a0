"""The files under deploy/ agree with the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from sentinel.core.drift import admission
from sentinel.drift.operator import policy
from sentinel.drift.operator.openbao import crd
from sentinel.drift.operator.openbao.cluster import OPENBAO_CLUSTER
from sentinel.version import __version__
from tests.support.structural_schema import errors
from tools import manifests
from tools.reference import docstrings

ROOT = Path(__file__).parents[3]
DIRECTORY = ROOT / "deploy" / "manifests" / "drift-operator"
DOCUMENT: Any = crd.document(docstrings)
SCHEMA = DOCUMENT["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def cluster(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": OPENBAO_CLUSTER.api_version,
        "kind": OPENBAO_CLUSTER.kind,
        "metadata": {"name": "prod"},
        "spec": spec,
    }


def test_generated_files_are_up_to_date() -> None:
    for file, text in manifests.manifests().items():
        assert file.read_text() == text, file


def test_the_shipped_policy_is_one_that_the_operator_accepts() -> None:
    shipped, binding = yaml.safe_load_all((DIRECTORY / "admission-policy.yaml").read_text())

    assert admission.problem(policy=shipped, binding=binding, expected=policy.policy()) is None


def test_the_definition_has_the_promised_fields() -> None:
    spec, status = (SCHEMA["properties"][name]["properties"] for name in ("spec", "status"))
    sentinel = spec["sentinel"]["properties"]

    assert list(spec) == ["version", "replicas", "config", "paused", "sentinel"]
    assert (sentinel["enabled"]["default"], sentinel["debounceWindowSeconds"]["default"]) == (True, 2)
    assert (sentinel["debounceWindowSeconds"]["minimum"], sentinel["debounceWindowSeconds"]["maximum"]) == (1, 60)
    assert set(status["drift"]["properties"]) == {
        "lastDriftDetected",
        "driftCorrectionCount",
        "lastCorrectionTime",
        "lastDriftResource",
        "lastFullReconcileTime",
        "consecutiveFastPaths",
    }


def test_the_schema_accepts_and_refuses_what_it_should() -> None:
    assert errors(SCHEMA, cluster()) == []
    assert errors(SCHEMA, cluster(sentinel={"image": "x"})) == []
    assert errors(SCHEMA, cluster(sentinel={"debounceWindowSeconds": 61})) != []
    assert errors(SCHEMA, cluster(replicas=0)) != []


def test_the_deployment_runs_this_version() -> None:
    (deployment,) = yaml.safe_load_all((DIRECTORY / "deployment.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]

    assert container["image"].endswith(f":{__version__}")
    assert container["env"] == [{"name": "OPERATOR_VERSION", "value": __version__}]
