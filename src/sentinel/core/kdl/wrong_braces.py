"""Where a brace is wrong, in a document whose braces do not match.

People type `[` or `(` where `{` opens a block, `]` or `)` where `}` closes one, the wrong one of two braces, or
one brace twice. Whatever follows is then in the wrong block. What was meant shows in the layout: the lines of a
block are indented, its closing brace is not, and the braces of a block on one line match.

Only a document with a problem of nesting is looked at, so that lists and types stay what they are. The lines are
read one at a time, with the next one in view, so that time and memory are linear.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import chain
from typing import Final

from sentinel.core.kdl.lex import Kind, Scanner
from sentinel.core.kdl.problems import MAX_PROBLEMS
from sentinel.core.kdl.values import end_of_list

_INVISIBLE: Final = frozenset((Kind.SPACE, Kind.COMMENT, Kind.SEMICOLON))
_MARKS: Final = frozenset("{}[]()")
_CLOSING: Final = frozenset("}])")
_PAIRS: Final = frozenset(("()", "[]"))
_EFFECTS: Final = {"{": 1, "}": -1}


class _Line:
    """What of a line matters here."""

    def __init__(self) -> None:
        self.indent = 0
        self.first = -1
        """The offset of its first token, or -1 if there is none."""
        self.last = -1
        """The offset of its last token, apart from comments and semicolons."""
        self.marks = array("L")
        """The offsets of all braces, brackets and parentheses without those of lists and types."""

    def is_alone(self, at: int) -> bool:
        return self.first == at == self.last


def find(scanner: Scanner) -> dict[int, Kind]:
    """Return the offsets of wrong braces, and what was meant: an opening or closing one, or white space."""
    finder = _Finder(scanner.text)
    previous: _Line | None = None
    for line in chain(_lines(scanner), (None,)):
        if previous is not None:
            finder.read(previous, line)
        previous = line
    return finder.found


def _lines(scanner: Scanner) -> Iterator[_Line]:
    """Yield all lines that have more than a comment. A continued line is part of the one before."""
    line, text = _Line(), scanner.text
    while scanner.kind is not Kind.END:
        if scanner.kind is Kind.NEWLINE:
            if line.first >= 0:
                yield line
            line = _Line()
        elif scanner.kind not in _INVISIBLE:
            if line.first < 0:
                line.first, line.indent = scanner.start, scanner.column
            line.last = scanner.start
            if text[scanner.start] in _MARKS and scanner.end == scanner.start + 1:
                _mark(scanner, line)
        scanner.advance()
    if line.first >= 0:
        yield line


def _mark(scanner: Scanner, line: _Line) -> None:
    text, at = scanner.text, scanner.start
    list_end = end_of_list(scanner) if text[at] == "[" else None
    if list_end is not None:
        scanner.move_to(list_end)
    elif line.marks and text[line.marks[-1]] + text[at] in _PAIRS:
        line.marks.pop()
    else:
        line.marks.append(at)


class _Finder:
    def __init__(self, text: str) -> None:
        self.found: dict[int, Kind] = {}
        self._text = text
        self._indents: list[int] = []
        """Those of the lines in which the current blocks start."""

    def read(self, line: _Line, following: _Line | None) -> None:
        if len(line.marks) == 1 and line.is_alone(line.marks[0]) and self._closes_alone(line, following):
            self._repair(line.marks[0], Kind.CLOSE)
            self._indents.pop()
            return
        excess = -sum(_EFFECTS.get(self._text[at], 0) for at in line.marks)
        opened, before = 0, -1
        for at in line.marks:
            char = self._text[at]
            excess += _EFFECTS.get(char, 0)
            meant = self._meant(at, before, opened, excess, line, following)
            if meant is Kind.OPEN:
                opened += 1
            elif meant is Kind.CLOSE and opened:
                opened -= 1
            elif meant is Kind.CLOSE:
                self._close(line, at)
            if meant is not None and meant.value != char:
                self._repair(at, meant)
            before = at
        self._indents += [line.indent] * opened

    def _meant(
        self, at: int, before: int, opened: int, excess: int, line: _Line, following: _Line | None
    ) -> Kind | None:
        """Return what a character is meant to be, or None for one that has nothing to do with blocks.

        `opened` counts the blocks that start before it on its line, `excess` the closing braces after it that
        lack an opening one there.
        """
        char, is_last = self._text[at], at == line.last
        is_doubled = before == at - 1 and self._text[before] == char
        ends = is_last or self._ends_after(at)
        goes_on = following is not None and following.indent > line.indent
        match char:
            case "{" if is_doubled:
                return Kind.SPACE
            case "{":
                is_closing = opened == excess + 1 and not goes_on and ends
                return Kind.CLOSE if is_closing else Kind.OPEN
            case "}" if line.first != at and (goes_on and not opened if is_last else excess > opened and not ends):
                return Kind.OPEN
            case "}" if (
                not opened and is_doubled and self._is_open_after(following, is_alone=before == line.first)
            ):
                return Kind.SPACE
            case "}":
                return Kind.CLOSE
        if excess > opened or (is_last and goes_on and line.first != at):
            return Kind.OPEN
        return Kind.CLOSE if excess < opened and not goes_on else None

    def _closes_alone(self, line: _Line, following: _Line | None) -> bool:
        """Whether the only character of a line should be a closing brace."""
        is_block = following is not None and (
            following.indent > line.indent or self._is_end(following, line.indent)
        )
        is_brace = self._text[line.first] == "}"
        return not is_brace and not is_block and bool(self._indents) and self._indents[-1] == line.indent

    def _is_open_after(self, following: _Line | None, *, is_alone: bool) -> bool:
        """Whether the current block goes on, by the indentation of the next line.

        At the top level there is none. Then a brace is one too many only if no other is missing on its line.
        """
        if not self._indents:
            return is_alone
        if following is None:
            return False
        return following.indent > self._indents[-1] or self._is_end(following, self._indents[-1])

    def _is_end(self, line: _Line, indent: int) -> bool:
        """Whether a line ends a block that starts in one with this indentation."""
        return line.indent == indent and self._text[line.first] in _CLOSING

    def _ends_after(self, at: int) -> bool:
        """Whether a node ends directly after a character."""
        after = at + 1
        while self._text.startswith(" ", after):
            after += 1
        return self._text.startswith(("}", ";"), after)

    def _close(self, line: _Line, at: int) -> None:
        """Close a block of an earlier line. One mistake must not shift all others, so the indentation counts."""
        indents = self._indents
        if at == line.first:
            while indents and indents[-1] > line.indent:
                indents.pop()
            if indents and indents[-1] < line.indent:
                return
        if indents:
            indents.pop()

    def _repair(self, at: int, meant: Kind) -> None:
        if len(self.found) < MAX_PROBLEMS:
            self.found[at] = meant
