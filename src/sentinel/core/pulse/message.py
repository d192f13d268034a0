"""`message_data`: the configured data of an event.

The configuration is compiled once into a tree of leaves. Composing evaluates that tree on a resource's document. A
leaf is a literal, a path such as `.metadata.labels.region`, or a Go template. A path means the same as the
template `{{.metadata.labels.region}}` and is faster. Results are strings, printed as Go prints values. If paths
are native, a path results in the JSON value that it finds. A missing field, or another type where an object was
expected, does not stop an event. Both are returned to the caller by field, so that it can count them and warn
once.

Decoding a document costs more than composing from it, so only the fields that the tree reads are decoded.

Code may also put leaves into the mapping. The reason of a decision gets into the data that way: it is not a member
of the resource, and a member called `reason` can still be read as `.reason`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeAlias, TypedDict

import msgspec

from sentinel.core.gotemplate import (
    MissingField,
    RenderError,
    Template,
    describe_type,
    go_string,
    parse_path,
)
from sentinel.core.gotemplate.reads import shortest
from sentinel.core.json import DECODE_ERRORS, Json, Malformed
from sentinel.core.pulse.decision import Reason

MessageData: TypeAlias = "Mapping[str, str | Leaf | ByReason | MessageData]"
"""The configuration of an event's data: names mapped to texts, or to objects of the same shape. Texts are
compiled. Code may also pass a leaf, for a value that no text can express."""


class DataTypes(StrEnum):
    """The types of the values in an event's data."""

    TEXT = "text"
    """Every value is a string."""
    NATIVE = "native"
    """What a path finds keeps its JSON type, and is null if it is missing. Literals and templates are strings."""


class Literal(msgspec.Struct, frozen=True):
    """A text that is the same for every resource."""

    text: str

    def render(self, document: Json) -> str:
        return self.text

    def fields_read(self) -> frozenset[tuple[str, ...]]:
        return frozenset()


class FieldPath(msgspec.Struct, frozen=True):
    """A path into the resource. Without names it is the whole resource."""

    names: tuple[str, ...]
    is_native: bool = False
    """Whether the value keeps its JSON type."""

    def render(self, document: Json) -> Json:
        """Return the value at the path; if it is not native, as Go prints it, and "" for null."""
        value = document
        for name in self.names:
            if isinstance(value, dict):
                if name not in value:
                    raise MissingField("")
                value = value[name]
            elif document is None:
                raise MissingField("")
            else:
                raise RenderError(f"can't evaluate field {name} in {describe_type(value)}")
        if isinstance(value, str) or self.is_native:
            return value
        return "" if value is None else go_string(value)

    def fields_read(self) -> frozenset[tuple[str, ...]]:
        return frozenset({self.names})


class ByReason(msgspec.Struct, frozen=True):
    """A text that depends on the reason of the event."""

    texts: Mapping[Reason, str]
    otherwise: str

    def literal(self, reason: Reason) -> Literal:
        return Literal(self.texts.get(reason, self.otherwise))


Leaf: TypeAlias = Literal | FieldPath | Template

_REASON = ByReason({Reason.GENERATION_CHANGED: "generation-changed"}, otherwise="backoff-expired")


def reason_data(resource_type: str) -> MessageData:
    """Return the default data of a SentinelConfig: the watched plural, the resource's id, the reason."""
    return {"resourceType": Literal(resource_type), "resourceId": FieldPath(("id",)), "reason": _REASON}


class Composed(msgspec.Struct, frozen=True):
    """An event's data, encoded, and the fields that could not be filled."""

    data: msgspec.Raw
    missing: tuple[str, ...] = ()
    """Fields of the data that print a value that the resource does not have."""
    failed: tuple[tuple[str, str], ...] = ()
    """Fields of the data that are empty or null because their evaluation failed, each with the error."""


_Compiled: TypeAlias = "dict[str, Leaf | ByReason | _Compiled]"
_Tree: TypeAlias = "dict[str, Leaf | _Tree]"
_Filled: TypeAlias = "dict[str, Json | _Filled]"
_encode = msgspec.json.Encoder().encode
_whole: msgspec.json.Decoder[Json] = msgspec.json.Decoder()


