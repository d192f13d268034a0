"""Parse the text form of a Kubernetes selector.

It is parsed exactly as Kubernetes does: `=`, `==`, `!=`, `in`, `notin`, existence, `>` and `<`, joined by commas
that mean "and". The limits keep a selector from becoming an expensive query.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from sentinel.core.labels.selector import Operator, Requirement, Selector, as_integer
from sentinel.core.labels.syntax import excerpt, key_problem, value_problem

MAX_LENGTH = 4096
"""The maximum number of characters of a selector."""
MAX_REQUIREMENTS = 32
MAX_VALUES = 100
"""The maximum number of values in all requirements together."""

_TOKEN = re.compile(r"(?P<symbol>==|!=|[=!(),<>])|(?P<word>[^ \t\r\n=!(),<>]+)")


class SelectorError(ValueError):
    """A text that is not a selector: what was expected, what was found, and where."""

    def __init__(self, message: str, *, column: int) -> None:
        super().__init__(f"{message} (column {column})")
        self.message = message
        self.column = column
        """Counted in characters, from 1."""


def parse(text: str) -> Selector:
    """Parse a selector, keeping the order of its requirements. Raises `SelectorError`."""
    if len(text) > MAX_LENGTH:
        raise SelectorError(f"expected at most {MAX_LENGTH} characters, got {len(text)}", column=MAX_LENGTH + 1)
    return Selector(_Parser(_tokens(text)).requirements())


class _Token(NamedTuple):
    text: str
    """Empty at the end of the selector."""
    column: int
    is_word: bool = False

    def __str__(self) -> str:
        return f'"{excerpt(self.text)}"' if self.text else "the end"


def _tokens(text: str) -> list[_Token]:
    found = [_Token(each[0], each.start() + 1, each.lastgroup == "word") for each in _TOKEN.finditer(text)]
    return [*found, _Token("", len(text) + 1)]


class _Parser:
    """A predictive parser with one token of lookahead.

    `in` and `notin` are operators only in the position of an operator. Elsewhere they are words.
    """

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tokens
        self._index = 0
        self._values = 0

    @property
    def _next(self) -> _Token:
        return self._tokens[self._index]

    def _take(self) -> _Token:
        token = self._next
        self._index += 1
        return token

    def requirements(self) -> tuple[Requirement, ...]:
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
        if problem := key_problem(token.text):
            raise SelectorError(problem, column=token.column)
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
        """Read a value. It is empty if the next token is one of `ends`."""
        token = self._next
        self._values += 1
        if self._values > MAX_VALUES:
            raise SelectorError(f"expected at most {MAX_VALUES} values", column=token.column)
        if token.text in ends:
            return ""
        self._take()
        if not token.is_word:
            raise _unexpected(token, "a value")
        if problem := value_problem(token.text):
            raise SelectorError(problem, column=token.column)
        return token.text


def _unexpected(token: _Token, expected: str) -> SelectorError:
    return SelectorError(f"expected {expected}, got {token}", column=token.column)
