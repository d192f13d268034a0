"""Column types that behave the same in both databases, and the encoding of times.

Times are microseconds since 1970 in UTC: both databases compare, index and return integers in the same way, but
their timestamp types differ. Texts compare by bytes, which for UTF-8 is the order of Python's strings, so a cursor
means the same in every store.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, Column, Integer, Text
from sqlalchemy.types import TypeEngine

TEXT = Text().with_variant(Text(collation="C"), "postgresql")
NUMBER = BigInteger().with_variant(Integer, "sqlite")
"""64 bits in both. SQLite generates a primary key only for the type INTEGER."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def required(kind: TypeEngine[Any], *names: str) -> list[Column[Any]]:
    """Columns of one type that are never null."""
    return [Column(name, kind, nullable=False) for name in names]


def to_micros(time: datetime) -> int:
    """Encode a time for storage."""
    return (time - _EPOCH) // _MICROSECOND


def from_micros(stored: int) -> datetime:
    """Decode a stored time."""
    return _EPOCH + timedelta(microseconds=stored)
