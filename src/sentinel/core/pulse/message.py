"""`message_data`: from configuration to the data of an event.

The configuration is compiled once into a tree of leaves; composing walks that tree over a resource's document.
A leaf is a literal, a path such as `.metadata.labels.region`, or a Go template; a path is what the template
`{{.metadata.labels.region}}` would be, only faster. Results are always strings, printed as Go prints values. A
resource may lack a field, or have something else where an object was expected: neither stops an event, both are
reported to the caller, by field, so that it can count them and warn once.

Callers may also put leaves into the mapping themselves. That is how the reason of a decision gets into the data:
it is not a member of the resource, so no path and no template names it, and a member called `reason` can still be
read as `.reason`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import msgspec

from sentinel.core.gotemplate import Failed, Missing, Template, TemplateError, described, go_string, parse_path
from sentinel.core.gotemplate.reads import shortest
from sentinel.core.json import Json
from sentinel.core.pulse.decision import Reason

__all__ = [
    "ByReason",
    "Composed",
    "Composer",
    "FieldPath",
    "Leaf",
    "Literal",
    "MessageData",
    "TemplateError",
    "compile_leaf",
    "reason_data",
]

MessageData: TypeAlias = "Mapping[str, str | Leaf | ByReason | MessageData]"
"""The configuration of an event's data: names to texts, or to objects of the same shape. A text is compiled; code
may also give a leaf, for what no text can say."""


class Literal(msgspec.Struct, frozen=True):
    """A text that is the same for every resource."""

    text: str

    def render(self, document: Json) -> str:
        """The text."""
        return self.text

    def fields_read(self) -> frozenset[tuple[str, ...]]:
        """None."""
        return frozenset()


class FieldPath(msgspec.Struct, frozen=True):
    """A path into the resource; without names it is the whole resource."""

    names: tuple[str, ...]

    def render(self, document: Json) -> str:
        """The value at the path as Go prints it; null prints as nothing."""
        value = document
        for name in self.names:
            if isinstance(value, dict):
                if name not in value:
                    raise Missing("")
                value = value[name]
            elif document is None:
                raise Missing("")
            else:
                raise Failed(f"can't evaluate field {name} in {described(value)}")
        if isinstance(value, str):
            return value
        return "" if value is None else go_string(value)

    def fields_read(self) -> frozenset[tuple[str, ...]]:
        """The path itself."""
        return frozenset({self.names})


class ByReason(msgspec.Struct, frozen=True):
    """A text that depends on why the resource gets its event."""

    texts: Mapping[Reason, str]
    otherwise: str

    def literal(self, reason: Reason) -> Literal:
        """What it says for this reason."""
        return Literal(self.texts.get(reason, self.otherwise))


Leaf: TypeAlias = Literal | FieldPath | Template

_REASON = ByReason({Reason.GENERATION_CHANGED: "generation-changed"}, otherwise="backoff-expired")


def reason_data(resource_type: str) -> MessageData:
    """The data of a SentinelConfig that names none: the plural that it watches, the resource's id, the reason."""
    return {"resourceType": Literal(resource_type), "resourceId": FieldPath(("id",)), "reason": _REASON}


class Composed(msgspec.Struct, frozen=True):
    """An event's data, encoded, and what was not as the configuration supposed."""

    data: msgspec.Raw
    missing: tuple[str, ...] = ()
    """Fields of the data in which something is not printed, because the resource lacks it."""
    failed: tuple[tuple[str, str], ...] = ()
    """Fields of the data that are empty because they could not be evaluated, each with the reason."""


_Compiled: TypeAlias = "dict[str, Leaf | ByReason | _Compiled]"
_Tree: TypeAlias = "dict[str, Leaf | _Tree]"
_Filled: TypeAlias = "dict[str, str | _Filled]"
_encode = msgspec.json.Encoder().encode


class Composer:
    """Compiled `message_data`. Raises `TemplateError` where a text is neither a literal, a path nor a template."""

    def __init__(self, message_data: MessageData) -> None:
        compiled = _compile(message_data)
        # A tree for each reason: composing then costs the same whether the data tells the reason or not.
        self._trees = {reason: _resolve(compiled, reason) for reason in Reason}

    def fields_read(self) -> tuple[str, ...] | None:
        """The paths that composing reads, so that a server can be asked for just those; None for everything."""
        leaves = _leaves(self._trees[Reason.GENERATION_CHANGED])  # the same paths for every reason
        paths = frozenset[tuple[str, ...]]().union(*(leaf.fields_read() for leaf in leaves))
        return None if () in paths else tuple(sorted(map(".".join, shortest(paths))))

    def compose(self, document: Json, reason: Reason) -> Composed:
        """The data for this resource, which gets its event for this reason."""
        missing: list[str] = []
        failed: list[tuple[str, str]] = []
        filled = _fill(self._trees[reason], document, "", missing, failed)
        return Composed(msgspec.Raw(_encode(filled)), tuple(missing), tuple(failed))


def compile_leaf(text: str) -> Leaf:
    """Compiles one text: with `{{` in it, a template; beginning with a dot, a path; otherwise a literal."""
    if "{{" in text:
        return Template(text)
    if not text.startswith("."):
        return Literal(text)
    return FieldPath(parse_path(text))


def _compile(message_data: MessageData) -> _Compiled:
    compiled: _Compiled = {}
    for name, value in message_data.items():
        if isinstance(value, str):
            compiled[name] = compile_leaf(value)
        elif isinstance(value, Mapping):
            compiled[name] = _compile(value)
        else:
            compiled[name] = value
    return compiled


def _resolve(compiled: _Compiled, reason: Reason) -> _Tree:
    """The tree for one reason, in which what depends on the reason is a literal."""
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


def _fill(tree: _Tree, document: Json, prefix: str, missing: list[str], failed: list[tuple[str, str]]) -> _Filled:
    filled: _Filled = {}
    for name, node in tree.items():
        if isinstance(node, dict):
            filled[name] = _fill(node, document, f"{prefix}{name}.", missing, failed)
            continue
        try:
            filled[name] = node.render(document)
        except Missing as lacking:
            filled[name] = lacking.text
            missing.append(prefix + name)
        except Failed as failure:
            filled[name] = ""
            failed.append((prefix + name, str(failure)))
    return filled
