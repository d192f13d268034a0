"""Decoding bodies and query strings, and the fields that errors name."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

import msgspec
import pytest

from sentinel.web import decoding
from sentinel.web.problem import FieldError, Problem


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    size: Annotated[int, msgspec.Meta(ge=1)] = 1
    colour: Colour = Colour.RED


Short = Annotated[str, msgspec.Meta(max_length=3)]


class Thing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    rules: dict[str, list[Rule]] = {}
    labels: dict[Short, Short] = {}
    owner: Rule | None = None
    at: datetime | None = None
    mode: Literal["on", "off"] = "on"


class Query(msgspec.Struct, frozen=True):
    size: Annotated[int, msgspec.Meta(ge=1, le=10)] = 5
    colour: Colour | None = None
    after: str = ""
    is_deep: bool = msgspec.field(default=False, name="deep")


def body_error(body: bytes) -> FieldError:
    with pytest.raises(Problem) as rejected:
        decoding.decode(body, Thing)
    (error,) = rejected.value.errors
    return error


def query_errors(query: bytes) -> list[tuple[str, str]]:
    with pytest.raises(Problem) as rejected:
        decoding.decode_query(query, Query)
    return [(error.field, error.message) for error in rejected.value.errors]


def test_an_invalid_member_is_named_among_many() -> None:
    before = ",".join(f'"{number:x}": "v"' for number in range(4000))

    error = body_error(f'{{"name": "a", "labels": {{{before}, "z": 1, "y": []}}}}'.encode())

    assert error == FieldError("labels.z", "expected a string, got an integer")


def test_a_valid_body_is_decoded() -> None:
    thing = decoding.decode(b'{"name": "a", "owner": {"size": 2}}', Thing)

    assert thing == Thing("a", owner=Rule(2))


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"[]", FieldError("", "expected an object, got an array")),
        (b"{}", FieldError("name", "required, but missing")),
        (b'{"name": 1}', FieldError("name", "expected a string, got an integer")),
    ],
)
def test_a_body_that_is_not_a_thing_is_rejected(body: bytes, error: FieldError) -> None:
    assert body_error(body) == error


@pytest.mark.parametrize(
    ("member", "error"),
    [
        ('"lables": {}', "lables: unknown field; did you mean labels?"),
        ('"zzz": 1', "zzz: unknown field; expected one of name, rules, labels, owner, at, mode"),
        ('"owner": {"sise": 1}', "owner.sise: unknown field; did you mean size?"),
        ('"owner": {"colour": "pink"}', "owner.colour: expected one of red, blue"),
        ('"mode": "maybe"', "mode: expected one of off, on"),
        ('"rules": {"ok": [], "x.y": [{"size": 0}]}', 'rules["x.y"][0].size: expected an integer >= 1'),
        ('"rules": {"a": [{"sice": 0}]}', "rules.a[0].sice: unknown field; did you mean size?"),
        ('"labels": {"a": "b", "c": "long"}', "labels.c: expected a string of length <= 3"),
        ('"labels": {"long": "b"}', "labels: of one of its keys: expected a string of length <= 3"),
        ('"at": "now"', "at: expected a time with its zone, such as 2026-01-31T12:00:00Z"),
        ('"at": true', "at: expected a time or null, got a boolean"),
    ],
)
def test_an_invalid_member_is_named(member: str, error: str) -> None:
    found = body_error(f'{{"name": "a", {member}}}'.encode())

    assert f"{found.field}: {found.message}" == error


def test_a_query_is_converted_from_text() -> None:
    query = decoding.decode_query(b"size=7&colour=blue&deep=true&after=a%2Bb+c", Query)

    assert query == Query(7, Colour.BLUE, "a+b c", True)


def test_an_empty_query_has_the_defaults() -> None:
    assert decoding.decode_query(b"", Query) == Query()


@pytest.mark.parametrize(
    ("query", "errors"),
    [
        (b"size=0", [("size", 'expected an integer >= 1, got "0"')]),
        (b"size=ten", [("size", 'expected an integer, got "ten"')]),
        (b"size=", [("size", 'expected an integer, got ""')]),
        (b"colour=pink", [("colour", 'expected one of red, blue, got "pink"')]),
        (b"colour=null", [("colour", 'expected a value, got "null"')]),
        (b"sise=1", [("sise", "unknown parameter; did you mean size?")]),
        (b"size=1&size=2", [("size", "expected this parameter once, got it repeatedly")]),
        (b"after=%00", [("after", "expected text, got a NUL character")]),
        (
            b"after=a&after=b&foo=1&size=99",
            [
                ("after", "expected this parameter once, got it repeatedly"),
                ("foo", "unknown parameter; expected one of size, colour, after, deep"),
                ("size", 'expected an integer <= 10, got "99"'),
            ],
        ),
    ],
)
def test_every_invalid_parameter_is_named(query: bytes, errors: list[tuple[str, str]]) -> None:
    assert query_errors(query) == errors


def test_without_a_struct_every_parameter_is_rejected() -> None:
    with pytest.raises(Problem, match="a: unknown parameter; expected none"):
        decoding.decode_query(b"a=1", None)


@pytest.mark.parametrize("query", [b"after=%ff", b"&".join(b"a%d=1" % n for n in range(65))])
def test_a_query_that_is_not_text_or_too_long_is_rejected(query: bytes) -> None:
    with pytest.raises(Problem) as rejected:
        decoding.decode_query(query, Query)

    assert rejected.value.status == 400
