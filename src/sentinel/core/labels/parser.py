"""Parse the text form of a Kubernetes selector.

It is parsed exactly as Kubernetes does: `=`, `==`, `!=`, `in`, `notin`, existence, `>` and `<`, joined by commas
that mean "and". The limits keep a selector from becoming an expensive query.
"""

from __future__ import annotations

import re

from sentinel.core.labels.selector import Operator, Requirement, Selector, as_integer
from sentinel.core.labels.syntax import key_problem, value_problem
from sentinel.core.labels.tokens import TextError, Tokens, tokenize

MAX_LENGTH = 4096
"""The maximum number of characters of a selector."""
MAX_REQUIREMENTS = 32
MAX_VALUES = 100
"""The maximum number of values in all requirements together."""

_TOKEN = re.compile(r"(?P<symbol>==|!=|[=!(),<>])|(?P<word>[^ \t\r\n=!(),<>]+)")


class SelectorError(TextError):
    """A text that is not a selector."""


def parse(text: str) -> Selector:
    """Parse a selector, keeping the order of its requirements. Raises `SelectorError`."""
    if len(text) > MAX_LENGTH:
        raise SelectorError(f"expected at most {MAX_LENGTH} characters, got {len(text)}", column=MAX_LENGTH + 1)
    return Selector(_Parser(Tokens(tokenize(text, _TOKEN), SelectorError)).requirements())


class _Parser:
    """A predictive parser with one token of lookahead.

    `in` and `notin` are operators only in the position of an operator. Elsewhere they are words.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._values = 0

    def requirements(self) -> tuple[Requirement, ...]:
        requirements: list[Requirement] = []
        if not self._tokens.next.text:
            return ()
        while True:
            if len(requirements) == MAX_REQUIREMENTS:
                raise SelectorError(
                    f"expected at most {MAX_REQUIREMENTS} requirements", column=self._tokens.next.column
                )
            requirements.append(self._requirement())
            separator = self._tokens.take()
            if not separator.text:
                return tuple(requirements)
            if separator.text != ",":
                raise self._tokens.unexpected(separator, "a comma or the end")

    def _requirement(self) -> Requirement:
        is_negated = self._tokens.next.text == "!"
        if is_negated:
            self._tokens.take()
        key = self._key(after_negation=is_negated)
        if is_negated:
            return Requirement(key, Operator.NOT_EXISTS)
        if self._tokens.next.text in ("", ","):
            return Requirement(key, Operator.EXISTS)

        operator = self._tokens.take()
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
                raise self._tokens.unexpected(operator, "one of =, ==, !=, in, notin, <, >")

    def _key(self, *, after_negation: bool) -> str:
        token = self._tokens.take()
        if not token.is_word:
            raise self._tokens.unexpected(token, "a label" if after_negation else "a label or !")
        if problem := key_problem(token.text):
            raise SelectorError(problem, column=token.column)
        return token.text

    def _one_value(self) -> tuple[str, ...]:
        return (self._value(("", ",")),)

    def _one_integer(self) -> tuple[str, ...]:
        token = self._tokens.next
        value = self._value(("", ","))
        if as_integer(value) is None:
            raise self._tokens.unexpected(token, "an integer of at most 64 bits")
        return (value,)

    def _values_in_parentheses(self) -> tuple[str, ...]:
        return self._tokens.take_values(lambda: self._value((",", ")")))

    def _value(self, ends: tuple[str, str]) -> str:
        """Read a value. It is empty if the next token is one of `ends`."""
        token = self._tokens.next
        self._values += 1
        if self._values > MAX_VALUES:
            raise SelectorError(f"expected at most {MAX_VALUES} values", column=token.column)
        if token.text in ends:
            return ""
        self._tokens.take()
        if not token.is_word:
            raise self._tokens.unexpected(token, "a value")
        if problem := value_problem(token.text):
            raise SelectorError(problem, column=token.column)
        return token.text
