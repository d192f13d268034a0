"""`message_data`: from configuration to the data of an event.

The configuration is compiled once into a tree of leaves; composing walks that tree over a resource's document.
A leaf is a literal or a path such as `.metadata.labels.region`. Results are always strings, printed as Go
prints values. A resource may lack a field, or have something else where an object was expected: neither stops
an event, both are told to the caller, by field, so that it can count them and warn once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import msgspec

from sentinel.core.gotemplate import go_string
from sentinel.core.model import Json

MessageData: TypeAlias = "Mapping[str, str | MessageData]"
"""The configuration of an event's data: names to texts, or to objects of the same shape."""

# Go's lexer takes letters, digits and underscores, and reads a dot before a digit as a number.
_PATH = re.compile(r"((\.[^\W\d]\w*)+|\.)\s*")


class TemplateError(ValueError):
    """A text that cannot be compiled: what is wrong, and where within the text."""

    def __init__(self, problem: str, *, line: int, column: int) -> None:
        super().__init__(f"{problem} (line {line}, column {column} of the template)")
        self.problem = problem
        self.line = line
        self.column = column


class Missing(LookupError):
    """The resource does not have the field."""


class Failed(ValueError):
    """The template cannot be evaluated on this resource; the text says why."""


class Literal(msgspec.Struct, frozen=True):
    """A text that is the same for every resource."""

    text: str

    def render(self, document: Json) -> str:
        """The text."""
        return self.text


class FieldPath(msgspec.Struct, frozen=True):
    """A path into the resource; without names it is the whole resource."""

    names: tuple[str, ...]

    def render(self, document: Json) -> str:
        """The value at the path as Go prints it; null prints as nothing."""
        value = document
        for name in self.names:
            if isinstance(value, dict):
                if name not in value:
                    raise Missing(name)
                value = value[name]
            else:
                raise Failed(f"can't evaluate field {name} in {_described(value)}")
        if isinstance(value, str):
            return value
        return "" if value is None else go_string(value)


Leaf: TypeAlias = Literal | FieldPath


class Composed(msgspec.Struct, frozen=True):
    """An event's data, encoded, and what was not as the configuration supposed."""

    data: msgspec.Raw
    missing: tuple[str, ...] = ()
    """Fields of the data that are empty because the resource lacks what they name."""
    failed: tuple[tuple[str, str], ...] = ()
    """Fields of the data that are empty because they could not be evaluated, each with the reason."""


_Tree: TypeAlias = "dict[str, Leaf | _Tree]"
_Filled: TypeAlias = "dict[str, str | _Filled]"
_encode = msgspec.json.Encoder().encode


class Composer:
    """Compiled `message_data`. Raises `TemplateError` where a text is not a literal or a path."""

    def __init__(self, message_data: MessageData) -> None:
        self._tree = _compile(message_data)

    def fields_read(self) -> tuple[str, ...] | None:
        """The paths that composing reads, so that a server can be asked for just those; None for everything."""
        paths = {leaf.names for leaf in _leaves(self._tree) if isinstance(leaf, FieldPath)}
        return None if () in paths else tuple(sorted(map(".".join, paths)))

    def compose(self, document: Json) -> Composed:
        """The data for this resource."""
        missing: list[str] = []
        failed: list[tuple[str, str]] = []
        filled = _fill(self._tree, document, "", missing, failed)
        return Composed(msgspec.Raw(_encode(filled)), tuple(missing), tuple(failed))


def compile_leaf(text: str) -> Leaf:
    """Compiles one text: begins with a dot, a path; otherwise a literal."""
    if "{{" in text:
        before = text[: text.index("{{")]
        raise TemplateError(
            "templates in {{ }} are not available in this version; use a path such as .metadata.name or a literal",
            line=before.count("\n") + 1,
            column=len(before) - (before.rfind("\n") + 1) + 1,
        )
    if not text.startswith("."):
        return Literal(text)
    valid = _PATH.match(text)
    end = valid.end() if valid else 0
    if end < len(text):
        raise TemplateError(
            f'expected a path such as .metadata.labels.region, got "{text}": "{text[end]}" cannot stand here',
            line=text.count("\n", 0, end) + 1,
            column=end - text.rfind("\n", 0, end),
        )
    return FieldPath(tuple(name for name in text.rstrip().split(".") if name))


def _compile(message_data: MessageData) -> _Tree:
    return {
        name: compile_leaf(value) if isinstance(value, str) else _compile(value)
        for name, value in message_data.items()
    }


def _leaves(tree: _Tree) -> Iterator[Leaf]:
    for node in tree.values():
        if isinstance(node, dict):
            yield from _leaves(node)
        else:
            yield node


def _fill(tree: _Tree, document: Json, prefix: str, missing: list[str], failed: list[tuple[str, str]]) -> _Filled:
    filled: _Filled = {}
    for name, node in tree.items():
        if isinstance(node, dict):
            filled[name] = _fill(node, document, f"{prefix}{name}.", missing, failed)
            continue
        try:
            filled[name] = node.render(document)
        except Missing:
            filled[name] = ""
            missing.append(prefix + name)
        except Failed as failure:
            filled[name] = ""
            failed.append((prefix + name, str(failure)))
    return filled


def _described(value: Json) -> str:
    """A value's type in words, for messages: the value itself may be a secret."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str):
        return "a string"
    return "a list" if isinstance(value, list) else "a number"
