"""The inside of quoted strings: escapes, and the indentation of multi-line strings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import Final

from sentinel.core.kdl.characters import NEWLINE, NEWLINES, SPACES

_SHORT: Final = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "b": "\b", "f": "\f", "s": " "}
_NOT_LITERAL: Final = (
    *range(0x20), *b'"\\', 0x7F, 0x85, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A), 0xFEFF
)  # fmt: skip
"""Code points that are escaped in quotes: line ends, what a document may not contain, quotes and backslashes."""
_WRITTEN: Final = {code: f"\\u{{{code:x}}}" for code in _NOT_LITERAL} | {
    ord(value): f"\\{letter}" for letter, value in _SHORT.items() if letter != "s"
}

_ESCAPE: Final = re.compile(
    rf'\\(?:([nrt\\"bfs])|u\{{([0-9a-fA-F]{{1,6}})\}}|([{SPACES}{NEWLINES}]+)|u(?:\{{[0-9a-zA-Z]*\}}?)?|(?s:.)?)'
)
_SPACE_ESCAPE: Final = re.compile(rf"(\\[^{SPACES}{NEWLINES}])|\\[{SPACES}{NEWLINES}]+")
_INDENTATION: Final = re.compile(f"[{SPACES}]*")

LETTERS: Final = {"'": "'", "`": "`", "‘": "’", "“": "”", "”": "”", "„": "“", "«": "»", "＂": "＂"}
"""The quotes of other languages and of word processors, which KDL takes for letters: opening and closing ones."""
_LETTERS: Final = frozenset(LETTERS) | frozenset(LETTERS.values())


class Fault(Enum):
    """Why a multi-line string is invalid."""

    NO_FIRST_NEWLINE = auto()
    NO_LAST_NEWLINE = auto()
    INDENTATION = auto()


def bad_escapes(text: str, start: int, end: int) -> Iterator[tuple[int, str]]:
    """Yield the offset and the text of every invalid escape."""
    for found in _ESCAPE.finditer(text, start, end):
        is_known = found[1] or found[3] or (found[2] and _is_scalar(int(found[2], 16)))
        if not is_known:
            yield found.start(), found[0]


def unescape(body: str) -> str:
    """Return the value of a body. Invalid escapes stay as they are."""
    return _ESCAPE.sub(_unescaped, body) if "\\" in body else body


def dedent(body: str, *, is_raw: bool) -> str | tuple[Fault, int]:
    """Return the value of a multi-line string, or what is wrong and in which line of the body.

    White space escapes are resolved before the indentation is removed, all other escapes after it.
    """
    if NEWLINE.match(body) is None:
        return Fault.NO_FIRST_NEWLINE, 0
    resolved = body if is_raw else _SPACE_ESCAPE.sub(lambda found: found[1] or "", body)
    lines = NEWLINE.split(resolved)
    indentation = lines.pop()
    if _INDENTATION.fullmatch(indentation) is None:
        return Fault.NO_LAST_NEWLINE, len(lines)
    for number, line in enumerate(lines):
        if _INDENTATION.fullmatch(line) is not None:
            lines[number] = ""
        elif line.startswith(indentation):
            lines[number] = line[len(indentation) :]
        else:
            return Fault.INDENTATION, number
    value = "\n".join(lines[1:])
    return value if is_raw else unescape(value)


def quote(value: str) -> str:
    """Return a quoted string on one line."""
    return f'"{value.translate(_WRITTEN)}"'


def without_letters(text: str) -> str:
    """Return what stands between quotes that KDL takes for letters, or a text without them as it is."""
    return text[1:-1] if len(text) > 1 and LETTERS.get(text[0]) == text[-1] else text


def without_letter(text: str, at: int) -> str:
    """Return a text without such a quote at its start (0) or end (-1), if it is the only one of its kind."""
    is_quote = len(text) > 1 and text[at] in _LETTERS and text.count(text[at]) == 1
    return text if not is_quote else text[1:] if at == 0 else text[:-1]


def _unescaped(found: re.Match[str]) -> str:
    if found[1] is not None:
        return _SHORT[found[1]]
    if found[2] is not None and _is_scalar(code := int(found[2], 16)):
        return chr(code)
    return "" if found[3] else found[0]


def _is_scalar(code: int) -> bool:
    return code < 0xD800 or 0xDFFF < code <= 0x10FFFF
