"""What one text can mean: a duration, a number, a choice, a secret.

The same leaf reads a value from a file, a variable and a flag, so that a setting means the same wherever it is
written, and YAML's own ideas of what `010`, `1:30` or `no` might be never come into it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from sentinel.runtime import durations
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings.config_tree import Node, ScalarNode, describe_node
from sentinel.runtime.settings.report import Origin, closest_match, is_utf8, quoted
from sentinel.runtime.settings.validation import INVALID, Validation

E = TypeVar("E", bound=StrEnum)

MAX_DURATION: Final = timedelta(days=365)
"""Beyond it a duration is a slip of the pen, and adding it to a date may leave the calendar."""

_WHOLE = re.compile(r"[+-]?(0|[1-9][0-9]{0,17})")  # no leading zero: is 010 ten or eight?
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class InvalidValue(ValueError):
    """A text that will not do. The hint, if there is one, says what to do instead."""

    def __init__(self, hint: str = "", *, hides_text: bool = False) -> None:
        super().__init__(hint)
        self.hint = hint
        self.hides_text = hides_text
        """The text may hold a password, so the message must not repeat it."""


class FieldType(msgspec.Struct, frozen=True):
    """One text and its meaning."""

    expected: str
    parse: Callable[[str], object]
    """Raises `InvalidValue` where the text will not do."""
    is_secret: bool = False

    def read(self, node: Node, path: str, at: Origin, validation: Validation) -> object:
        """The parsed text."""
        if not isinstance(node, ScalarNode) or node.is_null:
            validation.reject(node.at, path, f"expected {self.expected}, got {describe_node(node)}")
            return INVALID
        if not is_utf8(node.text):
            validation.reject(node.at, path, f"expected {self.expected}, got a byte that is not UTF-8")
            return INVALID
        if self.is_secret:
            validation.secrets.append(Secret(node.text))
        try:
            value = self.parse(node.text)
        except InvalidValue as refusal:
            hint = f"; {refusal.hint}" if refusal.hint else ""
            got = "" if self.is_secret or refusal.hides_text else f", got {quoted(node.text)}"
            validation.reject(node.at, path, f"expected {self.expected}{got}{hint}")
            return INVALID
        validation.accept(path, value, at)
        return value


def text(expected: str, pattern: str = r"(?s).*") -> FieldType:
    """A text that has this form as a whole."""
    compiled = re.compile(pattern)

    def parse(given: str) -> str:
        if compiled.fullmatch(given) is None:
            raise InvalidValue
        return given

    return FieldType(expected, parse)


def duration(*, minimum: timedelta) -> FieldType:
    """A duration as Go writes it."""

    def parse(given: str) -> timedelta:
        try:
            parsed = durations.parse(given)
        except ValueError:
            raise InvalidValue from None
        if parsed < minimum:
            raise InvalidValue(f"at least {durations.render(minimum)}")
        if parsed > MAX_DURATION:
            raise InvalidValue(f"at most {durations.render(MAX_DURATION)}")
        return parsed

    return FieldType("a duration such as 5s", parse)


def integer(least: int, most: int) -> FieldType:
    """A whole number within these bounds."""

    def parse(given: str) -> int:
        if _WHOLE.fullmatch(given) is None or not least <= int(given) <= most:
            raise InvalidValue
        return int(given)

    return FieldType(f"a whole number from {least} to {most}", parse)


def number(least: float, most: float) -> FieldType:
    """A number within these bounds."""

    def parse(given: str) -> float:
        value = float(given) if _NUMBER.fullmatch(given) else math.nan
        if not least <= value <= most:
            raise InvalidValue
        return value

    return FieldType(f"a number from {least:g} to {most:,.0f}".replace(",", ""), parse)


def choice(enumeration: type[E], *, aliases: Mapping[str, E] | None = None) -> FieldType:
    """One of a closed set of words."""
    words: dict[str, E] = {member.value: member for member in enumeration}
    meanings = words | dict(aliases or {})

    def parse(given: str) -> E:
        if given not in meanings:
            meant = closest_match(given.lower(), meanings)
            raise InvalidValue(f"did you mean {meant}?" if meant else "")
        return meanings[given]

    return FieldType(f"one of {', '.join(words)}", parse)


def _boolean(given: str) -> bool:
    # The words of YAML 1.1 in its three spellings, so that a file means what other tools make of it.
    if given not in (given.lower(), given.title(), given.upper()) or given.lower() not in _TRUTHS:
        raise InvalidValue
    return _TRUTHS[given.lower()]


def _path(given: str) -> Path:
    if not given or "\0" in given:
        raise InvalidValue
    return Path(given)


TEXT: Final = text("text")
BOOLEAN: Final = FieldType("true or false", _boolean)
PATH: Final = FieldType("the path of a file", _path)
SECRET: Final = FieldType("a secret", Secret, is_secret=True)
POSITIVE_DURATION: Final = duration(minimum=timedelta(microseconds=1))
ANY_DURATION: Final = duration(minimum=timedelta(0))
