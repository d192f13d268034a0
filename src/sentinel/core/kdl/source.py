"""The text of a document while it is read: positions, problems, and the edits that would correct it."""

from __future__ import annotations

import msgspec

from sentinel.core.kdl.characters import NEWLINE
from sentinel.core.kdl.edits import Edits
from sentinel.core.kdl.problems import Code, ProblemList

REPLACEMENT = "\x1a"
"""Stands where the file has a character that it may not contain. It is one of them itself."""


class LaterQuote(msgspec.Struct, frozen=True):
    """The next quote after a line end."""

    start: int
    """The offset of the line end."""
    quote: int
    closes: bool
    """Whether it looks like the end of a string that started before the line end."""


class Source:
    """The text, and the position of the current token in it."""

    def __init__(self, text: str, problems: ProblemList, *, start: int = 0, edits: Edits | None = None) -> None:
        self.text = text
        self._has_replacements = REPLACEMENT in text
        self.problems = problems
        self._edits = edits
        self.warnings = ProblemList()
        self.start = start
        self.line = 1
        self.column = 1
        self.is_cut = False
        """Whether a string or comment without an end swallowed the rest of the file."""
        self.open_comment: int | None = None
        """The offset of a comment without an end. The rest of the file is inside of it."""
        self.has_open_string = False
        """Whether a string without an end swallowed the rest of a line, since the parser last looked."""
        self.open_strings: list[tuple[int, int]] = []
        """The pieces of lines with a string without an end, their start and end. A bounded number of them."""
        self.line_piece = start
        """Where the current line starts, or where what started on an earlier line ends."""
        self.open_lists = 0
        """How many lists have no end that could be found."""
        self.has_unread_list = False
        """Whether a list could not be read. Perhaps its brackets should be braces."""
        self.absent: set[str] = set()
        """Closing quotes that the rest of the document does not have, so that nobody searches for them again."""
        self.later_quote: LaterQuote | None = None
        """The last one found, for the same reason."""
        self._known = (start, 1, start)
        """An offset, its line, and where that line starts: where `place` starts to count."""

    @property
    def is_version_1(self) -> bool:
        """Whether strings end where version 1 saw their end."""
        return self._edits is not None

    def place(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset in the current token or after it."""
        at, line, line_start = self._known
        if not self.start <= at <= offset:
            at, line, line_start = self.start, self.line, self.start - self.column + 1
        for found in NEWLINE.finditer(self.text, at, offset):
            line, line_start = line + 1, found.end()
        self._known = (offset, line, line_start)
        return line, offset - line_start + 1

    def report(self, code: Code, offset: int, message: str, suggestion: str | None = None) -> None:
        """Report a problem in the current token or after it."""
        # Counting lines for a problem that is not kept would make the time quadratic.
        place = (1, 1) if self.problems.is_full else self.place(offset)
        self.problems.add(code, place, message, suggestion)

    def is_replaced(self, piece: str) -> bool:
        """Whether a piece of the text contains a disallowed character, which is reported already."""
        return REPLACEMENT in piece

    def is_unreadable(self, start: int, end: int) -> bool:
        """Whether a piece of the text contains a disallowed character, so that nobody can tell what was meant."""
        return self._has_replacements and self.is_replaced(self.text[start:end])

    def edit(self, start: int, end: int, text: str) -> None:
        """Note what should stand here instead, if the document is going to be rewritten.

        A piece with a replacement stays as it is: `text` would contain that instead of what the file has.
        """
        if self._edits is not None and not self.is_replaced(self.text[start:end]):
            self._edits.add(start, end, text)
