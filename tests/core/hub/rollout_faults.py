"""Planted faults: each breaks one promise of a rollout, to show that the checks find it.

None of them changes our code. Each alters what `advance` is given or what it returns, and looks from outside like
a bug in it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeAlias

import msgspec

from sentinel.core.hub.rollout_row import Row, RowState
from sentinel.core.hub.rollout_state import (
    Assign,
    Command,
    Event,
    Reported,
    ReportedState,
    Resume,
    RollbackState,
    Rollout,
    RolloutState,
    SendDeployment,
    TimePassed,
)
from tests.core.hub.rollout_checker import Advance
from tests.core.hub.rollout_driver import version

Fault: TypeAlias = Callable[[Advance], Advance]
Result: TypeAlias = tuple[Rollout, tuple[Command, ...]]


def _with_row(rollout: Rollout, row: Row) -> Rollout:
    return msgspec.structs.replace(rollout, rows={**rollout.rows, row.instance_id: row})


def leaves_completed_ones_behind(advance: Advance) -> Advance:
    """Rolls back only what failed."""

    def faulty(rollout: Rollout, event: Event, now: datetime) -> Result:
        after, commands = advance(rollout, event, now)
        if rollout.rollback is after.rollback:
            return after, commands
        rows = {
            name: msgspec.structs.replace(row, must_return=row.must_return and row.is_unsuccessful)
            for name, row in after.rows.items()
        }
        return msgspec.structs.replace(after, rows=rows), commands

    return faulty


def rolls_back_what_was_never_told(advance: Advance) -> Advance:
    def faulty(rollout: Rollout, event: Event, now: datetime) -> Result:
        after, commands = advance(rollout, event, now)
        if rollout.rollback is after.rollback:
            return after, commands
        for row in after.rows.values():
            if not row.was_sent and row.assigned is not None:
                after = _with_row(after, msgspec.structs.replace(row, assigned=None))
                commands = (*commands, Assign(row.instance_id, None))
        return after, commands

    return faulty


def keeps_the_assignment_of_a_failed_one(advance: Advance) -> Advance:
    def faulty(rollout: Rollout, event: Event, now: datetime) -> Result:
        after, commands = advance(rollout, event, now)
        if isinstance(event, Reported) and event.state is ReportedState.FAILED:
            commands = tuple(command for command in commands if not isinstance(command, Assign))
        return after, commands

    return faulty


def believes_a_late_success(advance: Advance) -> Advance:
    def faulty(rollout: Rollout, event: Event, now: datetime) -> Result:
        after, commands = advance(rollout, event, now)
        if isinstance(event, Reported) and event.state is ReportedState.COMPLETED:
            row = after.rows.get(event.instance_id)
            if row is not None and row.state is RowState.TIMED_OUT:
                after = _with_row(after, msgspec.structs.replace(row, state=RowState.COMPLETED))
        return after, commands

    return faulty


def does_not_ask_which_way_a_report_is_about(advance: Advance) -> Advance:
    """Takes COMPLETED of the first way for the end of the way back."""

    def faulty(rollout: Rollout, event: Event, now: datetime) -> Result:
        if isinstance(event, Reported) and event.state is ReportedState.COMPLETED:
            row = rollout.rows.get(event.instance_id)
            if row is None or not row.is_returning:
                return advance(rollout, event, now)
            event = Reported(row.instance_id, ReportedState.ROLLED_BACK, is_rollback=True)
        return advance(rollout, event, now)

    return faulty


def resumes_what_has_ended(advance: Advance) -> Advance:
    def faulty(rollout: Rollout, event: Event, now: datetime) -> Result:
        if isinstance(event, Resume) and rollout.state is RolloutState.ABORTED:
            return msgspec.structs.replace(rollout, state=RolloutState.RUNNING), ()
        return advance(rollout, event, now)

    return faulty


def does_not_wait_for_the_batch(advance: Advance) -> Advance:
    def faulty(rollout: Rollout, event: Event, now: datetime) -> Result:
        if isinstance(event, TimePassed) and rollout.state is RolloutState.RUNNING:
            rollout = msgspec.structs.replace(rollout, open_rows=0)
        return advance(rollout, event, now)

    return faulty


def forgets_earlier_failures(advance: Advance) -> Advance:
    def faulty(rollout: Rollout, event: Event, now: datetime) -> Result:
        after, commands = advance(rollout, event, now)
        return (msgspec.structs.replace(after, failures=0), commands) if after.failures else (after, commands)

    return faulty


def goes_back_to_the_same_version_everywhere(advance: Advance) -> Advance:
    def faulty(rollout: Rollout, event: Event, now: datetime) -> Result:
        after, commands = advance(rollout, event, now)
        return after, tuple(
            msgspec.structs.replace(each, version=version(1))
            if isinstance(each, SendDeployment) and each.is_rollback
            else each
            for each in commands
        )

    return faulty


def does_not_await_the_failed_ones(advance: Advance) -> Advance:
    def faulty(rollout: Rollout, event: Event, now: datetime) -> Result:
        if rollout.rollback is RollbackState.RUNNING:
            rollout = msgspec.structs.replace(rollout, are_failed_back=True)
        return advance(rollout, event, now)

    return faulty


def never_times_out(advance: Advance) -> Advance:
    def faulty(rollout: Rollout, event: Event, now: datetime) -> Result:
        return (rollout, ()) if isinstance(event, TimePassed) else advance(rollout, event, now)

    return faulty


def sends_again_what_is_done(advance: Advance) -> Advance:
    """As a hub that begins its batch again after a restart."""

    def faulty(rollout: Rollout, event: Event, now: datetime) -> Result:
        after, commands = advance(rollout, event, now)
        sends = [each for each in commands if isinstance(each, SendDeployment) and not each.is_rollback]
        first = after.batches[0][0]
        if sends and after.batch > 1 and after.rows[first].state is RowState.COMPLETED:
            again = msgspec.structs.replace(sends[0], instance_id=first)
            return after, (*commands, again)
        return after, commands

    return faulty


def leaves_rows_waiting(advance: Advance) -> Advance:
    def faulty(rollout: Rollout, event: Event, now: datetime) -> Result:
        after, commands = advance(rollout, event, now)
        if after.state is not RolloutState.ABORTED:
            return after, commands
        rows = {
            name: rollout.rows[name] if rollout.rows[name].state is RowState.WAITING else row
            for name, row in after.rows.items()
        }
        return msgspec.structs.replace(after, rows=rows), commands

    return faulty


ALL: tuple[Fault, ...] = (
    leaves_completed_ones_behind,
    rolls_back_what_was_never_told,
    keeps_the_assignment_of_a_failed_one,
    believes_a_late_success,
    does_not_ask_which_way_a_report_is_about,
    resumes_what_has_ended,
    does_not_wait_for_the_batch,
    forgets_earlier_failures,
    goes_back_to_the_same_version_everywhere,
    does_not_await_the_failed_ones,
    never_times_out,
    sends_again_what_is_done,
    leaves_rows_waiting,
)
