"""From a file to a document and all its problems, each mistake of the file reported once.

Some mistakes have consequences far from where they are: a `/*` in a path without quotes opens a comment, behind
a lost quote text and syntax are swapped, and after a wrong brace everything is in the wrong block. So a document
with problems is read again as it may have been meant, a bounded number of times.
"""

from __future__ import annotations

import msgspec

from sentinel.core.kdl import lost_quotes, wildcards, wrong_braces
from sentinel.core.kdl import text as texts
from sentinel.core.kdl.document import Document
from sentinel.core.kdl.lex import Kind, Scanner
from sentinel.core.kdl.parse import Parsed, read_document
from sentinel.core.kdl.problems import Code, Problem, ProblemList
from sentinel.core.kdl.repairs import RepairingScanner, Repairs


def parse(source: str | bytes) -> Parsed:
    """Read a document and find all its problems. Never raises."""
    if texts.size_of(source) > texts.MAX_BYTES:
        message = f"expected at most {texts.MAX_BYTES} bytes, got more"
        return Parsed(Document(is_damaged=True), (Problem(Code.TOO_LARGE, None, None, message),))
    if (encoding := texts.other_encoding(source)) is not None:
        message, suggestion = f"expected UTF-8, got {encoding}", "save the file as UTF-8"
        return Parsed(Document(is_damaged=True), (Problem(Code.INVALID_UTF8, 1, 1, message, suggestion),))
    reading = _Reading(source)
    if not reading.parsed.is_valid:
        reading.repair()
    return reading.parsed


class _Reading:
    """Keeps one tree at a time, because that of a large file is large."""

    def __init__(self, source: str | bytes) -> None:
        self._source = source
        problems = ProblemList()
        text = texts.read(source, problems)
        self._text, self._start = text.text, text.start
        self._scanned = Scanner(self._text, problems, start=self._start)
        self.parsed = read_document(self._scanned)
        self._repairs = Repairs()

    def repair(self) -> None:
        """Read the document again as it may have been meant."""
        if self._scanned.open_comment is not None and (
            paths := wildcards.find(self._text, self._scanned.open_comment)
        ):
            self._read(Repairs(wildcards=paths))
        pieces = (lost_quotes.find(self._text, *piece) for piece in self._scanned.open_strings)
        if strings := {lost.start: lost for lost in pieces if lost is not None}:
            self._read(msgspec.structs.replace(self._repairs, strings=strings))
        if openings := lost_quotes.find_openings(self._text):
            self._read(msgspec.structs.replace(self._repairs, openings=openings))
        if self.parsed.document.is_misnested or self._scanned.has_unread_list:
            scanner = RepairingScanner(self._text, ProblemList(), start=self._start, repairs=self._repairs)
            if braces := wrong_braces.find(scanner):
                self._repair_braces(braces)

    def _repair_braces(self, braces: dict[int, Kind]) -> None:
        """Read the document with other braces, unless that only makes more problems of it."""
        before, count = self._repairs, len(self.parsed.problems)
        was_misnested = self.parsed.document.is_misnested
        self._read(msgspec.structs.replace(before, braces=braces))
        is_better = was_misnested and not self.parsed.document.is_misnested
        if not is_better and len(self.parsed.problems) > count:
            self._read(before)

    def _read(self, repairs: Repairs) -> None:
        del self.parsed
        problems = ProblemList()
        texts.read(self._source, problems)
        self._repairs = repairs
        self._scanned = RepairingScanner(self._text, problems, start=self._start, repairs=repairs)
        self.parsed = read_document(self._scanned)
