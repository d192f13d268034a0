"""Rejects JSON that parsers read differently.

We store JSON and pass it on, and what one parser accepts another may not: duplicate keys, integers beyond 64 bits,
lone surrogates, NUL characters, deep nesting. A body that has any of these is rejected, with the field, before it
is decoded.

A valid body is checked at the speed of the standard library's parser. Only an invalid one is parsed again, slowly,
to find the field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import reduce
from itertools import islice
from typing import Final, NoReturn

from sentinel.core.json import Json
from sentinel.web import decoding, problem
from sentinel.web.problem import FieldError, Problem, field_path

MAX_DEPTH: Final = 64
"""Levels of nesting."""

_MAX_INTEGER, _MIN_INTEGER = 2**63 - 1, -(2**63)
_MAX_DIGITS = 20
"""The length of the longest integer that may fit, with its sign. Python takes quadratic time for long integers."""
_MAX_ERRORS = 20
_MAX_TOKENS = 20_000
"""How many tokens are read to find the path of an error."""

# The final quote is optional, so that an unterminated string is scanned once, not from each quote in it.
_STRING = re.compile(rb'(?s)"[^"\\]*+(?:\\.[^"\\]*+)*+"?+')
_TOKEN = re.compile(_STRING.pattern + rb"|[\[\]{}:,]")
_ALL_BUT_BRACKETS = bytes(sorted(set(range(256)) - set(b"[]{}")))
_TOO_MANY_OPEN = re.compile(rb"[\[{]{%d}" % (MAX_DEPTH + 1))
_SUSPECT_ESCAPE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def check(body: bytes) -> None:
    """Raise a `Problem` unless the body is one JSON value that all parsers read in the same way."""
    content = decoding.decode_utf8(body)
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH:
        _check_depth(body)
    try:
        _STRICT.decode(content)
    except json.JSONDecodeError as error:
        raise _syntax_error(error) from None
    except _Unacceptable:
        raise problem.bad_fields(_find_errors(content)) from None
    if _SUSPECT_ESCAPE.search(body) and (errors := _find_errors(content)):
        raise problem.bad_fields(errors)


def _check_depth(body: bytes) -> None:
    """Check the nesting by removing all innermost pairs of brackets, once per allowed level.

    There is no recursion and no Python loop over the body, so deep nesting costs no more than a long array.
    """
    brackets = _STRING.sub(b"", body).translate(None, _ALL_BUT_BRACKETS)
    if _TOO_MANY_OPEN.search(brackets):
        raise _too_deep(body)
    for _ in range(MAX_DEPTH):
        inner = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(inner) == len(brackets):
            break
        brackets = inner
    # A few unmatched brackets are a syntax error, which the parser describes better.
    if brackets.count(b"[") + brackets.count(b"{") > MAX_DEPTH or (brackets and _is_balanced(brackets)):
        raise _too_deep(body)


def _too_deep(body: bytes) -> Problem:
    message = f"expected at most {MAX_DEPTH} levels of nesting, got more"
    return problem.malformed(message, field=_first_too_deep(body))


def _first_too_deep(body: bytes) -> str:
    """Return the path of the first value that is nested too deeply, or nothing if it is far into the body.

    The body has not been parsed yet. If it is not valid JSON, the path is arbitrary.
    """
    steps: list[str | int] = []
    text = b""
    for token in islice(_TOKEN.finditer(body), _MAX_TOKENS):
        match token[0]:
            case b"[" | b"{" if len(steps) == MAX_DEPTH:
                return reduce(field_path, steps, "")
            case b"[":
                steps.append(0)
            case b"{":
                steps.append("")
            case b"]" | b"}":
                del steps[-1:]
            case b":":
                steps[-1:] = [text[1:-1].decode()]
            case b",":
                steps[-1:] = [step + 1 if isinstance(step, int) else step for step in steps[-1:]]
            case string:
                text = string
    return ""


def _is_balanced(brackets: bytes) -> bool:
    return brackets.count(b"[") == brackets.count(b"]") and brackets.count(b"{") == brackets.count(b"}")


def _syntax_error(error: json.JSONDecodeError) -> Problem:
    if not error.doc.strip(" \t\n\r"):
        return problem.malformed("expected a JSON value, got nothing")
    # The standard library's messages: "Expecting ',' delimiter", "Extra data", "Unterminated string starting at".
    message = error.msg[:1].lower() + error.msg[1:].removesuffix(" at").removesuffix(":")
    return problem.malformed(
        f"expected JSON, got a syntax error: {message}", line=error.lineno, column=error.colno
    )


class _Unacceptable(Exception):
    """The parser found valid JSON that we reject."""


def _members(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Unacceptable
    return members


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS or not _MIN_INTEGER <= (number := int(digits)) <= _MAX_INTEGER:
        raise _Unacceptable
    return number


def _number(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise _Unacceptable
    return number


def _reject_constant(name: str) -> NoReturn:
    raise _Unacceptable


_STRICT = json.JSONDecoder(
    object_pairs_hook=_members, parse_int=_integer, parse_float=_number, parse_constant=_reject_constant
)


class _InvalidValue:
    """An invalid value in the tree that `_errors` walks."""

    def __init__(self, message: str) -> None:
        self.message = message


class _Members:
    """An object in that tree, with duplicate keys."""

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        self.pairs = pairs


def _find_errors(content: str) -> list[FieldError]:
    """Return the errors of valid JSON, in document order; none if it only looked suspicious."""
    lenient = json.JSONDecoder(
        object_pairs_hook=_Members,
        parse_int=_integer_or_error,
        parse_float=_float_or_error,
        parse_constant=lambda name: _InvalidValue(f"expected a finite number, got {name}"),
    )
    try:
        tree = lenient.decode(content)
    except json.JSONDecodeError as error:  # after the value that the strict parser stopped at
        raise _syntax_error(error) from None
    return list(islice(_errors(tree, ""), _MAX_ERRORS))


def _integer_or_error(digits: str) -> object:
    try:
        return _integer(digits)
    except _Unacceptable:
        return _InvalidValue("expected an integer of at most 64 bits, got a larger one")


def _float_or_error(digits: str) -> object:
    try:
        return _number(digits)
    except _Unacceptable:
        return _InvalidValue("expected a number that 64 bits can hold, got a larger one")


def _errors(node: object, path: str) -> Iterator[FieldError]:
    match node:
        case _InvalidValue():
            yield FieldError(path, node.message)
        case str():
            if reason := _text_error(node):
                yield FieldError(path, f"expected text, got {reason}")
        case _Members():
            seen = set()
            for key, value in node.pairs:
                if reason := _text_error(key):
                    yield FieldError(path, f"expected keys that are text, got {reason} in one")
                    continue
                inner = field_path(path, key)
                if key in seen:
                    yield FieldError(inner, "duplicate key; expected it once")
                seen.add(key)
                yield from _errors(value, inner)
        case list():
            for index, value in enumerate(node):
                yield from _errors(value, field_path(path, index))
        case _:
            pass


def _text_error(text: str) -> str:
    if "\0" in text:
        return "a NUL character"
    return "half of a surrogate pair" if _LONE_SURROGATE.search(text) else ""
