"""The fields of an object as hashes by path, and the fields in which two versions of an object differ.

The hashes are small however large the object is. A text is kept only if it is short and cannot be confidential.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from sentinel.core.drift import paths
from sentinel.core.drift.judgement import ValueSummary
from sentinel.core.drift.keyed_lists import KEY_DEFAULTS, NOTHING_KNOWN, KnownFields, ListKeys, known_fields
from sentinel.core.json import Json

_MAX_TEXT: Final = 64
_DIGEST_BYTES: Final = 8

_CONFIDENTIAL: Final = re.compile(r"/(data|binaryData|stringData)(/.*)?|.*/env/[^/]*/value", re.DOTALL)
"""Values of ConfigMaps and of environment variables may be passwords, whatever they should be."""

BOOKKEEPING: Final = (
    *("deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields", "resourceVersion"),
    *("creationTimestamp", "generateName", "name", "namespace", "selfLink", "uid"),
)
"""Fields of `metadata` that the API server maintains, or that never change."""

_GRANULAR_MAPS: Final = ("/template", "/metadata", "/spec", "/labels", "/annotations", "/data", "/binaryData")
"""Never atomic, even if an entry of `managedFields` that someone wrote by hand says so."""

_DATA: Final = ("/data", "/binaryData")

MAX_KEYS: Final = 2_000
"""Data with more keys is one value. A megabyte of short keys would otherwise take a dozen in memory."""

_NOT_JUDGED: Final = frozenset({"apiVersion", "kind", "status"})


class Node(msgspec.Struct, frozen=True, gc=False):
    """What is kept of one field."""

    is_container: bool
    """A map or a keyed list, whose fields or members are nodes of their own."""
    digest: str
    """The hash of the value; empty for a map."""
    size: int = 0
    text: str | None = None

    @property
    def is_keyed_list(self) -> bool:
        return self.is_container and self.digest != ""

    @property
    def summary(self) -> ValueSummary | None:
        """The value, if it is one of its own."""
        return None if self.is_container else ValueSummary(self.digest, self.size, self.text)


_MAP: Final = Node(True, "")


class Field(msgspec.Struct, frozen=True):
    """A field of an object, with what is known about the fields below it."""

    path: str
    value: Json
    known: KnownFields = NOTHING_KNOWN
    keys: ListKeys | None = None
    """The keys of a list that is known to be keyed."""


class Differences(msgspec.Struct, frozen=True):
    """The paths of fields that differ. Those of containers come before those of the fields in them."""

    changed: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]


def judged_fields(document: Mapping[str, Json]) -> Iterator[Field]:
    """Yield the fields of an object that are judged: all but its identity, status and bookkeeping."""
    known = known_fields(document.get("kind"))
    for name, value in document.items():
        if name == "metadata" and isinstance(value, dict):
            value = {field: inner for field, inner in value.items() if field not in BOOKKEEPING}
        if name not in _NOT_JUDGED:
            yield Field(paths.child("", name), value, known.below(name))


def children(field: Field, fields: Mapping[str, Json]) -> Iterator[Field]:
    """Yield the fields of a map."""
    known = field.known
    for name, inner in fields.items():
        yield Field(paths.child(field.path, name), inner, known.below(name), known.lists.get(name))


def members(field: Field, items: Sequence[Json], keys: ListKeys | None) -> dict[str, Field] | None:
    """Return the members of a list by path, or None if the keys do not tell them apart."""
    found: dict[str, Field] = {}
    for item in items:
        path = None if keys is None else _member_path(field.path, item, keys)
        if path is None or path in found:
            return None
        found[path] = Field(path, item, field.known)
    return None if keys is None else found


def large_maps(document: Mapping[str, Json]) -> frozenset[str]:
    """Return the paths of the data that has too many keys to keep a hash of each."""
    found = ((path, document.get(path[1:])) for path in _DATA)
    return frozenset(path for path, value in found if isinstance(value, dict) and len(value) > MAX_KEYS)


def flatten(
    document: Mapping[str, Json], lists: Mapping[str, ListKeys], folded: frozenset[str] = frozenset()
) -> dict[str, Node]:
    """Return all nodes of an object, each after the one that contains it.

    `lists` are the keys of lists by path, beyond those of Kubernetes' own kinds. A list whose members cannot be
    told apart by its keys is one value. So is each map in `folded`.
    """
    nodes: dict[str, Node] = {}
    pending = list(judged_fields(document))
    while pending:  # not recursive: the depth is the writer's choice
        field = pending.pop()
        path, value = field.path, field.value
        if isinstance(value, dict) and path in folded:
            nodes[path] = _folded(value)
            continue
        if isinstance(value, dict):
            nodes[path] = _MAP
            pending += children(field, value)
            continue
        inner = members(field, value, lists.get(path, field.keys)) if isinstance(value, list) else None
        if inner is None:
            nodes[path] = _leaf(path, value)
        else:
            nodes[path] = Node(True, digest(encode(value)))
            pending += inner.values()
    return nodes


def compare(
    before: Mapping[str, Node], after: Mapping[str, Node], *, is_atomic: Callable[[str], bool]
) -> Differences:
    """Return the fields that differ. `is_atomic` says whether managers only ever hold a map as a whole.

    An atomic map or list is one change, whatever is different inside. Added and removed fields are returned one by
    one, so that each can be attributed to its manager.
    """
    changed: list[str] = []
    reshaped: set[str] = set()
    for path, node in after.items():
        old = before.get(path)
        if old is None or (old.is_container and node.is_container):
            continue
        if old.is_container != node.is_container:
            # A list became keyed, or a map a text. Their fields cannot be compared, only the whole.
            reshaped.add(path)
        if old.digest != node.digest:
            changed.append(path)

    def outermost_atomic(path: str) -> str | None:
        found = None
        for above in paths.ancestors(path):
            if above in reshaped or (above in before and above in after and is_atomic(above)):
                found = above
        return found

    atomic: set[str] = set()

    def outside(candidates: Iterable[str]) -> tuple[str, ...]:
        """Return the paths that are not inside of an atomic map, and add the atomic maps that differ."""
        kept = []
        for path in candidates:
            above = outermost_atomic(path)
            if above is None:
                kept.append(path)
            elif above not in reshaped:
                atomic.add(above)
        return tuple(kept)

    added = outside(path for path in after if path not in before)
    removed = outside(path for path in before if path not in after)
    return Differences((*outside(changed), *sorted(atomic)), added, removed)


def summarize(nodes: Mapping[str, Node], path: str) -> ValueSummary | None:
    """Return what is known of a field's value, or None if there is no such field."""
    node = nodes.get(path)
    if node is None or not node.is_container:
        return None if node is None else node.summary
    inner = [(each, below) for each, below in nodes.items() if paths.is_below(each, path)]
    return ValueSummary(
        digest_of([[each, below.digest] for each, below in sorted(inner, key=lambda pair: pair[0])]),
        sum(below.size for _, below in inner),
    )


