"""SentinelConfig on a real API server: its definition, and where its objects are."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml

from sentinel.operator.sentinel_config import SENTINEL_CONFIG
from tests.support.kube.patch_types import APPLY
from tools.services.kube_apiserver import KubeClient, KubeResponse

ROOT = Path(__file__).parents[2]
CRD_FILE = ROOT / "deploy" / "crds" / f"{SENTINEL_CONFIG}.yaml"
CRD_PATH = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{SENTINEL_CONFIG}"
API_PATH = f"/apis/{SENTINEL_CONFIG.api_version}"

_TIMEOUT = timedelta(seconds=90)
_POLL_INTERVAL = timedelta(milliseconds=20)


def read_crd() -> Any:
    """Return the manifest that users apply."""
    return yaml.safe_load(CRD_FILE.read_text())


def apply_crd(admin: KubeClient) -> KubeResponse:
    """Apply the manifest, with no tolerance for unknown fields, and return the response."""
    query = "fieldManager=test&force=true&fieldValidation=Strict"
    return admin.send("PATCH", f"{CRD_PATH}?{query}", read_crd(), content_type=APPLY)


def install_crd(admin: KubeClient) -> None:
    """Define SentinelConfig, and wait until it is served and discovered. Changes nothing if it is there."""
    response = apply_crd(admin)
    assert response.status in (200, 201), response
    deadline = time.monotonic() + _TIMEOUT.total_seconds()
    while not _is_served(admin):
        assert time.monotonic() < deadline, admin.get(CRD_PATH)["status"]
        time.sleep(_POLL_INTERVAL.total_seconds())


def sentinel_configs(namespace: str) -> str:
    """Return the path of the SentinelConfigs of a namespace."""
    return f"{API_PATH}/namespaces/{namespace}/{SENTINEL_CONFIG.plural}"


def _is_served(admin: KubeClient) -> bool:
    """Whether requests and discovery know the kind. Both follow some time after the definition."""
    discovered = admin.send("GET", API_PATH)
    served = admin.send("GET", f"{API_PATH}/{SENTINEL_CONFIG.plural}?limit=1")
    return discovered.status == served.status == 200
