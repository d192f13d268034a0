"""Format a float64 as Go does, with the shortest digits that read back the same or with a given precision.

Python rounds exactly as Go does, so most formats are those of Python. Go differs in the bounds between plain and
scientific notation, and in the formats that show bits (`%b`, `%x`).
"""

from __future__ import annotations

import math
import struct
from typing import Final

_MIN_PLAIN, _MIN_SCIENTIFIC = 1e-4, 1e6
_FRACTION_BITS: Final = 52
_BIAS: Final = 1023
_HEXADECIMAL_DIGITS: Final = 13  # of a fraction of 52 bits


def format_float(number: float, verb: str, precision: int | None) -> str:
    """Format a number with the verb e, E, f, g, G, b, x or X. Only g, G, b, x and X may lack a precision."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    if verb == "b":
        return _binary(number)
    if verb in "xX":
        text = _hexadecimal(number, precision)
        return text.upper() if verb == "X" else text
    if precision is None:
        text = shortest(number)
        return text.upper() if verb == "G" else text
    return f"{number:.{precision}{verb}}"


def shortest(number: float) -> str:
    """Return the fewest digits that read back as this finite number, as `%v` and `%g` print it."""
    # Python has the same shortest digits. Between these bounds it writes no exponent either.
    text = repr(number)
    if _MIN_PLAIN <= abs(number) < _MIN_SCIENTIFIC or number == 0:
        return text.removesuffix(".0")
    sign = "-" if number < 0 else ""
    mantissa, _, given = text.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    exponent = int(given or "0") + (len(whole) - 1 if whole != "0" else len(digits) - len(fraction) - 1)
    digits = digits.rstrip("0")
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def _bits(number: float) -> tuple[str, int, int]:
    """Return the sign, the mantissa as an integer, and the exponent of its last bit."""
    (bits,) = struct.unpack(">Q", struct.pack(">d", number))
    exponent = bits >> _FRACTION_BITS & 0x7FF
    mantissa = bits & (1 << _FRACTION_BITS) - 1
    if exponent:
        mantissa |= 1 << _FRACTION_BITS
    else:
        exponent = 1
    return "-" if bits >> 63 else "", mantissa, exponent - _BIAS - _FRACTION_BITS


def _binary(number: float) -> str:
    sign, mantissa, exponent = _bits(number)
    return f"{sign}{mantissa}p{exponent:+d}"


def _hexadecimal(number: float, precision: int | None) -> str:
    sign, mantissa, exponent = _bits(number)
    exponent += _FRACTION_BITS
    if mantissa == 0:
        exponent = 0
    while mantissa and not mantissa >> _FRACTION_BITS:
        mantissa <<= 1
        exponent -= 1
    if precision is not None and precision < _HEXADECIMAL_DIGITS:
        dropped = 4 * (_HEXADECIMAL_DIGITS - precision)
        kept, rest = mantissa >> dropped, mantissa & (1 << dropped) - 1
        half = 1 << dropped - 1
        if rest > half or (rest == half and kept & 1):
            kept += 1
        mantissa = kept << dropped
        if mantissa >> _FRACTION_BITS + 1:
            mantissa >>= 1
            exponent += 1
    digits = f"{mantissa & (1 << _FRACTION_BITS) - 1:0{_HEXADECIMAL_DIGITS}x}"
    digits = digits.rstrip("0") if precision is None else digits[:precision].ljust(precision, "0")
    point = "." if digits else ""
    return f"{sign}0x{mantissa >> _FRACTION_BITS}{point}{digits}p{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
