"""Settings that are not written in a file: environment variables, flags, and objects that are already parsed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import assert_never

import msgspec

from sentinel.core.json import Json
from sentinel.runtime.settings.config_tree import (
    DEEPEST,
    MOST_VALUES,
    ListNode,
    MappingNode,
    Member,
    Node,
    Parsed,
    ScalarNode,
)
from sentinel.runtime.settings.report import Origin, SettingsProblem, Source, closest, printable
from sentinel.runtime.settings.schema import Elsewhere, Section, Texts
from sentinel.runtime.settings.validation import Readable, Reading

NOT_SETTINGS = frozenset(
    (
        "SENTINEL_SERVER",
        "SENTINEL_TOKEN",
        "SENTINEL_REGISTRATION_TOKEN",
        "SENTINEL_DEBOUNCE_WINDOW_SECONDS",
        "SENTINEL_REQUIRE_ALL",
    )
)
"""Variables of this product that no settings file knows, and that are therefore no misspelling of a setting."""

# What Kubernetes puts into every pod for every Service of its namespace, under the Service's name.
_SERVICE_LINK = re.compile(
    r".*(_SERVICE_HOST|_SERVICE_PORT(_\w+)?|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


class Given(msgspec.Struct, frozen=True):
    """A setting written outside a file, as text."""

    path: tuple[str, ...]
    text: str
    at: Origin

    @property
    def key(self) -> str:
        """The path as it is written after `--set`."""
        return ".".join(self.path)


def from_flags(flags: Sequence[str], reading: Reading) -> list[Given]:
    """What `--set KEY=VALUE` says, in the order of the command line."""
    at = Origin(Source.FLAG, "--set")
    given = []
    for flag in flags:
        key, separator, text = flag.partition("=")
        if separator:
            given.append(Given(tuple(key.strip().split(".")), text, at))
        else:
            reading.refuse(at, key.strip(), "expected KEY=VALUE, got no =")
    return given


def from_environment(section: Section, environ: Mapping[str, str], prefix: str) -> tuple[list[Given], list[str]]:
    """What variables say, and warnings for those that nearly say something.

    The shorter path comes first, so that a single value beats the mapping it belongs to.
    """
    given = []
    unknown = []
    for name in sorted(environ, key=lambda name: (name.count("__"), name)):
        if name.startswith(prefix):
            path = tuple(name.removeprefix(prefix).lower().split("__"))
            if _is_setting(section, path):
                given.append(Given(path, environ[name], Origin(Source.ENVIRONMENT, name)))
            else:
                unknown.append(name)
    return given, near_misses(unknown, dict(_variables(section, prefix)), prefix)


def near_misses(unknown: Iterable[str], meanings: Mapping[str, str], prefix: str) -> list[str]:
    """Warnings for variables that are no setting but read like one.

    `meanings` has, for each variable that somebody might have meant, the one to name to them.
    """
    # Compared without the prefix: what all have in common must not make them alike.
    bare = {variable.removeprefix(prefix): meant for variable, meant in meanings.items()}
    warnings = []
    for name in sorted(unknown):
        if name not in NOT_SETTINGS and not _SERVICE_LINK.fullmatch(name):
            near = closest(name.removeprefix(prefix), bare, cutoff=0.65)
            if near is not None:
                warnings.append(printable(f"{name} is no setting and is ignored; did you mean {bare[near]}?"))
    return warnings


def from_object(document: Json, name: str) -> Parsed:
    """What a document says that is already parsed, such as the spec of a Kubernetes resource.

    `name` is what problems call it: `sentinelconfig/us-east`. The document means what the same JSON means in a
    YAML file, within the same limits; only the places are lost.
    """
    at = Origin(Source.OBJECT, name)
    try:
        return Parsed.of(_Objects(at).node(document), at)
    except _TooLarge as error:
        return Parsed(None, at, (SettingsProblem.at(at, "", str(error)),))


class _TooLarge(Exception):
    """The document is larger than settings ever are."""


class _Objects:
    """Nodes from values, counted as they are made."""

    def __init__(self, at: Origin) -> None:
        self._at = at
        self._values = 0

    def node(self, value: Json, depth: int = 0) -> Node:
        """The node of a value that stands so many levels below the root. Recursion ends at `DEEPEST`."""
        self._count()
        if isinstance(value, dict | list) and depth >= DEEPEST:
            raise _TooLarge(f"expected at most {DEEPEST} levels, got more")
        match value:
            case dict():
                return MappingNode(
                    tuple(self._member(key, inner, depth + 1) for key, inner in value.items()), self._at
                )
            case list():
                return ListNode(tuple(self.node(item, depth + 1) for item in value), self._at)
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
        return Member(key, self._at, self.node(value, depth))

    def _count(self) -> None:
        self._values += 1
        if self._values > MOST_VALUES:
            raise _TooLarge(f"expected at most {MOST_VALUES} values, got more")


def _variables(section: Section, prefix: str) -> Iterator[tuple[str, str]]:
    """The variable of each setting, and the one to name to somebody who writes it."""
    for field in section.fields:
        name = prefix + field.key.upper()
        if isinstance(field.shape, Elsewhere):
            yield name, field.shape.variable
        else:
            yield name, name
        if isinstance(field.shape, Section):
            yield from _variables(field.shape, name + "__")


def _is_setting(shape: Readable, path: Sequence[str]) -> bool:
    if not path:
        return not isinstance(shape, Elsewhere)
    if isinstance(shape, Texts):
        return all(path)
    field = shape.get(path[0]) if isinstance(shape, Section) else None
    return field is not None and _is_setting(field.shape, path[1:])
