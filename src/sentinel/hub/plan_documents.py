"""What a deployment would do, as users see it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sentinel.hub.deployment_documents import VersionText
from sentinel.hub.rollout_service import PlannedDeployment
from sentinel.hub.version_problems import DeploymentProblem


class PlannedInstance(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """A target, and what it would run."""

    id: str
    from_: VersionText | None
    """What is assigned to it now; null if nothing is."""
    to: VersionText


class PlanDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a deployment would do."""

    batches: Sequence[Sequence[PlannedInstance]]
    problems: Sequence[DeploymentProblem]
    """Why it would be refused; empty if it can start."""
    warnings: Sequence[DeploymentProblem] = ()
    """What does not refuse it: names that do not resolve (`resolve: warn`), certificates that expire soon.

    Absent if there is nothing.
    """
    diff: str
    """Unified, from what most of the targets have now; empty if that is the same text."""
    restart_required: bool
    """Whether a target has to restart for it."""
    estimated_seconds: int
    """How long it takes if nothing fails."""

    @classmethod
    def of(cls, planned: PlannedDeployment) -> PlanDocument:
        to = str(planned.to.name)
        return cls(
            batches=[
                [
                    PlannedInstance(
                        id=each.instance_id,
                        from_=None if each.assigned is None else str(each.assigned.name),
                        to=to,
                    )
                    for each in batch
                ]
                for batch in planned.plan.batches
            ],
            problems=[
                *(DeploymentProblem(field=each.field, message=each.message) for each in planned.problems),
                *planned.version_problems,
            ],
            warnings=tuple(planned.warnings),
            diff=planned.diff,
            restart_required=planned.restart_required,
            estimated_seconds=planned.plan.estimated_seconds,
        )
