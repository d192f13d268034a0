"""Number literals: their values and types.

The syntax decides the type: digits in any base are an `int`, a point or an exponent makes a float64, and an `i` a
complex128. Go does not recognize a base after a sign, so it reads `-0x1E` as a number with an exponent. So do we.
"""

from __future__ import annotations

import math
import re
from typing import Final

from sentinel.core.gotemplate import quoting
from sentinel.core.gotemplate.quoting import quote
from sentinel.core.gotemplate.tokens import Kind, Token
from sentinel.core.gotemplate.values import MAX_INT64, MIN_INT64, Int

_MAX_UINT64: Final = 2**64 - 1
_MAX_DIGITS: Final = 64  # of a 64-bit integer in base 2
_INTEGER = re.compile(r"([+-]?)(?:0([xX])([0-9a-fA-F]+)|0([oO])([0-7]+)|0([bB])([01]+)|(0)([0-7]*)|([1-9][0-9]*))")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_PART = r"[+-]?(?:0[xX][0-9a-fA-F_.]*(?:[pP][+-]?[0-9_]*)?|[0-9_.]*(?:[eE][+-]?[0-9_]*)?)"
_COMPLEX = re.compile(rf"({_PART})([+-]{_PART})i")
_BASES: Final = {"x": 16, "o": 8, "b": 2, "0": 8}


class BadNumber(ValueError):
    """A text that looks like a number but is not one."""


def number(token: Token) -> Int | float | complex | None:
    """Return the number; None for an integer that fits only into a uint64, which fails when it is used."""
    text = token.text
    if token.kind is Kind.RUNE:
        try:
            return Int(quoting.unquote_rune(text))
        except quoting.BadLiteral as error:
            raise BadNumber(str(error)) from error
    if token.kind is Kind.COMPLEX:
        return _complex(text)
    if text.endswith("i"):
        imaginary = _float(text[:-1])
        if imaginary is not None:
            return complex(0.0, imaginary)
    whole = _integer(text)
    if whole is None or not MIN_INT64 <= whole <= _MAX_UINT64:
        return _only_float(text)
    if whole > MAX_INT64:
        if text[0] == "+":  # an unsigned integer has no sign
            return _only_float(text)
        return None
    return float(whole) if _has_float_syntax(text) else Int(whole)


def _only_float(text: str) -> float:
    real = _float(text)
    if real is None:
        raise BadNumber(f"illegal number syntax: {quote(text)}")
    if not re.search("[.eEpP]", text):
        raise BadNumber(f"integer overflow: {quote(text)}")
    return real


def _has_float_syntax(text: str) -> bool:
    is_plain_hexadecimal = text[:2] in ("0x", "0X")
    return not is_plain_hexadecimal and "e" in text.lower()


def _integer(text: str) -> int | None:
    plain = _without_underscores(text)
    match = _INTEGER.fullmatch(plain) if plain is not None else None
    if match is None:
        return None
    sign, *alternatives, decimal = match.groups()
    digits, base = decimal, 10
    for prefix, given in zip(alternatives[::2], alternatives[1::2], strict=True):
        if prefix is not None:
            digits, base = given.lstrip("0") or "0", _BASES[prefix.lower()]
    if len(digits) > _MAX_DIGITS:
        return 2**64  # too large in any case; Python limits the digits it converts
    return int(sign + digits, base)


def _float(text: str) -> float | None:
    """Return the nearest float64; None if the text is not a float or is out of range."""
    plain = _without_underscores(text)
    if plain is None:
        return None
    if _DECIMAL.fullmatch(plain):
        real = float(plain)
    elif _HEXADECIMAL.fullmatch(plain):
        try:
            real = float.fromhex(plain)
        except OverflowError:
            return None
    else:
        return None
    return None if math.isinf(real) else real


def _complex(text: str) -> complex:
    match = _COMPLEX.fullmatch(text)
    parts = [_float(part) for part in match.groups()] if match else []
    match parts:
        case [float(real), float(imaginary)]:
            return complex(real, imaginary)
        case _:
            raise BadNumber("syntax error scanning complex number")


def _without_underscores(text: str) -> str | None:
    """Return the text without underscores between digits; None if one is elsewhere."""
    if "_" not in text:
        return text
    unsigned = text.lstrip("+-")
    base = unsigned[1:2].lower() if unsigned[0] == "0" else ""
    digits = "0-9a-fA-F" if base == "x" else "0-9"
    body = "0" + unsigned[2:] if base and base in "xob" else unsigned
    if re.search(f"(?<![{digits}])_|_(?![{digits}])", body):
        return None
    return text.replace("_", "")
