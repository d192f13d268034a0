"""Cursors: they come back as they went, and only to the query they belong to."""

from __future__ import annotations

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.web import lists
from sentinel.web.problem import Problem


class Place(msgspec.Struct, frozen=True, array_like=True):
    value: str | int
    id: str


PLACE = Place("a name", "0190")
QUERY = ("clusters", {"b": 1, "a": 2})
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=50)


def refusal(text: str) -> Problem:
    with pytest.raises(Problem) as refused:
        lists.decode_cursor(text, Place, query=QUERY)
    return refused.value


@given(TEXT | st.integers(min_value=-(2**63), max_value=2**63 - 1), TEXT)
def test_a_cursor_brings_back_its_place(value: str | int, id_: str) -> None:
    text = lists.encode_cursor(Place(value, id_), query=QUERY)

    assert lists.decode_cursor(text, Place, query=QUERY) == Place(value, id_)


def test_a_cursor_needs_no_escaping_in_a_url() -> None:
    text = lists.encode_cursor(Place("\u00ff" * 40, "?&=/+"), query=QUERY)

    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def test_the_order_of_keys_in_a_query_does_not_matter() -> None:
    text = lists.encode_cursor(PLACE, query={"a": 1, "b": 2})

    assert lists.decode_cursor(text, Place, query={"b": 2, "a": 1}) == PLACE


def test_the_cursor_of_another_query_is_refused() -> None:
    refused = refusal(lists.encode_cursor(PLACE, query=("nodepools", {})))

    assert refused.status == 400
    assert refused.errors[0].field == "after"
    assert "the same query" in refused.errors[0].message


def forged(content: bytes) -> str:
    genuine = base64.urlsafe_b64decode(lists.encode_cursor(PLACE, query=QUERY) + "==")
    return base64.urlsafe_b64encode(genuine[:8] + content).decode().rstrip("=")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "AAAA",
        "é" * 20,
        "a b",
        "A" * 5000,
        forged(b""),
        forged(b"[]"),
        forged(b"[1]"),
        forged(b'["a", 2]'),
        forged(b'["\\u0000", "x"]'),
        forged(b'["\\ud800", "x"]'),
        forged(b"[99999999999999999999, 'x']"),
        forged(b'[99999999999999999999, "x"]'),
        forged(b"\xff"),
    ],
)
def test_garbage_and_forgeries_are_a_400_that_names_after(text: str) -> None:
    refused = refusal(text)

    assert refused.status == 400
    assert refused.errors[0].field == "after"


@given(st.text(max_size=60))
def test_no_text_whatever_gets_further_than_a_400(text: str) -> None:
    assert refusal(text).status == 400
