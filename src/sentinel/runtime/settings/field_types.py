"""Types of single values: durations, numbers, choices, secrets.

The same type parses a value from a file, a variable and a flag, so a setting means the same everywhere. YAML's own
interpretation of `010`, `1:30` or `no` is never used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from sentinel.runtime import durations
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings.config_tree import JsonType, Node, ScalarNode, describe_node
from sentinel.runtime.settings.report import Origin, closest_match, is_utf8, quoted
from sentinel.runtime.settings.validation import INVALID, Validation

E = TypeVar("E", bound=StrEnum)

_MICROSECOND: Final = timedelta(microseconds=1)
MAX_DURATION: Final = timedelta(days=365)
"""A longer duration is a typing error, and adding it to a date may overflow."""

_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]{0,17})")  # no leading zero: 010 is ten or eight
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class InvalidValue(ValueError):
    """A text cannot be parsed. The hint, if any, says what to do instead."""

    def __init__(self, hint: str = "", *, hides_text: bool = False) -> None:
        super().__init__(hint)
        self.hint = hint
        self.hides_text = hides_text
        """The text may hold a password, so the message must not repeat it."""


class FieldType(msgspec.Struct, frozen=True):
    """Parses one text. The last four fields say as much as a schema for other programs can."""

    expected: str
    parse: Callable[[str], object]
    """Raises `InvalidValue`."""
    is_secret: bool = False
    json_type: JsonType = JsonType.STRING
    choices: tuple[str, ...] = ()
    """All accepted texts, if there are few."""
    minimum: float | timedelta | None = None
    """The smallest accepted number or duration."""
    maximum: float | timedelta | None = None

    def read(self, node: Node, path: str, at: Origin, validation: Validation) -> object:
        """Return the parsed text, or `INVALID`."""
        if not isinstance(node, ScalarNode) or node.is_null:
            validation.reject(node.at, path, f"expected {self.expected}, got {describe_node(node)}")
            return INVALID
        if not is_utf8(node.text):
            validation.reject(node.at, path, f"expected {self.expected}, got a byte that is not UTF-8")
            return INVALID
        if self.is_secret:
            validation.secrets.append(Secret(node.text))
        if validation.has_json_types and (mistyped := self._mistyped(node)):
            validation.reject(node.at, path, f"expected {self.expected}, got {mistyped}")
            return INVALID
        try:
            value = self.parse(node.text)
        except InvalidValue as error:
            hint = f"; {error.hint}" if error.hint else ""
            got = "" if self.is_secret or error.hides_text else f", got {quoted(node.text)}"
            validation.reject(node.at, path, f"expected {self.expected}{got}{hint}")
            return INVALID
        validation.accept(path, value, at)
        return value

    def _mistyped(self, node: ScalarNode) -> str:
        """Describe a value of another JSON type that has the right text; empty if the type is right."""
        if self.json_type is not JsonType.STRING:
            return "" if node.is_plain else "text; write it without quotes"
        if node.json_type is JsonType.STRING:
            return ""
        return f"a {node.json_type}; quote it if it is text"


def text(expected: str, pattern: str = r"(?s).*") -> FieldType:
    """A text that matches the whole pattern."""
    compiled = re.compile(pattern)

    def parse(text: str) -> str:
        if compiled.fullmatch(text) is None:
            raise InvalidValue
        return text

    return FieldType(expected, parse)


def duration(*, minimum: timedelta) -> FieldType:
    """A duration in Go's syntax."""

    def parse(text: str) -> timedelta:
        try:
            nanoseconds = durations.parse_nanoseconds(text)
        except ValueError:
            raise InvalidValue from None
        # Compared before rounding, as the API server does: it refuses 8760h1ns in a SentinelConfig.
        if nanoseconds < minimum // _MICROSECOND * 1000:
            raise InvalidValue(f"at least {durations.render(minimum)}")
        if nanoseconds > MAX_DURATION // _MICROSECOND * 1000:
            raise InvalidValue(f"at most {durations.render(MAX_DURATION)}")
        return durations.parse(text)

    return FieldType("a duration such as 5s", parse, minimum=minimum, maximum=MAX_DURATION)


def integer(minimum: int, maximum: int) -> FieldType:
    """A whole number within bounds."""

    def parse(text: str) -> int:
        if _INTEGER.fullmatch(text) is None or not minimum <= int(text) <= maximum:
            raise InvalidValue
        return int(text)

    expected = f"a whole number from {minimum} to {maximum}"
    return FieldType(expected, parse, json_type=JsonType.INTEGER, minimum=minimum, maximum=maximum)


def number(minimum: float, maximum: float) -> FieldType:
    """A number within bounds."""

    def parse(text: str) -> float:
        value = float(text) if _NUMBER.fullmatch(text) else math.nan
        if not minimum <= value <= maximum:
            raise InvalidValue
        return value

    expected = f"a number from {minimum:g} to {maximum:,.0f}".replace(",", "")
    return FieldType(expected, parse, json_type=JsonType.NUMBER, minimum=minimum, maximum=maximum)


def _parse_share(text: str) -> float:
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not 0 <= value < 1:
        raise InvalidValue
    return value


def choice(
    enumeration: type[E], *, aliases: Mapping[str, E] | None = None, without: Collection[E] = ()
) -> FieldType:
    """A value of an enumeration, but not one of `without`."""
    values: dict[str, E] = {member.value: member for member in enumeration if member not in without}
    accepted = values | dict(aliases or {})

    def parse(text: str) -> E:
        if text not in accepted:
            meant = closest_match(text.lower(), accepted)
            raise InvalidValue(f"did you mean {meant}?" if meant else "")
        return accepted[text]

    return FieldType(f"one of {', '.join(values)}", parse, choices=tuple(values))


def _parse_boolean(text: str) -> bool:
    # YAML 1.1's words in its three spellings, so that a file means the same as in other tools.
    if text not in (text.lower(), text.title(), text.upper()) or text.lower() not in _BOOLEANS:
        raise InvalidValue
    return _BOOLEANS[text.lower()]


def _parse_path(text: str) -> Path:
    if not text or "\0" in text:
        raise InvalidValue
    return Path(text)


TEXT: Final = text("text")
BOOLEAN: Final = FieldType("true or false", _parse_boolean, json_type=JsonType.BOOLEAN)
PATH: Final = FieldType("the path of a file", _parse_path)
SHARE: Final = FieldType("a number from 0 to below 1, such as 0.1", _parse_share, json_type=JsonType.NUMBER)
SECRET: Final = FieldType("a secret", Secret, is_secret=True)
POSITIVE_DURATION: Final = duration(minimum=timedelta(microseconds=1))
ANY_DURATION: Final = duration(minimum=timedelta(0))
