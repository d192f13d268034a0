"""Times in tests of the hub."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sentinel.core.hub.instance import Timeouts

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
TIMEOUTS = Timeouts()
