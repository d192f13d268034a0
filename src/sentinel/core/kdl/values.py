"""What a token means as a name or as a value, and what to write instead where it means nothing.

Every problem here leaves no doubt about what was meant, so the parser gets that and goes on.
"""

from __future__ import annotations

import math
import re
from typing import Final

import msgspec

from sentinel.core.kdl import numbers, strings
from sentinel.core.kdl.characters import BARE_KEYWORDS, NEWLINE, NEWLINES, SPACES, is_word
from sentinel.core.kdl.document import Annotation, Scalar, Value
from sentinel.core.kdl.lex import Kind, Scanner
from sentinel.core.kdl.problems import Code, shortened

KEYWORDS: Final[dict[str, Scalar]] = {
    "#true": True,
    "#false": False,
    "#null": None,
    "#inf": math.inf,
    "#-inf": -math.inf,
    "#nan": math.nan,
}

_RUN: Final = re.compile(rf'(?:[^{SPACES}{NEWLINES};{{}}()"=/]++|/\*\*/|/(?![/*-]))++')
_GLUED: Final = frozenset((Kind.KEYWORD, Kind.NUMBER, Kind.WORD, Kind.OTHER))
_STRING: Final = r'"(?:[^"\\]++|\\(?s:.))*+"'
_ARRAY: Final = re.compile(rf'\[(?:[^\[\]{{}};"/]++|//[^{NEWLINES}]*+|/|{_STRING})*+\]')
_ITEM: Final = re.compile(
    rf'//[^{NEWLINES}]*+|({_STRING})|((?!//)[^{SPACES}{NEWLINES},"\[\]][^{SPACES}{NEWLINES},"\[\]]*+)'
)
_JSON_LIST: Final = re.compile(rf'\[[{SPACES}{NEWLINES}]*+["{{\[]')
_BRACKET: Final = re.compile(rf"//[^{NEWLINES}]*+|{_STRING}|[\[\]{{}}]")
_OPENING: Final = frozenset("[{")
_CLOSING: Final = {"]": "[", "}": "{"}
_MAX_LIST: Final = 10_000
_MAX_OPEN_LISTS: Final = 32
"""Searching for the end of more of them would take long in a file that is nothing but brackets."""
_AFTER_LIST: Final = re.compile(rf'[^{SPACES}{NEWLINES};{{}}()"=/,\[\]#]|/(?![/*-])')
"""What goes on after the brackets of a text, such as an IPv6 address with a port."""
_QUERY: Final = re.compile(rf'=[^{SPACES}{NEWLINES};{{}}"]*+')
_MAX_QUOTED: Final = 200
_VALUE_ENDS: Final = re.compile(rf"[{SPACES}{NEWLINES};{{}},)]|\Z")
_MAX_SHOWN: Final = 5
COMMA: Final = "expected white space between values, got a comma"
NO_COMMA: Final = "remove the comma"
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\Z")
_MAX_SCHEME: Final = 30


class Token(msgspec.Struct, frozen=True, gc=False):
    """A token that the scanner has left."""

    kind: Kind
    value: str
    start: int
    end: int
    line: int
    column: int


def take(scanner: Scanner) -> Token:
    """Return the current token and go to the next. A word takes with it what follows without white space."""
    kind, value, start, end = scanner.kind, scanner.value, scanner.start, scanner.end
    line, column = scanner.line, scanner.column
    scanner.advance()
    if kind is not Kind.STRING and scanner.kind in _GLUED:
        run = _RUN.match(scanner.text, start)
        end = run.end() if run is not None else end
        kind, value = Kind.OTHER, scanner.text[start:end]
        scanner.move_to(end)
        scanner.advance()
    return Token(kind, value, start, end, line, column)


def read_name(scanner: Scanner, token: Token, what: str) -> str:
    """Return the text of a token as the name of a node, a property or a type."""
    text = token.value
    if token.kind is Kind.STRING or (token.kind is Kind.WORD and text not in BARE_KEYWORDS):
        return text
    code, got = Code.NEEDS_QUOTES, shortened(text)
    if token.kind is Kind.NUMBER:
        code, got = Code.NUMERIC_NAME, f"the number {shortened(text)}" if _is_number(text) else shortened(text)
    elif token.kind is Kind.WORD:
        code, got = Code.BARE_KEYWORD, f"the keyword {text}"
    _report(scanner, token, code, f"expected {what}, got {got}", quoted=strings.without_letters(text))
    return strings.without_letters(text)


