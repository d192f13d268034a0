"""The documents by which clients such as kubectl find out what is served."""

from __future__ import annotations

from sentinel.core.json import Json
from sentinel.ports.kube import KubeObject
from sentinel.testing.kube.kinds import Kinds, ServedKind

VERSION: KubeObject = {"major": "1", "minor": "36", "gitVersion": "v1.36.0+fake", "platform": "fake"}
"""The Kubernetes version whose behaviour the fake has."""
_VERBS: list[Json] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_SUBRESOURCE_VERBS: list[Json] = ["get", "patch", "update"]
HEALTH_PATHS = ("/healthz", "/livez", "/readyz")


def document(kinds: Kinds, path: str) -> KubeObject | str | None:
    """Return what the server says about itself under a path; None if there is nothing."""
    if path in HEALTH_PATHS:
        return "ok"
    match path.strip("/").split("/"):
        case ["version"]:
            return VERSION
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            names = sorted({served.kind.group for served in kinds if served.kind.group})
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(kinds, name) for name in names]}
        case ["apis", group] if any(served.kind.group == group for served in kinds):
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(kinds, group)}
        case ["api", version]:
            return _resources(kinds, "", version)
        case ["apis", group, version]:
            return _resources(kinds, group, version)
        case _:
            return None


def _group(kinds: Kinds, name: str) -> KubeObject:
    found = sorted({served.kind.version for served in kinds if served.kind.group == name})
    versions: list[Json] = [{"groupVersion": f"{name}/{version}", "version": version} for version in found]
    return {"name": name, "versions": versions, "preferredVersion": versions[-1]}


def _resources(kinds: Kinds, group: str, version: str) -> KubeObject | None:
    found = [served for served in kinds if (served.kind.group, served.kind.version) == (group, version)]
    if not found:
        return None
    resources: list[Json] = []
    for served in found:
        resources.append(_resource(served, served.kind.plural, _VERBS))
        resources += [
            _resource(served, f"{served.kind.plural}/{name}", _SUBRESOURCE_VERBS) for name in served.subresources
        ]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": found[0].kind.api_version,
        "resources": resources,
    }


def _resource(served: ServedKind, name: str, verbs: list[Json]) -> KubeObject:
    return {
        "name": name,
        "singularName": served.kind.kind.lower() if "/" not in name else "",
        "namespaced": served.kind.is_namespaced,
        "kind": served.kind.kind,
        "verbs": verbs,
    }
