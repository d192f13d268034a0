"""Kubernetes' label selectors: what clients may ask a list for, and what labels may be.

Selectors are read exactly as Kubernetes reads them, because that is where people learned the syntax: `=`, `==`,
`!=`, `in`, `notin`, existence, `>` and `<`, joined by commas that mean "and". A selector is data - a tuple of
requirements - so that a database can evaluate it; `matches` says in plain code what such an evaluation must
amount to. The limits keep a selector from becoming a query that nobody can afford.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, assert_never

import msgspec

MAX_LABELS = 64
"""How many labels a resource may carry."""
MAX_LENGTH = 4096
"""How many characters a selector may have."""
MAX_REQUIREMENTS = 32
MAX_VALUES = 100
"""How many values a selector may name in all its requirements together."""
MAX_NAME = 63
"""How long a label's value, or its key without the prefix, may be."""
MAX_PREFIX = 253

_LARGEST_INTEGER = 2**63 - 1
_EXCERPT = MAX_PREFIX + 1 + MAX_NAME

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_TOKEN = re.compile(r"(?P<symbol>==|!=|[=!(),<>])|(?P<word>[^ \t\r\n=!(),<>]+)")


class Operator(StrEnum):
    """What a requirement says of a label."""

    IN = "in"
    """The label is there, and its value is one of these; `=` and `==` with one value."""
    NOT_IN = "notin"
    """The label is not there, or its value is none of these; `!=` with one value."""
    EXISTS = "exists"
    NOT_EXISTS = "!"
    GREATER = ">"
    """The label is there, and its value is an integer greater than this one; see `as_integer`."""
    LESS = "<"
    """The label is there, and its value is an integer less than this one."""


class Requirement(msgspec.Struct, frozen=True):
    """One requirement; a selector is a conjunction of them."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()
    """Sorted, without repetitions; exactly one, an integer, for `>` and `<`; none for the two of existence."""


class SelectorError(ValueError):
    """A text that is no selector: what was expected, what came, and where."""

    def __init__(self, message: str, *, column: int) -> None:
        super().__init__(f"{message} (column {column})")
        self.message = message
        self.column = column
        """Counted in characters, from 1."""


def parse(text: str) -> tuple[Requirement, ...]:
    """The requirements of a selector, in the order in which they were written; none select everything.

    Raises `SelectorError`.
    """
    if len(text) > MAX_LENGTH:
        raise SelectorError(f"expected at most {MAX_LENGTH} characters, got {len(text)}", column=MAX_LENGTH + 1)
    return _Parser(_tokens(text)).selector()


def matches(requirements: Sequence[Requirement], labels: Mapping[str, str]) -> bool:
    """Whether a resource with these labels is selected: every requirement holds."""
    return all(_holds(requirement, labels.get(requirement.key)) for requirement in requirements)


def as_integer(value: str) -> int | None:
    """The integer that `>` and `<` see in a label's value, None for a value that is none, or beyond 64 bits."""
    if not (value.isascii() and value.isdigit() and len(value) <= MAX_NAME):
        return None
    integer = int(value)
    return integer if integer <= _LARGEST_INTEGER else None


def check_labels(labels: Mapping[str, str]) -> list[tuple[str, str]]:
    """What is wrong with a resource's labels: field and message, empty where they are fine."""
    if len(labels) > MAX_LABELS:
        return [("labels", f"expected at most {MAX_LABELS} labels, got {len(labels)}")]
    problems = []
    for key, value in labels.items():
        complaint = _complaint_about_key(key) or _complaint_about_value(value)
        if complaint:
            problems.append((f"labels.{_excerpt(key)}", complaint))
    return problems


def _holds(requirement: Requirement, value: str | None) -> bool:
    match requirement.operator:
        case Operator.IN:
            return value in requirement.values
        case Operator.NOT_IN:
            return value not in requirement.values
        case Operator.EXISTS:
            return value is not None
        case Operator.NOT_EXISTS:
            return value is None
        case Operator.GREATER | Operator.LESS:
            bound = as_integer(requirement.values[0])
            integer = None if value is None else as_integer(value)
            if integer is None or bound is None:
                return False
            return integer > bound if requirement.operator is Operator.GREATER else integer < bound
        case _:
            assert_never(requirement.operator)


class _Token(NamedTuple):
    text: str
    """Empty at the end of the selector."""
    column: int
    is_word: bool = False

    def __str__(self) -> str:
        return f'"{_excerpt(self.text)}"' if self.text else "the end"


