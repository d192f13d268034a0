"""Times in RFC 3339. How times of servers are read is tested with observations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from sentinel.core.times import timestamp


def test_a_timestamp_is_in_utc() -> None:
    east = timezone(timedelta(hours=2))

    assert timestamp(datetime(2025, 10, 21, 14, 0, tzinfo=east)) == "2025-10-21T12:00:00Z"
    assert timestamp(datetime(2025, 1, 1, 0, 0, 0, 1000, UTC)) == "2025-01-01T00:00:00.001000Z"
