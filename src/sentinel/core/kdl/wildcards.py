"""Where `/*` is a part of a path without quotes, such as `/api/*`, and not the start of a comment.

Such a comment has no end, and would hide the rest of the file. So a comment without an end is looked at again: one
that starts inside of a word, or is all that follows the name of a node, was meant as a text.
"""

from __future__ import annotations

import re
from array import array
from typing import Final

from sentinel.core.kdl.characters import NEWLINES, SPACES
from sentinel.core.kdl.problems import MAX_PROBLEMS

_EDGE: Final = re.compile(r"/\*|\*/")
_STOPS: Final = rf'{SPACES}{NEWLINES};{{}}()"='
_STOP: Final = re.compile(f"[{_STOPS}]")
_REST: Final = re.compile(f"[^{_STOPS}]*+")
_ENDS: Final = re.compile(rf"[{SPACES}]*+(?:[{NEWLINES};{{}}]|//|\Z)")
_AFTER_NAME: Final = re.compile(rf"(?:^|[{NEWLINES};{{}}])[{SPACES}]*+[A-Za-z_][\w-]*+[{SPACES}]++\Z")
_MAX_BEFORE: Final = 200


def find(text: str, first: int) -> dict[int, int]:
    """Return start and end of all texts with a `/*` that opens a comment without an end.

    `first` is the offset of the first comment without an end: each `*/` after it ends another one.
    """
    opened = array("L")
    for edge in _EDGE.finditer(text, first):
        if edge[0] == "/*":
            opened.append(edge.start())
        else:
            opened.pop()
    texts = (_text_around(text, at) for at in opened[:MAX_PROBLEMS])
    return dict(each for each in texts if each is not None)


def _text_around(text: str, at: int) -> tuple[int, int] | None:
    start, first = at, max(0, at - _MAX_BEFORE)
    while start > first and _STOP.match(text, start - 1) is None:
        start -= 1
    end = _REST.match(text, at).end()  # type: ignore[union-attr]  # matches the empty text
    if start < at:
        return (start, end) if "/" in text[start:at] or end > at + 2 or _ENDS.match(text, end) else None
    is_alone = _ENDS.match(text, end) is not None and _AFTER_NAME.search(text, first, at) is not None
    return (start, end) if is_alone else None
