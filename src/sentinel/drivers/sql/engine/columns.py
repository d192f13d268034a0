"""Column types that both databases store alike, and how times are kept in them.

Times are microseconds since 1970 in UTC: both databases compare, index and return integers alike, while each has
its own idea of a timestamp. Texts compare by their bytes, which for UTF-8 is the order of Python's own strings, so
a cursor means the same everywhere.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import BigInteger, Integer, Text

TEXT = Text().with_variant(Text(collation="C"), "postgresql")
NUMBER = BigInteger().with_variant(Integer, "sqlite")
"""64 bits in both. SQLite generates a primary key only where its type is INTEGER."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_micros(moment: datetime) -> int:
    """A time as it is stored."""
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(stored: int) -> datetime:
    """A time that was stored."""
    return _EPOCH + timedelta(microseconds=stored)
