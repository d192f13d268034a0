"""Cursors: they round-trip, and belong to one query."""

from __future__ import annotations

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.web import lists
from sentinel.web.problem import Problem


class Position(msgspec.Struct, frozen=True, array_like=True):
    value: str | int
    id: str


POSITION = Position("a name", "0190")
QUERY = ("clusters", {"b": 1, "a": 2})
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=50)


def rejection(text: str) -> Problem:
    with pytest.raises(Problem) as rejected:
        lists.decode_cursor(text, Position, query=QUERY)
    return rejected.value


@given(TEXT | st.integers(min_value=-(2**63), max_value=2**63 - 1), TEXT)
def test_a_cursor_round_trips_its_position(value: str | int, id_: str) -> None:
    text = lists.encode_cursor(Position(value, id_), query=QUERY)

    assert lists.decode_cursor(text, Position, query=QUERY) == Position(value, id_)


def test_a_cursor_needs_no_escaping_in_a_url() -> None:
    text = lists.encode_cursor(Position("\u00ff" * 40, "?&=/+"), query=QUERY)

    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def test_the_order_of_keys_in_a_query_does_not_matter() -> None:
    text = lists.encode_cursor(POSITION, query={"a": 1, "b": 2})

    assert lists.decode_cursor(text, Position, query={"b": 2, "a": 1}) == POSITION


def test_the_cursor_of_another_query_is_rejected() -> None:
    rejected = rejection(lists.encode_cursor(POSITION, query=("nodepools", {})))

    assert rejected.status == 400
    assert rejected.errors[0].field == "after"
    assert "the same query" in rejected.errors[0].message


def encode_forged(content: bytes) -> str:
    valid = base64.urlsafe_b64decode(lists.encode_cursor(POSITION, query=QUERY) + "==")
    return base64.urlsafe_b64encode(valid[:8] + content).decode().rstrip("=")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "AAAA",
        "é" * 20,
        "a b",
        "A" * 5000,
        encode_forged(b""),
        encode_forged(b"[]"),
        encode_forged(b"[1]"),
        encode_forged(b'["a", 2]'),
        encode_forged(b'["\\u0000", "x"]'),
        encode_forged(b'["\\ud800", "x"]'),
        encode_forged(b"[99999999999999999999, 'x']"),
        encode_forged(b'[99999999999999999999, "x"]'),
        encode_forged(b"\xff"),
    ],
)
def test_invalid_cursors_are_a_400_that_names_after(text: str) -> None:
    rejected = rejection(text)

    assert rejected.status == 400
    assert rejected.errors[0].field == "after"


@given(st.text(max_size=60))
def test_any_other_string_is_a_400(text: str) -> None:
    assert rejection(text).status == 400
