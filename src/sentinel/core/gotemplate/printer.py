"""JSON values printed as Go's `fmt` prints them with %v.

Consumers of the events were written against Go, where a list is `[a b]`, an object `map[a:1 b:2]` with its keys
in order, and a float has its shortest digits, with an exponent below 1e-04 and from 1e+06 on. JSON integers are
int64; whatever does not fit, and every other number, is float64.
"""

from __future__ import annotations

import math
from decimal import Decimal

from sentinel.core.model import Json

_LEAST_INT64, _GREATEST_INT64 = -(2**63), 2**63 - 1
_LEAST_PLAIN_EXPONENT, _GREATEST_PLAIN_EXPONENT = -4, 5


def go_string(value: Json) -> str:
    """The value as `%v` prints it; null is `<nil>`."""
    if isinstance(value, str):
        return value
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if _LEAST_INT64 <= value <= _GREATEST_INT64 else _go_float(_as_float(value))
    if isinstance(value, float):
        return _go_float(value)
    if isinstance(value, list):
        return "[" + " ".join([go_string(item) for item in value]) + "]"
    return "map[" + " ".join([f"{key}:{go_string(value[key])}" for key in sorted(value)]) + "]"


def _as_float(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _go_float(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    sign = "-" if math.copysign(1.0, number) < 0 else ""
    if number == 0:
        return sign + "0"
    # repr has the shortest digits that read back as the same number, which is also what Go prints.
    _, digits, shift = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(shift, int), "only NaN and infinities have a letter here"  # noqa: S101 - narrows for mypy
    exponent = len(digits) - 1 + shift
    text = "".join(map(str, digits))
    if not _LEAST_PLAIN_EXPONENT <= exponent <= _GREATEST_PLAIN_EXPONENT:
        fraction = f".{text[1:]}" if len(text) > 1 else ""
        return f"{sign}{text[0]}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{text}"
    whole, fraction = text[: exponent + 1].ljust(exponent + 1, "0"), text[exponent + 1 :]
    return f"{sign}{whole}.{fraction}" if fraction else sign + whole
