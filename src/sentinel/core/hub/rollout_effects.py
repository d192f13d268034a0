"""What the hub has to do because a rollout changed, found by comparing it with what it was.

So an event that fails an instance and sends it back at once ends nothing and begins nothing: the instance stays
DEPLOYING.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sentinel.core.hub.instance import DeploymentOutcome
from sentinel.core.hub.rollout_row import Row, RowState, Step
from sentinel.core.hub.rollout_state import (
    Assign,
    BeginDeploying,
    Command,
    EndDeploying,
    Rollout,
    RowChanged,
    SendDeployment,
    StateChanged,
)

_OUTCOMES: Mapping[RowState, DeploymentOutcome] = {
    RowState.COMPLETED: DeploymentOutcome.COMPLETED,
    RowState.VALIDATING: DeploymentOutcome.COMPLETED,
    RowState.ROLLED_BACK: DeploymentOutcome.ROLLED_BACK,
    RowState.ROLLBACK_FAILED: DeploymentOutcome.ROLLBACK_FAILED,
}
"""How a deployment ended for the instance; all others have failed."""


def effects(before: Rollout, after: Rollout, rows: Iterable[Row]) -> Iterator[Command]:
    """Return the commands of a change. `rows` are those that changed, as they were."""
    for row in rows:
        yield from _row_effects(row, after.rows[row.instance_id], after)
    if (before.state, before.rollback) != (after.state, after.rollback):
        yield StateChanged(after.state, after.rollback)


def _row_effects(before: Row, after: Row, rollout: Rollout) -> Iterator[Command]:
    if before.assigned != after.assigned:
        yield Assign(after.instance_id, after.assigned)
    if before.step is None and after.step is not None:
        yield BeginDeploying(after.instance_id)
    if before.step is not None and after.step is None:
        outcome = _OUTCOMES.get(after.state, DeploymentOutcome.FAILED)
        yield EndDeploying(after.instance_id, outcome)
    if after.step is not None and (before.step is None or before.step.is_rollback != after.step.is_rollback):
        yield _send(after, after.step, rollout)
    if (before.state, before.message) != (after.state, after.message):
        yield RowChanged(after.instance_id, after.state)


def _send(row: Row, step: Step, rollout: Rollout) -> SendDeployment:
    return SendDeployment(
        instance_id=row.instance_id,
        version=step.version,
        is_rollback=step.is_rollback,
        batch_position=row.batch,
        batch_total=len(rollout.batches),
        deadline=step.deadline,
    )
