"""A custom kind with every kind of field, for tests of API servers."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from sentinel.core.json import Json
from sentinel.ports.kube import KubeApi, KubeKind, KubeObject, ObjectNotFound

WIDGET = KubeKind("contract.example.com", "v1", "Widget", "widgets")
DEFINITION = KubeKind(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", is_namespaced=False
)

_TIMEOUT = timedelta(seconds=90)
_CONDITION: KubeObject = {
    "type": "object",
    "required": ["type", "status"],
    "properties": {"type": {"type": "string"}, "status": {"type": "string"}, "reason": {"type": "string"}},
}
_PART: KubeObject = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "weight": {"type": "integer"}, "note": {"type": "string"}},
}
_SPEC: KubeObject = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1},
        "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "steps": {"type": "array", "items": {"type": "string"}},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": _PART,
        },
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
_STATUS: KubeObject = {
    "type": "object",
    "properties": {
        "phase": {"type": "string"},
        "conditions": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": _CONDITION,
        },
    },
}
WIDGET_DEFINITION: KubeObject = {
    "apiVersion": DEFINITION.api_version,
    "kind": DEFINITION.kind,
    "metadata": {"name": str(WIDGET)},
    "spec": {
        "group": WIDGET.group,
        "scope": "Namespaced",
        "names": {"plural": WIDGET.plural, "singular": "widget", "kind": WIDGET.kind},
        "versions": [
            {
                "name": WIDGET.version,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {"type": "object", "properties": {"spec": _SPEC, "status": _STATUS}}
                },
            }
        ],
    },
}


def widget(name: str, **spec: Json) -> KubeObject:
    """Return a valid widget with these members of its spec."""
    return {
        "apiVersion": WIDGET.api_version,
        "kind": WIDGET.kind,
        "metadata": {"name": name},
        "spec": {"size": 1, **spec},
    }


async def install_widgets(api: KubeApi) -> None:
    """Define the kind, and wait until it is served. Does nothing if it is there."""
    await api.apply(DEFINITION, WIDGET_DEFINITION, field_manager="contract", is_forced=True)
    async with asyncio.timeout(_TIMEOUT.total_seconds()):
        while not await _is_served(api):  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.02)


async def _is_served(api: KubeApi) -> bool:
    try:
        async for _ in api.list(WIDGET):
            pass
    except ObjectNotFound:
        return False
    return True
