"""Numbers: from their text to a value and back."""

from __future__ import annotations

import math
import re
from typing import Final

MAX_DIGITS: Final = 400
"""The longest text of a number. A double has 309 digits before the point at most."""

_DECIMAL: Final = re.compile(r"[+-]?[0-9][0-9_]*(\.[0-9][0-9_]*)?([eE][+-]?[0-9][0-9_]*)?")
_BASED: Final = re.compile(r"([+-]?)0(?:x([0-9a-fA-F][0-9a-fA-F_]*)|o([0-7][0-7_]*)|b([01][01_]*))")
_BASES: Final = {2: 16, 3: 8, 4: 2}
_LARGEST: Final = 10**MAX_DIGITS - 1
_SMALLEST: Final = 1 - 10 ** (MAX_DIGITS - 1)
"""What fits in decimal. The sign is a character, too."""
_KEYWORDS: Final = {"#inf": math.inf, "#-inf": -math.inf, "#nan": math.nan}
_NO_LEADING_DIGIT: Final = re.compile(r"([+-]?)(\.[0-9][0-9_]*)")


def read(text: str) -> int | float | None:
    """Return the number, or None if the text is not one. The text has at most `MAX_DIGITS` characters."""
    if (decimal := _DECIMAL.fullmatch(text)) is not None:
        if decimal.lastindex is None:
            return int(text.replace("_", ""))
        return float(text.replace("_", ""))
    if (based := _BASED.fullmatch(text)) is not None:
        group = based.lastindex or 0
        return int(based[1] + based[group].replace("_", ""), _BASES[group])
    return None


def write(value: float) -> str:
    """Return the text of a number."""
    if isinstance(value, int):
        # A large number has fewer digits in hexadecimal, and Python refuses to print a very large one in decimal.
        return str(value) if _SMALLEST <= value <= _LARGEST else f"{value:#x}"
    for keyword, number in _KEYWORDS.items():
        if value == number or (math.isnan(value) and math.isnan(number)):
            return keyword
    return repr(value)


def with_leading_digit(text: str) -> str | None:
    """Return `0.5` for `.5`."""
    found = _NO_LEADING_DIGIT.fullmatch(text)
    return None if found is None else f"{found[1]}0{found[2]}"
