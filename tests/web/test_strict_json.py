"""Strict JSON: what is rejected, which field is named, and that malicious bodies are cheap to reject."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.problem_codes import Code
from sentinel.web import strict_json
from sentinel.web.problem import FieldError, Problem

INT64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
VALUES = st.recursive(
    st.none() | st.booleans() | INT64 | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=50,
)

TOO_LARGE = "expected an integer of at most 64 bits, got a larger one"


def rejection(body: bytes) -> Problem:
    with pytest.raises(Problem) as rejected:
        strict_json.check(body)
    return rejected.value


@given(VALUES, st.booleans())
def test_json_of_plain_values_is_accepted(value: object, is_ascii: bool) -> None:
    strict_json.check(json.dumps(value, ensure_ascii=is_ascii).encode())


@given(st.binary(max_size=200))
def test_any_bytes_are_accepted_or_a_problem(body: bytes) -> None:
    try:
        strict_json.check(body)
    except Problem as rejected:
        assert rejected.status == 400
        assert rejected.errors


@pytest.mark.parametrize(
    ("body", "line", "column"),
    [
        (b'{"a":\n tru}', 2, 2),
        (b'{"a": 1} {}', 1, 10),
        (b'"\xff"', 1, 2),
        (b'{"a": "caf\xe9"}', 1, 11),
        (b'["a\x00"]', 1, 4),
        (b"\xef\xbb\xbf{}", 1, 1),
        (b'"' + b'\\"' * 1000, 1, 1),
        (b'{"a": 1, "a": 2,', 1, 17),
    ],
)
def test_invalid_json_is_rejected_with_its_position(body: bytes, line: int, column: int) -> None:
    rejected = rejection(body)

    assert rejected.code == Code.MALFORMED
    assert (rejected.errors[0].line, rejected.errors[0].column) == (line, column)


@pytest.mark.parametrize("body", [b"", b" \n\t"])
def test_an_empty_body_is_rejected(body: bytes) -> None:
    assert rejection(body).errors == (FieldError("", "expected a JSON value, got nothing"),)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"spec": {"a": [0, {"b": 1, "b": 2}]}}', FieldError("spec.a[1].b", "duplicate key; expected it once")),
        (
            b'{"a": 9223372036854775808}',
            FieldError("a", TOO_LARGE),
        ),
        (
            b'{"a": -9223372036854775809}',
            FieldError("a", TOO_LARGE),
        ),
        (
            b'{"a": ' + b"9" * 5000 + b"}",
            FieldError("a", TOO_LARGE),
        ),
        (b'{"a": [1e999]}', FieldError("a[0]", "expected a number that 64 bits can hold, got a larger one")),
        (b'{"a": NaN}', FieldError("a", "expected a finite number, got NaN")),
        (b'{"a": -Infinity}', FieldError("a", "expected a finite number, got -Infinity")),
        (b'{"a": "x\\u0000"}', FieldError("a", "expected text, got a NUL character")),
        (b'{"a": {"\\u0000": 1}}', FieldError("a", "expected keys that are text, got a NUL character in one")),
        (b'{"a": "\\ud800"}', FieldError("a", "expected text, got half of a surrogate pair")),
        (b'{"a": "\\udc00\\ud800"}', FieldError("a", "expected text, got half of a surrogate pair")),
        (b'{"a.b": {"": NaN}}', FieldError('["a.b"][""]', "expected a finite number, got NaN")),
    ],
)
def test_ambiguous_values_are_rejected_by_name(body: bytes, error: FieldError) -> None:
    rejected = rejection(body)

    assert rejected.code == Code.INVALID
    assert rejected.errors == (error,)


@pytest.mark.parametrize(
    "body",
    [b'"\\ud83d\\ude00"', b"9223372036854775807", b"-9223372036854775808", b"1e308", b'"[[[[[[[["', b"[[], {}]"],
)
def test_valid_escapes_are_accepted(body: bytes) -> None:
    strict_json.check(body)


@pytest.mark.parametrize("brackets", [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
def test_64_levels_are_accepted(brackets: tuple[bytes, bytes]) -> None:
    opening, closing = brackets
    times = 64 // (opening.count(b"[") + opening.count(b"{"))

    strict_json.check(opening * times + b"0" + closing * times)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 65 + b"]" * 65,
        b'{"a":' * 65 + b"0" + b"}" * 65,
        b"[" * 10_000,
        b"[" * 10_000 + b"]" * 10_000,
        b"[" * 500_000,
        b"[" * 70 + b'"' + b'\\"' * 400_000,
        b'["]]]]", ' * 70 + b"0" + b"]" * 70,
    ],
)
def test_more_levels_are_rejected_before_parsing(body: bytes) -> None:
    assert rejection(body).detail == "expected at most 64 levels of nesting, got more"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"a": 1, "spec": {"x": ' + b"[" * 63 + b"]" * 63 + b"}}", "spec.x" + "[0]" * 62),
        (b'{"spec": [1, {}, {"b": [], "y.z": ' + b'{"a":' * 70, 'spec[2]["y.z"]' + ".a" * 61),
        (b"[" * 65, "[0]" * 64),
        (b'["{\\"[", ' * 65, "[1]" * 64),
        (b"[" + b"0," * 20_000 + b"[" * 65, ""),
        (b"[}" * 65, ""),
    ],
)
def test_a_value_that_is_too_deep_is_named(body: bytes, field: str) -> None:
    assert rejection(body).errors == (FieldError(field, "expected at most 64 levels of nesting, got more"),)


def test_a_long_key_is_truncated_in_paths() -> None:
    name = b"n" * 1000
    body = b'{"' + name + b'": [' + b",".join([b"NaN"] * 20) + b"]}"

    rejected = rejection(body)

    assert rejected.errors[1].field == f'["{"n" * 79}…"][1]'


def test_many_sibling_brackets_are_not_deep() -> None:
    strict_json.check(b"[" + b"[{}]," * 10_000 + b"[]]")


def test_unmatched_brackets_are_a_syntax_error() -> None:
    assert "syntax error" in rejection(b"[" + b"[]," * 100 + b"}").detail


def test_at_most_twenty_errors_are_listed() -> None:
    assert len(rejection(b"[" + b",".join([b"NaN"] * 100) + b"]").errors) == 20
