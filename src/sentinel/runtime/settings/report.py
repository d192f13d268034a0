"""The result of loading settings: values with their origins, and problems with their positions.

Every value keeps its origin. The origin gives a problem its file, line and column, and shows in
`sentinel check --show` which source won.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from sentinel.runtime.secrets import MASK, Secret

T = TypeVar("T")

SET_FLAG = "--set"
"""The option that sets any setting."""

_MAX_QUOTED = 80


class Source(StrEnum):
    """The kinds of sources, weakest first."""

    DEFAULT = "default"
    FILE = "file"
    OBJECT = "object"
    """A document that is already parsed, such as a Kubernetes resource."""
    ENVIRONMENT = "environment"
    FLAG = "flag"


class Origin(msgspec.Struct, frozen=True):
    """The place where a value was written."""

    source: Source = Source.DEFAULT
    name: str = ""
    """The path of the file as given, or the name of the object, variable or flag."""
    line: int = 1
    column: int = 1

    def at(self, line: int, column: int) -> Origin:
        """Return a position in this source. Only files have positions."""
        if self.source is Source.FILE:
            return Origin(self.source, self.name, line, column)
        return self

    def __str__(self) -> str:
        if self.source is Source.FILE:
            return f"file {self.name}:{self.line}"
        return f"{self.source} {self.name}" if self.name else self.source.value


class SettingsProblem(msgspec.Struct, frozen=True):
    """An error in the settings. `sentinel check` prints these fields as JSON."""

    file: str | None
    """None if the value came from the environment, a flag or an object. Then the message ends with its name, if
    it has one."""
    line: int | None
    column: int | None
    field: str
    """The full path, such as `resource_selector[0].label`; empty for the file as a whole. The option, if the value
    came from one of its own."""
    message: str

    @classmethod
    def at(cls, origin: Origin, field: str, message: str) -> SettingsProblem:
        """Return a problem with the value at this position.

        The field of a value from an option of its own, such as `--listen`, is that option: users know it by that
        name.
        """
        if origin.source is Source.FLAG and origin.name != SET_FLAG:
            return cls(None, None, None, origin.name, _escaped(message))
        field, message = _escaped(field), _escaped(message)
        if origin.source is Source.FILE:
            return cls(origin.name, origin.line, origin.column, field, message)
        if origin.source is Source.DEFAULT or not origin.name:
            return cls(None, None, None, field, message)
        return cls(None, None, None, field, f"{message} ({_escaped(str(origin))})")

    def __str__(self) -> str:
        """One line in the form that editors and scripts parse: `file:line:column: field: message`."""
        place = "" if self.file is None else f"{self.file}:{self.line}:{self.column}: "
        return printable(f"{place}{self.field}: {self.message}")


class EffectiveSetting(msgspec.Struct, frozen=True):
    """A setting with the value that won and its origin."""

    key: str
    value: str
    """As written in a file. Secrets are masked, and an unset value is empty."""
    origin: str


class Loaded(msgspec.Struct, Generic[T], frozen=True):
    """The result of loading settings."""

    settings: T | None
    """None if there are problems, or if nothing was configured at all."""
    problems: tuple[SettingsProblem, ...] = ()
    warnings: tuple[str, ...] = ()
    """Allowed but probably mistakes; one line each."""
    entries: tuple[EffectiveSetting, ...] = ()
    secrets: tuple[Secret, ...] = ()
    """Every secret that was read, valid or not, for the log's redactor."""


def sorted_problems(problems: Iterable[SettingsProblem]) -> tuple[SettingsProblem, ...]:
    """Sort by file and position. Problems without a position come last."""
    return tuple(
        sorted(problems, key=lambda p: (p.file is None, p.file or "", p.line or 0, p.column or 0)),
    )


def file_origin(path: Path) -> Origin:
    """Return the origin of a file as a whole."""
    return Origin(Source.FILE, _escaped(str(path)))


def is_utf8(text: str) -> bool:
    """Whether the text can be encoded. File names and variables need not be UTF-8."""
    return text == _escaped(text)


def printable(text: str) -> str:
    """Return the text on one line, with control characters escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def quoted(text: str) -> str:
    """Quote a text for a message: on one line, shortened, and without the password of a URL."""
    scheme, at = text.find("://"), text.rfind("@")
    shown = f"{text[: scheme + 3]}{MASK}{text[at:]}" if 0 <= scheme < at else text
    if len(shown) > _MAX_QUOTED:
        shown = shown[: _MAX_QUOTED - 1] + "…"
    return '"' + printable(shown.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def closest_match(word: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the candidate that was probably meant, ignoring case."""
    spelled = {candidate.lower(): candidate for candidate in candidates}
    # Shortened: the comparison is quadratic, and a typing error is never that long.
    matches = difflib.get_close_matches(word[:100].lower(), spelled, n=1, cutoff=cutoff)
    return spelled[matches[0]] if matches else None


def _escaped(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