class Composer:
    """Compiled `message_data`. Raises `TemplateError` if a text is not a literal, path or template."""

    def __init__(self, message_data: MessageData, *, types: DataTypes = DataTypes.TEXT) -> None:
        compiled = _compile(message_data, types)
        # One tree per reason, so that a field for the reason makes composing no slower.
        self._trees = {reason: _resolve(compiled, reason) for reason in Reason}
        self._flat = {reason: _flat_paths(tree) for reason, tree in self._trees.items()}
        leaves = _leaves(self._trees[Reason.GENERATION_CHANGED])  # the same paths for every reason
        self._paths = shortest(frozenset[tuple[str, ...]]().union(*(leaf.fields_read() for leaf in leaves)))
        self._decoder = _whole if () in self._paths else msgspec.json.Decoder[Json](_partial(self._paths))

    def fields_read(self) -> tuple[str, ...] | None:
        """Return the paths that composing reads, to request only those; None if it reads everything."""
        return None if () in self._paths else tuple(sorted(map(".".join, self._paths)))

    def decode(self, document: msgspec.Raw) -> Json:
        """Decode the members of a document that composing reads.

        Raises `Malformed` if any part of the document is not valid JSON. A number beyond the range of a float64 is
        valid JSON; it is malformed only where it is read.
        """
        try:
            encoded = bytes(document)
            if not encoded.isascii():
                encoded.decode()  # the decoder checks the syntax of the members that it skips, but not this
            return self._decoder.decode(encoded)
        except DECODE_ERRORS:
            pass  # perhaps another type where an object was expected, which is the leaves' business
        try:
            return _whole.decode(document)
        except DECODE_ERRORS as error:
            raise Malformed(str(error)) from error

    def compose(self, document: Json, reason: Reason) -> Composed:
        """Return the data of an event for this document, as `decode` returns it or whole, and reason.

        Raises `Malformed` if a native value is nested so deeply that it cannot be encoded.
        """
        flat = self._flat[reason]
        if flat is not None:
            values = _values(flat, document)
            if values is not None:
                return Composed(_encoded(values))
        missing: list[str] = []
        failed: list[tuple[str, str]] = []
        filled = _fill(self._trees[reason], document, "", missing, failed)
        return Composed(_encoded(filled), tuple(missing), tuple(failed))


def compile_leaf(text: str) -> Leaf:
    """Compile one text: a template if it contains `{{`, a path if it begins with a dot, otherwise a literal."""
    if "{{" in text:
        return Template(text)
    if not text.startswith("."):
        return Literal(text)
    return FieldPath(parse_path(text))


def _compile(message_data: MessageData, types: DataTypes) -> _Compiled:
    compiled: _Compiled = {}
    for name, value in message_data.items():
        if isinstance(value, str):
            leaf = compile_leaf(value)
            if types is DataTypes.NATIVE and isinstance(leaf, FieldPath):
                leaf = FieldPath(leaf.names, is_native=True)
            compiled[name] = leaf
        elif isinstance(value, Mapping):
            compiled[name] = _compile(value, types)
        else:
            compiled[name] = value
    return compiled


def _resolve(compiled: _Compiled, reason: Reason) -> _Tree:
    """Return the tree for one reason, with each `ByReason` replaced by its literal."""
    tree: _Tree = {}
    for name, node in compiled.items():
        if isinstance(node, dict):
            tree[name] = _resolve(node, reason)
        else:
            tree[name] = node.literal(reason) if isinstance(node, ByReason) else node
    return tree


def _leaves(tree: _Tree) -> Iterator[Leaf]:
    for node in tree.values():
        if isinstance(node, dict):
            yield from _leaves(node)
        else:
            yield node


def _partial(paths: Iterable[tuple[str, ...]]) -> Any:
    """Return the type of an object of which only these paths are decoded. None of them is below another."""
    members: dict[str, set[tuple[str, ...]]] = {}
    for name, *rest in paths:
        members.setdefault(name, set()).add(tuple(rest))
    types = {name: Any if () in below else _partial(below) | None for name, below in members.items()}
    make_type: Any = TypedDict  # mypy knows only types that are written in the source
    return make_type("_Partial", types, total=False)


def _flat_paths(tree: _Tree) -> Sequence[tuple[str, FieldPath]] | None:
    """Return the fields of message data that consists of paths only, as most does; None for any other."""
    paths = [(name, node) for name, node in tree.items() if isinstance(node, FieldPath)]
    return paths if len(paths) == len(tree) else None


def _encoded(filled: _Filled) -> msgspec.Raw:
    try:
        return msgspec.Raw(_encode(filled))
    except RecursionError as error:
        raise Malformed(f"message_data: {error}") from error


def _values(paths: Sequence[tuple[str, FieldPath]], document: Json) -> _Filled | None:
    """Return the values at the paths if all are there; the same as `_fill`, in half the time."""
    values: _Filled = {}
    try:
        for name, path in paths:
            value: Any = document
            for step in path.names:
                value = value[step]
            values[name] = value if type(value) is str else path.render(document)
    except (KeyError, TypeError, RenderError):
        return None
    return values


def _fill(tree: _Tree, document: Json, prefix: str, missing: list[str], failed: list[tuple[str, str]]) -> _Filled:
    filled: _Filled = {}
    for name, node in tree.items():
        if isinstance(node, dict):
            filled[name] = _fill(node, document, f"{prefix}{name}.", missing, failed)
            continue
        try:
            filled[name] = node.render(document)
        except MissingField as missed:
            filled[name] = None if _is_native(node) else missed.text
            missing.append(prefix + name)
        except RenderError as error:
            filled[name] = None if _is_native(node) else ""
            failed.append((prefix + name, str(error)))
    return filled


def _is_native(leaf: Leaf) -> bool:
    return isinstance(leaf, FieldPath) and leaf.is_native
