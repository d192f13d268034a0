"""Reads the metadata of raw Kubernetes objects.

Objects stay the JSON that the API server sent, so each reader checks the one field that it returns. A field of the
wrong type raises `Malformed` and never gives a wrong value. An API server sends no such object, but a proxy or a
file may.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from sentinel.core.json import Json, Malformed
from sentinel.core.times import utc_or_none


class ObjectKey(NamedTuple):
    """Names an object among those of its kind."""

    namespace: str
    """Empty for kinds without namespaces."""
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ObjectReference(msgspec.Struct, frozen=True):
    """Names one object of any kind, as in `involvedObject` of an Event."""

    api_version: str
    kind: str
    namespace: str
    """Empty for kinds without namespaces."""
    name: str
    uid: str = ""
    resource_version: str = ""


def key(kube_object: Mapping[str, Json]) -> ObjectKey:
    """Return the namespace and the name."""
    return ObjectKey(namespace(kube_object), name(kube_object))


def reference(kube_object: Mapping[str, Json]) -> ObjectReference:
    """Return a reference to this version of the object."""
    return ObjectReference(
        api_version=_required_text(kube_object, "apiVersion", "apiVersion"),
        kind=_required_text(kube_object, "kind", "kind"),
        namespace=namespace(kube_object),
        name=name(kube_object),
        uid=uid(kube_object),
        resource_version=resource_version(kube_object),
    )


def read_metadata(kube_object: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the metadata. The other readers return single fields of it."""
    metadata = kube_object.get("metadata")
    if not isinstance(metadata, dict):
        raise Malformed(f"metadata: expected an object, got {_shown(metadata)}")
    return metadata


def name(kube_object: Mapping[str, Json]) -> str:
    return _required_text(read_metadata(kube_object), "name", "metadata.name")


def namespace(kube_object: Mapping[str, Json]) -> str:
    """Return the namespace, empty for kinds without namespaces."""
    return _text(read_metadata(kube_object), "namespace", "metadata.namespace")


def uid(kube_object: Mapping[str, Json]) -> str:
    """Return the id that no other object ever has, not even one of the same name."""
    return _required_text(read_metadata(kube_object), "uid", "metadata.uid")


def resource_version(kube_object: Mapping[str, Json]) -> str:
    """Return the version, which may only be compared for equality."""
    return _required_text(read_metadata(kube_object), "resourceVersion", "metadata.resourceVersion")


def generation(kube_object: Mapping[str, Json]) -> int:
    """Return how often the spec has changed, or 0 if the kind does not count it."""
    value = read_metadata(kube_object).get("generation", 0)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Malformed(f"metadata.generation: expected a number of 0 or more, got {_shown(value)}")
    return value


def creation_time(kube_object: Mapping[str, Json]) -> datetime | None:
    """Return when the API server created the object, or None for one that it has not created yet."""
    return _time(read_metadata(kube_object), "creationTimestamp")


def deletion_time(kube_object: Mapping[str, Json]) -> datetime | None:
    """Return when the object is to be deleted, or None. Finalizers may keep it longer."""
    return _time(read_metadata(kube_object), "deletionTimestamp")


def read_labels(kube_object: Mapping[str, Json]) -> Mapping[str, str]:
    return _texts(read_metadata(kube_object), "labels")


def read_annotations(kube_object: Mapping[str, Json]) -> Mapping[str, str]:
    return _texts(read_metadata(kube_object), "annotations")


def _required_text(fields: Mapping[str, Json], field: str, where: str) -> str:
    value = _text(fields, field, where)
    if not value:
        raise Malformed(f"{where}: expected a text, got nothing")
    return value


def _text(fields: Mapping[str, Json], field: str, where: str) -> str:
    value = fields.get(field, "")
    if not isinstance(value, str):
        raise Malformed(f"{where}: expected a text, got {_shown(value)}")
    return value


def _texts(metadata: Mapping[str, Json], field: str) -> Mapping[str, str]:
    values = metadata.get(field)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise Malformed(f"metadata.{field}: expected an object, got {_shown(values)}")
    return {name: _text(values, name, f"metadata.{field}[{name}]") for name in values}


def _time(metadata: Mapping[str, Json], field: str) -> datetime | None:
    value = metadata.get(field)
    try:
        return utc_or_none(msgspec.convert(value, datetime | None))
    except msgspec.ValidationError:
        raise Malformed(f"metadata.{field}: expected a time in RFC 3339, got {_shown(value)}") from None


def _shown(value: Json) -> str:
    """Return a value for an error message: short, and without what is inside, which may be a secret."""
    match value:
        case None:
            return "nothing"
        case dict():
            return "an object"
        case list():
            return "a list"
        case _:
            text = repr(value)
            return text if len(text) <= 40 else f"{text[:40]}…"
