"""Access to the members of raw objects."""

from __future__ import annotations

from collections.abc import Mapping

from sentinel.core.json import Json
from sentinel.core.merge_patch import canonical
from sentinel.ports.kube import KubeObject
from sentinel.testing.kube.errors import ApiError
from sentinel.testing.kube.field_types import FieldType


def metadata_of(body: Mapping[str, Json]) -> KubeObject:
    """Return the metadata, which is empty if there is none."""
    return member(body, "metadata")


def member(body: Mapping[str, Json], name: str) -> KubeObject:
    """Return a member that is an object; empty if it is absent. Raises `ApiError` if it is something else."""
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ApiError.bad_request(f"expected an object at {name}, got {canonical(value).decode()}")
    return value


def text(body: Mapping[str, Json], name: str) -> str:
    """Return a member that is a text; empty if it is absent. Raises `ApiError` if it is something else."""
    value = body.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ApiError.bad_request(f"expected a string at {name}, got {canonical(value).decode()}")
    return value


def texts(body: Mapping[str, Json], name: str) -> list[str]:
    """Return the texts in a list; empty if it is absent."""
    value = body.get(name)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def objects(body: Mapping[str, Json], name: str) -> list[KubeObject]:
    """Return the objects in a list; empty if it is absent."""
    value = body.get(name)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def labels_of(body: Mapping[str, Json]) -> dict[str, str]:
    """Return the labels. Raises `ApiError` if a value is not a text."""
    labels = member(metadata_of(body), "labels")
    return {key: text(labels, key) for key in labels}


def name_of(body: Mapping[str, Json]) -> str:
    """Return the name, or ""."""
    return text(metadata_of(body), "name")


def namespace_of(body: Mapping[str, Json]) -> str:
    """Return the namespace, or ""."""
    return text(metadata_of(body), "namespace")


def without_nulls(value: Json) -> Json:
    """Return the value without members that are null, as Go's types drop them."""
    if isinstance(value, dict):
        return members_without_nulls(value)
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def members_without_nulls(body: Mapping[str, Json]) -> KubeObject:
    """Return an object without members that are null, at any depth."""
    return {name: without_nulls(inner) for name, inner in body.items() if inner is not None}


def without_empty(kind: FieldType, body: Mapping[str, Json]) -> KubeObject:
    """Return an object without empty maps and empty lists with keys, as Go's types omit them."""
    kept: KubeObject = {}
    for name, value in body.items():
        member_type, _ = kind.member(name)
        if value in ({}, []) and (member_type.members is not None or member_type.items is not None):
            continue
        if isinstance(value, dict) and not member_type.is_atomic:
            value = without_empty(member_type, value)
        elif isinstance(value, list) and member_type.items is not None:
            value = [without_empty(member_type.items, item) if isinstance(item, dict) else item for item in value]
        kept[name] = value
    return kept
