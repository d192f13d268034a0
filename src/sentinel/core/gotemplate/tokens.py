"""The tokens of a template."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

import msgspec

from sentinel.core.gotemplate.quoting import quote


class Kind(Enum):
    """What a token is."""

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
    """A piece of a template, and its offset."""

    kind: Kind
    text: str
    at: int

    def __str__(self) -> str:
        """The token in a message, as Go shows it."""
        if self.kind in _SHOWN_AS_KEYWORDS:
            return f"<{self.text}>"
        if len(self.text.encode("utf-8", "surrogatepass")) > 10:
            return quote(self.text[:10]) + "..."
        return quote(self.text)


def is_word(char: str) -> bool:
    """Whether the character can be part of a name."""
    return char == "_" or char.isalpha() or char.isdecimal()