def read_value(scanner: Scanner, token: Token, annotation: Annotation | None) -> Value:
    """Return the value of a token."""
    text, line, column = token.value, token.line, token.column
    match token.kind:
        case Kind.STRING:
            return Value(text, annotation, line, column)
        case Kind.WORD:
            if text not in BARE_KEYWORDS:
                if text[0] in strings.LETTERS:
                    _warn_of_quotes(scanner, token)
                elif text[-1] == ",":
                    _warn_of_comma(scanner, token)
                return Value(text, annotation, line, column)
            scanner.edit(token.start, token.end, f"#{text}")
            message = f"expected a value, got the bare word {text}"
            suggestion = f'write #{text}, or "{text}" if it is a text'
            scanner.problems.add(Code.BARE_KEYWORD, (line, column), message, suggestion)
            return Value(KEYWORDS[f"#{text}"], annotation, line, column)
        case Kind.NUMBER:
            return _number(scanner, token, annotation)
        case Kind.KEYWORD if text in KEYWORDS:
            return Value(KEYWORDS[text], annotation, line, column)
        case Kind.KEYWORD:
            _report_keyword(scanner, token)
            if text.lower() in KEYWORDS:
                return Value(KEYWORDS[text.lower()], annotation, line, column)
        case _:
            token = _whole_text(scanner, token)
            message = f"expected a value, got {shortened(token.value)}"
            if "/*" in token.value:
                message += ", in which /* starts a comment"
            text = strings.without_letters(token.value.removesuffix(","))
            _report(scanner, token, Code.NEEDS_QUOTES, message, quoted=text)
    return Value(text, annotation, line, column)


def read_list(scanner: Scanner, *, in_property: bool = False) -> list[Value] | None:
    """Report a `[…]` at the current token, which KDL does not have, and go to the token after it.

    Returns its items, or None if it has no end, or if there are lists or blocks in it.
    """
    found = _ARRAY.match(scanner.text, scanner.start)
    if found is None:
        _skip_list(scanner)
        return None
    values: list[Value] = []
    written: list[str] = []
    for item in _ITEM.finditer(scanner.text, found.start() + 1, found.end() - 1):
        if item.lastindex is None:
            continue
        line, column = scanner.place(item.start())
        value, text = _item(item)
        values.append(Value(value, None, line, column))
        written.append(text)
    shown = " ".join(written[:_MAX_SHOWN]) + (" …" if len(written) > _MAX_SHOWN else "")
    message = f"expected a value, got a list in brackets: {shortened(found[0])}"
    suggestion = f"write the values one after the other: {shown}" if written else "remove the brackets"
    if in_property:
        suggestion = f"write a child node with the values instead of a property: name {shown}".rstrip()
    else:
        scanner.edit(found.start(), found.end(), " ".join(written))
    scanner.report(Code.ARRAY, found.start(), message, suggestion)
    scanner.move_to(found.end())
    scanner.advance()
    return values


def _skip_list(scanner: Scanner) -> None:
    """Report a list that cannot be read, and skip it if it is written as in JSON and has an end."""
    message = "expected a value, got [, and KDL has no lists"
    end = _end_of_nested_list(scanner)
    if end is None:
        scanner.has_unread_list = True
        suggestion = "write the values one after the other, without brackets"
        scanner.report(Code.ARRAY, scanner.start, message, suggestion)
        return
    scanner.report(Code.ARRAY, scanner.start, message, "write a node for each item between { and }")
    scanner.move_to(end)
    scanner.advance()


def _end_of_nested_list(scanner: Scanner) -> int | None:
    """Return where a list with lists or blocks in it ends.

    Brackets around the name of a node should be braces, so they are not a list.
    """
    if scanner.open_lists == _MAX_OPEN_LISTS or _JSON_LIST.match(scanner.text, scanner.start) is None:
        return None
    opened: list[str] = []
    for found in _BRACKET.finditer(scanner.text, scanner.start, scanner.start + _MAX_LIST):
        if found[0] in _OPENING:
            opened.append(found[0])
        elif found[0] in _CLOSING:
            if opened.pop() != _CLOSING[found[0]]:
                break
            if not opened:
                return found.end()
    scanner.open_lists += 1
    return None


def is_at_list(scanner: Scanner) -> bool:
    """Whether the current token opens a `[…]`, and not a text such as `[::1]:80`."""
    if scanner.value != "[" or scanner.kind is not Kind.OTHER:
        return False
    end = end_of_list(scanner)
    return end is None or _AFTER_LIST.match(scanner.text, end) is None


def end_of_list(scanner: Scanner) -> int | None:
    """Return where the `[…]` at the current token ends, or None if it is not a list."""
    found = _ARRAY.match(scanner.text, scanner.start)
    return _end_of_nested_list(scanner) if found is None else found.end()


def warn_of_url(scanner: Scanner) -> None:
    """Warn if the current token, a comment, is the rest of a URL without quotes."""
    start = scanner.start
    scheme = _SCHEME.search(scanner.text, max(0, start - _MAX_SCHEME), start)
    if scheme is None:
        return
    rest = scanner.text[start : scanner.end].split(maxsplit=1)[0]
    url = (scheme[0] + rest).removesuffix('"')
    message = f"expected a URL in quotes, got {shortened(url)}, in which // starts a comment"
    place = (scanner.line, scanner.column - len(scheme[0]))
    scanner.warnings.add(Code.COMMENT_IN_URL, place, message, f"write {shortened(strings.quote(url))}")


