"""A rollout as it is stored, the events that move it on, and the commands that they cause.

Everything here is plain data that msgspec encodes and decodes, so a rollout survives a restart, and a recorded
history can be replayed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from sentinel.core.hub import rollout_row
from sentinel.core.hub.analysis import Verdict
from sentinel.core.hub.deployment import (
    Canary,
    InstanceFacts,
    OfflinePolicy,
    Request,
    Rolling,
    Strategy,
    TargetVersion,
)
from sentinel.core.hub.deployment_plan import Plan
from sentinel.core.hub.instance import DeploymentOutcome
from sentinel.core.hub.rollout_row import Row, RowState

NEVER: Final = datetime.min.replace(tzinfo=UTC)


class RolloutState(StrEnum):
    """What a deployment is, as users see it."""

    PENDING = "pending"
    """It waits for other deployments that have the same targets."""
    RUNNING = "running"
    PAUSED = "paused"
    """No further batch starts. The current one continues."""
    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"
    """A user aborted it. What is in flight still finishes."""


TERMINAL: Final = frozenset((RolloutState.COMPLETED, RolloutState.FAILED, RolloutState.ABORTED))


class RollbackState(StrEnum):
    """Whether the instances go back to what they ran before."""

    NONE = "none"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    """At least one instance did not confirm that it went back."""


class Stage(StrEnum):
    """What a deployment waits for before the next batch."""

    DELAY = "delay"
    """`batch_delay`, and that enough targets are online."""
    BATCH = "batch"
    """The instances of the batch."""
    ANALYSIS = "analysis"
    """The metrics of the canaries."""


class CanaryWait(msgspec.Struct, frozen=True, kw_only=True):
    """The time in which the canaries are watched."""

    since: datetime
    due: datetime
    """When to analyse next."""
    ends: datetime
    extensions: int = 0
    """How often it was extended because the analysis was inconclusive."""
    asked: datetime | None = None
    """The end of the window of the analysis that was requested and has no result yet."""


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment in all its detail. `create` makes one, only `rollout.advance` changes it."""

    id: str
    to: TargetVersion
    strategy: Strategy
    offline: OfflinePolicy
    rolling: Rolling
    canary: Canary
    progress_deadline: timedelta | None
    deployment_timeout: timedelta
    """How long one instance may take."""
    batches: tuple[tuple[str, ...], ...]
    canary_batches: int
    rows: Mapping[str, Row]
    """One row for each instance, in the order of the plan."""
    created: datetime
    state: RolloutState = RolloutState.PENDING
    rollback: RollbackState = RollbackState.NONE
    reason: str = ""
    """Why it is paused, has failed or was aborted."""
    started: datetime | None = None
    finished: datetime | None = None
    """When it, and a rollback that began before, was over."""
    stage: Stage = Stage.DELAY
    batch: int = 0
    """The position of the current batch; 0 before the first."""
    next_batch: datetime = NEVER
    """When the next batch may begin. Used in stage DELAY."""
    canary_wait: CanaryWait | None = None
    """Set in stage ANALYSIS."""
    verdict: Verdict | None = None
    """The last verdict about the canaries. It stays visible when the deployment is over."""
    progress_ends: datetime | None = None
    """When `progress_deadline` is over."""
    paused: datetime | None = None
    """When it was paused; None if it is not."""
    are_failed_back: bool = False
    """During a rollback: whether the others were told to go back, too."""
    open_rows: int = 0
    """How many rows are open. Counted here, so that an event about one row need not read all of them."""
    failures: int = 0
    """How many attempts were unsuccessful."""

    @property
    def is_terminal(self) -> bool:
        """Whether no batch begins any more."""
        return self.state in TERMINAL

    @property
    def is_over(self) -> bool:
        """Whether nothing is in progress on any instance."""
        return self.is_terminal and self.rollback is not RollbackState.RUNNING and not self.open_rows

    @property
    def failure_threshold(self) -> int:
        """The number of failures at which the deployment fails."""
        return self.rolling.failure_threshold.of(len(self.rows))

    @property
    def counts(self) -> Mapping[RowState, int]:
        """How many rows are in which state."""
        return Counter(row.state for row in self.rows.values())

    @property
    def is_offered_to_new_instances(self) -> bool:
        """Whether an instance that the selector matches gets the version at its first Register."""
        return self.state is RolloutState.COMPLETED and self.rollback is RollbackState.NONE


