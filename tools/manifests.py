"""Writes the generated manifests under deploy/, or with --check verifies that they are up to date.

The CustomResourceDefinitions come from the structs that declare the resources, the admission policy from the rules
that the drift operator checks. The other manifests are written by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from sentinel.drift.operator import policy
from sentinel.drift.operator.openbao import crd as openbao_crd
from sentinel.drift.operator.openbao.cluster import OPENBAO_CLUSTER
from sentinel.operator import crd
from sentinel.operator.sentinel_config import SENTINEL_CONFIG
from tools.generated_files import ROOT, write_or_check
from tools.reference import docstrings

CRD = ROOT / "deploy" / "crds" / f"{SENTINEL_CONFIG}.yaml"
OPENBAO_CRD = ROOT / "deploy" / "crds" / f"{OPENBAO_CLUSTER}.yaml"
POLICY = ROOT / "deploy" / "manifests" / "drift-operator" / "admission-policy.yaml"
_WIDTH = 110


class _Dumper(yaml.SafeDumper):
    """Writes equal values twice: an alias is harder to read."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def crd_manifest() -> str:
    """The CustomResourceDefinition of SentinelConfig as YAML, with its fields in the order of the structs."""
    return _yaml([crd.document(docstrings)], "operator/sentinel_config.py")


def openbao_crd_manifest() -> str:
    """The CustomResourceDefinition of OpenBaoCluster as YAML."""
    return _yaml([openbao_crd.document(docstrings)], "drift/operator/openbao/cluster.py")


def policy_manifest() -> str:
    """The policy that limits sidecars, and its binding."""
    return _yaml([policy.policy(), policy.binding()], "drift/operator/policy.py")


def manifests() -> Mapping[Path, str]:
    """Return the text of each generated file."""
    return {CRD: crd_manifest(), OPENBAO_CRD: openbao_crd_manifest(), POLICY: policy_manifest()}


def main() -> int:
    """Write the manifests. With --check, return 1 if one would change."""
    return write_or_check(manifests())


def _yaml(documents: Sequence[Mapping[str, Any]], source: str) -> str:
    text = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True)
    return f"# Written by `make docs` from src/sentinel/{source}. Change it there.\n{text}"


if __name__ == "__main__":
    sys.exit(main())
