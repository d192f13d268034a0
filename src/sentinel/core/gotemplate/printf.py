"""`printf`: a format, its directives and their arguments.

Go never rejects a format. It writes errors into the text: `%!d(string=x)`, `%!d(BADINDEX)`, `%!d(MISSING)`,
`%!(NOVERB)`, `%!(EXTRA int=1)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sentinel.core.gotemplate.printer import OutputBuffer
from sentinel.core.gotemplate.quoting import REPLACEMENT
from sentinel.core.gotemplate.values import Nothing, Value, merge_split_characters, type_name
from sentinel.core.gotemplate.verbs import Directive, format_value

_MAX_NUMBER: Final = 10**6
"""The maximum width and precision. Go treats larger values as errors."""
_FLAGS: Final = {"#": "sharp", "0": "zero", "+": "plus", "-": "minus", " ": "space"}


def sprintf(form: str, arguments: Sequence[Value]) -> str:
    """Return the format with its directives replaced."""
    writer = _Writer(form, arguments)
    writer.write()
    return merge_split_characters(writer.out.text())


class _Writer:
    def __init__(self, form: str, arguments: Sequence[Value]) -> None:
        self.out = OutputBuffer()
        self._form = form
        self._arguments = arguments
        self._at = 0
        self._argument = 0
        self._is_reordered = False
        self._is_good_index = True

    def write(self) -> None:
        while (percent := self._form.find("%", self._at)) >= 0:
            self.out.write(self._form[self._at : percent])
            self._at = percent + 1
            self._directive()
        self.out.write(self._form[self._at :])
        if not self._is_reordered:
            self._write_extras()

    def _peek(self) -> str:
        return self._form[self._at : self._at + 1]

    def _directive(self) -> None:
        directive = Directive()
        self._is_good_index = True
        if (verb := self._peek()).isalpha():  # fast path: no flags, width or precision
            self._at += 1
            self._verb(verb, directive)
            return
        while (flag := self._peek()) in _FLAGS:
            setattr(directive, _FLAGS[flag], True)
            self._at += 1
        follows_index = self._index()
        follows_index = self._width(directive, follows_index)
        follows_index = self._precision(directive, follows_index)
        if not follows_index:
            self._index()
        verb = self._peek()
        self._at += 1
        if not verb:
            self.out.write("%!(NOVERB)")
        else:
            self._verb(REPLACEMENT if "\ud800" <= verb <= "\udfff" else verb, directive)

    def _verb(self, verb: str, directive: Directive) -> None:
        if verb == "%":
            self.out.write("%")
        elif not self._is_good_index:
            self.out.write(f"%!{verb}(BADINDEX)")
        elif self._argument >= len(self._arguments):
            self.out.write(f"%!{verb}(MISSING)")
        else:
            if verb in "vw":
                directive.go_syntax = directive.sharp
                directive.sharp = directive.plus = False
            self.out.write(format_value(self._arguments[self._argument], verb, directive))
            self._argument += 1

    def _index(self) -> bool:
        """Read an argument index such as `[2]`. Return whether there was a valid one."""
        if self._peek() != "[":
            return False
        self._is_reordered = True
        end = self._form.find("]", self._at)
        if end < 0 or len(self._form) - self._at < 3:
            self._is_good_index = False
            self._at += 1
            return False
        number, stop = _digits(self._form, self._at + 1, end)
        self._at = end + 1
        if number is None or stop != end:
            self._is_good_index = False
            return False
        if 1 <= number <= len(self._arguments):
            self._argument = number - 1
        else:
            self._is_good_index = False
        return True

    def _width(self, directive: Directive, follows_index: bool) -> bool:
        if self._peek() == "*":
            self._at += 1
            width = self._star()
            if width is None:
                self.out.write("%!(BADWIDTH)")
            elif width < 0:
                width = -width
                directive.minus = True
                directive.zero = False
            directive.width = width
            return False
        directive.width, self._at = _digits(self._form, self._at, len(self._form))
        if follows_index and directive.width is not None:
            self._is_good_index = False
        return follows_index

    def _precision(self, directive: Directive, follows_index: bool) -> bool:
        if self._peek() != "." or self._at + 1 >= len(self._form):
            return follows_index
        self._at += 1
        if follows_index:
            self._is_good_index = False
        follows_index = self._index()
        if self._peek() == "*":
            self._at += 1
            precision = self._star()
            if precision is None or precision < 0:
                self.out.write("%!(BADPREC)")
                precision = None
            directive.precision = precision
            return False
        precision, self._at = _digits(self._form, self._at, len(self._form))
        directive.precision = precision or 0
        return follows_index

    def _star(self) -> int | None:
        """Return a width or precision given as an argument; None if that is not an integer within the limits."""
        if self._argument >= len(self._arguments):
            return None
        value = self._arguments[self._argument]
        self._argument += 1
        if isinstance(value, int) and not isinstance(value, bool) and -_MAX_NUMBER <= value <= _MAX_NUMBER:
            return int(value)
        return None

    def _write_extras(self) -> None:
        extras = self._arguments[self._argument :]
        if extras:
            shown = [
                "<nil>"
                if isinstance(extra, Nothing)
                else f"{type_name(extra)}={format_value(extra, 'v', Directive())}"
                for extra in extras
            ]
            self.out.write(f"%!(EXTRA {', '.join(shown)})")


def _digits(text: str, start: int, end: int) -> tuple[int | None, int]:
    """Return the number at `start` and its end. A number beyond the limit consumes the rest, as in Go."""
    number, at = 0, start
    while at < end and "0" <= text[at] <= "9":
        if number > _MAX_NUMBER:
            return None, end
        number = number * 10 + int(text[at])
        at += 1
    return (number if at > start else None), at
