"""The states of an instance, and every change from one to another. There are no others."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """What an instance is, as users see it."""

    UNKNOWN = "unknown"
    """It has not registered yet."""
    ONLINE = "online"
    DEPLOYING = "deploying"
    """A deployment is in progress."""
    DEGRADED = "degraded"
    """It runs, but reports problems, or a deployment and its rollback failed."""
    OFFLINE = "offline"
    """The hub has not heard of it for `offline_threshold`."""
    DRAINING = "draining"
    """It is leaving: no new connections, no new configuration."""
    REMOVED = "removed"
    """It has left. Another Register begins a new incarnation."""


CONNECTED: Final = frozenset((State.ONLINE, State.DEPLOYING, State.DEGRADED))
"""The states of an instance that the hub hears of."""


class Trigger(StrEnum):
    """What changes a state. Where a state has no row for it in `TRANSITIONS`, nothing changes."""

    REGISTERED = "registered"
    HEARD = "heartbeat"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    DEPLOYMENT = "deployment"
    """It is the target of a deployment."""
    DEPLOYMENT_ENDED = "deployment ended"
    ROLLBACK_FAILED = "rollback failed"
    SILENT = "no heartbeat"
    DEREGISTERED = "deregistered"
    DRAIN_REQUESTED = "drain requested"
    OFFLINE_TOO_LONG = "offline too long"
    DRAINED = "drained"


TRANSITIONS: Final[Mapping[tuple[State, Trigger], State]] = {
    (State.UNKNOWN, Trigger.REGISTERED): State.ONLINE,
    (State.ONLINE, Trigger.DEPLOYMENT): State.DEPLOYING,
    (State.ONLINE, Trigger.UNHEALTHY): State.DEGRADED,
    (State.ONLINE, Trigger.SILENT): State.OFFLINE,
    (State.ONLINE, Trigger.DEREGISTERED): State.DRAINING,
    (State.ONLINE, Trigger.DRAIN_REQUESTED): State.DRAINING,
    (State.DEPLOYING, Trigger.DEPLOYMENT_ENDED): State.ONLINE,
    (State.DEPLOYING, Trigger.ROLLBACK_FAILED): State.DEGRADED,
    (State.DEPLOYING, Trigger.SILENT): State.OFFLINE,
    (State.DEPLOYING, Trigger.DEREGISTERED): State.DRAINING,
    (State.DEPLOYING, Trigger.DRAIN_REQUESTED): State.DRAINING,
    (State.DEGRADED, Trigger.HEALTHY): State.ONLINE,
    (State.DEGRADED, Trigger.SILENT): State.OFFLINE,
    (State.DEGRADED, Trigger.DEREGISTERED): State.DRAINING,
    (State.DEGRADED, Trigger.DRAIN_REQUESTED): State.DRAINING,
    (State.OFFLINE, Trigger.REGISTERED): State.ONLINE,
    (State.OFFLINE, Trigger.HEARD): State.ONLINE,
    (State.OFFLINE, Trigger.DEREGISTERED): State.DRAINING,
    (State.OFFLINE, Trigger.DRAIN_REQUESTED): State.DRAINING,
    (State.OFFLINE, Trigger.OFFLINE_TOO_LONG): State.DRAINING,
    (State.DRAINING, Trigger.DEREGISTERED): State.REMOVED,
    (State.DRAINING, Trigger.DRAINED): State.REMOVED,
}
"""The state after a trigger."""
