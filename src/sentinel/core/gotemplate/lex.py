"""The lexer: from the source of a template to its tokens.

Everything outside `{{ }}` is text. Inside, spaces are tokens, because they separate arguments. Trim markers are
handled here and produce no tokens. An invalid token becomes an error token, so that a syntax error before it is
reported first.
"""

from __future__ import annotations

from typing import Final

from sentinel.core.gotemplate.quoting import quote
from sentinel.core.gotemplate.tokens import KEYWORDS, Kind, Token, is_word

_PUNCTUATION: Final = {"=": Kind.ASSIGN, "|": Kind.PIPE}

_SPACES: Final = " \t\r\n"
_TERMINATORS: Final = frozenset(_SPACES + ".,|:()")
_DIGITS_OR_NONE: Final = ("", *"0123456789")
_DECIMAL: Final = frozenset("0123456789_")
_BASES: Final = {
    "x": frozenset("0123456789abcdefABCDEF_"),
    "o": frozenset("01234567_"),
    "b": frozenset("01_"),
}
_EXPONENTS: Final = {"x": "pP", "": "eE"}


def tokens(source: str) -> list[Token]:
    """Return all tokens. The last one is EOF or ERROR."""
    scanner = _Scanner(source)
    scanner.scan()
    return scanner.tokens


