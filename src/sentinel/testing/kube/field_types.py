"""How the API server merges values: which lists have keys, and which objects are one value.

Server-side apply tracks ownership per field. A `FieldType` says only how far down that goes. Whether a value is an
object, a list or a scalar is read from the value.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sentinel.core.json import Json


class FieldType(msgspec.Struct, frozen=True):
    """How values of one type are merged.

    By default the members of an object are its fields, each owned separately, and a list is one value.
    """

    fields: Mapping[str, FieldType] = {}
    """The types of named fields. Other fields have the default type, or that of `members`."""
    members: FieldType | None = None
    """The type of members whose names are keys rather than fields, as in `labels`."""
    items: FieldType | None = None
    """The type of the items of a list whose items are owned separately."""
    keys: tuple[str, ...] = ()
    """The fields that identify an item. Without keys, the list is a set of scalars."""
    key_defaults: Mapping[str, Json] = {}
    """The values of absent key fields."""
    is_atomic: bool = False
    """An object or a list that has one owner as a whole."""
    is_untyped: bool = False
    """The type is unknown: names are keys at every level."""

    @property
    def item_type(self) -> FieldType:
        """The type of items, for lists whose items are owned separately."""
        return self.items or STRUCT

    def member(self, name: str) -> tuple[FieldType, bool]:
        """Return the type of a member, and whether it is a named field."""
        if self.is_untyped:
            return self, False
        known = self.fields.get(name)
        if known is not None:
            return known, True
        if self.members is not None:
            return self.members, False
        return STRUCT, True


STRUCT = FieldType()
ATOMIC = FieldType(is_atomic=True)
UNTYPED = FieldType(is_untyped=True)
MAP = FieldType(members=STRUCT)
SET = FieldType(items=STRUCT)


def struct(**fields: FieldType) -> FieldType:
    """Return the type of an object with these fields. Only those that are not `STRUCT` matter."""
    return FieldType(fields=fields)


def keyed(*keys: str, items: FieldType = STRUCT, **key_defaults: Json) -> FieldType:
    """Return the type of a list whose items are identified by these fields."""
    return FieldType(items=items, keys=keys, key_defaults=key_defaults)


METADATA = struct(
    annotations=MAP,
    labels=MAP,
    finalizers=SET,
    ownerReferences=keyed("uid", items=ATOMIC),
)


def from_schema(schema: Mapping[str, Json]) -> FieldType:
    """Return the type that a structural schema of a custom resource declares."""
    properties = schema.get("properties")
    additional = schema.get("additionalProperties")
    items = schema.get("items")
    if isinstance(items, dict):
        return _list_type(schema, items)
    if schema.get("x-kubernetes-map-type") == "atomic":
        return ATOMIC
    if isinstance(properties, dict):
        known = {name: from_schema(member) for name, member in properties.items() if isinstance(member, dict)}
        return FieldType(fields=known, members=UNTYPED)
    if isinstance(additional, dict):
        return FieldType(members=from_schema(additional))
    return UNTYPED


def _list_type(schema: Mapping[str, Json], items: Mapping[str, Json]) -> FieldType:
    match schema.get("x-kubernetes-list-type"):
        case "map":
            keys = schema.get("x-kubernetes-list-map-keys")
            names = tuple(key for key in keys if isinstance(key, str)) if isinstance(keys, list) else ()
            properties = items.get("properties")
            members = properties if isinstance(properties, dict) else {}
            defaults = {
                name: member["default"]
                for name in names
                if isinstance(member := members.get(name), dict) and "default" in member
            }
            return FieldType(items=from_schema(items), keys=names, key_defaults=defaults)
        case "set":
            return FieldType(items=from_schema(items))
        case _:
            return ATOMIC
