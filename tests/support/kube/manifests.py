"""Manifests for users, applied to an API server as `kubectl` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import yaml

from tests.support.kube.patch_types import APPLY
from tools.services.kube_apiserver import KubeClient, KubeResponse

Manifest: TypeAlias = "dict[str, Any]"

NAMESPACE = "hyperfleet-system"
"""The namespace of all manifests."""


def read_manifests(file: Path, *, namespace: str = NAMESPACE) -> list[Manifest]:
    """Return the objects of a file, moved to another namespace."""
    return [each for each in yaml.safe_load_all(file.read_text().replace(NAMESPACE, namespace)) if each]


def read_manifest(file: Path, kind: str, *, namespace: str = NAMESPACE) -> Manifest:
    """Return the only object of a kind in a file, moved to another namespace."""
    (found,) = (each for each in read_manifests(file, namespace=namespace) if each["kind"] == kind)
    return found


def apply_manifest(admin: KubeClient, manifest: Manifest, *, is_dry_run: bool = False) -> KubeResponse:
    """Apply an object on the server, with no tolerance for unknown fields."""
    version, metadata = manifest["apiVersion"], manifest["metadata"]
    group = f"/apis/{version}" if "/" in version else f"/api/{version}"
    (resource,) = (
        each
        for each in admin.get(group)["resources"]
        if each["kind"] == manifest["kind"] and "/" not in each["name"]
    )
    scope = f"/namespaces/{metadata['namespace']}" if resource["namespaced"] else ""
    query = "fieldManager=test&force=true&fieldValidation=Strict" + ("&dryRun=All" if is_dry_run else "")
    path = f"{group}{scope}/{resource['name']}/{metadata['name']}?{query}"
    return admin.send("PATCH", path, manifest, content_type=APPLY)


def apply_file(admin: KubeClient, file: Path, *, namespace: str) -> None:
    """Apply the objects of a file, moved to another namespace."""
    for manifest in read_manifests(file, namespace=namespace):
        response = apply_manifest(admin, manifest)
        assert response.status in (200, 201), response
