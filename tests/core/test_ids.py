"""Ids that sort by time, and the form of ids in URLs."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.ids import RANDOM_BYTES, segment_pattern, uuid7, uuid7s


@given(
    st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2500, 1, 1), timezones=st.just(UTC)),
    st.binary(min_size=10, max_size=10),
)
def test_an_id_is_a_uuid_of_version_7_with_its_time(now: datetime, random_bytes: bytes) -> None:
    made = uuid.UUID(uuid7(now, random_bytes))

    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert abs((made.int >> 80) - now.timestamp() * 1000) <= 1


@given(
    st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2500, 1, 1), timezones=st.just(UTC)),
    st.lists(st.binary(min_size=RANDOM_BYTES, max_size=RANDOM_BYTES), max_size=5),
)
def test_ids_made_together_are_those_made_one_by_one(now: datetime, randoms: list[bytes]) -> None:
    together = uuid7s(now, b"".join(randoms))

    assert together == [uuid7(now, random_bytes) for random_bytes in randoms]
    # The random bits that version and variant leave free are kept.
    free = ~(0xF << 76 | 0x3 << 62) & (2**80 - 1)
    assert [uuid.UUID(made).int & free for made in together] == [
        int.from_bytes(random_bytes, "big") & free for random_bytes in randoms
    ]


@pytest.mark.parametrize("text", ["c1", "a.b", "..a", "~x_-", "x" * 128])
def test_a_string_without_escapes_matches_the_segment_pattern(text: str) -> None:
    assert re.fullmatch(segment_pattern(128), text)


@pytest.mark.parametrize("text", ["", ".", "..", "a/b", "a b", "a%2f", "é", "x" * 129])
def test_a_string_that_needs_escapes_does_not_match(text: str) -> None:
    assert re.fullmatch(segment_pattern(128), text) is None
