"""Where a quote is missing on a line, so that the rest of the line is read as what it was meant to be.

A lost quote swaps the inside and the outside of all strings after it, and the last quote of the line opens a
string without an end. If that ended with the line, it would hide the brace there, and one mistake would be two:
the second one far away. What was meant shows in the white space: it stands before opening quotes and after
closing ones, and the first quote for which that is not so is next to the lost one.

Every pattern is tried at few places, so that the time is linear in the length of the line.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from sentinel.core.kdl import strings
from sentinel.core.kdl.characters import NEWLINES, SPACES
from sentinel.core.kdl.problems import MAX_PROBLEMS

_PIECE: Final = re.compile(r'\\(?s:.)|((?:(?<![\w#.-])r)?(?<!#)#*+")')
"""An escape, or a quote with what stands before it in a raw string."""
BEFORE_OPENING: Final = re.compile(rf"[{SPACES}{NEWLINES}=(){{;]")
"""What stands before a string. Between it and a quote there is nothing."""
_AFTER_CLOSING: Final = re.compile(rf"#*+(?:[{SPACES};{{}})\\]|/[/*-]|\Z)")
_WORD_START: Final = re.compile(rf'.*[{SPACES};"]')
_NOT_IN_STRING: Final = re.compile(r"(?:\([^)]*+\))?(?:[A-Za-z_][\w.-]*+=)?(?:\([^)]*+\))?")
"""What a word whose opening quote is missing starts with: the name of a property, types."""
_OUTSIDE: Final = re.compile(rf"(?<=[^{SPACES}])[{SPACES}]++(?:[{{}}]|//|/\*|\\[{SPACES}]*+\Z)")
"""White space, and after it what hardly stands in a string."""
_NEXT_PROPERTY: Final = re.compile(rf"(?<=[^{SPACES}])[{SPACES}]++[A-Za-z_][\w.-]*+=\Z")
_NEXT_NODE: Final = re.compile(rf"([^{SPACES};]++);[{SPACES}]*+[A-Za-z_][\w-]*+[{SPACES}]++[^{SPACES}}}]")
"""A word before a semicolon and another node. Values of headers have semicolons, too, but no node after them."""

_EMPTY_AT_END: Final = re.compile(rf'(?<!["\\#])""(?=[{NEWLINES}])')
"""What is left of the quotes before a multi-line string if one of them is missing."""
_THREE: Final = re.compile(rf'([{NEWLINES}][{SPACES}]*+)?+(?<!\\)"""')


class LostQuote(msgspec.Struct, frozen=True, gc=False):
    """A string of which one quote is missing."""

    start: int
    end: int
    body_start: int
    body_end: int

    @property
    def is_opening(self) -> bool:
        """Whether the first quote is missing, not the second."""
        return self.start == self.body_start


def find(text: str, start: int, end: int) -> LostQuote | None:
    """Return the string of which a quote is missing in a piece of one line with an odd number of quotes.

    Returns None if there is no such string: quotes after backslashes and those of raw strings do not count.
    """
    opened: re.Match[str] | None = None
    for found in _PIECE.finditer(text, start, end):
        if found[1] is None:
            continue
        may_open = found.start() == start or BEFORE_OPENING.match(text, found.start() - 1) is not None
        may_close = _AFTER_CLOSING.match(text, found.end(), end) is not None
        if opened is None and may_close and not may_open:
            return _without_opening(text, start, found.end() - 1)
        if opened is None:
            opened = found
        elif may_open and not may_close:
            return _without_closing(text, opened, found.start(), is_last=False)
        elif "#" in opened[1] and not text.startswith("#", found.end()):
            return LostQuote(opened.start(), found.end(), opened.end(), found.end() - 1)
        else:
            opened = None
    return None if opened is None else _without_closing(text, opened, end, is_last=True)


def find_openings(text: str) -> frozenset[int]:
    """Return where one of the three quotes before a multi-line string is missing.

    The next three quotes of the document stand at the start of a line, and are indented like all lines between.
    """
    found = dict[int, int]()
    closing: re.Match[str] | None = None
    for empty in _EMPTY_AT_END.finditer(text):
        if closing is None or closing.start() < empty.end():
            closing = _THREE.search(text, empty.end())
        if closing is None or len(found) == MAX_PROBLEMS:
            break
        if closing[1] is not None:
            found[closing.end() - len('"""')] = empty.end()
    bodies = ((start, strings.dedent(text[start:end], is_raw=False)) for end, start in found.items())
    return frozenset(start - len('""') for start, value in bodies if isinstance(value, str))


def _without_opening(text: str, start: int, quote: int) -> LostQuote:
    """Return the word before a closing quote as the string."""
    before = _WORD_START.match(text, start, quote)
    word = start if before is None else before.end()
    if text.startswith("{", word) and text.count("{", word, quote) > text.count("}", word, quote):
        word += 1
    word = _NOT_IN_STRING.match(text, word, quote).end()  # type: ignore[union-attr]  # matches the empty text
    end = quote + 1
    while text.startswith("#", end):
        end += 1
    return LostQuote(word, end, word, quote)


def _without_closing(text: str, opened: re.Match[str], end: int, *, is_last: bool) -> LostQuote:
    """Return what follows an opening quote as the string, up to where the line goes on outside of it.

    `end` is the next quote, or the end of the line after the last one.
    """
    start = opened.end()
    if (node := _NEXT_NODE.match(text, start, end if is_last else end + 1)) is not None:
        return LostQuote(opened.start(), node.end(1), start, node.end(1))
    found = _OUTSIDE.search(text, start, end)
    if found is not None and text.startswith("{", start) and not _is_balanced(text[start : found.start()]):
        found = None  # a text with braces
    elif found is None and not is_last:
        found = _NEXT_PROPERTY.search(text, start, end)
    body = text[start : end if found is None else found.start()].rstrip()
    body_end = start + _balanced(body)
    return LostQuote(opened.start(), body_end, start, body_end)


def _is_balanced(text: str) -> bool:
    return text.count("{") == text.count("}")


def _balanced(body: str) -> int:
    """Return the length without the braces at the end that have no counterpart."""
    length, excess = len(body), body.count("{") - body.count("}")
    while excess and body[length - 1] == ("{" if excess > 0 else "}"):
        length -= 1
        excess -= 1 if excess > 0 else -1
    return length
