"""From the bytes of a file to the text of a document: its size, its encoding, and what it may not contain."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from sentinel.core.kdl.characters import DISALLOWED, NEWLINE, NEWLINES, SPACES
from sentinel.core.kdl.edits import Edits
from sentinel.core.kdl.problems import Code, ProblemList
from sentinel.core.kdl.source import REPLACEMENT, Source

MAX_BYTES: Final = 2 * 1024 * 1024

_BYTE_ORDER_MARK: Final = "\ufeff"
_INVALID_BYTES: Final = "\udc80-\udcff"
"""How `surrogateescape` decodes bytes that are not UTF-8."""
_DISALLOWED: Final = re.compile(f"[{_INVALID_BYTES}]+|[{DISALLOWED}]")
_NOT_IN_WORDS: Final = rf'{SPACES}{NEWLINES}{{}}();="'
_OUTSIDE_WORDS: Final = re.compile(
    rf'(?<![^{_NOT_IN_WORDS}])(?!(?<="){REPLACEMENT}++"){REPLACEMENT}++(?![^{_NOT_IN_WORDS}])'
)
"""Replacements that are not part of a name or value. Quotes alone around one are those of a string."""


class Text(msgspec.Struct, frozen=True):
    """A text without disallowed characters. Each is replaced by another, so positions are those of the file."""

    text: str
    start: int
    """The offset of the first character after the byte order mark, if there is one."""


def size_of(source: str | bytes) -> int:
    """Return the size in bytes."""
    return len(source) if isinstance(source, bytes) else len(source.encode("utf-8", "surrogatepass"))


def other_encoding(source: str | bytes) -> str | None:
    """Return the encoding of a file that says by its first bytes that it is not UTF-8."""
    if isinstance(source, bytes) and source.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "UTF-16"
    return None


def split_lines(source: bytes) -> list[str]:
    """Return the lines of a file as problems count their columns: an invalid byte is one character."""
    return NEWLINE.split(source.decode("utf-8", "surrogateescape").removeprefix(_BYTE_ORDER_MARK))


def read(source: str | bytes, problems: ProblemList, *, edits: Edits | None = None) -> Text:
    """Decode a document, and report and replace everything that it may not contain."""
    is_bytes = isinstance(source, bytes)
    text = source.decode("utf-8", "surrogateescape") if isinstance(source, bytes) else source
    start = 1 if text.startswith(_BYTE_ORDER_MARK) else 0
    if _DISALLOWED.search(text, start) is None:
        return Text(text, start)
    reporter = Source(text, problems, start=start, edits=edits)
    for found in _DISALLOWED.finditer(text, start):
        _report(reporter, found, is_bytes=is_bytes)
    replaced = text[:start] + _DISALLOWED.sub(lambda found: REPLACEMENT * len(found[0]), text[start:])
    if edits is None:
        replaced = _OUTSIDE_WORDS.sub(lambda found: " " * len(found[0]), replaced)
    return Text(replaced, start)


def _report(reporter: Source, found: re.Match[str], *, is_bytes: bool) -> None:
    char, offset = found[0][0], found.start()
    if is_bytes and "\udc80" <= char <= "\udcff":
        shown = " ".join(f"0x{ord(escaped) - 0xDC00:02X}" for escaped in found[0][:4])
        bytes_ = "byte" if len(found[0]) == 1 else "bytes"
        message = f"expected UTF-8, got the invalid {bytes_} {shown}{' …' if len(found[0]) > 4 else ''}"
        reporter.report(Code.INVALID_UTF8, offset, message, "save the file as UTF-8")
        return
    name = f"U+{ord(char):04X}"
    if char == _BYTE_ORDER_MARK:
        reporter.edit(offset, offset + 1, " ")
        message = f"expected a byte order mark only at the start of the file, got one here ({name})"
        reporter.report(Code.DISALLOWED_CHARACTER, offset, message, "remove this invisible character")
        return
    reporter.report(
        Code.DISALLOWED_CHARACTER,
        offset,
        f"expected text, got {name}, which a document may not contain",
        f"remove it, or write \\u{{{ord(char):x}}} in a quoted string"
        if not "\ud800" <= char <= "\udfff"
        else "remove it",
    )
