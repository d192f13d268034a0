"""ETags: comparing them, and the two headers that carry them."""

from __future__ import annotations

import pytest

from sentinel.web import etag
from sentinel.web.problem import Problem

CURRENT = etag.strong(7)


def test_an_etag_is_in_quotes() -> None:
    assert etag.strong(7) == '"7"'


@pytest.mark.parametrize(
    "header", ["*", '"7"', '"1", "7"', '"1","7" ,"9"', ', "7",', '"a,b", "7"', 'W/"1", "7"', "7", "1, 7"]
)
def test_if_match_admits_the_current_version(header: str) -> None:
    condition = etag.parse(header, name="If-Match")

    assert condition is not None
    assert condition.matches(CURRENT)


@pytest.mark.parametrize("header", ['"8"', 'W/"7"', '"77"', '""', '"a,7"', "8", "W, 77"])
def test_if_match_admits_no_other_version(header: str) -> None:
    condition = etag.parse(header, name="If-Match")

    assert condition is not None
    assert not condition.matches(CURRENT)


def test_without_the_header_there_is_no_condition() -> None:
    assert etag.parse(None, name="If-Match") is None


@pytest.mark.parametrize("header", ["", ",", '"7', '"7" "8"', "7 8", "*, *", "W/7", 'w/"7"', '"a b"', '7"'])
def test_what_is_no_list_of_etags_is_a_400_that_names_the_header(header: str) -> None:
    with pytest.raises(Problem) as refused:
        etag.parse(header, name="If-Match")

    assert refused.value.status == 400
    assert refused.value.errors[0].field == "If-Match"


@pytest.mark.parametrize(
    ("header", "is_spared"),
    [(None, False), ('"7"', True), ('W/"7"', True), ('"8", W/"7"', True), ('"8"', False), ("*", True)],
)
def test_if_none_match_compares_weakly(header: str | None, is_spared: bool) -> None:
    assert etag.is_not_modified(header, CURRENT) is is_spared


def test_what_is_not_there_matches_nothing() -> None:
    condition = etag.parse("*", name="If-Match")

    assert condition is not None
    assert not condition.matches(None)
