"""The tokens of a selector or a search, for parsers with one token of lookahead."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sentinel.core.labels.syntax import excerpt


class TextError(ValueError):
    """A text that cannot be parsed: what was expected, what was found, and where."""

    def __init__(self, message: str, *, column: int) -> None:
        super().__init__(f"{message} (column {column})")
        self.message = message
        self.column = column
        """Counted in characters, from 1."""


class Token(NamedTuple):
    """A match of the pattern, or the end of the text."""

    text: str
    """Empty at the end."""
    column: int
    group: str | None = None
    """The group of the pattern: `word`, `symbol`, or `text` for a string in quotes."""

    @property
    def keyword(self) -> str:
        """A word in lower case, or empty."""
        return self.text.lower() if self.is_word else ""

    @property
    def is_word(self) -> bool:
        return self.group == "word"

    def __str__(self) -> str:
        if self.group == "text":
            return excerpt(self.text)
        return f'"{excerpt(self.text)}"' if self.text else "the end"


def tokenize(text: str, pattern: re.Pattern[str]) -> list[Token]:
    """Return the tokens of a text. The last one is its end."""
    found = [Token(each[0], each.start() + 1, each.lastgroup) for each in pattern.finditer(text)]
    return [*found, Token("", len(text) + 1)]


class Tokens:
    """Tokens that are taken one after the other."""

    def __init__(self, tokens: Sequence[Token], error: type[TextError]) -> None:
        """`error` is what is raised about a token."""
        self._tokens = tokens
        self._index = 0
        self._error = error

    @property
    def next(self) -> Token:
        return self._tokens[self._index]

    def take(self) -> Token:
        """Return the next token and go on to the one after it."""
        token = self.next
        self._index += 1
        return token

    def take_values(self, take_value: Callable[[], str]) -> tuple[str, ...]:
        """Return the distinct values of a list in parentheses, sorted."""
        opening = self.take()
        if opening.text != "(":
            raise self.unexpected(opening, '"("')
        values = set()
        while True:
            values.add(take_value())
            separator = self.take()
            if separator.text == ")":
                return tuple(sorted(values))
            if separator.text != ",":
                raise self.unexpected(separator, 'a comma or ")"')

    def unexpected(self, token: Token, expected: str) -> TextError:
        """Return the error about a token of the wrong kind."""
        return self._error(f"expected {expected}, got {token}", column=token.column)
