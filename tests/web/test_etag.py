"""ETags: comparison, `If-Match` and `If-None-Match`."""

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
def test_if_match_accepts_the_current_version(header: str) -> None:
    condition = etag.parse(header, name="If-Match")

    assert condition is not None
    assert condition.matches(CURRENT)


@pytest.mark.parametrize("header", ['"8"', 'W/"7"', '"77"', '""', '"a,7"', "8", "W, 77"])
def test_if_match_rejects_other_versions(header: str) -> None:
    condition = etag.parse(header, name="If-Match")

    assert condition is not None
    assert not condition.matches(CURRENT)


def test_without_the_header_there_is_no_precondition() -> None:
    assert etag.parse(None, name="If-Match") is None


@pytest.mark.parametrize("header", ["", ",", '"7', '"7" "8"', "7 8", "*, *", "W/7", 'w/"7"', '"a b"', '7"'])
def test_an_invalid_list_of_etags_is_a_400_that_names_the_header(header: str) -> None:
    with pytest.raises(Problem) as rejected:
        etag.parse(header, name="If-Match")

    assert rejected.value.status == 400
    assert rejected.value.errors[0].field == "If-Match"


@pytest.mark.parametrize(
    ("header", "is_not_modified"),
    [(None, False), ('"7"', True), ('W/"7"', True), ('"8", W/"7"', True), ('"8"', False), ("*", True)],
)
def test_if_none_match_compares_weakly(header: str | None, is_not_modified: bool) -> None:
    assert etag.is_not_modified(header, CURRENT) is is_not_modified


def test_a_missing_resource_matches_nothing() -> None:
    condition = etag.parse("*", name="If-Match")

    assert condition is not None
    assert not condition.matches(None)