class _LexError(Exception):
    """Invalid input at an offset."""

    def __init__(self, problem: str, at: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.at = at


class _Scanner:
    def __init__(self, source: str) -> None:
        self.tokens: list[Token] = []
        self._source = source
        self._at = 0
        self._parentheses = 0

    def scan(self) -> None:
        try:
            self._text()
        except _LexError as error:
            self.tokens.append(Token(Kind.ERROR, error.problem, error.at))

    def _add(self, kind: Kind, end: int) -> None:
        self.tokens.append(Token(kind, self._source[self._at : end], self._at))
        self._at = end

    def _peek(self, at: int) -> str:
        return self._source[at : at + 1]

    def _text(self) -> None:
        """Scan text and actions to the end."""
        source = self._source
        while (left := source.find("{{", self._at)) >= 0:
            trims = source[left + 2 : left + 3] == "-" and self._is_space(left + 3)
            text = source[self._at : left]
            if trims:
                text = text.rstrip(_SPACES)
            if text:
                self.tokens.append(Token(Kind.TEXT, text, self._at))
            self._at = left
            inside = left + (4 if trims else 2)
            if source.startswith("/*", inside):
                self._comment(inside)
            else:
                self.tokens.append(Token(Kind.LEFT, "{{", left))
                self._at = inside
                self._action(left)
        if self._at < len(source):
            self._add(Kind.TEXT, len(source))
        self._add(Kind.EOF, len(source))

    def _comment(self, inside: int) -> None:
        end = self._source.find("*/", inside + 2)
        if end < 0:
            raise _LexError("unclosed comment", self._at)
        self._at = end + 2
        if not self._is_right():
            raise _LexError("comment ends before closing delimiter", inside)
        self._right(is_token=False)

    def _is_space(self, at: int) -> bool:
        return at < len(self._source) and self._source[at] in _SPACES

    def _trims_at(self, at: int) -> bool:
        return self._is_space(at) and self._source.startswith("-}}", at + 1)

    def _is_right(self) -> bool:
        return self._source.startswith("}}", self._at) or self._trims_at(self._at)

    def _right(self, *, is_token: bool = True) -> None:
        trims = self._trims_at(self._at)
        self._at += 2 if trims else 0
        if is_token:
            self.tokens.append(Token(Kind.RIGHT, "}}", self._at))
        self._at += 2
        while trims and self._is_space(self._at):
            self._at += 1

    def _action(self, left: int) -> None:
        """Scan one action, including its right delimiter."""
        self._parentheses = 0
        while not self._is_right():
            char = self._peek(self._at)
            if not char:
                raise _LexError("unclosed action", left)
            if char in _SPACES:
                self._space()
            elif char in _PUNCTUATION:
                self._add(_PUNCTUATION[char], self._at + 1)
            elif char == ":":
                if self._peek(self._at + 1) != "=":
                    raise _LexError("expected :=", self._at)
                self._add(Kind.DECLARE, self._at + 2)
            elif char in "()":
                self._parenthesis(char)
            elif char in "\"'":
                self._quoted(char)
            elif char == "`":
                end = self._source.find("`", self._at + 1)
                if end < 0:
                    raise _LexError("unterminated raw quoted string", self._at)
                self._add(Kind.RAW_STRING, end + 1)
            elif char == "$" or (char == "." and self._peek(self._at + 1) not in _DIGITS_OR_NONE):
                self._field_or_variable(char)
            elif char in "+-.0123456789":
                self._number()
            elif is_word(char):
                self._word()
            elif " " < char <= "~":
                self._add(Kind.CHARACTER, self._at + 1)
            else:
                raise _LexError(f"unrecognized character in action: {_describe(char)}", self._at)
        if self._parentheses:
            raise _LexError("unclosed left paren", self._at)
        self._right()

    def _space(self) -> None:
        end = self._at
        while self._is_space(end):
            end += 1
        if self._trims_at(end - 1):
            end -= 1
        # A single space before a trim marker belongs to the delimiter, which the caller checks first.
        self._add(Kind.SPACE, end)

    def _parenthesis(self, char: str) -> None:
        self._parentheses += 1 if char == "(" else -1
        if self._parentheses < 0:
            raise _LexError("unexpected right paren", self._at)
        self._add(Kind.OPEN if char == "(" else Kind.CLOSE, self._at + 1)

    def _quoted(self, mark: str) -> None:
        end = self._at + 1
        while (char := self._peek(end)) != mark:
            if char == "\\":
                end += 1
                char = self._peek(end)
            if char in ("", "\n"):
                what = "quoted string" if mark == '"' else "character constant"
                raise _LexError(f"unterminated {what}", self._at)
            end += 1
        self._add(Kind.STRING if mark == '"' else Kind.RUNE, end + 1)

    def _ends_a_name(self, at: int) -> bool:
        return at >= len(self._source) or self._source[at] in _TERMINATORS or self._source.startswith("}}", at)

    def _name_end(self, start: int) -> int:
        end = start
        while end < len(self._source) and is_word(self._source[end]):
            end += 1
        if not self._ends_a_name(end):
            raise _LexError(f"bad character {_describe(self._source[end])}", end)
        return end

    def _field_or_variable(self, sigil: str) -> None:
        end = self._name_end(self._at + 1)
        if sigil == "$":
            self._add(Kind.VARIABLE, end)
        else:
            self._add(Kind.DOT if end == self._at + 1 else Kind.FIELD, end)

    def _word(self) -> None:
        end = self._name_end(self._at)
        word = self._source[self._at : end]
        if word in ("true", "false"):
            self._add(Kind.BOOL, end)
        else:
            self._add(KEYWORDS.get(word, Kind.IDENTIFIER), end)

    def _number(self) -> None:
        end, is_number = self._number_end(self._at)
        kind = Kind.NUMBER
        if is_number and self._peek(end) in ("+", "-"):
            kind = Kind.COMPLEX
            end, is_number = self._number_end(end)
            is_number = is_number and self._source[end - 1] == "i"
        if not is_number:
            raise _LexError(f"bad number syntax: {quote(self._source[self._at : end])}", self._at)
        self._add(kind, end)

    def _number_end(self, start: int) -> tuple[int, bool]:
        """Return the end of a possible number, and whether it may be one. `numbers` has the final check."""
        at = start
        if self._peek(at) in ("+", "-"):
            at += 1
        base = ""
        if self._peek(at) == "0":
            at += 1
            if (letter := self._peek(at).lower()) in _BASES:
                base = letter
                at += 1
        digits = _BASES.get(base, _DECIMAL)
        at = self._run(at, digits)
        if self._peek(at) == ".":
            at = self._run(at + 1, digits)
        if (exponent := self._peek(at)) and exponent in _EXPONENTS.get(base, ""):
            at += 1
            if self._peek(at) in ("+", "-"):
                at += 1
            at = self._run(at, _DECIMAL)
        if self._peek(at) == "i":
            at += 1
        if (following := self._peek(at)) and is_word(following):
            return at + 1, False
        return at, True

    def _run(self, at: int, accepted: frozenset[str]) -> int:
        while self._peek(at) in accepted:
            at += 1
        return at


def _describe(char: str) -> str:
    """Return a character for a message: its code point, and itself if it is printable."""
    return f"U+{ord(char):04X} '{char}'" if char.isprintable() else f"U+{ord(char):04X}"
