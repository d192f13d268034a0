"""The steps of an operator: an interface that any operator can implement, and how they are run.

A step brings one part of an object into its desired state, such as its certificates. It reads the state again each
time, so that it may run at any time and be repeated. Urgent steps correct drift and run in every pass; the others
only run in a full pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Protocol, TypeVar

import msgspec

from sentinel.core.json import Json
from sentinel.core.times import timestamp
from sentinel.ports.clock import Clock
from sentinel.ports.kube import KubeError, KubeUnavailable

T_contra = TypeVar("T_contra", contravariant=True)


class StepFailed(Exception):
    """A step cannot do its work now. The text says why, for the status of the object. It is tried again."""


class Step(Protocol[T_contra]):
    """One part of an operator's work on an object."""

    @property
    def name(self) -> str:
        """Its name in the status: `status.steps.NAME.lastRun`."""

    @property
    def is_urgent(self) -> bool:
        """Whether it corrects drift, so that it also runs in the fast path."""

    async def run(self, target: T_contra, now: datetime) -> Mapping[str, Json]:
        """Do the work. Return the fields of the status that it decides about; usually none.

        Raises `StepFailed`, `KubeError` or `KubeUnavailable` if that is not possible now. Then no later step runs.
        """


class StepsReport(msgspec.Struct, frozen=True):
    """What steps have done."""

    status: Mapping[str, Json]
    """The fields of the status that the steps decide about, and `steps`, with the time of each that succeeded."""
    failed_step: str = ""
    """The step that failed; empty if all succeeded."""
    error: str = ""


async def run_steps(steps: Iterable[Step[T_contra]], target: T_contra, clock: Clock) -> StepsReport:
    """Run steps in their order, up to the first that fails."""
    status: dict[str, Json] = {}
    times: dict[str, Json] = {}
    for step in steps:
        try:
            status.update(await step.run(target, clock.now()))
        except (StepFailed, KubeError, KubeUnavailable) as error:
            return StepsReport({**status, "steps": times}, step.name, str(error))
        times[step.name] = {"lastRun": timestamp(clock.now().replace(microsecond=0))}
    return StepsReport({**status, "steps": times})
