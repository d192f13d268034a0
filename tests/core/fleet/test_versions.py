"""Versions of a resource: when the ETag of its document changes, and when the version of its row does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.fleet import versions

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_version_rises_although_the_clock_stands_still_or_goes_back() -> None:
    first = versions.after_change(0, now=NOW)
    second = versions.after_change(first, now=NOW)
    third = versions.after_change(second, now=NOW - timedelta(days=1))

    assert first < second < third


def test_a_new_resource_has_a_version_that_no_earlier_one_had() -> None:
    former = versions.after_change(versions.after_change(0, now=NOW), now=NOW)

    assert versions.after_change(0, now=NOW + timedelta(microseconds=2)) > former


def test_work_in_progress_changes_the_row_and_not_the_document() -> None:
    changed = versions.after_change(0, now=NOW)

    first = versions.after_work_in_progress(changed, now=NOW)
    second = versions.after_work_in_progress(first, now=NOW)

    assert changed < first < second
    assert {versions.of_document(each) for each in (changed, first, second)} == {changed}


def test_the_highest_version_fits_into_63_bits() -> None:
    assert versions.after_change(0, now=datetime(2255, 1, 1, tzinfo=UTC)) < 2**63


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=60), st.integers(0, 2**51))
def test_every_write_has_its_own_version(writes: list[tuple[bool, int]], version: int) -> None:
    """The first version is any: older servers did not reserve the last digits."""
    for is_work, microseconds in writes:
        before, now = version, NOW + timedelta(microseconds=microseconds)
        if is_work:
            version = versions.after_work_in_progress(before, now=now)
        else:
            version = versions.after_change(before, now=now)
            assert versions.of_document(version) == version
            assert versions.of_document(version) > versions.of_document(before)
        assert version > before


def test_very_many_writes_of_work_in_progress_never_repeat_a_version() -> None:
    version = versions.after_change(0, now=NOW)
    documents = set()

    for _ in range(3000):
        after = versions.after_work_in_progress(version, now=NOW)
        assert after > version
        documents.add(versions.of_document(after))
        version = after

    assert len(documents) == 3