def _item(found: re.Match[str]) -> tuple[Scalar, str]:
    """Return the value of an item of a list, and how to write it."""
    text = found[0]
    if found[1] is not None:
        value = strings.unescape(text[1:-1])
        return value, strings.quote(value)
    if text in BARE_KEYWORDS:
        text = f"#{text}"
    if text in KEYWORDS:
        return KEYWORDS[text], text
    number = _read_number(text)
    if number is not None:
        return number, text
    return text, text if is_word(text) else strings.quote(text)


def _number(scanner: Scanner, token: Token, annotation: Annotation | None) -> Value:
    text, line, column = token.value, token.line, token.column
    if len(text) > numbers.MAX_DIGITS:
        message = f"expected a number of at most {numbers.MAX_DIGITS} characters, got {len(text)}"
        scanner.problems.add(Code.NUMBER_TOO_LONG, (line, column), message, "write it as a string in quotes")
        return Value(text, annotation, line, column)
    value = numbers.read(text)
    if value is not None:
        return Value(value, annotation, line, column, "" if str(value) == text else text)
    if (corrected := numbers.with_leading_digit(text)) is not None:
        scanner.edit(token.start, token.end, corrected)
        message = f"expected a digit before the point, got {shortened(text)}"
        scanner.problems.add(Code.NEEDS_QUOTES, (line, column), message, f"write {shortened(corrected)}")
        return Value(numbers.read(corrected), annotation, line, column)
    if text[-1] == "," and (value := numbers.read(text[:-1])) is not None:
        scanner.edit(token.end - 1, token.end, "")
        place = (line, column + len(text) - 1)
        scanner.problems.add(Code.UNEXPECTED, place, COMMA, NO_COMMA)
        return Value(value, annotation, line, column)
    message = f"expected a number or a string in quotes, got {shortened(text)}"
    text = text.removesuffix(",")
    _report(scanner, token, Code.NEEDS_QUOTES, message, quoted=text)
    return Value(text, annotation, line, column)


def read_query(scanner: Scanner, token: Token) -> Token:
    """Return a text that goes on after its first =, such as `/search?q=a&page=2`, and go to the token after it."""
    found = _QUERY.match(scanner.text, token.end)
    return token if found is None else _extended(scanner, token, found.end())


def _extended(scanner: Scanner, token: Token, end: int) -> Token:
    """Return a token that goes on up to an offset, and go to the token after it."""
    scanner.move_to(end)
    scanner.advance()
    return Token(Kind.OTHER, scanner.text[token.start : end], token.start, end, token.line, token.column)


def _whole_text(scanner: Scanner, token: Token) -> Token:
    """Return a text that starts with a quote of another language up to the second of them."""
    end = _end_of_quoted(scanner.text, token.start)
    return token if end is None or end <= token.end else _extended(scanner, token, end)


def _end_of_quoted(text: str, start: int) -> int | None:
    """Return where a text in quotes of another language ends, if it ends on its line."""
    closing = strings.LETTERS.get(text[start])
    end = -1 if closing is None else text.find(closing, start + 1, start + _MAX_QUOTED)
    is_text = end > 0 and NEWLINE.search(text, start, end) is None and _VALUE_ENDS.match(text, end + 1)
    return end + 1 if is_text else None


def _warn_of_quotes(scanner: Scanner, token: Token) -> None:
    end = _end_of_quoted(scanner.text, token.start)
    if end is None:
        return
    written = scanner.text[token.start : end]
    message = f'expected a text between " and ", got {shortened(written)}, in which the quotes are letters'
    suggestion = f"write {shortened(strings.quote(strings.without_letters(written)))}"
    scanner.warnings.add(Code.QUOTES_IN_TEXT, (token.line, token.column), message, suggestion)


def _warn_of_comma(scanner: Scanner, token: Token) -> None:
    text = shortened(token.value)
    message = f"expected white space between values, got a comma, which becomes part of the text {text}"
    suggestion = f'remove the comma, or write "{text}" if it is meant'
    scanner.warnings.add(Code.COMMA_IN_TEXT, (token.line, token.column), message, suggestion)


def _read_number(text: str) -> int | float | None:
    return numbers.read(text) if len(text) <= numbers.MAX_DIGITS else None


def _is_number(text: str) -> bool:
    return _read_number(text) is not None


def _report_keyword(scanner: Scanner, token: Token) -> None:
    lower = token.value.lower()
    if lower in KEYWORDS:
        scanner.edit(token.start, token.end, lower)
        suggestion = f"write {lower}"
    else:
        suggestion = f"write {shortened(strings.quote(token.value))} if it is a text"
    message = f"expected #true, #false, #null, #inf, #-inf or #nan, got {shortened(token.value)}"
    if not scanner.is_replaced(token.value):
        scanner.problems.add(Code.UNKNOWN_KEYWORD, (token.line, token.column), message, suggestion)


def _report(scanner: Scanner, token: Token, code: Code, message: str, *, quoted: str) -> None:
    """Report a token that should be in quotes. If a disallowed character is in it, that is reported already."""
    if scanner.is_replaced(quoted):
        return
    written = strings.quote(quoted)
    scanner.edit(token.start, token.end, written)
    scanner.problems.add(code, (token.line, token.column), message, f"write {shortened(written)}")
