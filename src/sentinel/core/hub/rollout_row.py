"""One target of a rollout: what is asked of it, and what it has done.

A row has a `step` while the instance must apply a version: the new one, or the one before. That is also how long
the instance is DEPLOYING. What the rest of the hub has to do follows from how a row changes (`rollout_effects`).

Each function returns the row after something happened. The same row means that nothing changes, as for reports
that are late, repeated or contradictory.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from sentinel.core.hub.deployment import InstanceFacts, TargetVersion
from sentinel.core.hub.states import CONNECTED, State

LEFT: Final = "the instance has left"
LOST: Final = "the instance went offline during the deployment"
OFFLINE: Final = "the instance is offline"


class RowState(StrEnum):
    """What has become of one target, as users see it."""

    WAITING = "waiting"
    """Its batch has not begun."""
    PENDING = "pending"
    """It was told, and has not answered."""
    IN_PROGRESS = "in_progress"
    VALIDATING = "validating"
    """It checks its health, or must stay healthy for `min_healthy_time`."""
    COMPLETED = "completed"
    FAILED = "failed"
    REJECTED = "rejected"
    TIMED_OUT = "timed_out"
    SKIPPED = "skipped"
    """It was offline, has left, or the deployment ended before its batch began."""
    ROLLED_BACK = "rolled_back"
    ROLLBACK_FAILED = "rollback_failed"


UNSUCCESSFUL: Final = frozenset((RowState.FAILED, RowState.REJECTED, RowState.TIMED_OUT))
"""How an attempt ends that counts as a failure."""
IN_FLIGHT: Final = frozenset((RowState.PENDING, RowState.IN_PROGRESS, RowState.VALIDATING))


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A version that the instance has to apply now."""

    version: TargetVersion
    is_rollback: bool = False
    deadline: datetime
    heard: datetime | None = None
    """When the agent last acknowledged or reported it."""


