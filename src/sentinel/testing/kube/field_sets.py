"""Sets of fields, and their form in `managedFields`.

A field is a path whose elements are written as Kubernetes writes them: `f:spec`, `k:{"name":"web"}` for an item of
a list with keys, `v:"x"` for an item of a set. A set contains exactly the fields that are owned: an object may be
in it without its members, and the reverse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

import msgspec

from sentinel.core.json import Json
from sentinel.core.merge_patch import canonical
from sentinel.testing.kube.field_types import FieldType

Path: TypeAlias = tuple[str, ...]
FieldSet: TypeAlias = frozenset[Path]

NO_FIELDS: FieldSet = frozenset()

_ITSELF = "."
_decode = msgspec.json.decode


class NotMergeable(ValueError):
    """An item of a list that has no identity. The message is that of Kubernetes."""


def fields_of(kind: FieldType, value: Json) -> FieldSet:
    """Return every field in a value, as an apply of this value owns them."""
    found: set[Path] = set()
    _collect(kind, value, (), found)
    found.discard(())
    return frozenset(found)


def _collect(kind: FieldType, value: Json, path: Path, found: set[Path]) -> None:
    if isinstance(value, dict) and not kind.is_atomic:
        for name, member in value.items():
            here = (*path, field_element(name))
            member_type, is_named = kind.member(name)
            _collect(member_type, member, here, found)
            if member == {} or not is_named:
                found.add(here)
    elif isinstance(value, list) and kind.items is not None:
        elements = [item_element(kind, item) for item in value]
        repeated = {element for element, count in Counter(elements).items() if count > 1}
        for element, item in zip(elements, value, strict=True):
            found.add((*path, element))
            if element not in repeated:
                _collect(kind.items, item, (*path, element), found)
    else:
        found.add(path)


def field_element(name: str) -> str:
    """Return the path element of a member of an object."""
    return f"f:{name}"


def item_element(kind: FieldType, item: Json) -> str:
    """Return the path element of an item of a list whose items are owned separately. Raises `NotMergeable`."""
    if not kind.keys:
        if item is None:
            raise NotMergeable("associative list without keys has an element that's an explicit null")
        if isinstance(item, dict):
            raise NotMergeable("associative list without keys has an element that's a map type")
        if isinstance(item, list):
            raise NotMergeable("not supported: associative list with lists as elements")
        return f"v:{canonical(item).decode()}"
    if item is None:
        raise NotMergeable("associative list with keys may not have a null element")
    if not isinstance(item, dict):
        raise NotMergeable("associative list with keys may not have non-map elements")
    keys = {
        name: item.get(name, kind.key_defaults.get(name))
        for name in kind.keys
        if name in item or name in kind.key_defaults
    }
    if not keys:
        names = " ".join(f'"{name}"' for name in kind.keys)
        raise NotMergeable(
            f"associative list with keys has an element that omits all key fields [{names}] "
            "(and doesn't have default values for any key fields)"
        )
    return f"k:{canonical(keys).decode()}"


def below(fields: Iterable[Path], roots: Collection[Path]) -> FieldSet:
    """Return the fields that are one of these roots or below one."""
    return frozenset(path for path in fields if any(path[: len(root)] == root for root in roots))


def with_named_parents(kind: FieldType, fields: FieldSet) -> FieldSet:
    """Add the named fields above each field: who owns `spec.replicas` then also owns `spec`."""
    parents: set[Path] = set()
    for path in fields:
        parents.update(_named_parents(kind, path))
    return fields | parents


def _named_parents(kind: FieldType, path: Path) -> Iterator[Path]:
    here: FieldType | None = kind
    for depth, element in enumerate(path[:-1], start=1):
        if here is None:
            return
        if element.startswith("f:"):
            here, is_named = here.member(element[2:])
            if is_named:
                yield path[:depth]
        else:
            here = here.items


def encode(fields: FieldSet) -> dict[str, Json]:
    """Return the `fieldsV1` of a set."""
    tree: dict[str, Json] = {}
    for path in sorted(fields):
        node = tree
        for element in path:
            child = node.setdefault(element, {})
            if not isinstance(child, dict):
                raise TypeError(f"expected an object at {element}, got {child!r}")
            node = child
        node[_ITSELF] = {}
    return {element: _without_lone_marks(child) for element, child in tree.items()}


def _without_lone_marks(node: Json) -> Json:
    """Drop the mark of a field without members, whose empty object says the same."""
    if not isinstance(node, dict) or node.keys() == {_ITSELF}:
        return {}
    return {element: _without_lone_marks(child) for element, child in node.items()}


def decode(tree: Mapping[str, Json]) -> FieldSet:
    """Return the set of a `fieldsV1`."""
    return frozenset(_paths(tree, ()))


def _paths(tree: Mapping[str, Json], path: Path) -> Iterator[Path]:
    for element, child in tree.items():
        if element == _ITSELF:
            yield path
        elif not isinstance(child, dict) or not child:
            yield (*path, element)
        else:
            yield from _paths(child, (*path, element))


def as_text(path: Path) -> str:
    """Return a path as in the messages of the API server: `.spec.containers[name="web"].image`."""
    return "".join(map(_element_text, path))


def _element_text(element: str) -> str:
    prefix, content = element[:2], element[2:]
    if prefix == "f:":
        return f".{content}"
    if prefix == "v:":
        return f"[={content}]"
    if prefix == "i:":
        return f"[{content}]"
    keys: dict[str, Json] = _decode(content)
    return "[" + ",".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in keys.items()) + "]"
