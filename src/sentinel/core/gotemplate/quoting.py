"""Read and write Go's string and character literals.

Escapes may denote single bytes (`"\\xff"`), so reading works on bytes. Printable characters are written without
escapes. Python and Go agree on which ones are printable.
"""

from __future__ import annotations

import re
from typing import Final

from sentinel.core.gotemplate.values import from_bytes, to_bytes

_ESCAPE = re.compile(
    rb"\\(?:([abfnrtv\\'\"])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3}))", re.ASCII
)
_SINGLE: Final = {
    b"a": 7, b"b": 8, b"f": 12, b"n": 10, b"r": 13, b"t": 9, b"v": 11, b"\\": 92, b"'": 39, b'"': 34,
}  # fmt: skip
_NAMES: Final = {
    "\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v",
}  # fmt: skip
_MAX_RUNE: Final = 0x10FFFF
REPLACEMENT: Final = "\ufffd"


class BadLiteral(ValueError):
    """A quoted text that is not a valid literal."""


def unquote(literal: str) -> str:
    """Return the value of a string literal in quotes or backquotes."""
    if literal[0] == "`":
        return literal[1:-1].replace("\r", "")
    octets = to_bytes(literal[1:-1])
    out = bytearray()
    at = 0
    while at < len(octets):
        following = octets.find(b"\\", at)
        if following < 0:
            following = len(octets)
        out += octets[at:following]
        at = following
        if at < len(octets):
            number, is_byte, at = _escape(octets, at, b'"')
            out += bytes([number]) if is_byte else chr(number).encode()
    return from_bytes(bytes(out))


def unquote_rune(literal: str) -> int:
    """Return the code point of a character literal."""
    octets = to_bytes(literal[1:])
    if octets[:1] == b"'":
        raise BadLiteral("invalid syntax")
    if octets[:1] == b"\\":
        number, _, at = _escape(octets, 0, b"'")
        rest = octets[at:]
    else:
        text = from_bytes(octets)
        number, rest = ord(text[0]), to_bytes(text[1:])
    if rest != b"'":
        raise BadLiteral(f"malformed character constant: {literal}")
    return number


def _escape(octets: bytes, at: int, quote: bytes) -> tuple[int, bool, int]:
    """Return the value of an escape, whether it is a single byte, and the end of the escape."""
    match = _ESCAPE.match(octets, at)
    if match is None:
        raise BadLiteral("invalid syntax")
    single, hexadecimal, short, long, octal = match.groups()
    if single is not None:
        if single in b"'\"" and single != quote:
            raise BadLiteral("invalid syntax")
        return _SINGLE[single], True, match.end()
    if hexadecimal is not None:
        return int(hexadecimal, 16), True, match.end()
    number = int(octal, 8) if octal is not None else int(short or long, 16)
    if (octal is not None and number > 0xFF) or not is_rune(number):
        raise BadLiteral("invalid syntax")
    return number, octal is not None, match.end()


def quote(text: str, *, mark: str = '"', is_ascii: bool = False) -> str:
    """Return the text as a literal between these marks."""
    if text.isascii() and text.isprintable() and mark not in text and "\\" not in text:
        return mark + text + mark
    return mark + "".join([_escaped(char, mark, is_ascii) for char in text]) + mark


def is_backquotable(text: str) -> bool:
    """Whether the text can be written between backquotes on one line."""
    return all(
        char == "\t" or (char >= " " and char not in "`\x7f\ufeff" and not "\ud800" <= char <= "\udfff")
        for char in text
    )


def is_rune(number: int) -> bool:
    """Whether the number is a valid code point."""
    return 0 <= number < 0xD800 or 0xE000 <= number <= _MAX_RUNE


def rune(number: int) -> str:
    """Return the character of a code point, or the replacement character if it is invalid."""
    return chr(number) if is_rune(number) else REPLACEMENT


def _escaped(char: str, mark: str, is_ascii: bool) -> str:
    if char in (mark, "\\"):
        return "\\" + char
    if char.isprintable() and (char.isascii() or not is_ascii):
        return char
    if char in _NAMES:
        return _NAMES[char]
    number = ord(char)
    if number < 0x20 or number == 0x7F:
        return f"\\x{number:02x}"
    if 0xD800 <= number <= 0xDFFF:
        return f"\\x{number - 0xDC00:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
