"""Times as servers write them, and as we write them."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_or_none(time: datetime | None) -> datetime | None:
    """Return the time in UTC, or None for Go's zero time, which Go servers write for a time that is not set."""
    if time is None or time.year == 1:
        return None
    return time if time.tzinfo is UTC else to_utc(time)


def to_utc(time: datetime) -> datetime:
    """Return the time in UTC. A time without an offset is taken as UTC."""
    if time.tzinfo is None:
        return time.replace(tzinfo=UTC)
    try:
        return time.astimezone(UTC)
    except OverflowError:  # the end of year 9999 west of UTC, which some servers write for "never"
        return datetime.max.replace(tzinfo=UTC)


def timestamp(time: datetime) -> str:
    """Return the time in RFC 3339 and UTC, with microseconds if there are any."""
    return time.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