def is_content(nodes: Mapping[str, Node], path: str) -> bool:
    """Whether a field is a member of a keyed list or a key of `data`. The API server adds none by itself."""
    above = paths.parent(path)
    return above in _DATA or (above in nodes and nodes[above].is_keyed_list)


def is_empty(nodes: Mapping[str, Node], path: str) -> bool:
    """Whether a field is a map or keyed list without content. Not even its writer holds an empty list."""
    return nodes[path].is_container and not any(paths.is_below(each, path) for each in nodes)


def may_be_atomic(path: str) -> bool:
    """Whether a map may be atomic."""
    return not path.endswith(_GRANULAR_MAPS)


def encode(value: Json) -> bytes:
    """Return the bytes to hash. Different values have different bytes, and the order of fields does not matter."""
    if isinstance(value, str):
        # Not as JSON: quoting a large text costs more than hashing it.
        return b'"' + value.encode("utf-8", "surrogatepass")
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def digest(encoded: bytes) -> str:
    """Return the hash of a value in hexadecimal digits."""
    return blake2b(encoded, digest_size=_DIGEST_BYTES).hexdigest()


def digest_of(value: Json) -> str:
    return digest(encode(value))


def digest_of_list(items: Iterable[bytes]) -> bytes:
    """Return the hash of a list, given its members as JSON."""
    hashed = blake2b(b"[", digest_size=_DIGEST_BYTES)
    for at, item in enumerate(items):
        hashed.update(b"," + item if at else item)
    hashed.update(b"]")
    return hashed.digest()


def _folded(fields: Mapping[str, Json]) -> Node:
    # Field by field: the text of all of them would take several times their size.
    encoded = (encode([name, fields[name]]) for name in sorted(fields))
    return Node(False, digest_of_list(encoded).hex(), sum(len(encode(value)) for value in fields.values()))


def _leaf(path: str, value: Json) -> Node:
    encoded = encode(value)
    size = len(encoded) - isinstance(value, str)
    text = None
    if size <= _MAX_TEXT and _CONFIDENTIAL.fullmatch(path) is None:
        text = json.dumps(value, ensure_ascii=False)
    return Node(False, digest(encoded), size, text)


def _member_path(path: str, item: Json, keys: ListKeys) -> str | None:
    if not keys:
        return None if isinstance(item, dict | list) else paths.child(path, paths.text(item))
    if not isinstance(item, dict):
        return None
    key = {name: item.get(name, KEY_DEFAULTS.get(name)) for name in keys}
    return None if None in key.values() else paths.member(path, key)
