"""The tokens of a template, and the stream that the parser reads them from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from typing import Final, NoReturn

import msgspec

from sentinel.core.gotemplate.errors import TemplateError, position
from sentinel.core.gotemplate.quoting import quote

MAX_DEPTH: Final = 64
"""The maximum nesting of blocks and parentheses. Each level uses some of Python's stack."""


class Kind(Enum):
    """The kind of a token."""

    ERROR = auto()
    EOF = auto()
    TEXT = auto()
    LEFT = auto()
    RIGHT = auto()
    SPACE = auto()
    CHARACTER = auto()
    ASSIGN = auto()
    DECLARE = auto()
    PIPE = auto()
    OPEN = auto()
    CLOSE = auto()
    BOOL = auto()
    RUNE = auto()
    NUMBER = auto()
    COMPLEX = auto()
    STRING = auto()
    RAW_STRING = auto()
    FIELD = auto()
    VARIABLE = auto()
    IDENTIFIER = auto()
    DOT = auto()
    NIL = auto()
    BLOCK = auto()
    BREAK = auto()
    CONTINUE = auto()
    DEFINE = auto()
    ELSE = auto()
    END = auto()
    IF = auto()
    RANGE = auto()
    TEMPLATE = auto()
    WITH = auto()


KEYWORDS: Final = {
    "nil": Kind.NIL,
    "block": Kind.BLOCK,
    "break": Kind.BREAK,
    "continue": Kind.CONTINUE,
    "define": Kind.DEFINE,
    "else": Kind.ELSE,
    "end": Kind.END,
    "if": Kind.IF,
    "range": Kind.RANGE,
    "template": Kind.TEMPLATE,
    "with": Kind.WITH,
}
_SHOWN_AS_KEYWORDS: Final = {*KEYWORDS.values(), Kind.DOT}


class Token(msgspec.Struct, frozen=True, gc=False):
    """A token and its offset in the source."""

    kind: Kind
    text: str
    at: int

    def __str__(self) -> str:
        """Return the token as Go shows it in messages."""
        if self.kind in _SHOWN_AS_KEYWORDS:
            return f"<{self.text}>"
        if len(self.text.encode("utf-8", "surrogatepass")) > 10:
            return quote(self.text[:10]) + "..."
        return quote(self.text)


def is_word(char: str) -> bool:
    """Whether a name may contain the character."""
    return char == "_" or char.isalpha() or char.isdecimal()


class TokenStream:
    """The tokens of a source, one after the other. The last token repeats, so reading past the end is an error."""

    def __init__(self, source: str, tokens: Sequence[Token]) -> None:
        self.index = 0
        """The index of the next token. Set it to go back."""
        self._source = source
        self._tokens = tokens
        self._depth = 0

    def peek(self) -> Token:
        return self._tokens[min(self.index, len(self._tokens) - 1)]

    def take(self) -> Token:
        token = self.peek()
        self.index += 1
        return token

    def peek_non_space(self) -> Token:
        while self.peek().kind is Kind.SPACE:
            self.index += 1
        return self.peek()

    def take_non_space(self) -> Token:
        self.peek_non_space()
        return self.take()

    def expect(self, kind: Kind, context: str) -> None:
        """Take a token, which must be of this kind."""
        token = self.take_non_space()
        if token.kind is not kind:
            self.unexpected(token, context)

    @contextmanager
    def nested(self, at: int) -> Iterator[None]:
        """Count a level of nesting."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self.fail(f"nested too deeply: more than {MAX_DEPTH} blocks and parentheses within each other", at)
        yield
        self._depth -= 1

    def unexpected(self, token: Token, context: str) -> NoReturn:
        """Raise `TemplateError` for this token."""
        self.fail(token.text if token.kind is Kind.ERROR else f"unexpected {token} in {context}", token.at)

    def fail(self, problem: str, at: int) -> NoReturn:
        """Raise `TemplateError` at this offset."""
        line, column = position(self._source, at)
        raise TemplateError(problem, line=line, column=column)
