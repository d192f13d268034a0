"""The scanner: from the text of a document to its tokens, one at a time.

Tokens are not kept, because a list of them would weigh more than the document. White space, block comments and
continued lines between two tokens are one `SPACE`. A string that cannot be read is reported and still is a
token with an end, so that the parser can go on after it.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from sentinel.core.kdl import quoted
from sentinel.core.kdl.characters import NEWLINE, NEWLINES, NOT_IN_WORDS, SPACES
from sentinel.core.kdl.edits import Edits
from sentinel.core.kdl.problems import Code, ProblemList, shortened
from sentinel.core.kdl.source import Source

_SPACES: Final = re.compile(f"[{SPACES}]*")
_TOKEN: Final = re.compile(
    f"([{SPACES}]+)"
    f"|(\r\n|[{NEWLINES}])"
    rf'|("(?!"")[^"\\{NEWLINES}]*")'
    r'|(r?#*")'
    rf"|([+-]?\.?[0-9][^{NOT_IN_WORDS}]*)"
    f"|([^{NOT_IN_WORDS}]+)"
    f"|(//[^{NEWLINES}]*)"
    r"|(/\*|\\)"
    "|(/-)"
    r"|(\{)|(\})|(\()|(\))|(=)|(;)"
    f"|(#+[^{NOT_IN_WORDS}]*)"
    "|((?s:.))"
)
_COMMENT_ENDS: Final = re.compile(r"/\*|\*/")
_CONTINUED: Final = re.compile(f"(?://[^{NEWLINES}]*)?(?:\r\n|[{NEWLINES}]|\\Z)")


class Kind(StrEnum):
    """The kinds of tokens."""

    SPACE = "white space"
    NEWLINE = "the end of the line"
    STRING = "a string"
    QUOTE = "a quote"
    """The start of a string that needs a closer look. The parser never gets it."""
    NUMBER = "a number"
    """Or a word that starts like one."""
    WORD = "a word"
    COMMENT = "a comment"
    MARGIN = "a block comment or a continued line"
    """The parser never gets it."""
    SLASHDASH = "/-"
    OPEN = "{"
    CLOSE = "}"
    LEFT = "("
    RIGHT = ")"
    EQUALS = "="
    SEMICOLON = ";"
    KEYWORD = "a keyword"
    OTHER = "a character"
    END = "the end of the file"


_KINDS: Final = (
    Kind.END,
    Kind.SPACE,
    Kind.NEWLINE,
    Kind.STRING,
    Kind.QUOTE,
    Kind.NUMBER,
    Kind.WORD,
    Kind.COMMENT,
    Kind.MARGIN,
    Kind.SLASHDASH,
    Kind.OPEN,
    Kind.CLOSE,
    Kind.LEFT,
    Kind.RIGHT,
    Kind.EQUALS,
    Kind.SEMICOLON,
    Kind.KEYWORD,
    Kind.OTHER,
)

TERMINATORS: Final = frozenset((Kind.NEWLINE, Kind.COMMENT, Kind.SEMICOLON))
NODE_ENDS: Final = TERMINATORS | {Kind.CLOSE, Kind.END}
NODE_ENDS_OR_BLOCK: Final = NODE_ENDS | {Kind.OPEN}
VALUES: Final = frozenset((Kind.STRING, Kind.WORD, Kind.NUMBER, Kind.KEYWORD, Kind.OTHER))
"""What a name or a value may look like. Whether it is one, `values` decides."""

# Looking up a member in its class is slow, and `advance` runs for every token.
_SPACE, _NEWLINE, _STRING, _QUOTE, _MARGIN = Kind.SPACE, Kind.NEWLINE, Kind.STRING, Kind.QUOTE, Kind.MARGIN
_SHOWN_AS_WRITTEN: Final = VALUES - {Kind.STRING}


class Scanner(Source):
    """The current token, and the way to the next."""

    def __init__(self, text: str, problems: ProblemList, *, start: int = 0, edits: Edits | None = None) -> None:
        super().__init__(text, problems, start=start, edits=edits)
        self.kind = Kind.SPACE
        self.end = start
        self.value = ""
        """The text of a word, number or keyword; the decoded value of a string."""
        self._next_line = 1
        self._line_start = start
        self.advance()

    def advance(self) -> None:
        """Go to the next token."""
        self.start = start = self.end
        self.line = self._next_line
        self.column = start - self._line_start + 1
        found = _TOKEN.match(self.text, start)
        if found is None:
            self.kind = Kind.END
            return
        self.end = end = found.end()
        self.kind = kind = _KINDS[found.lastindex or 0]
        if kind is _SPACE:
            if self.text[end : end + 1] in ("/", "\\"):
                self._node_space()
        elif kind in _SHOWN_AS_WRITTEN:
            self.value = found[0]
        elif kind is _STRING:
            self.value = self.text[start + 1 : end - 1]
        elif kind is _NEWLINE:
            self._next_line += 1
            self._line_start = self.line_piece = end
        elif kind is _MARGIN:
            self.end = start
            self._node_space()
            if self.end == start and self.text.startswith('"', start + 1):
                self.kind = Kind.STRING
                self.value, self.end = quoted.read_after_backslash(self)
                self._count_lines()
            elif self.end == start:
                self.kind, self.value, self.end = Kind.OTHER, "\\", start + 1
        elif kind is _QUOTE:
            self.kind = Kind.STRING
            self.value, self.end = quoted.read(self, found[0])
            self._count_lines()

    def skip(self, kind: Kind) -> bool:
        """Skip a token of this kind. Returns whether there was one."""
        is_there = self.kind is kind
        if is_there:
            self.advance()
        return is_there

    def skip_space(self) -> bool:
        return self.skip(Kind.SPACE)

    def skip_to(self, ends: frozenset[Kind]) -> None:
        while self.kind not in ends:
            self.advance()

    def report_here(self, code: Code, message: str, suggestion: str | None = None) -> None:
        """Report a problem at the current token."""
        self.problems.add(code, (self.line, self.column), message, suggestion)

    def got(self) -> str:
        """Return the current token for a message."""
        if self.kind in VALUES or self.kind is Kind.COMMENT:
            return shortened(self.text[self.start : self.end])
        return self.kind.value

    def move_to(self, end: int) -> None:
        """Extend the current token."""
        self.end = end
        self._count_lines()

    def _count_lines(self) -> None:
        for found in NEWLINE.finditer(self.text, self.start, self.end):
            self._next_line += 1
            self._line_start = found.end()
            self.line_piece = self.end

    def _node_space(self) -> None:
        """Extend the current token by white space, block comments and continued lines."""
        text, at = self.text, self.end
        while True:
            if self._is_comment(at):
                at = self._comment_end(at)
            elif text.startswith("\\", at):
                after = self._spaces_and_comments(at + 1)
                continued = _CONTINUED.match(text, after)
                if continued is None:
                    break
                at = continued.end()
            else:
                break
            at = _SPACES.match(text, at).end()  # type: ignore[union-attr]  # matches the empty text
        self.end = at
        if at > self.start:
            self.kind = Kind.SPACE
            self._count_lines()

    def _spaces_and_comments(self, at: int) -> int:
        while True:
            at = _SPACES.match(self.text, at).end()  # type: ignore[union-attr]  # matches the empty text
            if not self._is_comment(at):
                return at
            at = self._comment_end(at)

    def _is_comment(self, at: int) -> bool:
        """Whether a block comment starts here."""
        return self.text.startswith("/*", at)

    def _comment_end(self, start: int) -> int:
        """Return the end of a block comment. They nest."""
        depth = 0
        for found in _COMMENT_ENDS.finditer(self.text, start):
            depth += 1 if found[0] == "/*" else -1
            if depth == 0:
                return found.end()
        self.is_cut = True
        self.open_comment = start
        suggestion = "write */ where the comment ends"
        if "*/" in self.text[start:]:
            nested = self.text.find("/*", start + 2)
            suggestion += f"; comments nest, and the /* on line {self.place(nested)[0]} is inside of this one"
        message = "expected */ after this /*, got the end of the file"
        self.report(Code.UNCLOSED_COMMENT, start, message, suggestion)
        return len(self.text)
