"""Regular expressions for paths, in the language of the proxy: that of Rust's `regex`.

It differs from Python's: it has no look-around and no backreferences, and `{` always starts a repetition, so that
`/users/{id}` is an error. On the other hand it knows `\\p{L}` and classes in classes. `read` finds mistakes and
compiles nothing, and says how Python writes the same.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, TypeAlias

import msgspec

MAX_LENGTH: Final = 10_000
_MAX_DEPTH: Final = 250
"""The proxy's own limit."""
_MAX_COUNT: Final = 1_000_000
_MAX_SHOWN: Final = 20

_ESCAPE: Final = r"\\(?:[pP](?:\{[^}]*\}|.)|[xuU]\{[^}]*\}|x.{2}|u.{4}|U.{8}|b\{[a-zA-Z-]+\}|.)?"
_TOKEN: Final = re.compile(
    rf"(?P<escape>{_ESCAPE})"
    r"|(?P<class>\[)"
    r"|(?P<group>\((?:\?(?:P?<(?![=!])[^>]*>|<?[=!]|[a-zA-Z-]*[:)]|.)?)?)"
    r"|(?P<close>\))"
    r"|(?P<repeat>[*+?]|\{[^}]*\}?)"
    r"|(?P<place>[\^$])|(?P<bar>\|)"
    r"|(?P<other>.)",
    re.DOTALL,
)
_COUNTS: Final = re.compile(r"\{ *([0-9]{1,9}) *(?:(,) *([0-9]{0,9}) *)?\}")
_NAME: Final = re.compile(r"[_A-Za-z][_0-9A-Za-z.\[\]]*")
_FLAGS: Final = re.compile(r"[imsUuxR]+(?:-[imsUuxR]+)?|-[imsUuxR]+")
_PYTHON_FLAGS: Final = frozenset("ims")
_CODE_POINT: Final = re.compile(r"\\[xuU](?:\{([0-9a-fA-F]{1,8})\}|([0-9a-fA-F]+))")
_WORD_BOUNDARIES: Final = frozenset((r"\b{start}", r"\b{end}", r"\b{start-half}", r"\b{end-half}"))
_CONTROLS: Final = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_CLASSES: Final = frozenset("dDsSwW")
_PLACES: Final = {"b": r"\b", "B": r"\B", "A": r"\A", "z": r"\Z"}
"""How Python writes what stands between two characters."""
_POSIX: Final = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_CLASS_TOKEN: Final = re.compile(
    rf"(?P<escape>{_ESCAPE})|(?P<posix>\[:\^?(?:{'|'.join(_POSIX)}):\])"
    r"|(?P<open>\[)|(?P<close>\])|(?P<operator>&&|--|~~)|(?P<other>.)",
    re.DOTALL,
)
_CLASS_CHARACTER: Final = re.compile(rf"{_ESCAPE}|.", re.DOTALL)


class PathPattern(msgspec.Struct, frozen=True):
    """A pattern that the proxy accepts."""

    python: str | None
    """The same for Python. None if Python cannot say it."""


class BadPattern(msgspec.Struct, frozen=True):
    """A pattern that the proxy refuses."""

    reason: str


Result: TypeAlias = PathPattern | BadPattern


def read(pattern: str) -> Result:
    """Return what a pattern means, or why the proxy refuses it. Never raises."""
    if len(pattern) > MAX_LENGTH:
        return BadPattern(f"it has more than {MAX_LENGTH} characters")
    reader = _Reader(pattern)
    try:
        python = reader.read()
    except _Refused as refused:
        return BadPattern(str(refused))
    except _Unjudged:
        return PathPattern(None)
    return PathPattern(python if reader.is_python else None)


class _Refused(Exception):
    """The text is the reason."""


class _Unjudged(Exception):
    """The rest of the pattern follows other rules: white space and comments in it mean nothing."""


