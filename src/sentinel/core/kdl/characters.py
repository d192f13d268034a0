"""The character classes of KDL 2, and what can be written without quotes."""

from __future__ import annotations

import re
from typing import Final

SPACES: Final = "\t \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
"""White space that does not end a line, as the inside of a character class."""
NEWLINES: Final = "\n\r\u0085\u000b\u000c\u2028\u2029"
"""Line ends, as the inside of a character class. CR LF is one line end."""
NOT_IN_WORDS: Final = SPACES + NEWLINES + r'\\/(){};\[\]"#='
"""What a string without quotes cannot contain, as the inside of a character class."""
DISALLOWED: Final = "\u0000-\u0008\u000e-\u001f\u007f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff"
"""What a document cannot contain, except for a byte order mark at its start. The inside of a character class."""

NEWLINE: Final = re.compile(f"\r\n|[{NEWLINES}]")
BARE_KEYWORDS: Final = frozenset(("true", "false", "null", "inf", "-inf", "nan"))

_WORD: Final = re.compile(f"[^{NOT_IN_WORDS}{DISALLOWED}]+")
_NUMBERISH: Final = re.compile(r"[+-]?\.?[0-9]")


def is_word(text: str) -> bool:
    """Whether a string can be written without quotes."""
    return _WORD.fullmatch(text) is not None and _NUMBERISH.match(text) is None and text not in BARE_KEYWORDS
