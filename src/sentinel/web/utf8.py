"""UTF-8 text from outside: decoded, or refused with the place of the first byte that does not fit."""

from __future__ import annotations

from sentinel.web import problem
from sentinel.web.problem import Problem


def decode(content: bytes) -> str:
    """The text. Raises a 400 with line and column where it is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start].decode(errors="replace")
        raise _misplaced("expected UTF-8, got a byte that is not", before) from None


def decode_plain(content: bytes) -> str:
    """The text of a body that is stored as it is. A NUL is refused too: PostgreSQL stores none in a text."""
    text = decode(content)
    if (position := text.find("\0")) >= 0:
        raise _misplaced("expected text, got a NUL character", text[:position])
    return text


def _misplaced(message: str, before: str) -> Problem:
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return problem.malformed(message, line=line, column=column)
