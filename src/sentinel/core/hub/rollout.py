"""How a deployment goes on: batch after batch, watched, stopped and rolled back.

    rollout, commands = advance(rollout, Reported("edge-1", ReportedState.COMPLETED), now)

The shell loads a rollout, advances it, stores it with its commands in one transaction, and then performs them.
Doing that again is harmless, so a hub that is killed at any moment goes on where it was.
`rollout_queries.next_deadline` says when to come back with `TimePassed`.

A rollout never forgets what an instance ran before: a rollback brings each one back to its own version, those that
failed first.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final, assert_never

import msgspec

from sentinel.core.hub import rollout_row
from sentinel.core.hub.analysis import Outcome
from sentinel.core.hub.deployment import OfflinePolicy, Strategy
from sentinel.core.hub.rollout_effects import effects
from sentinel.core.hub.rollout_queries import is_short_of_instances, step_deadline
from sentinel.core.hub.rollout_row import LEFT, LOST, OFFLINE, Row, RowState, Step
from sentinel.core.hub.rollout_state import (
    Abort,
    Acknowledged,
    Analyse,
    Analysed,
    CanaryWait,
    Command,
    Event,
    Observed,
    Pause,
    Promote,
    Refuse,
    Reported,
    ReportedState,
    Resume,
    Rollback,
    RollbackState,
    Rollout,
    RolloutState,
    Stage,
    Started,
    TimePassed,
)
from sentinel.core.hub.states import State

MAX_EXTENSIONS: Final = 2
"""How often the watch over the canaries is extended before a user has to decide."""
_ZERO: Final = timedelta(0)
_ACTIVE: Final = (RolloutState.RUNNING, RolloutState.PAUSED)
_ENDED: Final = {
    RolloutState.COMPLETED: "has completed",
    RolloutState.FAILED: "has failed",
    RolloutState.ABORTED: "was aborted",
}
_REPORTED_PROGRESS: Final = {
    ReportedState.IN_PROGRESS: RowState.IN_PROGRESS,
    ReportedState.VALIDATING: RowState.VALIDATING,
}


def advance(rollout: Rollout, event: Event, now: datetime) -> tuple[Rollout, tuple[Command, ...]]:
    """Return the rollout after an event, and what to do. Doing that again is harmless."""
    return _Advance(rollout, now).apply(event)


class _Advance:
    """One event, from what it changes directly to everything that follows from it."""

    def __init__(self, rollout: Rollout, now: datetime) -> None:
        self._before = rollout
        self._rollout = rollout
        self._rows = dict(rollout.rows)
        self._changed: dict[str, Row] = {}
        """The changed rows, as they were."""
        self._commands: list[Command] = []
        self._now = now

    def apply(self, event: Event) -> tuple[Rollout, tuple[Command, ...]]:
        self._handle(event)
        self._settle()
        if self._rows != self._before.rows:
            self._update(rows=self._rows)
        if self._rollout is self._before:
            return self._before, tuple(self._commands)
        if self._rollout.is_over and self._rollout.finished is None:
            self._update(finished=self._now)
        caused = effects(self._before, self._rollout, self._changed.values())
        return self._rollout, (*caused, *self._commands)

    def _handle(self, event: Event) -> None:
        match event:
            case Started():
                self._start()
            case Observed():
                self._observe(event)
            case Acknowledged():
                self._acknowledge(event)
            case Reported():
                self._report(event)
            case Analysed():
                self._conclude(event)
            case Pause():
                self._pause()
            case Resume():
                self._resume()
            case Promote():
                self._promote()
            case Abort():
                self._abort()
            case Rollback():
                self._roll_back_by_hand()
            case TimePassed():
                self._pass_time(event)
            case _:
                assert_never(event)

    # What the events change.

    def _start(self) -> None:
        if self._rollout.state is not RolloutState.PENDING:
            return
        limit = self._rollout.progress_deadline
        self._update(
            state=RolloutState.RUNNING,
            started=self._now,
            next_batch=self._now,
            progress_ends=None if limit is None else self._now + limit,
        )

    def _observe(self, event: Observed) -> None:
        for facts in event.instances:
            row = self._rows.get(facts.instance_id)
            if row is None:
                continue
            # An observation is not a change by us, so it has no effects by itself.
            row = self._rows[row.instance_id] = rollout_row.observe(row, facts)
            if row.has_left:
                self._put(self._without_left(row))
            elif row.is_open and row.presence is State.OFFLINE:
                self._put(rollout_row.end(row, RowState.FAILED, LOST, self._now))
            else:
                self._put(rollout_row.soak(row, self._now))

    def _without_left(self, row: Row) -> Row:
        """An instance that leaves on purpose says nothing about the version, so it is not a failure."""
        if row.must_return:
            return rollout_row.end_return(row, RowState.ROLLBACK_FAILED, LEFT, self._now)
        if row.is_open or row.state is RowState.WAITING:
            return rollout_row.skip(row, LEFT, self._now)
        return row

    def _acknowledge(self, event: Acknowledged) -> None:
        row, step = self._step_of(event.instance_id, event.is_rollback)
        if row is None or step is None:
            return
        if event.is_accepted:
            self._put(rollout_row.accept(row, step, self._now))
        else:
            self._put(rollout_row.reject(row, step, event.reason, self._now))

    def _report(self, event: Reported) -> None:
        row, step = self._step_of(event.instance_id, event.is_rollback)
        if row is None or step is None:
            return
        progress = _REPORTED_PROGRESS.get(event.state)
        if progress is not None:
            self._put(rollout_row.progress(row, step, progress, event.message, self._now))
        elif event.state is ReportedState.FAILED and step.is_rollback:
            self._put(rollout_row.end_return(row, RowState.ROLLBACK_FAILED, event.message, self._now))
        elif event.state is ReportedState.FAILED:
            self._put(rollout_row.end(row, RowState.FAILED, event.message, self._now))
        elif event.state is ReportedState.ROLLED_BACK and step.is_rollback:
            self._put(rollout_row.end_return(row, RowState.ROLLED_BACK, event.message, self._now))
        elif event.state is ReportedState.COMPLETED and not step.is_rollback:
            self._put(rollout_row.complete(row, step, event.message, self._now, self._min_healthy_time()))

    def _step_of(self, instance_id: str, is_rollback: bool) -> tuple[Row | None, Step | None]:
        """Return the step that an agent reports on, if it is the current one."""
        row = self._rows.get(instance_id)
        step = None if row is None else row.step
        return (row, step) if step is not None and step.is_rollback == is_rollback else (None, None)

    def _min_healthy_time(self) -> timedelta:
        """Nobody waits for it in a deployment that has ended."""
        has_batches = self._rollout.state in _ACTIVE and self._rollout.strategy is not Strategy.ALL_AT_ONCE
        return self._rollout.rolling.min_healthy_time if has_batches else _ZERO

    def _conclude(self, event: Analysed) -> None:
        wait, verdict = self._rollout.canary_wait, event.verdict
        is_running = self._rollout.state is RolloutState.RUNNING
        if not is_running or wait is None or wait.asked != event.until:
            return
        self._update(canary_wait=msgspec.structs.replace(wait, asked=None), verdict=verdict)
        if verdict.outcome is Outcome.FAILED:
            self._fail(f"canary analysis: {verdict.reason}")
        elif event.until < wait.ends:
            return
        elif verdict.outcome is Outcome.SUCCESS:
            self._end_analysis()
        elif wait.extensions < MAX_EXTENSIONS:
            self._watch(wait.since, wait.extensions + 1)
        else:
            self._enter_pause(f"canary analysis is inconclusive: {verdict.reason}")

    def _pause(self) -> None:
        if self._rollout.state is RolloutState.RUNNING:
            self._enter_pause("paused by a user")
        else:
            self._refuse("paused", "running")

    def _resume(self) -> None:
        if self._rollout.state is not RolloutState.PAUSED:
            self._refuse("resumed", "paused")
            return
        self._leave_pause()
        if self._rollout.stage is Stage.ANALYSIS:
            self._watch(self._now)

    def _promote(self) -> None:
        if self._rollout.state not in _ACTIVE or self._rollout.stage is not Stage.ANALYSIS:
            self._commands.append(Refuse("only a canary that is being watched can be promoted"))
            return
        if self._rollout.state is RolloutState.PAUSED:
            self._leave_pause()
        self._end_analysis()

    def _abort(self) -> None:
        if self._rollout.is_terminal:
            self._refuse("aborted", "pending, running or paused")
            return
        self._end(RolloutState.ABORTED, "aborted by a user")

    def _roll_back_by_hand(self) -> None:
        rollout = self._rollout
        if rollout.state is RolloutState.PENDING:
            self._refuse("rolled back", "started")
        elif rollout.rollback in (RollbackState.RUNNING, RollbackState.COMPLETED):
            self._commands.append(Refuse(f"its rollback is {rollout.rollback} already"))
        else:
            if rollout.state in _ACTIVE:
                self._end(RolloutState.ABORTED, "rolled back by a user")
            self._begin_rollback()

    def _pass_time(self, event: TimePassed) -> None:
        for row in self._rows.values():
            self._put(self._after_time(row, event.listening_since))
        rollout = self._rollout
        if rollout.state is not RolloutState.RUNNING:
            return
        if rollout.progress_ends is not None and self._now >= rollout.progress_ends:
            self._exceed_progress_deadline()
        elif rollout.canary_wait is not None and self._now >= rollout.canary_wait.due:
            self._analyse(rollout.canary_wait)

    def _after_time(self, row: Row, listening_since: datetime) -> Row:
        timeout = self._rollout.deployment_timeout
        if row.step is not None and self._now >= step_deadline(row.step, timeout, listening_since):
            message = f"no result within {_seconds(timeout)}"
            if row.step.is_rollback:
                return rollout_row.end_return(row, RowState.ROLLBACK_FAILED, message, self._now)
            return rollout_row.end(row, RowState.TIMED_OUT, message, self._now)
        if row.soak is None:
            return row
        needed = self._rollout.rolling.min_healthy_time
        if row.soak.healthy_since is not None and self._now >= row.soak.healthy_since + needed:
            return rollout_row.end(row, RowState.COMPLETED, row.message, self._now)
        if self._now >= row.soak.deadline:
            message = f"not healthy for {_seconds(needed)}"
            return rollout_row.end(row, RowState.TIMED_OUT, message, self._now)
        return row

    def _exceed_progress_deadline(self) -> None:
        message = "the progress deadline is over"
        for row in self._rows.values():
            if row.is_open:
                self._put(rollout_row.end(row, RowState.TIMED_OUT, message, self._now))
        self._fail(message)

    # What follows: the next batch, the end, the way back.

    def _settle(self) -> None:
        rollout = self._rollout
        while rollout.state in _ACTIVE:
            self._judge_failures()
            self._move_on()
            if self._rollout is rollout:
                break
            rollout = self._rollout
        if rollout.rollback is RollbackState.RUNNING:
            self._continue_rollback()

    def _judge_failures(self) -> None:
        rollout = self._rollout
        if rollout.strategy is not Strategy.ALL_AT_ONCE and rollout.failures >= rollout.failure_threshold:
            self._fail(f"{rollout.failures} of {len(self._rows)} instances failed")

    def _move_on(self) -> None:
        rollout = self._rollout
        is_running = rollout.state is RolloutState.RUNNING
        if rollout.state not in _ACTIVE or rollout.open_rows:
            return
        if rollout.stage is Stage.BATCH and rollout.batch <= rollout.canary_batches:
            self._watch(self._now)
        elif rollout.stage is Stage.BATCH and rollout.batch < len(rollout.batches):
            has_sent = any(self._rows[each].was_sent for each in rollout.batches[rollout.batch - 1])
            delay = rollout.rolling.batch_delay if has_sent else _ZERO
            self._update(stage=Stage.DELAY, next_batch=self._now + delay)
        elif rollout.stage is Stage.BATCH and is_running:
            self._finish()
        elif rollout.stage is Stage.DELAY and is_running and self._may_begin():
            self._begin_batch()

    def _may_begin(self) -> bool:
        return self._now >= self._rollout.next_batch and not is_short_of_instances(self._rollout, self._rows)

    def _begin_batch(self) -> None:
        """Handle offline targets first: if too many of them fail, nothing is sent to the others."""
        position = self._rollout.batch + 1
        self._update(batch=position, stage=Stage.BATCH)
        rows = [self._rows[instance_id] for instance_id in self._rollout.batches[position - 1]]
        for row in rows:
            if row.state is RowState.WAITING and not row.is_connected:
                self._put(self._without_offline(row))
        self._judge_failures()  # if too many have failed, this ends the deployment, and no row is waiting any more
        for row in rows:
            if self._rows[row.instance_id].state is RowState.WAITING:
                self._put(rollout_row.send(row, self._rollout.to, self._now, self._rollout.deployment_timeout))

    def _without_offline(self, row: Row) -> Row:
        if self._rollout.offline is OfflinePolicy.FAIL:
            return rollout_row.end(row, RowState.FAILED, OFFLINE, self._now)
        is_later = self._rollout.offline is OfflinePolicy.LATER
        return rollout_row.skip(row, OFFLINE, self._now, is_assigned_later=is_later)

    def _finish(self) -> None:
        if self._rollout.strategy is Strategy.ALL_AT_ONCE and self._rollout.failures:
            self._end(RolloutState.FAILED, f"{self._rollout.failures} of {len(self._rows)} instances failed")
            return
        self._end(RolloutState.COMPLETED, "")
        for row in self._rows.values():
            if row.is_assigned_later and not row.has_left:
                self._put(rollout_row.assign_later(row, self._rollout.to))

    def _fail(self, reason: str) -> None:
        self._end(RolloutState.FAILED, reason)
        if self._rollout.strategy is not Strategy.ALL_AT_ONCE:
            self._begin_rollback()

    def _end(self, state: RolloutState, reason: str) -> None:
        self._update(state=state, reason=reason, canary_wait=None, paused=None)
        for row in self._rows.values():
            if row.state is RowState.WAITING:
                self._put(rollout_row.skip(row, f"the deployment {_ENDED[state]}", self._now))

    def _begin_rollback(self) -> None:
        self._update(rollback=RollbackState.RUNNING, are_failed_back=False)
        for row in self._rows.values():
            if row.can_return(self._rollout.to):
                self._put(msgspec.structs.replace(row, must_return=True))
            elif self._rollout.state is RolloutState.COMPLETED:  # before that, nobody is assigned it later
                self._put(rollout_row.unassign_later(row, self._rollout.to))

    def _continue_rollback(self) -> None:
        """Send back those that failed, and the others once these are back. Offline ones are not awaited."""
        if not self._rollout.are_failed_back:
            failed = [row for row in self._rows.values() if row.must_return and row.is_unsuccessful]
            awaited = [row for row in failed if row.is_connected]
            returning = [self._send_back(row) for row in awaited]
            if any(row.is_returning for row in returning):
                return
            self._update(are_failed_back=True)
        returning = [self._send_back(row) for row in self._rows.values() if row.must_return]
        if not any(row.is_returning for row in returning):
            has_failed = any(row.state is RowState.ROLLBACK_FAILED for row in self._rows.values())
            self._update(rollback=RollbackState.FAILED if has_failed else RollbackState.COMPLETED)

    def _send_back(self, row: Row) -> Row:
        if row.is_returning:
            return row
        return self._put(rollout_row.send_back(row, self._now, self._rollout.deployment_timeout))

    # The watch over the canaries.

    def _watch(self, since: datetime, extensions: int = 0) -> None:
        ends = self._now + self._rollout.canary.duration
        due = min(self._now + self._rollout.canary.interval, ends)
        wait = CanaryWait(since=since, due=due, ends=ends, extensions=extensions)
        self._update(stage=Stage.ANALYSIS, canary_wait=wait)

    def _analyse(self, wait: CanaryWait) -> None:
        due = self._now + self._rollout.canary.interval
        due = min(due, wait.ends) if self._now < wait.ends else due
        self._update(canary_wait=msgspec.structs.replace(wait, asked=self._now, due=due))
        states = {
            state: tuple(row.instance_id for row in self._rows.values() if row.state is state)
            for state in (RowState.COMPLETED, RowState.WAITING)
        }
        canaries, baseline = states[RowState.COMPLETED], states[RowState.WAITING]
        self._commands.append(Analyse(canaries, baseline, wait.since, self._now))

    def _end_analysis(self) -> None:
        self._update(canary_wait=None)
        if self._rollout.batch < len(self._rollout.batches):
            self._update(stage=Stage.DELAY, next_batch=self._now)
        else:
            self._finish()

    # Changes.

    def _enter_pause(self, reason: str) -> None:
        self._update(state=RolloutState.PAUSED, reason=reason, paused=self._now)

    def _leave_pause(self) -> None:
        """The time of a pause does not count towards the progress deadline."""
        ends, paused = self._rollout.progress_ends, self._rollout.paused
        if ends is not None and paused is not None:
            self._update(progress_ends=ends + (self._now - paused))
        self._update(state=RolloutState.RUNNING, reason="", paused=None)

    def _refuse(self, verb: str, states: str) -> None:
        self._commands.append(
            Refuse(f"only a deployment that is {states} can be {verb}; this one is {self._rollout.state}")
        )

    def _update(self, **changes: Any) -> None:
        self._rollout = msgspec.structs.replace(self._rollout, **changes)

    def _put(self, row: Row) -> Row:
        """Store a row and keep the sums over all rows."""
        old = self._rows[row.instance_id]
        if row is old:
            return row
        self._changed.setdefault(row.instance_id, old)
        self._rows[row.instance_id] = row
        open_rows = self._rollout.open_rows + row.is_open - old.is_open
        failures = self._rollout.failures + row.is_unsuccessful - old.is_unsuccessful
        if (open_rows, failures) != (self._rollout.open_rows, self._rollout.failures):
            self._update(open_rows=open_rows, failures=failures)
        return row


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():g}s"
