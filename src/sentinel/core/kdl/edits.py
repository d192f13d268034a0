"""What to change in a text. The pieces are in arrays, because a file of two megabytes may need a million edits."""

from __future__ import annotations

from array import array
from io import StringIO


class Edits:
    """Pieces of a text, and what should stand there instead. Pieces do not overlap."""

    def __init__(self) -> None:
        self._starts = array("L")
        self._ends = array("L")
        self._texts: list[str] = []

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, start: int, end: int, text: str) -> None:
        """Add an edit. One that only inserts is made before another one at the same place."""
        if not text and self._texts and not self._texts[-1] and self._ends[-1] == start:
            self._ends[-1] = end
            return
        self._starts.append(start)
        self._ends.append(end)
        self._texts.append(text)

    def apply(self, text: str) -> str:
        """Return the changed text."""
        changed, at = StringIO(), 0
        for number in sorted(range(len(self)), key=self._order):
            changed.write(text[at : self._starts[number]])
            changed.write(self._texts[number])
            at = self._ends[number]
        changed.write(text[at:])
        return changed.getvalue()

    def _order(self, number: int) -> int:
        start = self._starts[number]
        return 2 * start + (self._ends[number] > start)
