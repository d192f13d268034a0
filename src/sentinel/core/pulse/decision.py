"""Whether a resource is due for an event, and why.

A generation that the adapters have not observed is due at once, whatever its age. Otherwise a trigger is due at
once, unless a later status has answered it: a requested pulse, or an adapter that completed its part and that
other adapters may wait for. Otherwise the age of the last status decides, against one limit for ready resources
and one for the others. A paused resource is never due.

The decision is stateless. What was published before is the concern of `pacing`.
"""

from __future__ import annotations

import zlib
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec

from sentinel.core.pulse.observation import Observation


class Policy(msgspec.Struct, frozen=True):
    """The settings of a decision."""

    max_age_not_ready: timedelta
    max_age_ready: timedelta
    checks_generation: bool = True
    """If False, a new generation is no reason for an event."""
    follows_progress: bool = False
    """If True, a resource is due when an adapter has completed its part, for the adapters that wait for it."""
    max_age_jitter: float = 0.0
    """The share of a max age, from 0 to below 1, by which it is shortened at most. How much is a hash of the id,
    so resources that were updated together are not due together, and each is due at the same age every time."""


class Reason(StrEnum):
    """Why a resource is due or not. The texts are part of the public surface."""

    GENERATION_CHANGED = "generation changed - new spec to reconcile"
    PULSE_REQUESTED = "pulse requested"
    ADAPTER_PROGRESSED = "adapter progressed"
    EXPIRED_NOT_READY = "max age expired (not ready)"
    EXPIRED_READY = "max age expired (ready)"
    NOT_EXPIRED = "max age not expired"
    NEVER_UPDATED = "never updated - no adapter has reported"
    PAUSED = "paused"

    # Enum hashes in Python, which would be most of the cost of counting decisions.
    __hash__ = str.__hash__

    @property
    def is_due(self) -> bool:
        return self not in (Reason.NOT_EXPIRED, Reason.PAUSED)

    @property
    def is_expiry(self) -> bool:
        """Whether only the age of the status makes the resource due."""
        return self in (Reason.EXPIRED_NOT_READY, Reason.EXPIRED_READY)


# Most resources get this one. Looking up an enum member would take a fifth of the time of their decision.
_NOT_EXPIRED = Reason.NOT_EXPIRED

OBSERVED_AHEAD = "observed_generation ahead of generation - potential API issue"
"""The warning for a resource whose status names a generation that its spec has not reached."""


class Decision(msgspec.Struct, frozen=True, gc=False):
    """Whether a resource is due, and the reason."""

    is_due: bool
    reason: Reason
    next_event_time: datetime | None
    """When the next event is due, which may be now; None if no event becomes due by time alone."""
    due_time: datetime
    """When the status made, or will make, the resource due; the time of the decision for any other reason."""
    max_age: timedelta
    """The limit in force. The same event is not repeated within it."""
    warning: str = ""
    trigger: datetime | None = None
    """The time of a requested pulse that no status has answered. Pacing does not hold it back."""
    is_progress_open: bool = False
    """See `Observation.is_progress_open`. Pacing does not hold it back either."""


def decide(resource: Observation, policy: Policy, now: datetime, first_seen: datetime | None = None) -> Decision:
    """Decide on one resource.

    `first_seen` is when a `last_updated_time` that lay in the future was first seen. It replaces that time, so the
    fast clock of an adapter delays no event.
    """
    max_age = policy.max_age_ready if resource.is_ready else policy.max_age_not_ready
    if policy.max_age_jitter:
        max_age = shortened(max_age, policy.max_age_jitter, resource.id)
    if resource.is_paused:
        return Decision(False, Reason.PAUSED, None, now, max_age)

    updated = resource.last_updated_time
    if updated is not None:
        if first_seen is not None and first_seen < updated:
            updated = first_seen
        elif updated > now:
            updated = now
    trigger = resource.pulse_requested_time
    if trigger is not None and updated is not None and trigger <= updated:
        trigger = None
    is_progress_open = policy.follows_progress and resource.is_progress_open

    warning = ""
    if policy.checks_generation:
        if resource.generation > resource.observed_generation:
            # A new spec is retried at the shorter interval even if the old generation is still ready.
            shorter = shortened(policy.max_age_not_ready, policy.max_age_jitter, resource.id)
            return Decision(True, Reason.GENERATION_CHANGED, now, now, shorter, "", trigger, is_progress_open)
        if resource.observed_generation > resource.generation:
            warning = OBSERVED_AHEAD
    if trigger is not None:
        return Decision(True, Reason.PULSE_REQUESTED, now, now, max_age, warning, trigger, is_progress_open)
    if is_progress_open:
        return Decision(True, Reason.ADAPTER_PROGRESSED, now, now, max_age, warning, None, True)

    if updated is None:
        if not warning:
            return Decision(True, Reason.NEVER_UPDATED, now, now, max_age)
        updated = now
    try:
        due_time = updated + max_age
    except OverflowError:
        due_time = datetime.max.replace(tzinfo=UTC)
    if now < due_time:
        return Decision(False, _NOT_EXPIRED, due_time, due_time, max_age, warning)
    reason = Reason.EXPIRED_READY if resource.is_ready else Reason.EXPIRED_NOT_READY
    return Decision(True, reason, now, due_time, max_age, warning)


def shortened(max_age: timedelta, jitter: float, resource_id: str) -> timedelta:
    """Return the max age of this resource: shortened by at most the share `jitter`, and never zero."""
    # Not `hash`, which differs between processes. Ids that differ in one digit have similar checksums, so the
    # multiplication (by 2**32 divided by the golden ratio) spreads them.
    spread = (zlib.crc32(resource_id.encode("utf-8", "surrogatepass")) * 0x9E3779B1 & 0xFFFFFFFF) / 2**32
    return max(max_age - max_age * (jitter * spread), timedelta.resolution)
