"""What the rest of the hub reads from a rollout: when it changes next, what agents are told, what it occupies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from sentinel.core.hub.deployment import OfflinePolicy, Strategy
from sentinel.core.hub.rollout_row import Row, Step
from sentinel.core.hub.rollout_state import NEVER, RollbackState, Rollout, RolloutState, Stage
from sentinel.core.hub.states import State
from sentinel.core.hub.sync import DeploymentStep

_RETURN: Final = timedelta(minutes=2)
"""How long agents get to report to a hub that was away. One that does not return by then is offline."""
_REPORT_INTERVAL: Final = timedelta(minutes=1)
"""How long an agent may be silent about a step before it is asked."""


def next_deadline(rollout: Rollout, listening_since: datetime = NEVER) -> datetime | None:
    """Return from when on the passing of time alone changes something; None if it never does."""
    return min(_deadlines(rollout, listening_since), default=None)


def next_action(rollout: Rollout, instance_id: str) -> str:
    """Return the next action for the response to a report of this instance, in the protocol's words."""
    row = rollout.rows.get(instance_id)
    if row is not None and row.must_return:
        return "rollback"
    return "" if row is not None and row.is_open else "stop"


def deployment_step(rollout: Rollout, instance_id: str, now: datetime) -> DeploymentStep | None:
    """Return what a heartbeat of this instance has to repeat; None if the deployment wants nothing from it."""
    row = rollout.rows.get(instance_id)
    if row is None or row.step is None:
        return None
    step = row.step
    silence = min(_REPORT_INTERVAL, rollout.deployment_timeout / 4)
    return DeploymentStep(
        deployment_id=rollout.id,
        version=step.version.name,
        hash=step.version.hash,
        is_rollback=step.is_rollback,
        deadline=step.deadline,
        is_acknowledged=step.heard is not None,
        is_report_overdue=step.heard is not None and now >= step.heard + silence,
    )


def held_instances(rollout: Rollout) -> frozenset[str]:
    """Return the instances that no other deployment may have meanwhile.

    While it can begin batches or go back, these are all targets. Then only those that still finish.
    """
    if holds_all_targets(rollout):
        return frozenset(rollout.rows)
    return frozenset(row.instance_id for row in rollout.rows.values() if row.is_open)


def holds_all_targets(rollout: Rollout) -> bool:
    """Whether it can begin batches or go back."""
    return not rollout.is_terminal or rollout.rollback is RollbackState.RUNNING


def retry_targets(rollout: Rollout) -> tuple[str, ...]:
    """Return the targets of a retry: whose own attempt was unsuccessful. None while the deployment is not over."""
    if not rollout.is_over:
        return ()
    return tuple(row.instance_id for row in rollout.rows.values() if row.is_unsuccessful)


def _deadlines(rollout: Rollout, listening_since: datetime) -> Iterator[datetime]:
    for row in rollout.rows.values():
        if row.step is not None:
            yield step_deadline(row.step, rollout.deployment_timeout, listening_since)
        if row.soak is not None:
            yield row.soak.deadline
            if row.soak.healthy_since is not None:
                yield row.soak.healthy_since + rollout.rolling.min_healthy_time
    if rollout.state is not RolloutState.RUNNING:
        return
    if rollout.progress_ends is not None:
        yield rollout.progress_ends
    if rollout.canary_wait is not None:
        yield rollout.canary_wait.due
    if rollout.stage is Stage.DELAY and not is_short_of_instances(rollout, rollout.rows):
        yield rollout.next_batch


def step_deadline(step: Step, timeout: timedelta, listening_since: datetime) -> datetime:
    """Return when a step has timed out. What the hub could not hear because it was away is not overdue at once."""
    return max(step.deadline, listening_since + min(timeout, _RETURN))


def is_short_of_instances(rollout: Rollout, rows: Mapping[str, Row]) -> bool:
    """Whether so many targets are not online that no batch may begin."""
    limit = rollout.rolling.max_unavailable
    if limit is None or rollout.strategy is Strategy.ALL_AT_ONCE:
        return False
    return sum(_is_unavailable(row, rollout.offline) for row in rows.values()) >= limit.of(len(rows))


def _is_unavailable(row: Row, offline: OfflinePolicy) -> bool:
    """An instance that is skipped because it is offline, or that has left, does not count."""
    is_skipped = row.presence is State.OFFLINE and offline is not OfflinePolicy.FAIL and not row.was_sent
    is_online = row.presence in (State.ONLINE, State.DEPLOYING)
    return not is_online and not is_skipped and not row.has_left
