"""The owners of an object's fields, from the object to `managed_fields` and back."""

from __future__ import annotations

import msgspec

from sentinel.core.json import Json
from sentinel.ports.kube import KubeObject
from sentinel.testing.kube import managed_fields
from sentinel.testing.kube.field_sets import NO_FIELDS, FieldSet, NotMergeable
from sentinel.testing.kube.kinds import ServedKind
from sentinel.testing.kube.managed_fields import Managed, Writer
from sentinel.testing.kube.objects import metadata_of

_BEFORE_FIRST_APPLY = "before-first-apply"


def after_create(served: ServedKind, new: KubeObject, writer: Writer) -> Managed:
    """Return the owners of a new object."""
    return _after_update(served, _empty(served), without_owners(new), {}, writer)


def after_update(
    served: ServedKind, existing: KubeObject, new: KubeObject, given: Json, writer: Writer
) -> Managed:
    """Return the owners after an update to `new`. `given` are the entries in the body of the request.

    Clients may edit the entries, and `[]` or `[{}]` removes them all. Without entries, the fields of an object are
    not tracked until it is applied.
    """
    owners = managed_fields.read(metadata_of(existing))
    if not writer.subresource and isinstance(given, list):
        is_reset = given in ([], [{}])
        owners = {} if is_reset else managed_fields.read({"managedFields": given}) or owners
    if not owners:
        return {}
    return _after_update(served, without_owners(existing), without_owners(new), owners, writer)


def after_apply(
    served: ServedKind, existing: KubeObject | None, applied: KubeObject, writer: Writer, *, is_forced: bool
) -> tuple[KubeObject, Managed]:
    """Return the merged object and its owners. Raises `ApiError` with every conflict."""
    live, owners = _empty(served), Managed()
    if existing is not None:
        live, owners = without_owners(existing), managed_fields.read(metadata_of(existing))
        if not owners:
            first = msgspec.structs.replace(writer, manager=_BEFORE_FIRST_APPLY)
            owners = _after_update(served, _empty(served), live, {}, first)
    return managed_fields.apply(served.field_type, live, applied, owners, writer, is_forced=is_forced)


def with_owners(body: KubeObject, owners: Managed) -> KubeObject:
    """Return the object with these entries."""
    plain = without_owners(body)
    if not owners:
        return plain
    return {**plain, "metadata": {**metadata_of(plain), "managedFields": managed_fields.write(owners)}}


def without_owners(body: KubeObject) -> KubeObject:
    """Return the object without its entries."""
    metadata = {key: value for key, value in metadata_of(body).items() if key != "managedFields"}
    return {**body, "metadata": metadata}


def without_times(body: KubeObject) -> KubeObject:
    """Return the object without the times of its entries: a write that changes only those is not stored."""
    metadata = dict(metadata_of(body))
    entries = metadata.get("managedFields")
    if isinstance(entries, list):
        timeless: list[Json] = [
            {key: value for key, value in entry.items() if key != "time"}
            for entry in entries
            if isinstance(entry, dict)
        ]
        metadata["managedFields"] = timeless
    return {**body, "metadata": metadata}


def ignored_fields(served: ServedKind, subresource: str) -> FieldSet:
    """Return the fields that an endpoint does not write."""
    if subresource == "status":
        return frozenset({("f:metadata",), ("f:spec",)})
    return frozenset({("f:status",)}) if served.has_status and not subresource else NO_FIELDS


def _after_update(
    served: ServedKind, before: KubeObject, after: KubeObject, owners: Managed, writer: Writer
) -> Managed:
    """Return the owners after an update. An object whose lists have no valid keys has none any more."""
    try:
        return managed_fields.update(served.field_type, before, after, owners, writer)
    except NotMergeable:
        return {}


def _empty(served: ServedKind) -> KubeObject:
    head: KubeObject = {"apiVersion": served.kind.api_version, "kind": served.kind.kind, "metadata": {}}
    return {**head, **served.empty}
