"""JSON as strictly as somebody who stores it and hands it on has to take it.

What one parser shrugs off, the next chokes on: a key that comes twice and so means two things, an integer that
only some languages can hold, half of a surrogate pair, a NUL that a database refuses, ten thousand brackets.
All of it is refused here, by name and place, before anything else looks at a body.

The usual body is checked at the speed of the standard library's parser. Only where that trips over something is
the body parsed a second time, slowly, to say where.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import reduce
from itertools import islice
from typing import Final, NoReturn

from sentinel.core.pulse.observation import Json
from sentinel.web import problem, utf8
from sentinel.web.problem import FieldError, Problem, shown

DEEPEST: Final = 64
"""Levels of nesting."""

_LARGEST, _SMALLEST = 2**63 - 1, -(2**63)
_MOST_DIGITS = 20
"""Of an integer that may still fit, its sign included; Python takes long to read what is much longer."""
_MOST_ERRORS = 20
_MOST_TOKENS = 20_000
"""That are looked at for the sake of a path, one by one."""
_LONGEST_NAME = 80
"""Of a member, in a path. A fault below a longer one would answer with much more than was asked."""

# The quote at the end is optional, so that a string which is never closed is looked at once and not from each of
# the quotes in it.
_STRING = re.compile(rb'(?s)"[^"\\]*+(?:\\.[^"\\]*+)*+"?+')
_TOKEN = re.compile(_STRING.pattern + rb"|[\[\]{}:,]")
_NOT_BRACKETS = bytes(sorted(set(range(256)) - set(b"[]{}")))
_RUN = re.compile(rb"[\[{]{%d}" % (DEEPEST + 1))
_ESCAPED_TROUBLE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def check(body: bytes) -> None:
    """Raises a `Problem` unless the body is one JSON value that everybody reads in the same way."""
    content = utf8.decode(body)
    if body.count(b"[") + body.count(b"{") > DEEPEST:
        _check_depth(body)
    try:
        _STRICT.decode(content)
    except json.JSONDecodeError as error:
        raise _syntax_error(error) from None
    except _Unfit:
        raise problem.bad_fields(_explain(content)) from None
    if _ESCAPED_TROUBLE.search(body) and (errors := _explain(content)):
        raise problem.bad_fields(errors)


def join(path: str, key: str | int) -> str:
    """The path of a member or an item of what has this path."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not 0 < len(key) <= _LONGEST_NAME or not key.isprintable() or any(mark in key for mark in '.[]" '):
        return f"{path}[{shown(key)}]"
    return f"{path}.{key}" if path else key


def _check_depth(body: bytes) -> None:
    """Takes innermost pairs of brackets away, all at once, as often as levels are allowed.

    No recursion and no loop over the body: ten thousand levels cost no more than ten thousand commas.
    """
    brackets = _STRING.sub(b"", body).translate(None, _NOT_BRACKETS)
    if _RUN.search(brackets):
        raise _too_deep(body)
    for _ in range(DEEPEST):
        within = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(within) == len(brackets):
            break
        brackets = within
    # A few that do not match are a syntax error, which the parser describes better.
    if brackets.count(b"[") + brackets.count(b"{") > DEEPEST or (brackets and _is_balanced(brackets)):
        raise _too_deep(body)


def _too_deep(body: bytes) -> Problem:
    message = f"expected at most {DEEPEST} levels of nesting, got more"
    return problem.malformed(message, field=_first_too_deep(body))


def _first_too_deep(body: bytes) -> str:
    """The path of the first value that is on a level too many, or nothing where that is far into the body.

    No parser has been here: what is not JSON has some path or other.
    """
    steps: list[str | int] = []
    text = b""
    for token in islice(_TOKEN.finditer(body), _MOST_TOKENS):
        match token[0]:
            case b"[" | b"{" if len(steps) == DEEPEST:
                return reduce(join, steps, "")
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
    # "Expecting ',' delimiter", "Extra data", "Unterminated string starting at": the standard library's words.
    message = error.msg[:1].lower() + error.msg[1:].removesuffix(" at").removesuffix(":")
    return problem.malformed(
        f"expected JSON, got a syntax error: {message}", line=error.lineno, column=error.colno
    )


class _Unfit(Exception):
    """The parser met something that is JSON, and that we do not take."""


def _members(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Unfit
    return members


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS or not _SMALLEST <= (number := int(digits)) <= _LARGEST:
        raise _Unfit
    return number


def _number(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise _Unfit
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise _Unfit


_STRICT = json.JSONDecoder(
    object_pairs_hook=_members, parse_int=_integer, parse_float=_number, parse_constant=_refuse_constant
)


class _Fault:
    """Stands, in a tree that is parsed to find faults, where one is."""

    def __init__(self, message: str) -> None:
        self.message = message


class _Members:
    """An object of such a tree, repetitions and all."""

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        self.pairs = pairs


def _explain(content: str) -> list[FieldError]:
    """What is wrong with a text that is JSON, in its order; nothing where it only looked suspicious."""
    tolerant = json.JSONDecoder(
        object_pairs_hook=_Members,
        parse_int=_integer_fault,
        parse_float=_float_fault,
        parse_constant=lambda name: _Fault(f"expected a finite number, got {name}"),
    )
    try:
        tree = tolerant.decode(content)
    except json.JSONDecodeError as error:  # behind what made the strict parser give up
        raise _syntax_error(error) from None
    return list(islice(_faults(tree, ""), _MOST_ERRORS))


def _integer_fault(digits: str) -> object:
    try:
        return _integer(digits)
    except _Unfit:
        return _Fault("expected an integer of at most 64 bits, got a larger one")


def _float_fault(digits: str) -> object:
    try:
        return _number(digits)
    except _Unfit:
        return _Fault("expected a number that 64 bits can hold, got a larger one")


def _faults(node: object, path: str) -> Iterator[FieldError]:
    match node:
        case _Fault():
            yield FieldError(path, node.message)
        case str():
            if fault := _text_fault(node):
                yield FieldError(path, f"expected text, got {fault}")
        case _Members():
            seen = set()
            for key, value in node.pairs:
                if fault := _text_fault(key):
                    yield FieldError(path, f"expected keys that are text, got {fault} in one")
                    continue
                inner = join(path, key)
                if key in seen:
                    yield FieldError(inner, "duplicate key; expected it once")
                seen.add(key)
                yield from _faults(value, inner)
        case list():
            for index, value in enumerate(node):
                yield from _faults(value, join(path, index))
        case _:
            pass


def _text_fault(text: str) -> str:
    if "\0" in text:
        return "a NUL character"
    return "half of a surrogate pair" if _LONE_SURROGATE.search(text) else ""
