"""Is this resource due for an event, and why.

Two tiers. A generation that the adapters have not observed is due at once, whatever its age. Otherwise the age
of the last status decides, against one of two limits, by whether the resource is ready. Between the two stand
triggers: somebody asks for an event, or an adapter has completed its part, which others may have waited for. Each
has its event at once unless a later status has answered already. A resource that is paused is never due. The
decision knows nothing of what was published before: that is pacing's business.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec

from sentinel.core.fleet import progress
from sentinel.core.pulse.observation import Observation


class Reason(StrEnum):
    """Why a resource is due or not; the texts are part of the public surface."""

    GENERATION_CHANGED = "generation changed - new spec to reconcile"
    PULSE_REQUESTED = "pulse requested"
    ADAPTER_PROGRESSED = "adapter progressed"
    EXPIRED_NOT_READY = "max age expired (not ready)"
    EXPIRED_READY = "max age expired (ready)"
    NOT_EXPIRED = "max age not expired"
    NEVER_UPDATED = "never updated - no adapter has reported"
    PAUSED = "paused"

    @property
    def is_due(self) -> bool:
        """Whether this is a reason for an event; otherwise it is one for none."""
        return self not in (Reason.NOT_EXPIRED, Reason.PAUSED)


# What most resources get: to find a member in its enumeration would be a fifth of what deciding on them costs.
_NOT_EXPIRED = Reason.NOT_EXPIRED

OBSERVED_AHEAD = "observed_generation ahead of generation - potential API issue"
"""The warning for a resource whose status claims a generation that its spec has not reached."""


class Policy(msgspec.Struct, frozen=True):
    """What the configuration says about deciding."""

    max_age_not_ready: timedelta
    max_age_ready: timedelta
    checks_generation: bool = True
    """False leaves the age alone to decide."""
    follows_progress: bool = False
    """Whether an adapter that has completed its part makes the resource due for the others."""


class Decision(msgspec.Struct, frozen=True, gc=False):
    """Whether a resource is due, and the reason."""

    is_due: bool
    reason: Reason
    next_event_time: datetime | None
    """The moment of the decision where it is due, else when it will be; None where no time alone makes it so."""
    due_time: datetime
    """When its status made it due, or will: how long it has been waiting. The moment of the decision where no
    status says so."""
    max_age: timedelta
    """The limit in force: how long the same event need not be repeated."""
    warning: str = ""
    trigger: datetime | None = None
    """What somebody asked for and no status has answered, told by its time; a reason for an event even where the
    same generation had one a moment ago."""
    is_progress_open: bool = False
    """Whether an adapter has completed its part and no status has answered that; such a reason, too."""


def decide(resource: Observation, policy: Policy, now: datetime, first_seen: datetime | None = None) -> Decision:
    """Decides on one resource.

    `first_seen` is when the Sentinel first saw this very `last_updated_time`, for one that lay in the future
    then: it takes the place of the time that an adapter's fast clock made up, so that the clock delays nothing.
    """
    max_age = policy.max_age_ready if resource.is_ready else policy.max_age_not_ready
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
    is_progress_open = policy.follows_progress and progress.is_open(resource)

    warning = ""
    if policy.checks_generation:
        if resource.generation > resource.observed_generation:
            # A spec change is retried at the quicker pace even where the old generation is still ready.
            quicker = policy.max_age_not_ready
            return Decision(True, Reason.GENERATION_CHANGED, now, now, quicker, "", trigger, is_progress_open)
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
    except OverflowError:  # the calendar has no such day
        due_time = datetime.max.replace(tzinfo=UTC)
    if now < due_time:
        return Decision(False, _NOT_EXPIRED, due_time, due_time, max_age, warning)
    reason = Reason.EXPIRED_READY if resource.is_ready else Reason.EXPIRED_NOT_READY
    return Decision(True, reason, now, due_time, max_age, warning)
