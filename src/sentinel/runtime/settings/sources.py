"""Settings outside files: environment variables, flags, and objects that are already parsed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import assert_never

import msgspec

from sentinel.core.json import Json
from sentinel.runtime.settings import config_tree
from sentinel.runtime.settings.config_tree import ListNode, MappingNode, Member, Node, ParsedSource, ScalarNode
from sentinel.runtime.settings.report import (
    SET_FLAG,
    Origin,
    SettingsProblem,
    Source,
    closest_match,
    printable,
)
from sentinel.runtime.settings.schema import EnvironmentSecret, Section, TextMapping
from sentinel.runtime.settings.validation import Readable, Validation

_OTHER_VARIABLES = frozenset(
    (
        "SENTINEL_SERVER",
        "SENTINEL_TOKEN",
        "SENTINEL_REGISTRATION_TOKEN",
        "SENTINEL_DEBOUNCE_WINDOW_SECONDS",
        "SENTINEL_REQUIRE_ALL",
    )
)
"""Variables of this product that are not settings, and therefore not misspelled settings."""

# Variables that Kubernetes sets in every pod for every Service of its namespace.
_SERVICE_LINK = re.compile(
    r".*(_SERVICE_HOST|_SERVICE_PORT(_\w+)?|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


class Assignment(msgspec.Struct, frozen=True):
    """A setting and its value as text, from a variable or a flag."""

    path: tuple[str, ...]
    text: str
    at: Origin

    @classmethod
    def to(cls, key: str, text: str, at: Origin) -> Assignment:
        """Assign to a key with dots, such as `log.level`."""
        return cls(tuple(key.split(".")), text, at)

    @property
    def key(self) -> str:
        """The path as written after `--set`."""
        return ".".join(self.path)


def from_flags(flags: Sequence[str], validation: Validation) -> list[Assignment]:
    """Parse the values of `--set KEY=VALUE`, in order."""
    at = Origin(Source.FLAG, SET_FLAG)
    assignments = []
    for flag in flags:
        key, separator, text = flag.partition("=")
        if separator:
            assignments.append(Assignment.to(key.strip(), text, at))
        else:
            validation.reject(at, key.strip(), "expected KEY=VALUE, got no =")
    return assignments


def from_environment(
    section: Section, environ: Mapping[str, str], prefix: str
) -> tuple[list[Assignment], list[str]]:
    """Return the settings in variables, and warnings about variables that look like misspelled settings.

    Shorter paths come first, so that a single value overrides the mapping that contains it.
    """
    assignments = []
    unknown = []
    for name in sorted(environ, key=lambda name: (name.count("__"), name)):
        if name.startswith(prefix):
            path = tuple(name.removeprefix(prefix).lower().split("__"))
            if is_setting(section, path):
                assignments.append(Assignment(path, environ[name], Origin(Source.ENVIRONMENT, name)))
            else:
                unknown.append(name)
    return assignments, misspelling_warnings(unknown, dict(variables(section, prefix)), prefix)


def misspelling_warnings(unknown: Iterable[str], suggestions: Mapping[str, str], prefix: str) -> list[str]:
    """Return a warning for each unknown variable that resembles a known one.

    `suggestions` maps each variable that a user may have meant to the variable that the warning suggests. One that
    would be suggested is known, as that of a secret is.
    """
    known = {*suggestions.values(), *_OTHER_VARIABLES}
    # Compared without the prefix: the part that all have in common must not count as similarity.
    bare = {variable.removeprefix(prefix): suggestion for variable, suggestion in suggestions.items()}
    warnings = []
    for name in sorted(unknown):
        if name not in known and not _SERVICE_LINK.fullmatch(name):
            near = closest_match(name.removeprefix(prefix), bare, cutoff=0.65)
            if near is not None:
                warnings.append(printable(f"{name} is not a setting and is ignored; did you mean {bare[near]}?"))
    return warnings


def from_object(document: Json, name: str = "") -> ParsedSource:
    """Read a document that is already parsed, such as the spec of a Kubernetes resource.

    `name` identifies it in problems, such as `sentinelconfig/us-east`; a problem that is written to
    the resource itself needs no name. The document means the same as the same JSON in a YAML file, within the same
    limits. Only the positions are lost.
    """
    at = Origin(Source.OBJECT, name)
    try:
        return ParsedSource.of(_ObjectTreeBuilder(at).build(document), at)
    except _TooLarge as error:
        return ParsedSource(None, at, (SettingsProblem.at(at, "", str(error)),))


class _TooLarge(Exception):
    """The document exceeds the limits for settings."""


class _ObjectTreeBuilder:
    """Builds nodes from values, and counts them."""

    def __init__(self, at: Origin) -> None:
        self._at = at
        self._values = 0

    def build(self, value: Json, depth: int = 0) -> Node:
        """Return the node of a value at this depth."""
        self._count()
        if isinstance(value, dict | list) and depth >= config_tree.MAX_DEPTH:
            raise _TooLarge(f"expected at most {config_tree.MAX_DEPTH} levels, got more")
        match value:
            case dict():
                members = (self._member(key, inner, depth + 1) for key, inner in value.items())
                return MappingNode(tuple(members), self._at)
            case list():
                return ListNode(tuple(self.build(item, depth + 1) for item in value), self._at)
            case str():
                return ScalarNode(value, self._at, is_plain=False)
            case None:
                return ScalarNode("null", self._at)
            case bool():
                return ScalarNode("true" if value else "false", self._at)
            case int() | float():
                return ScalarNode(repr(value), self._at)
            case _:
                assert_never(value)

    def _member(self, key: str, value: Json, depth: int) -> Member:
        self._count()
        return Member(key, self._at, self.build(value, depth))

    def _count(self) -> None:
        self._values += 1
        if self._values > config_tree.MAX_VALUES:
            raise _TooLarge(f"expected at most {config_tree.MAX_VALUES} values, got more")


def variables(section: Section, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the variable of each setting, and the one that it is read from, which differs for a secret."""
    for field in section.fields:
        name = prefix + field.key.upper()
        yield name, field.type.variable if isinstance(field.type, EnvironmentSecret) else name
        if isinstance(field.type, Section):
            yield from variables(field.type, name + "__")


def is_setting(type_: Readable, path: Sequence[str]) -> bool:
    if not path:
        return not isinstance(type_, EnvironmentSecret)
    if isinstance(type_, TextMapping):
        return all(path)
    field = type_.get(path[0]) if isinstance(type_, Section) else None
    return field is not None and is_setting(field.type, path[1:])
