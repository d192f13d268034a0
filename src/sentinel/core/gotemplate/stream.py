"""The tokens of a source, one after the other, and the complaints about them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

from sentinel.core.gotemplate.errors import TemplateError, position
from sentinel.core.gotemplate.lex import tokens
from sentinel.core.gotemplate.tokens import Kind, Token

DEEPEST: Final = 64
"""How many blocks and parentheses may stand within each other: each costs some of Python's stack."""


class TokenStream:
    """Where the parser is. The last token is repeated: whoever reads on complains about it."""

    def __init__(self, source: str) -> None:
        self.place = 0
        """Which token is next; going back is setting it."""
        self._source = source
        self._tokens = tokens(source)
        self._depth = 0

    def peek(self) -> Token:
        """The next token."""
        return self._tokens[min(self.place, len(self._tokens) - 1)]

    def take(self) -> Token:
        """The next token, which is then past."""
        token = self.peek()
        self.place += 1
        return token

    def peek_word(self) -> Token:
        """The next token that is not a space."""
        while self.peek().kind is Kind.SPACE:
            self.place += 1
        return self.peek()

    def take_word(self) -> Token:
        """The next token that is not a space, which is then past."""
        self.peek_word()
        return self.take()

    def expect(self, kind: Kind, context: str) -> None:
        """Takes a token of this kind, and no other."""
        token = self.take_word()
        if token.kind is not kind:
            self.unexpected(token, context)

    @contextmanager
    def nested(self, at: int) -> Iterator[None]:
        """Within a block or parentheses."""
        self._depth += 1
        if self._depth > DEEPEST:
            self.refuse(f"nested too deeply: more than {DEEPEST} blocks and parentheses within each other", at)
        yield
        self._depth -= 1

    def unexpected(self, token: Token, context: str) -> NoReturn:
        """This token cannot stand here."""
        self.refuse(token.text if token.kind is Kind.ERROR else f"unexpected {token} in {context}", token.at)

    def refuse(self, problem: str, at: int) -> NoReturn:
        """Raises `TemplateError`."""
        line, column = position(self._source, at)
        raise TemplateError(problem, line=line, column=column)
