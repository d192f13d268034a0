"""`fields=`: return only the requested fields of a resource.

It runs on every item of a list, so it has to be fast. The paths are compiled into structs whose members are nested
structs or raw bytes. Decoding a document into them skips all other members, and encoding copies the raw bytes. A
document with another type where a path expects an object does not fit the structs. It is processed member by
member.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

MAX_LENGTH = 1024
"""The maximum number of characters of all paths together."""
MAX_PATHS = 64
MAX_DEPTH = 8
"""The maximum number of names in a path."""

_CACHE_SIZE = 32
"""Few projections are in use at a time, and a compiled one can hold hundreds of classes."""
_MAX_EXCERPT = 80
_LABELS = (("labels",), ("metadata", "labels"))
"""The paths whose members are labels. Label keys may contain dots, and label values have no members."""

_DOT = re.compile(r"(?<!\\)\.")
_FORBIDDEN = re.compile(r'["\\\x00-\x1f]')

_Fields: TypeAlias = "dict[str, _Fields]"
"""The requested members of an object. An empty dict requests the whole member."""

_members = msgspec.json.Decoder(dict[str, Raw])
_split = msgspec.json.Decoder(list[Raw]).decode
_encode = msgspec.json.Encoder().encode


class FieldsError(ValueError):
    """Invalid `fields`; the message names the path."""


class Projection:
    """Compiled fields; `compile_fields` creates it."""

    __slots__ = ("_decode", "_decode_all", "_requested")

    def __init__(self, requested: _Fields) -> None:
        struct: Any = _struct(requested)
        self._requested = requested
        self._decode = msgspec.json.Decoder(struct).decode
        self._decode_all = msgspec.json.Decoder(list[struct]).decode

    def apply(self, document: bytes) -> bytes:
        """Return the requested fields of a JSON object.

        Members that the document does not have are absent. If a path continues below a value that is not an
        object, that value is returned whole, so the caller sees it.
        """
        try:
            return _encode(self._decode(document))
        except msgspec.ValidationError:
            return _encode(_pick(document, self._requested))

    def apply_all(self, documents: Iterable[bytes]) -> bytes:
        """Return the requested fields of several JSON objects, joined by commas."""
        return b",".join(map(self.apply, documents))

    def apply_joined(self, joined: bytes) -> bytes:
        """Return the requested fields of JSON objects that are joined by commas.

        They are decoded as one array. Separating them first would parse them twice.
        """
        array = b"".join((b"[", joined, b"]"))
        try:
            return _encode(self._decode_all(array))[1:-1]
        except msgspec.ValidationError:
            return self.apply_all(map(bytes, _split(array)))


@lru_cache(maxsize=_CACHE_SIZE)
def compile_fields(text: str) -> Projection:
    r"""Compile comma-separated paths such as `id,status.phase,labels,metadata.labels.region`.

    `id` is always included. A path below another requested path adds nothing. A dot in a name is written `\.`;
    after `labels` and `metadata.labels` it needs no backslash. Raises `FieldsError`.
    """
    if len(text) > MAX_LENGTH:
        raise FieldsError(f"expected at most {MAX_LENGTH} characters, got {len(text)}")
    paths = text.split(",")
    if len(paths) > MAX_PATHS:
        raise FieldsError(f"expected at most {MAX_PATHS} paths, got {len(paths)}")
    requested: _Fields = {"id": {}}
    for path in paths:
        _add(requested, _names(path.strip(" ")))
    return Projection(requested)


def requestable_paths(paths: Iterable[str]) -> tuple[str, ...]:
    """Return paths that cover at least these and stay within the limits; empty if only the whole document does."""
    cut = tuple(dict.fromkeys(_cut(path) for path in paths))
    tops = tuple(dict.fromkeys(path.partition(".")[0] for path in cut))
    for candidates in (cut, tops):
        if len(candidates) <= MAX_PATHS and len(",".join(candidates)) <= MAX_LENGTH:
            return candidates
    return ()


def _cut(path: str) -> str:
    """Return the path, or the longest prefix within the limits, which covers more of the document."""
    names = path.split(".")
    for labels in _LABELS:
        if tuple(names[: len(labels)]) == labels:
            return ".".join(names[: len(labels) + 1])
    return ".".join(names[:MAX_DEPTH])


def _names(path: str) -> tuple[str, ...]:
    names = tuple(part.replace(r"\.", ".") for part in _DOT.split(path))
    for labels in _LABELS:
        if names[: len(labels)] == labels and len(names) > len(labels):
            names = (*labels, ".".join(names[len(labels) :]))
    if not all(names):
        raise FieldsError(f'expected names separated by dots, such as status.phase, got "{_excerpt(path)}"')
    if any(map(_FORBIDDEN.search, names)):
        raise FieldsError(
            f'expected names without quotes, backslashes and control characters, got "{_excerpt(path)}"'
        )
    if len(names) > MAX_DEPTH:
        raise FieldsError(f'expected a path of at most {MAX_DEPTH} names, got "{_excerpt(path)}"')
    return names


def _add(requested: _Fields, names: tuple[str, ...]) -> None:
    """Add a path to the requested fields."""
    *parents, last = names
    for name in parents:
        if requested.get(name) == {}:
            return
        requested = requested.setdefault(name, {})
    requested[last] = {}


def _struct(requested: _Fields) -> type[msgspec.Struct]:
    members = [(f"member_{index}", _member_type(below), UNSET) for index, below in enumerate(requested.values())]
    names = {member: name for (member, *_), name in zip(members, requested, strict=True)}
    return msgspec.defstruct("Projected", members, rename=names, gc=False)


def _member_type(below: _Fields) -> Any:
    if not below:
        return Raw | UnsetType
    return _struct(below) | None | UnsetType


def _pick(document: bytes | Raw, requested: _Fields) -> dict[str, Raw]:
    """Project a document in which a value may have any type."""
    members = _members.decode(document)
    picked = {}
    for name, below in requested.items():
        member = members.get(name)
        if member is not None:
            is_object = bytes(member).startswith(b"{")
            picked[name] = Raw(_encode(_pick(member, below))) if below and is_object else member
    return picked


def _excerpt(path: str) -> str:
    return path if len(path) <= _MAX_EXCERPT else f"{path[:_MAX_EXCERPT]}…"
