"""Where each setting was written, and what is wrong with it, in words that lead a person to the place.

Every value keeps its origin from the moment it is read. The same origin puts file, line and column on a
problem, and tells `sentinel check --show` which of file, environment and flags won.
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

_LONGEST_QUOTE = 80


class Source(StrEnum):
    """The kinds of place a setting can be written in, weakest first."""

    DEFAULT = "default"
    FILE = "file"
    OBJECT = "object"
    """A document that something else has parsed: a Kubernetes resource, say."""
    ENVIRONMENT = "environment"
    FLAG = "flag"


class Origin(msgspec.Struct, frozen=True):
    """The place where a value was written."""

    source: Source = Source.DEFAULT
    name: str = ""
    """The file as it was given, what the object is called, the variable, or the flag."""
    line: int = 1
    column: int = 1

    def at(self, line: int, column: int) -> Origin:
        """A place within this source. Only a file has places in it: the text of a variable or a flag is too short,
        and an object has lost them."""
        if self.source is Source.FILE:
            return Origin(self.source, self.name, line, column)
        return self

    def __str__(self) -> str:
        if self.source is Source.FILE:
            return f"file {self.name}:{self.line}"
        return f"{self.source} {self.name}" if self.name else self.source.value


class SettingsProblem(msgspec.Struct, frozen=True):
    """Why a configuration is refused. The field names are the shape that `sentinel check` prints as JSON."""

    file: str | None
    """None where the value came from the environment, a flag or an object; the message then ends with its name."""
    line: int | None
    column: int | None
    field: str
    """The full path, such as `resource_selector[0].label`; empty where the file as a whole is meant."""
    message: str

    @classmethod
    def at(cls, origin: Origin, field: str, message: str) -> SettingsProblem:
        """The problem with a value that was written there."""
        field, message = _escaped(field), _escaped(message)
        if origin.source is Source.FILE:
            return cls(origin.name, origin.line, origin.column, field, message)
        if origin.source is Source.DEFAULT:
            return cls(None, None, None, field, message)
        return cls(None, None, None, field, f"{message} ({_escaped(str(origin))})")

    def __str__(self) -> str:
        """One line, always with the same separators, so that an editor finds the place and a script the parts."""
        place = "" if self.file is None else f"{self.file}:{self.line}:{self.column}: "
        return printable(f"{place}{self.field}: {self.message}")


class EffectiveSetting(msgspec.Struct, frozen=True):
    """One effective setting: what holds, and who said so."""

    key: str
    value: str
    """As one would write it; a secret is masked, and what is unset is empty."""
    origin: str


class Loaded(msgspec.Struct, Generic[T], frozen=True):
    """Everything that came of loading settings."""

    settings: T | None
    """None where there are problems, or where nothing was configured at all."""
    problems: tuple[SettingsProblem, ...] = ()
    warnings: tuple[str, ...] = ()
    """What is allowed but probably not meant; one line each."""
    entries: tuple[EffectiveSetting, ...] = ()
    secrets: tuple[Secret, ...] = ()
    """Every secret that was read, valid or not, so that logging can black them out."""


def sorted_problems(problems: Iterable[SettingsProblem]) -> tuple[SettingsProblem, ...]:
    """By file and place, as one would mend them; those without a place last."""
    return tuple(
        sorted(problems, key=lambda p: (p.file is None, p.file or "", p.line or 0, p.column or 0)),
    )


def file_origin(path: Path) -> Origin:
    """The origin of a file as a whole."""
    return Origin(Source.FILE, _escaped(str(path)))


def is_utf8(text: str) -> bool:
    """Whether the text can be written out again; names and variables of the system need not be UTF-8."""
    return text == _escaped(text)


def printable(text: str) -> str:
    """The text on one line, whatever is in it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def quoted(text: str) -> str:
    """The text as a message shows it: on one line, cut where it is long, without the password of a URL."""
    scheme, at = text.find("://"), text.rfind("@")
    shown = f"{text[: scheme + 3]}{MASK}{text[at:]}" if 0 <= scheme < at else text
    if len(shown) > _LONGEST_QUOTE:
        shown = shown[: _LONGEST_QUOTE - 1] + "…"
    return '"' + printable(shown.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def closest_match(word: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The candidate that was probably meant, whatever the case of its letters."""
    spelled = {candidate.lower(): candidate for candidate in candidates}
    # Cut: the comparison is quadratic, and nothing that long is a slip of the pen.
    matches = difflib.get_close_matches(word[:100].lower(), spelled, n=1, cutoff=cutoff)
    return spelled[matches[0]] if matches else None


def _escaped(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
