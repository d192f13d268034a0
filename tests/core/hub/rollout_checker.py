"""What must hold after every step of any rollout, told from its commands and what users see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

from sentinel.core.hub import rollout_queries
from sentinel.core.hub.deployment import Strategy, TargetVersion
from sentinel.core.hub.rollout_row import Row, RowState
from sentinel.core.hub.rollout_state import (
    Assign,
    BeginDeploying,
    Command,
    EndDeploying,
    Event,
    Observed,
    Refuse,
    Reported,
    ReportedState,
    Rollback,
    RollbackState,
    Rollout,
    RolloutState,
    SendDeployment,
    TimePassed,
)
from sentinel.core.hub.states import State

Advance: TypeAlias = Callable[[Rollout, Event, datetime], tuple[Rollout, tuple[Command, ...]]]

TERMINAL = (RolloutState.COMPLETED, RolloutState.FAILED, RolloutState.ABORTED)
BEFORE_END = (RowState.WAITING, RowState.PENDING, RowState.IN_PROGRESS, RowState.VALIDATING)
UNSUCCESSFUL = (RowState.FAILED, RowState.REJECTED, RowState.TIMED_OUT)
FOLLOWING = {
    RowState.WAITING: {RowState.PENDING, RowState.FAILED, RowState.SKIPPED},
    RowState.PENDING: {*RowState} - {RowState.WAITING},
    RowState.IN_PROGRESS: {*RowState} - {RowState.WAITING, RowState.PENDING},
    RowState.VALIDATING: {*RowState} - {RowState.WAITING, RowState.PENDING, RowState.IN_PROGRESS},
    RowState.COMPLETED: {RowState.ROLLED_BACK, RowState.ROLLBACK_FAILED},
    RowState.FAILED: {RowState.ROLLED_BACK, RowState.ROLLBACK_FAILED},
    RowState.TIMED_OUT: {RowState.ROLLED_BACK, RowState.ROLLBACK_FAILED},
    RowState.REJECTED: set[RowState](),
    RowState.SKIPPED: set[RowState](),
    RowState.ROLLED_BACK: set[RowState](),
    RowState.ROLLBACK_FAILED: {RowState.ROLLED_BACK},
}
"""Which states may follow which, directly or within one step."""


class RolloutChecker:
    """Follows a rollout from its creation and raises AssertionError where it goes wrong."""

    def __init__(self, rollout: Rollout) -> None:
        self._assigned = {name: row.assigned for name, row in rollout.rows.items()}
        self._told: dict[str, TargetVersion | None] = {}
        """Who was told to apply the new version, with what was assigned before."""
        self._before_later: dict[str, TargetVersion | None] = {}
        """Who was assigned the new version when all had completed, with what was assigned before."""
        self._unsuccessful: set[str] = set()
        self._offered_back: set[str] = set()
        self._deploying: set[str] = set()

    def check(
        self, before: Rollout, event: Event, after: Rollout, commands: Sequence[Command], now: datetime
    ) -> None:
        """Check one step."""
        observed = self._observe(event, before)
        if after is before:
            # All else was checked by the step before.
            assert all(isinstance(command, Refuse) for command in commands)
            assert len(commands) <= 1
            assert all(after.rows[name].assigned == self._assigned[name] for name in observed)
            return
        self._check_states(before, after, event)
        self._follow(before, after, commands)
        self._check_rows(after)
        self._check_sums(after)
        self._check_end(before, after)
        assert not any(isinstance(command, Refuse) for command in commands)

    def check_deadline(self, advance: Advance, rollout: Rollout, now: datetime) -> None:
        """Time alone changes something at the deadline, and not before."""
        deadline = rollout_queries.next_deadline(rollout)
        if deadline is None:
            assert advance(rollout, TimePassed(), now + timedelta(days=99)) == (rollout, ())
            return
        if deadline > now:
            assert advance(rollout, TimePassed(), deadline - timedelta(microseconds=1)) == (rollout, ())
        moved, commands = advance(rollout, TimePassed(), max(deadline, now))
        assert moved is not rollout
        assert commands
        assert advance(moved, TimePassed(), max(deadline, now)) == (moved, ())

    def _observe(self, event: Event, before: Rollout) -> Sequence[str]:
        """What is assigned by hand is known from observations, except where the deployment decides."""
        if not isinstance(event, Observed):
            return ()
        observed = []
        for facts in event.instances:
            row = before.rows.get(facts.instance_id)
            if row is not None and facts.instance_id not in self._deploying and row.presence is not State.REMOVED:
                self._assigned[facts.instance_id] = facts.assigned
                observed.append(facts.instance_id)
        return observed

    def _check_states(self, before: Rollout, after: Rollout, event: Event) -> None:
        if before.state in TERMINAL:
            assert after.state is before.state
        if before.state is not RolloutState.PENDING:
            assert after.state is not RolloutState.PENDING
        if before.rollback is RollbackState.COMPLETED:
            assert after.rollback is RollbackState.COMPLETED
        if before.rollback is RollbackState.FAILED and not isinstance(event, Rollback):
            assert after.rollback is RollbackState.FAILED
        if after.rollback is not RollbackState.NONE:
            assert after.state in TERMINAL
        for name, row in after.rows.items():
            old = before.rows[name].state
            assert row.state is old or row.state in FOLLOWING[old], (name, old, row.state)
            if row.state is not old:
                self._check_cause(row, event)
            # Without a version before, it fails and is rolled back in one step.
            if row.state in UNSUCCESSFUL or (row.outcome in UNSUCCESSFUL and row.previous is None):
                self._unsuccessful.add(name)

    def _check_cause(self, row: Row, event: Event) -> None:
        """An end is good only because of the agent's own word about that way."""
        name = row.instance_id
        if row.state is RowState.ROLLED_BACK and row.previous is not None:
            assert isinstance(event, Reported)
            assert (event.instance_id, event.state, event.is_rollback) == (name, ReportedState.ROLLED_BACK, True)
        if row.state is RowState.COMPLETED and not isinstance(event, TimePassed):
            assert isinstance(event, Reported)
            assert (event.instance_id, event.state, event.is_rollback) == (name, ReportedState.COMPLETED, False)

    def _follow(self, before: Rollout, after: Rollout, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case Assign():
                    self._check_assigned(command, after)
                    self._assigned[command.instance_id] = command.version
                    if command.version is None:
                        self._offered_back.add(command.instance_id)
                case BeginDeploying():
                    assert command.instance_id not in self._deploying
                    self._deploying.add(command.instance_id)
                case EndDeploying():
                    self._deploying.remove(command.instance_id)
                case SendDeployment() if command.is_rollback:
                    self._check_sent_back(command, after)
                case SendDeployment():
                    self._check_sent(command, before, after)
                case _:
                    pass

    def _check_assigned(self, command: Assign, after: Rollout) -> None:
        """Who has left, or was never told, is untouched. One that was offline gets the version at the end."""
        name, row = command.instance_id, after.rows[command.instance_id]
        assert not row.has_left, f"{name} has left"
        if row.was_sent:
            return
        assert row.is_assigned_later, f"{name} was never told"
        assert after.state is RolloutState.COMPLETED
        if after.rollback is RollbackState.NONE:
            assert command.version == after.to
            self._before_later[name] = self._assigned[name]
        else:
            assert command.version == self._before_later[name], f"{name} is back to another version than before"

    def _check_sent(self, command: SendDeployment, before: Rollout, after: Rollout) -> None:
        name = command.instance_id
        assert before.state not in TERMINAL
        assert before.state is not RolloutState.PAUSED or after.state is RolloutState.RUNNING
        assert name not in self._told, f"{name} was told twice"
        assert command.version == after.to
        assert self._assigned[name] == after.to
        assert command.batch_position == after.rows[name].batch == after.batch
        for row in after.rows.values():
            assert row.batch >= command.batch_position or row.state not in BEFORE_END
        self._told[name] = before.rows[name].assigned

    def _check_sent_back(self, command: SendDeployment, after: Rollout) -> None:
        name = command.instance_id
        assert after.rollback is RollbackState.RUNNING
        assert name in self._told
        assert after.rows[name].state is not RowState.REJECTED
        assert command.version == self._told[name], "back to another version than before"
        assert self._assigned[name] == command.version
        self._offered_back.add(name)
        if name not in self._unsuccessful:
            assert not [row for row in after.rows.values() if self._is_awaited(row)], "failed ones are awaited"

    def _is_awaited(self, row: Row) -> bool:
        is_on_its_way = row.is_returning and row.is_connected
        return (
            is_on_its_way and row.instance_id in self._unsuccessful and row.state is not RowState.ROLLBACK_FAILED
        )

    def _check_rows(self, rollout: Rollout) -> None:
        in_flight = [row for row in rollout.rows.values() if row.is_open]
        if in_flight:
            assert {row.batch for row in in_flight} == {rollout.batch}
            assert len(in_flight) <= len(rollout.batches[rollout.batch - 1])
        for name, row in rollout.rows.items():
            assert (row.step is not None) == (name in self._deploying)
            assert row.assigned == self._assigned[name]
            assert row.was_sent == (name in self._told)
            if name in self._told:
                assert row.previous == self._told[name]
            elif row.state not in (RowState.WAITING, RowState.FAILED):
                assert row.state is RowState.SKIPPED

    def _check_sums(self, rollout: Rollout) -> None:
        rows = rollout.rows.values()
        assert sum(rollout.counts.values()) == len(rows)
        assert rollout.open_rows == sum(row.is_open for row in rows)
        assert rollout.failures == sum(row.is_unsuccessful for row in rows)
        assert {row.instance_id for row in rows if row.is_unsuccessful} == self._unsuccessful
        if rollout.state in (RolloutState.RUNNING, RolloutState.PAUSED):
            can_fail = rollout.strategy is not Strategy.ALL_AT_ONCE
            assert not can_fail or len(self._unsuccessful) < rollout.failure_threshold

    def _check_end(self, before: Rollout, after: Rollout) -> None:
        if after.state in TERMINAL:
            assert RowState.WAITING not in after.counts
            assert (after.finished is not None) or not after.is_over
        if after.state is RolloutState.FAILED and after.strategy is not Strategy.ALL_AT_ONCE:
            assert after.rollback is not RollbackState.NONE
        if before.rollback is RollbackState.RUNNING or after.rollback is RollbackState.NONE:
            return
        if after.rollback is RollbackState.RUNNING:
            return
        for name, old in self._told.items():
            row = after.rows[name]
            is_concerned = row.state not in (RowState.REJECTED, RowState.SKIPPED)
            if is_concerned and not row.has_left and row.assigned in (old, after.to):
                assert name in self._offered_back, f"{name} was not offered its old version"
                assert row.state in (RowState.ROLLED_BACK, RowState.ROLLBACK_FAILED)
        has_failed = RowState.ROLLBACK_FAILED in after.counts
        assert (after.rollback is RollbackState.FAILED) == has_failed