class Soak(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that has applied the version and must stay healthy for a while."""

    healthy_since: datetime | None
    """None while it is not healthy."""
    deadline: datetime


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One target of a rollout."""

    instance_id: str
    batch: int
    """Counts from 1."""
    incarnation: int
    presence: State
    """The state of the instance, as last observed. It stays what it is once the instance has left."""
    assigned: TargetVersion | None
    """What is assigned to the instance."""
    state: RowState = RowState.WAITING
    message: str = ""
    updated: datetime
    """When the state or the message last changed."""
    previous: TargetVersion | None = None
    """`from`: what was assigned when its event was sent."""
    was_sent: bool = False
    """Whether it was ever told to apply the new version."""
    outcome: RowState | None = None
    """How its own attempt ended, whatever rollback followed."""
    step: Step | None = None
    soak: Soak | None = None
    must_return: bool = False
    """Whether it has to go back to `previous`, and has not done so yet."""
    is_assigned_later: bool = False
    """Whether it was offline and gets the version when the deployment has completed."""
    assigned_earlier: TargetVersion | None = None
    """What was assigned before that."""

    @property
    def is_open(self) -> bool:
        """Whether its own attempt goes on."""
        return self.soak is not None or (self.step is not None and not self.step.is_rollback)

    @property
    def is_returning(self) -> bool:
        """Whether it was told to go back and has not answered for good."""
        return self.step is not None and self.step.is_rollback

    @property
    def is_connected(self) -> bool:
        """Whether the hub hears of it."""
        return self.presence in CONNECTED

    @property
    def has_left(self) -> bool:
        """Whether it has left the fleet."""
        return self.presence in (State.DRAINING, State.REMOVED)

    @property
    def is_unsuccessful(self) -> bool:
        """Whether its own attempt counts as a failure."""
        return self.outcome in UNSUCCESSFUL

    def can_return(self, to: TargetVersion) -> bool:
        """Whether a rollback concerns it.

        It was told to apply the new version and did not reject it, and has neither gone back nor been assigned
        something else since.
        """
        is_concerned = self.was_sent and self.state not in (RowState.REJECTED, RowState.ROLLED_BACK)
        return is_concerned and not self.has_left and self.assigned in (self.previous, to)


def new(facts: InstanceFacts, batch: int, now: datetime) -> Row:
    """Return the row of a target."""
    return Row(
        instance_id=facts.instance_id,
        batch=batch,
        incarnation=facts.incarnation,
        presence=facts.state,
        assigned=facts.assigned,
        updated=now,
    )


def observe(row: Row, facts: InstanceFacts) -> Row:
    """Take over what is known about the instance. What is assigned is the rollout's own while there is a step."""
    if row.has_left:
        return row
    has_left = facts.has_left or facts.incarnation != row.incarnation
    presence = State.REMOVED if has_left else facts.state
    assigned = row.assigned if row.step is not None else facts.assigned
    if (presence, assigned) == (row.presence, row.assigned):
        return row
    return msgspec.structs.replace(row, presence=presence, assigned=assigned)


def send(row: Row, to: TargetVersion, now: datetime, timeout: timedelta) -> Row:
    """Tell the instance to apply the new version."""
    sent = msgspec.structs.replace(
        row,
        previous=row.assigned,
        assigned=to,
        was_sent=True,
        step=Step(version=to, deadline=now + timeout),
    )
    return _set(sent, RowState.PENDING, "", now)


def assign_later(row: Row, to: TargetVersion) -> Row:
    """Assign the new version to an instance that was offline. It takes it when it returns."""
    return msgspec.structs.replace(row, assigned=to, assigned_earlier=row.assigned)


def unassign_later(row: Row, to: TargetVersion) -> Row:
    """Assign again what was assigned before `assign_later`, unless that has changed since."""
    if not row.is_assigned_later or row.has_left or row.assigned != to:
        return row
    return msgspec.structs.replace(row, assigned=row.assigned_earlier)


def send_back(row: Row, now: datetime, timeout: timedelta) -> Row:
    """Tell the instance to go back. Where nothing was assigned before, there is nothing to go back to.

    The row keeps its state and message until then: they say what went wrong.
    """
    if row.previous is None:
        return end_return(msgspec.structs.replace(row, assigned=None), RowState.ROLLED_BACK, "", now)
    step = Step(version=row.previous, is_rollback=True, deadline=now + timeout)
    return msgspec.structs.replace(row, assigned=row.previous, step=step, soak=None)


def accept(row: Row, step: Step, now: datetime) -> Row:
    """The agent accepts the step; only its first answer counts."""
    if step.heard is not None:
        return row
    heard = msgspec.structs.replace(row, step=msgspec.structs.replace(step, heard=now))
    return heard if step.is_rollback else _set(heard, RowState.IN_PROGRESS, row.message, now)


def reject(row: Row, step: Step, reason: str, now: datetime) -> Row:
    """The agent rejects the step; only its first answer counts."""
    if step.heard is not None:
        return row
    if step.is_rollback:
        return end_return(row, RowState.ROLLBACK_FAILED, reason, now)
    return end(row, RowState.REJECTED, reason, now)


def progress(row: Row, step: Step, state: RowState, message: str, now: datetime) -> Row:
    """The agent reports that it goes on. A row never goes from validating to in progress."""
    heard = msgspec.structs.replace(row, step=msgspec.structs.replace(step, heard=now))
    if step.is_rollback:
        return heard
    if row.state is RowState.VALIDATING and state is RowState.IN_PROGRESS:
        return row
    return _set(heard, state, message, now)


def complete(row: Row, step: Step, message: str, now: datetime, min_healthy_time: timedelta) -> Row:
    """The agent reports that it runs the new version. It may have to stay healthy before it has completed."""
    if not min_healthy_time:
        return end(row, RowState.COMPLETED, message, now)
    healthy_since = None if row.presence is State.DEGRADED else now
    deadline = max(now + min_healthy_time, step.deadline)
    soaking = msgspec.structs.replace(row, step=None, soak=Soak(healthy_since=healthy_since, deadline=deadline))
    return _set(soaking, RowState.VALIDATING, message, now)


def soak(row: Row, now: datetime) -> Row:
    """Count the time in which the instance is healthy only while it is."""
    if row.soak is None or (row.soak.healthy_since is None) == (row.presence is State.DEGRADED):
        return row
    healthy_since = None if row.presence is State.DEGRADED else now
    return msgspec.structs.replace(row, soak=msgspec.structs.replace(row.soak, healthy_since=healthy_since))


def end(row: Row, outcome: RowState, message: str, now: datetime) -> Row:
    """End the instance's own attempt. Unless it completed, it is assigned again what it was before.

    One that has left is assigned nothing: its id may belong to another instance by now.
    """
    is_back = outcome is not RowState.COMPLETED and row.was_sent and not row.has_left
    ended = msgspec.structs.replace(
        row,
        outcome=outcome,
        step=None,
        soak=None,
        assigned=row.previous if is_back else row.assigned,
        must_return=row.must_return and outcome is not RowState.REJECTED,
    )
    return _set(ended, outcome, message, now)


def end_return(row: Row, state: RowState, message: str, now: datetime) -> Row:
    """The way back has ended, successfully or not. Without a message, the row still says why it had to go back."""
    ended = msgspec.structs.replace(row, step=None, soak=None, must_return=False)
    return _set(ended, state, message or row.message, now)


def skip(row: Row, message: str, now: datetime, *, is_assigned_later: bool = False) -> Row:
    """Leave the instance out."""
    skipped = end(row, RowState.SKIPPED, message, now)
    return msgspec.structs.replace(skipped, is_assigned_later=is_assigned_later)


def _set(row: Row, state: RowState, message: str, now: datetime) -> Row:
    if (state, message) == (row.state, row.message):
        return row
    return msgspec.structs.replace(row, state=state, message=message, updated=now)
