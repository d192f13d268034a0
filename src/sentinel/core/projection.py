"""Just these fields: what `fields=` makes of a resource.

It runs on every item of every list that is asked for with it, so it must not cost what it saves. The paths are
compiled into structs whose members are either nested structs or raw bytes: decoding a document into them skips
what is not wanted without looking into it, and encoding copies what is, unread. A document in which something
other than an object stands where a path goes on does not fit the structs and is picked apart member by member.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

MAX_LENGTH = 1024
"""How many characters the paths may have together."""
MAX_PATHS = 64
MAX_DEPTH = 8
"""How many names a path may have."""

_CACHED = 32
"""Few lists of fields are in use at a time, and a compiled one can hold hundreds of classes."""
_EXCERPT = 80
_LABELS = (("labels",), ("metadata", "labels"))
"""Behind these a path names a label, whose key has dots of its own, and whose value has nothing below it."""

_DOT = re.compile(r"(?<!\\)\.")
_UNFIT = re.compile(r'["\\\x00-\x1f]')

_Wanted: TypeAlias = "dict[str, _Wanted]"
"""The names wanted of an object; an empty one below a name wants all of it."""

_members = msgspec.json.Decoder(dict[str, Raw])
_encode = msgspec.json.Encoder().encode


class FieldsError(ValueError):
    """A text that does not say which fields are wanted; it names the path in question."""


class Projection:
    """What is wanted of a document, compiled; `compile_fields` makes it."""

    __slots__ = ("_decode", "_wanted")

    def __init__(self, wanted: _Wanted) -> None:
        self._wanted = wanted
        self._decode = msgspec.json.Decoder(_struct(wanted)).decode

    def apply(self, document: bytes) -> bytes:
        """The wanted part of a JSON object.

        What the document does not have is absent from it. Where a path goes on below something that is no object,
        that is given as it is: whoever asked sees what stands in the way.
        """
        try:
            return _encode(self._decode(document))
        except msgspec.ValidationError:
            return _encode(_pick(document, self._wanted))

    def apply_all(self, documents: Iterable[bytes]) -> list[bytes]:
        """The same for each of many."""
        return [self.apply(document) for document in documents]


@lru_cache(maxsize=_CACHED)
def compile_fields(text: str) -> Projection:
    r"""Compiles comma-separated paths such as `id,status.phase,labels,metadata.labels.region`.

    `id` is always wanted. A path below another that is wanted adds nothing to it. A dot that belongs to a name is
    written `\.`; behind `labels` and `metadata.labels` it need not be. Raises `FieldsError`.
    """
    if len(text) > MAX_LENGTH:
        raise FieldsError(f"expected at most {MAX_LENGTH} characters, got {len(text)}")
    paths = text.split(",")
    if len(paths) > MAX_PATHS:
        raise FieldsError(f"expected at most {MAX_PATHS} paths, got {len(paths)}")
    wanted: _Wanted = {"id": {}}
    for path in paths:
        _want(wanted, _names(path.strip(" ")))
    return Projection(wanted)


def requestable_paths(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths to ask for so that at least these come, within the limits; none where that is to ask for all."""
    cut = tuple(dict.fromkeys(_cut(path) for path in paths))
    tops = tuple(dict.fromkeys(path.partition(".")[0] for path in cut))
    for candidates in (cut, tops):
        if len(candidates) <= MAX_PATHS and len(",".join(candidates)) <= MAX_LENGTH:
            return candidates
    return ()


def _cut(path: str) -> str:
    """The path, or as much of it as can be asked for; less of a path is more of the document."""
    names = path.split(".")
    for labels in _LABELS:
        if tuple(names[: len(labels)]) == labels:
            return ".".join(names[: len(labels) + 1])
    return ".".join(names[:MAX_DEPTH])


def _names(path: str) -> tuple[str, ...]:
    """The names that a path goes along."""
    names = tuple(part.replace(r"\.", ".") for part in _DOT.split(path))
    for labels in _LABELS:
        if names[: len(labels)] == labels and len(names) > len(labels):
            names = (*labels, ".".join(names[len(labels) :]))
    if not all(names):
        raise FieldsError(f'expected names separated by dots, such as status.phase, got "{_excerpt(path)}"')
    if any(map(_UNFIT.search, names)):
        raise FieldsError(
            f'expected names without quotes, backslashes and control characters, got "{_excerpt(path)}"'
        )
    if len(names) > MAX_DEPTH:
        raise FieldsError(f'expected a path of at most {MAX_DEPTH} names, got "{_excerpt(path)}"')
    return names


def _want(wanted: _Wanted, names: tuple[str, ...]) -> None:
    """Adds a path to what is wanted."""
    *parents, last = names
    for name in parents:
        if wanted.get(name) == {}:
            return
        wanted = wanted.setdefault(name, {})
    wanted[last] = {}


def _struct(wanted: _Wanted) -> type[msgspec.Struct]:
    members = [(f"member_{index}", _member_type(below), UNSET) for index, below in enumerate(wanted.values())]
    names = {member: name for (member, *_), name in zip(members, wanted, strict=True)}
    return msgspec.defstruct("Projected", members, rename=names, gc=False)


def _member_type(below: _Wanted) -> Any:
    if not below:
        return Raw | UnsetType
    return _struct(below) | None | UnsetType


def _pick(document: bytes | Raw, wanted: _Wanted) -> dict[str, Raw]:
    """The same as decoding into structs and encoding them, where there may be anything in place of an object."""
    members = _members.decode(document)
    picked = {}
    for name, below in wanted.items():
        member = members.get(name)
        if member is not None:
            is_object = bytes(member).startswith(b"{")
            picked[name] = Raw(_encode(_pick(member, below))) if below and is_object else member
    return picked


def _excerpt(path: str) -> str:
    return path if len(path) <= _EXCERPT else f"{path[:_EXCERPT]}…"
