"""What happens while the hub cannot be reached."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Final

import msgspec

_AT_ONCE: Final = timedelta(0)


class OfflineMode(StrEnum):
    """What the agent does while the hub cannot be reached."""

    KEEP_RUNNING = "keep_running"
    SHUTDOWN = "shutdown"
    DEGRADED = "degraded"


class OfflineBehavior(msgspec.Struct, frozen=True, kw_only=True):
    """How long the proxy may serve without a hub, and how that shows."""

    mode: OfflineMode = OfflineMode.KEEP_RUNNING
    max_offline_duration: timedelta | None = None

    @property
    def timeout(self) -> timedelta | None:
        """How long the hub may be away before proxy and agent stop; None: without a limit."""
        if self.max_offline_duration is not None:
            return self.max_offline_duration
        return _AT_ONCE if self.mode is OfflineMode.SHUTDOWN else None

    @property
    def is_degraded(self) -> bool:
        """Whether being offline counts as a problem: of readiness meanwhile, and in the first heartbeat after."""
        return self.mode is OfflineMode.DEGRADED
