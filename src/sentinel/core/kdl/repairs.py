"""The scanner that reads what has a mistake as what it was meant to be.

`wildcards`, `lost_quotes` and `wrong_braces` find such mistakes, each of which would otherwise cause others.
Each is reported where the scanner meets it.
"""

from __future__ import annotations

import msgspec

from sentinel.core.kdl import quoted
from sentinel.core.kdl.edits import Edits
from sentinel.core.kdl.lex import Kind, Scanner
from sentinel.core.kdl.lost_quotes import LostQuote
from sentinel.core.kdl.problems import Code, ProblemList


class Repairs(msgspec.Struct, frozen=True):
    """What to read differently from how it is written, by offset."""

    strings: dict[int, LostQuote] = {}
    """Strings of which a quote is missing."""
    wildcards: dict[int, int] = {}
    """Texts without quotes in which `/*` starts no comment, by their start: where they end."""
    openings: frozenset[int] = frozenset()
    """Pairs of quotes that should be the three before a multi-line string."""
    braces: dict[int, Kind] = {}
    """Braces, and characters that should be one: an opening or closing one, or white space for one too many."""


class RepairingScanner(Scanner):
    """Reads what has a mistake as what it was meant to be."""

    def __init__(
        self, text: str, problems: ProblemList, *, start: int, repairs: Repairs, edits: Edits | None = None
    ) -> None:
        self._repairs = repairs
        self._places = {*repairs.strings, *repairs.wildcards, *repairs.openings, *repairs.braces}
        super().__init__(text, problems, start=start, edits=edits)

    def advance(self) -> None:
        """Go to the next token."""
        start, repairs = self.end, self._repairs
        if start not in self._places:
            super().advance()
        elif (lost := repairs.strings.get(start)) is not None:
            self._begin(Kind.STRING)
            self.end = lost.end
            self.value = quoted.read_lost(self, lost)
        elif (end := repairs.wildcards.get(start)) is not None:
            self._begin(Kind.OTHER)
            self.end, self.value = end, self.text[start:end]
        elif start in repairs.openings:
            self._begin(Kind.STRING)
            self.value, self.end = quoted.read_lost_opening(self)
            self.move_to(self.end)
        else:
            self._begin(repairs.braces[start])
            self.end = start + 1
            self._report_brace()

    def _is_comment(self, at: int) -> bool:
        return at not in self._repairs.wildcards and super()._is_comment(at)

    def _begin(self, kind: Kind) -> None:
        self.kind, self.start = kind, self.end
        self.line, self.column = self._next_line, self.start - self._line_start + 1

    def _report_brace(self) -> None:
        got = self.text[self.start]
        if self.kind is Kind.SPACE:
            self.report_here(Code.WRONG_BRACE, f"expected one {got}, got two", "remove one of them")
            return
        what = "opens" if self.kind is Kind.OPEN else "closes"
        message = f"expected {self.kind.value}, which {what} a block, got {got}"
        self.report_here(Code.WRONG_BRACE, message, f"write {self.kind.value}")