class _Atom(NamedTuple):
    """One character, or what stands for several of them or for none."""

    python: str
    code: int | None = None
    """The code of the character."""


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._depth = 0
        self._names: set[str] = set()
        self.is_python = True
        """Whether Python can say all that was read so far."""

    def read(self) -> str:
        written, can_repeat, is_place = list[str](), False, False
        while (found := _TOKEN.match(self._pattern, self._at)) is not None:
            kind, text = found.lastgroup, found[0]
            self._at = found.end()
            match kind:
                case "escape":
                    written.append(self._escape(text).python)
                case "class":
                    written.append(self._class(1))
                case "group":
                    written.append(self._group(text, is_first=found.start() == 0))
                case "close":
                    self._close()
                    written.append(text)
                case "repeat":
                    if not can_repeat:
                        raise _Refused(f"there is nothing to repeat before {_shown(text)}")
                    written.append(self._repeat(text))
                    self.is_python &= not is_place
                case _:
                    written.append(text)
            can_repeat = kind not in ("group", "bar")
            is_place = kind == "place" or (kind == "escape" and text[1] in _PLACES)
        if self._depth:
            raise _Refused("a ( has no )")
        return "".join(written)

    def _close(self) -> None:
        if not self._depth:
            raise _Refused("a ) has no (")
        self._depth -= 1

    def _repeat(self, text: str) -> str:
        if text.startswith("{"):
            text = text.replace(" ", "")
            found = _COUNTS.fullmatch(text)
            if found is None:
                raise _Refused(f"{_shown(text)} is not a repetition such as {{2,3}}")
            least, most = int(found[1]), int(found[3] or found[1])
            if most < least or most > _MAX_COUNT:
                raise _Refused(f"{text} repeats too often, or has its numbers in the wrong order")
        if self._pattern.startswith("?", self._at):
            text += "?"
            self._at += 1
        # A repetition of a repetition means something else in Python, or nothing.
        self.is_python &= not self._pattern.startswith(("*", "+", "?", "{"), self._at)
        return text

    def _group(self, text: str, *, is_first: bool) -> str:
        """Read the start of a group, or flags, which are not one."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _Refused(f"groups are more than {_MAX_DEPTH} deep")
        if text in ("(", "(?:"):
            return text
        _, is_named, name = text.partition("<")
        if is_named and text.endswith(">"):
            return self._named(name[:-1])
        flags, end = text[2:-1], text[-1]
        if end in ":)" and _FLAGS.fullmatch(flags):
            if "x" in flags.partition("-")[0]:
                raise _Unjudged
            is_known = _PYTHON_FLAGS.issuperset(flags.replace("-", ""))
            if end == ")":
                self._depth -= 1
                is_known &= is_first and "-" not in flags
            self.is_python &= is_known
            return text
        if end in "=!":
            raise _Refused(f"the proxy has no look-around such as {text}…)")
        raise _Refused(f"{_shown(text)} does not start a group")

    def _named(self, name: str) -> str:
        if _NAME.fullmatch(name) is None:
            raise _Refused(f"{_shown(name)} is not a name of a group")
        if name in self._names:
            raise _Refused(f"two groups have the name {_shown(name)}")
        self._names.add(name)
        return "("

    def _escape(self, text: str) -> _Atom:
        letter = text[1:2]
        if not letter:
            raise _Refused("it ends with a backslash")
        if letter in "xuU":
            return self._code_point(text)
        if letter in _CONTROLS:
            return _literal(_CONTROLS[letter])
        if letter in "pP<>" or text in _WORD_BOUNDARIES:
            self.is_python = False
            return _Atom("")
        if letter in _CLASSES:
            return _Atom(text)
        if letter in _PLACES and len(text) == 2:
            return _Atom(_PLACES[letter])
        if letter.isdigit():
            raise _Refused(f"the proxy has no backreferences such as {text}")
        if letter.isalpha():
            raise _Refused(f"{_shown(text)} is not an escape")
        return _literal(ord(letter))

    def _code_point(self, text: str) -> _Atom:
        found = _CODE_POINT.fullmatch(text)
        code = -1 if found is None else int(found[1] or found[2], 16)
        if not 0 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise _Refused(f"{_shown(text)} is not a code point")
        return _literal(code)

    def _class(self, depth: int) -> str:
        """Read a class after its [. Returns it for Python."""
        if depth > _MAX_DEPTH:
            raise _Refused(f"classes are more than {_MAX_DEPTH} deep")
        written = ["["]
        if self._skip("^"):
            written.append("^")
        if self._skip("]"):
            written.append(r"\]")
        while (found := _CLASS_TOKEN.match(self._pattern, self._at)) is not None:
            kind, text = found.lastgroup, found[0]
            self._at = found.end()
            match kind:
                case "close":
                    return "".join((*written, "]"))
                case "open":
                    self._class(depth + 1)
                    self.is_python = False
                case "posix":
                    written.append(self._posix(text))
                case "operator":
                    self.is_python = False
                case _:
                    written.append(self._character_or_range(text))
        raise _Refused("a [ has no ]")

    def _posix(self, text: str) -> str:
        self.is_python &= "^" not in text
        return _POSIX[text.strip("[:^]")]

    def _character_or_range(self, text: str) -> str:
        first = self._atom(text)
        following = self._pattern[self._at : self._at + 2]
        if not following.startswith("-") or following in ("-", "-]", "--"):
            return first.python
        found = _CLASS_CHARACTER.match(self._pattern, self._at + 1)
        written = "" if found is None else found[0]
        self._at += 1 + len(written)
        last = self._atom(written)
        if first.code is None or last.code is None or last.code < first.code:
            raise _Refused(f"{_shown(f'{text}-{written}')} is not a range")
        return f"{first.python}-{last.python}"

    def _atom(self, text: str) -> _Atom:
        if not text.startswith("\\"):
            return _literal(ord(text))
        if text[1:2] in _PLACES or text[1:2] in ("<", ">"):
            raise _Refused(f"{text} has no meaning in a class")
        return self._escape(text)

    def _skip(self, char: str) -> bool:
        is_there = self._pattern.startswith(char, self._at)
        self._at += is_there
        return is_there


def _literal(code: int) -> _Atom:
    return _Atom(re.escape(chr(code)), code)


def _shown(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"
