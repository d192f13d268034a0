"""One value under one directive of `printf`: what `%-8.3f`, `%+q` or `%#x` make of it.

A verb that does not fit its value is no error in Go: the text says so itself, `%!d(string=x)`, and so does ours.
"""

from __future__ import annotations

from typing import Final

from sentinel.core.gotemplate import printer, quoting
from sentinel.core.gotemplate.errors import Trouble
from sentinel.core.gotemplate.floats import format_float
from sentinel.core.gotemplate.values import Nothing, Uint8, Value, encoded, type_name

_INTEGER_CODES: Final = {"v": "d", "d": "d", "b": "b", "o": "o", "O": "o", "x": "x", "X": "X"}
_FLOAT_CODES: Final = {"v": "g", "F": "f"} | {code: code for code in "bgGxXfeE"}
_SIX_DIGITS: Final = "fFeE"
_NIL: Final = "<nil>"


class Directive:
    """Flags, width and precision."""

    __slots__ = ("go_syntax", "minus", "plus", "precision", "sharp", "space", "width", "zero")

    def __init__(self) -> None:
        self.minus = self.plus = self.sharp = self.space = self.zero = False
        self.go_syntax = False
        """`%#v`, where the sign means something else."""
        self.width: int | None = None
        self.precision: int | None = None


def formatted(value: Value, verb: str, directive: Directive) -> str:
    """The value under this verb."""
    if isinstance(value, Nothing):
        return _padded(_NIL, directive) if verb in "Tv" else f"%!{verb}({_NIL})"
    if verb == "T":
        return _padded(type_name(value)[: directive.precision], directive)
    if not isinstance(value, list | dict):
        return "%!p" + _described(value, directive) if verb == "p" else _scalar(value, verb, directive)
    if verb == "p":
        raise Trouble("%p asks for an address, and a value of a document has none")
    if verb == "w":
        return "%!w" + _described(value, directive)
    style = printer.GO_SYNTAX if directive.go_syntax else printer.PLAIN
    return printer.laid_out(value, lambda leaf: _scalar(leaf, verb, directive), style)


def _described(value: Value, directive: Directive) -> str:
    """The value with its type, in the mark of a verb that does not fit."""
    return f"({type_name(value)}={formatted(value, 'v', directive)})"


def _scalar(value: Value, verb: str, directive: Directive) -> str:
    text: str | None = None
    if isinstance(value, str):
        text = _string(value, verb, directive)
    elif isinstance(value, bool):
        text = _padded("true" if value else "false", directive) if verb in "tv" else None
    elif isinstance(value, int):
        text = _integer(value, verb, directive)
    elif isinstance(value, float):
        text = _float(value, verb, directive)
    else:
        text = _complex(value, verb, directive)  # type: ignore[arg-type] # all others are not scalars
    return f"%!{verb}{_described(value, directive)}" if text is None else text


def _padded(text: str, directive: Directive, *, may_be_zeros: bool = True) -> str:
    gap = (directive.width or 0) - len(text)
    if gap <= 0:
        return text
    if directive.minus:
        return text + " " * gap
    return ("0" if directive.zero and may_be_zeros else " ") * gap + text


def _string(text: str, verb: str, directive: Directive) -> str | None:
    if verb == "v" and directive.go_syntax:
        verb = "q"
    if verb in "xX":
        return _hexadecimal(text, verb, directive)
    if verb not in "vsq":
        return None
    text = text[: directive.precision]
    if verb == "q":
        if directive.sharp and quoting.is_backquotable(text):
            text = f"`{text}`"
        else:
            text = quoting.quote(text, is_ascii=directive.plus)
    return _padded(text, directive)


def _hexadecimal(text: str, verb: str, directive: Directive) -> str:
    octets = encoded(text)[: directive.precision]
    prefix = f"0{verb}" if directive.sharp and octets else ""
    between = f" {prefix}" if directive.space else ""
    return _padded(prefix + between.join([f"{octet:02{verb}}" for octet in octets]), directive)


def _integer(number: int, verb: str, directive: Directive) -> str | None:
    if verb == "c":
        return _padded(quoting.rune(number), directive)
    if verb == "q":
        return _padded(quoting.quote(quoting.rune(number), mark="'", is_ascii=directive.plus), directive)
    if verb == "U":
        return _unicode(number, directive)
    is_byte_in_go = verb == "v" and directive.go_syntax and isinstance(number, Uint8)
    code = "x" if is_byte_in_go else _INTEGER_CODES.get(verb)
    if code is None:
        return None
    sign = "-" if number < 0 else "+" if directive.plus else " " if directive.space else ""
    least = 0
    if directive.precision is not None:
        least = directive.precision
        if least == 0 and number == 0:
            return " " * (directive.width or 0)
    elif directive.zero and not directive.minus and directive.width is not None:
        least = directive.width - len(sign)
    digits = format(abs(number), code).rjust(least, "0")
    if directive.sharp or is_byte_in_go:
        if code == "o":
            digits = digits if digits[0] == "0" else "0" + digits
        elif code != "d":
            digits = f"0{code}{digits}"
    if verb == "O":
        digits = "0o" + digits
    return _padded(sign + digits, directive, may_be_zeros=False)


def _unicode(number: int, directive: Directive) -> str:
    code = number % 2**64
    text = f"U+{code:0{max(4, directive.precision or 0)}X}"
    if directive.sharp and quoting.is_rune(code) and chr(code).isprintable():
        text += f" '{chr(code)}'"
    return _padded(text, directive, may_be_zeros=False)


def _float(number: float, verb: str, directive: Directive) -> str | None:
    code = _FLOAT_CODES.get(verb)
    if code is None:
        return None
    precision = directive.precision
    if precision is None and verb in _SIX_DIGITS:
        precision = 6
    text = format_float(number, code, precision)
    sign, body = (text[0], text[1:]) if text[0] in "+-" else ("+", text)
    if directive.space and sign == "+" and not directive.plus:
        sign = " "
    if body == "Inf":  # JSON has no NaN, but an integer may be larger than any float
        return _padded(sign + body, directive, may_be_zeros=False)
    if directive.sharp and code != "b":
        body = _pointed(body, code, precision)
    if sign == "+" and not directive.plus:
        return _padded(body, directive)
    if directive.zero and not directive.minus:
        return sign + body.rjust((directive.width or 0) - 1, "0")
    return _padded(sign + body, directive)


def _pointed(body: str, code: str, precision: int | None) -> str:
    """With a decimal point, and in the formats that drop them, with the zeros that they drop."""
    missing = 0
    if code in "gGx":
        missing = 6 if precision is None else precision
    marks = "pP" if code in "xX" else "eE"
    at = next((index for index, char in enumerate(body) if char in marks), len(body))
    mantissa, exponent = body[:at], body[at:]
    missing -= len(mantissa.replace(".", "").lstrip("0"))
    if "." not in mantissa:
        if mantissa == "0":
            missing -= 1
        mantissa += "."
    return mantissa + "0" * missing + exponent


def _complex(number: complex, verb: str, directive: Directive) -> str | None:
    real = _float(number.real, verb, directive)
    if real is None:
        return None
    plus, directive.plus = directive.plus, True
    imaginary = _float(number.imag, verb, directive)
    directive.plus = plus
    return f"({real}{imaginary}i)"