def create(
    rollout_id: str,
    request: Request,
    plan: Plan,
    *,
    to: TargetVersion,
    deployment_timeout: timedelta,
    now: datetime,
) -> Rollout:
    """Return a rollout that has not started, of a plan without problems."""
    rows = {
        facts.instance_id: rollout_row.new(facts, position, now)
        for position, batch in enumerate(plan.batches, start=1)
        for facts in batch
    }
    return Rollout(
        id=rollout_id,
        to=to,
        strategy=request.strategy,
        offline=request.offline,
        rolling=request.rolling,
        canary=request.canary,
        progress_deadline=request.progress_deadline,
        deployment_timeout=deployment_timeout,
        batches=tuple(tuple(facts.instance_id for facts in batch) for batch in plan.batches),
        canary_batches=plan.canary_batches,
        rows=rows,
        created=now,
    )


class Started(msgspec.Struct, frozen=True, tag=True):
    """No other deployment has its targets any more."""


class Observed(msgspec.Struct, frozen=True, tag=True):
    """The facts about all targets or some. This event is the only way that a rollout learns of them.

    In a transaction, send it before any other event, for every target whose state, incarnation or assignment may
    have changed.
    """

    instances: tuple[InstanceFacts, ...]


class Acknowledged(msgspec.Struct, frozen=True, tag=True):
    """An agent accepts or rejects what it was told."""

    instance_id: str
    is_accepted: bool
    is_rollback: bool = False
    reason: str = ""


class ReportedState(StrEnum):
    """What an agent can report, by the names of the protocol."""

    PENDING = "PENDING"
    IN_PROGRESS = "IN_PROGRESS"
    VALIDATING = "VALIDATING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    ROLLED_BACK = "ROLLED_BACK"


class Reported(msgspec.Struct, frozen=True, tag=True):
    """An agent reports how far it is."""

    instance_id: str
    state: ReportedState
    is_rollback: bool = False
    message: str = ""


class Analysed(msgspec.Struct, frozen=True, tag=True):
    """The answer to `Analyse`."""

    until: datetime
    """The same as in the command."""
    verdict: Verdict


class Pause(msgspec.Struct, frozen=True, tag=True):
    """A user wants no further batch to begin."""


class Resume(msgspec.Struct, frozen=True, tag=True):
    """A user wants a paused deployment to go on."""


class Promote(msgspec.Struct, frozen=True, tag=True):
    """A user trusts the canaries."""


class Abort(msgspec.Struct, frozen=True, tag=True):
    """A user wants it to end, without going back."""


class Rollback(msgspec.Struct, frozen=True, tag=True):
    """A user wants every instance that it has touched to go back."""


class TimePassed(msgspec.Struct, frozen=True, tag=True):
    """Nothing happened, but it is later."""

    listening_since: datetime = NEVER
    """When the hub started. Reports that it could not receive are not overdue at once."""


Event: TypeAlias = (
    Started
    | Observed
    | Acknowledged
    | Reported
    | Analysed
    | Pause
    | Resume
    | Promote
    | Abort
    | Rollback
    | TimePassed
)


class Assign(msgspec.Struct, frozen=True, tag=True):
    """Assign a version to an instance, or none.

    Unless a `SendDeployment` follows, the agent is told as after an assignment by hand.
    """

    instance_id: str
    version: TargetVersion | None


class BeginDeploying(msgspec.Struct, frozen=True, tag=True):
    """Give the instance `DeploymentStarted`."""

    instance_id: str


class EndDeploying(msgspec.Struct, frozen=True, tag=True):
    """Give the instance `DeploymentEnded`."""

    instance_id: str
    outcome: DeploymentOutcome


class SendDeployment(msgspec.Struct, frozen=True, tag=True):
    """Send the event DEPLOYMENT, if the agent has a stream. Its heartbeats tell it, too."""

    instance_id: str
    version: TargetVersion
    is_rollback: bool
    batch_position: int
    batch_total: int
    deadline: datetime


class RowChanged(msgspec.Struct, frozen=True, tag=True):
    """Append `deployment.instance` with the row as it is now."""

    instance_id: str
    state: RowState


class StateChanged(msgspec.Struct, frozen=True, tag=True):
    """Append `deployment.state` with the deployment as it is now."""

    state: RolloutState
    rollback: RollbackState


class Analyse(msgspec.Struct, frozen=True, tag=True):
    """Judge the metrics of this time and answer with `Analysed`. Without an answer it is asked again."""

    canaries: tuple[str, ...]
    baseline: tuple[str, ...]
    """Targets that were not touched."""
    since: datetime
    until: datetime


class Refuse(msgspec.Struct, frozen=True, tag=True):
    """Refuse what the user wants. Nothing has changed."""

    message: str


Command: TypeAlias = (
    Assign | BeginDeploying | EndDeploying | SendDeployment | RowChanged | StateChanged | Analyse | Refuse
)
