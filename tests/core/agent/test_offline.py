"""What happens while the hub cannot be reached."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sentinel.core.agent.offline import OfflineBehavior, OfflineMode

DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("mode", "max_offline_duration", "timeout"),
    [
        (OfflineMode.KEEP_RUNNING, None, None),
        (OfflineMode.DEGRADED, None, None),
        (OfflineMode.SHUTDOWN, None, timedelta(0)),
        (OfflineMode.KEEP_RUNNING, DAY, DAY),
        (OfflineMode.DEGRADED, DAY, DAY),
        (OfflineMode.SHUTDOWN, DAY, DAY),
    ],
)
def test_a_maximum_counts_in_any_mode(
    mode: OfflineMode, max_offline_duration: timedelta | None, timeout: timedelta | None
) -> None:
    assert OfflineBehavior(mode=mode, max_offline_duration=max_offline_duration).timeout == timeout


def test_only_mode_degraded_counts_being_offline_as_a_problem() -> None:
    assert [mode for mode in OfflineMode if OfflineBehavior(mode=mode).is_degraded] == [OfflineMode.DEGRADED]