def _tokens(text: str) -> list[_Token]:
    found = [_Token(each[0], each.start() + 1, each.lastgroup == "word") for each in _TOKEN.finditer(text)]
    return [*found, _Token("", len(text) + 1)]


class _Parser:
    """Reads tokens from left to right; one token decides, there is no going back.

    `in` and `notin` are operators only where an operator stands; elsewhere they are words like any other.
    """

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tokens
        self._place = 0
        self._values = 0

    @property
    def _next(self) -> _Token:
        return self._tokens[self._place]

    def _take(self) -> _Token:
        token = self._next
        self._place += 1
        return token

    def selector(self) -> tuple[Requirement, ...]:
        requirements: list[Requirement] = []
        if not self._next.text:
            return ()
        while True:
            if len(requirements) == MAX_REQUIREMENTS:
                raise SelectorError(f"expected at most {MAX_REQUIREMENTS} requirements", column=self._next.column)
            requirements.append(self._requirement())
            separator = self._take()
            if not separator.text:
                return tuple(requirements)
            if separator.text != ",":
                raise _unexpected(separator, "a comma or the end")

    def _requirement(self) -> Requirement:
        is_negated = self._next.text == "!"
        if is_negated:
            self._take()
        key = self._key(after_negation=is_negated)
        if is_negated:
            return Requirement(key, Operator.NOT_EXISTS)
        if self._next.text in ("", ","):
            return Requirement(key, Operator.EXISTS)

        operator = self._take()
        match operator.text:
            case "=" | "==":
                return Requirement(key, Operator.IN, self._one_value())
            case "!=":
                return Requirement(key, Operator.NOT_IN, self._one_value())
            case "in" | "notin":
                return Requirement(key, Operator(operator.text), self._values_in_parentheses())
            case "<" | ">":
                return Requirement(key, Operator(operator.text), self._one_integer())
            case _:
                raise _unexpected(operator, "one of =, ==, !=, in, notin, <, >")

    def _key(self, *, after_negation: bool) -> str:
        token = self._take()
        if not token.is_word:
            raise _unexpected(token, "a label" if after_negation else "a label or !")
        if complaint := _complaint_about_key(token.text):
            raise SelectorError(complaint, column=token.column)
        return token.text

    def _one_value(self) -> tuple[str, ...]:
        return (self._value(("", ",")),)

    def _one_integer(self) -> tuple[str, ...]:
        token = self._next
        value = self._value(("", ","))
        if as_integer(value) is None:
            raise _unexpected(token, "an integer of at most 64 bits")
        return (value,)

    def _values_in_parentheses(self) -> tuple[str, ...]:
        opening = self._take()
        if opening.text != "(":
            raise _unexpected(opening, '"("')
        values = set()
        while True:
            values.add(self._value((",", ")")))
            separator = self._take()
            if separator.text == ")":
                return tuple(sorted(values))
            if separator.text != ",":
                raise _unexpected(separator, 'a comma or ")"')

    def _value(self, ends: tuple[str, str]) -> str:
        """The value that stands here; where one of `ends` does, it is the empty one."""
        token = self._next
        self._values += 1
        if self._values > MAX_VALUES:
            raise SelectorError(f"expected at most {MAX_VALUES} values", column=token.column)
        if token.text in ends:
            return ""
        self._take()
        if not token.is_word:
            raise _unexpected(token, "a value")
        if complaint := _complaint_about_value(token.text):
            raise SelectorError(complaint, column=token.column)
        return token.text


def _unexpected(token: _Token, expected: str) -> SelectorError:
    return SelectorError(f"expected {expected}, got {token}", column=token.column)


def _complaint_about_key(key: str) -> str:
    """What is wrong with a label's key, empty where it is fine."""
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > MAX_PREFIX or not _PREFIX.fullmatch(prefix)):
        return (
            f"expected a key whose prefix is a DNS name of at most {MAX_PREFIX} lower-case characters, "
            f'got "{_excerpt(key)}"'
        )
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        return (
            f"expected a key of at most {MAX_NAME} letters, digits, '-', '_' and '.', beginning and ending with a "
            f'letter or digit, got "{_excerpt(key)}"'
        )
    return ""


def _complaint_about_value(value: str) -> str:
    """What is wrong with a label's value, empty where it is fine; an empty value is."""
    if value and (len(value) > MAX_NAME or not _NAME.fullmatch(value)):
        return (
            f"expected a value of at most {MAX_NAME} letters, digits, '-', '_' and '.', beginning and ending with "
            f'a letter or digit, got "{_excerpt(value)}"'
        )
    return ""


def _excerpt(text: str) -> str:
    """The text, or its beginning where it is longer than any label could be."""
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"
