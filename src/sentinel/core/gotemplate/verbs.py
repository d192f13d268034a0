"""Format one value with one directive of `printf`, such as `%-8.3f`, `%+q` or `%#x`.

As in Go, a verb that does not fit its value is not an error. The text shows it: `%!d(string=x)`.
"""

from __future__ import annotations

from typing import Final

from sentinel.core.gotemplate import printer, quoting
from sentinel.core.gotemplate.errors import RenderError
from sentinel.core.gotemplate.floats import format_float
from sentinel.core.gotemplate.values import Nothing, Uint8, Value, to_bytes, type_name

_INTEGER_CODES: Final = {"v": "d", "d": "d", "b": "b", "o": "o", "O": "o", "x": "x", "X": "X"}
_FLOAT_CODES: Final = {"v": "g", "F": "f"} | {code: code for code in "bgGxXfeE"}
_SIX_DIGITS: Final = "fFeE"
_NIL: Final = "<nil>"


class Directive:
    """The flags, width and precision of a directive."""

    __slots__ = ("go_syntax", "minus", "plus", "precision", "sharp", "space", "width", "zero")

    def __init__(self) -> None:
        self.minus = self.plus = self.sharp = self.space = self.zero = False
        self.go_syntax = False
        """Set for `%#v`, where `#` has another meaning."""
        self.width: int | None = None
        self.precision: int | None = None


def format_value(value: Value, verb: str, directive: Directive) -> str:
    """Return the value formatted with this verb."""
    if isinstance(value, Nothing):
        return _padded(_NIL, directive) if verb in "Tv" else f"%!{verb}({_NIL})"
    if verb == "T":
        return _padded(type_name(value)[: directive.precision], directive)
    if not isinstance(value, list | dict):
        return "%!p" + _with_type(value, directive) if verb == "p" else _scalar(value, verb, directive)
    if verb == "p":
        raise RenderError("%p prints an address, and values of a document have none")
    if verb == "w":
        return "%!w" + _with_type(value, directive)
    style = printer.GO_SYNTAX if directive.go_syntax else printer.PLAIN
    return printer.format_nested(value, lambda leaf: _scalar(leaf, verb, directive), style)


def _with_type(value: Value, directive: Directive) -> str:
    """Return the value with its type, for the mark of a verb that does not fit."""
    return f"({type_name(value)}={format_value(value, 'v', directive)})"


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
        text = _complex(value, verb, directive)  # type: ignore[arg-type] # no other type is scalar
    return f"%!{verb}{_with_type(value, directive)}" if text is None else text


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
    octets = to_bytes(text)[: directive.precision]
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
    min_digits = 0
    if directive.precision is not None:
        min_digits = directive.precision
        if min_digits == 0 and number == 0:
            return " " * (directive.width or 0)
    elif directive.zero and not directive.minus and directive.width is not None:
        min_digits = directive.width - len(sign)
    digits = format(abs(number), code).rjust(min_digits, "0")
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
    """Add a decimal point and, for the formats that drop them, trailing zeros."""
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
