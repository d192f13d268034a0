"""Where the names and properties of a valid document end, for rewriting a piece of it and nothing else.

The tree knows where everything starts. Ends would make it larger, and only few places are ever rewritten, so they
are found by reading the text again from the start of the piece.
"""

from __future__ import annotations

from sentinel.core.kdl.characters import NEWLINE
from sentinel.core.kdl.document import Node, Place, Property
from sentinel.core.kdl.lex import Kind, Scanner
from sentinel.core.kdl.problems import ProblemList


class Spans:
    """Finds the pieces of a text that was parsed without problems."""

    def __init__(self, text: str) -> None:
        self._text = text
        # Columns of the first line count from after the byte order mark.
        first = 1 if text.startswith("\ufeff") else 0
        self._lines = [first, *(found.end() for found in NEWLINE.finditer(text, first))]

    def offset(self, place: Place) -> int:
        """Return the offset of a position."""
        return self._lines[place.line - 1] + place.column - 1

    def name(self, node: Node) -> tuple[int, int]:
        """Return start and end of the name of a node, with quotes."""
        scanner = self._scan(node)
        return scanner.start, scanner.end

    def property(self, written: Property) -> tuple[int, int]:
        """Return start and end of a property, from its name to its value."""
        scanner = self._scan(written)
        start = scanner.start
        if self._after(scanner, Kind.EQUALS) is Kind.LEFT:
            self._after(scanner, Kind.RIGHT)
        return start, scanner.end

    def _scan(self, found: Node | Property) -> Scanner:
        return Scanner(self._text, ProblemList(), start=self.offset(Place(found.line, found.column)))

    def _after(self, scanner: Scanner, kind: Kind) -> Kind:
        """Go to the first token after the next one of this kind that is not white space. Return its kind."""
        while scanner.kind is not kind:
            scanner.advance()
        scanner.advance()
        while scanner.kind is Kind.SPACE:
            scanner.advance()
        return scanner.kind
