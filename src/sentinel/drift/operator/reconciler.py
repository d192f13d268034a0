"""One pass of an operator over an object: recognize the trigger, run steps, write the status, clear the trigger.

An operator that wants fast paths builds a `Reconciler` with its own steps, and calls `run` for each object that
may have changed. The decisions are in `core.drift.fast_path`.

The order of writes matters. The status says that drift was detected before anything is corrected, and that it was
corrected before the trigger is cleared, so that a crash in between repeats work instead of losing it. The trigger
is cleared only if it is still the one that was handled: a newer one stays, and gets a pass of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeAlias, TypeVar

import msgspec

from sentinel.core.drift import fast_path
from sentinel.core.drift.fast_path import DriftStatus, PassKind, Trigger
from sentinel.core.drift.rules import AnnotationNames
from sentinel.core.json import Json
from sentinel.core.kube.objects import ObjectReference
from sentinel.drift.operator.steps import Step, StepsReport, run_steps
from sentinel.drift.operator.telemetry import DriftMetrics
from sentinel.ports.clock import Clock
from sentinel.ports.kube import InvalidObject, KubeApi, KubeKind, ObjectNotFound
from sentinel.runtime.log import Log


class Target(Protocol):
    """An object that an operator manages."""

    @property
    def reference(self) -> ObjectReference: ...

    @property
    def annotations(self) -> Mapping[str, str]: ...

    @property
    def drift(self) -> DriftStatus:
        """`status.drift`, as it was last written."""


T = TypeVar("T", bound=Target)
WriteStatus: TypeAlias = Callable[[T, Mapping[str, Json]], Awaitable[None]]
"""Merges fields into the status of an object. Does nothing if the object is gone."""


class PassReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass has done."""

    kind: PassKind
    trigger: Trigger | None = None
    is_cleared: bool = False
    """Whether the trigger was cleared. If a newer one has replaced it, it was not."""
    failed_step: str = ""
    """The step that failed; empty if all succeeded."""
    error: str = ""


class Reconciler(Generic[T]):
    """Runs passes over objects of one kind."""

    def __init__(
        self,
        *,
        api: KubeApi,
        kind: KubeKind,
        names: AnnotationNames,
        field_manager: str,
        steps: Sequence[Step[T]],
        write_status: WriteStatus[T],
        metrics: DriftMetrics,
        clock: Clock,
        log: Log,
    ) -> None:
        self._api = api
        self._kind = kind
        self._names = names
        self._field_manager = field_manager
        self._urgent = [step for step in steps if step.is_urgent]
        self._slow = [step for step in steps if not step.is_urgent]
        self._write_status = write_status
        self._metrics = metrics
        self._clock = clock
        self._log = log
        self._detected: dict[str, Trigger] = {}
        """The last trigger that was found, by the uid of its object."""
        self._corrected: dict[str, str] = {}
        """The last trigger that was counted as corrected."""

    async def run(self, target: T, *, is_policy_enforced: bool) -> PassReport:
        """Run a pass over an object that is not paused. Raises `KubeError` and `KubeUnavailable` if the status or
        the trigger cannot be written; then the pass has to be repeated."""
        trigger = fast_path.read_trigger(target.annotations, self._names)
        kind = fast_path.choose_pass(
            trigger, target.drift, is_policy_enforced=is_policy_enforced, now=self._clock.now()
        )
        drift, is_cleared = target.drift, False
        self._metrics.add(target.reference)
        self._metrics.set_unhandled(target.reference, is_unhandled=trigger is not None)
        if trigger is not None:
            drift = await self._detect(target, trigger, kind)
        done = await run_steps(self._urgent, target, self._clock)
        if done.failed_step:
            return await self._fail(target, kind, trigger, done)
        if trigger is not None:
            drift = await self._correct(target, trigger, kind, drift, done.status)
            is_cleared = await self._clear(target, trigger)
            self._metrics.set_unhandled(target.reference, is_unhandled=False)
        if kind.is_full:
            slow = await run_steps(self._slow, target, self._clock)
            both = _merged(done.status, slow.status)
            if slow.failed_step:
                return await self._fail(target, kind, trigger, StepsReport(both, slow.failed_step, slow.error))
            drift = drift.completed(self._clock.now())
            await self._write_status(target, {**both, "drift": drift.encode()})
        return PassReport(kind=kind, trigger=trigger, is_cleared=is_cleared)

    def add(self, reference: ObjectReference) -> None:
        """Create the metrics of an object that was seen for the first time."""
        self._metrics.add(reference)

    def leave(self, reference: ObjectReference) -> None:
        """Leave an object alone for now. A trigger may wait as long as the object is left."""
        self._metrics.set_unhandled(reference, is_unhandled=False)

    def forget(self, reference: ObjectReference) -> None:
        """Forget an object that was deleted."""
        self._detected.pop(reference.uid, None)
        self._corrected.pop(reference.uid, None)
        self._metrics.forget(reference)

    async def _detect(self, target: T, trigger: Trigger, kind: PassKind) -> DriftStatus:
        now, uid = self._clock.now(), target.reference.uid
        drift = target.drift.detected(trigger, now)
        if self._is_new(uid, trigger):
            self._metrics.detected(target.reference, trigger.kind, drift.last_drift_detected or now)
            self._log.info(
                "drift.detected",
                **_identity(target),
                resource=drift.last_drift_resource,
                trigger=trigger.value[:64],
                path=kind,
            )
        self._detected[uid] = trigger
        if drift != target.drift:
            await self._write_status(target, {"drift": drift.encode()})
        return drift

    def _is_new(self, uid: str, trigger: Trigger) -> bool:
        """Whether a trigger is about other drift than the last one.

        A sidecar sends a trigger again, with a new time, if it is not handled soon.
        """
        last = self._detected.get(uid)
        if last is None or trigger.resource != last.resource:
            return True
        return trigger.value != last.value and self._corrected.get(uid) == last.value

    async def _correct(
        self, target: T, trigger: Trigger, kind: PassKind, drift: DriftStatus, done: Mapping[str, Json]
    ) -> DriftStatus:
        uid = target.reference.uid
        if self._corrected.get(uid) == trigger.value:
            return drift  # only clearing it failed the last time
        drift = drift.corrected(kind, self._clock.now())
        await self._write_status(target, {**done, "drift": drift.encode()})
        self._corrected[uid] = trigger.value
        self._metrics.corrected(target.reference)
        self._log.info("drift.corrected", **_identity(target), resource=drift.last_drift_resource, path=kind)
        return drift

    async def _clear(self, target: T, trigger: Trigger) -> bool:
        """Clear the trigger. Returns False if a newer one has replaced it."""
        reference = target.reference
        try:
            await self._api.json_patch(
                self._kind,
                reference.name,
                fast_path.clearing_patch(trigger, self._names),
                namespace=reference.namespace,
                field_manager=self._field_manager,
            )
        except ObjectNotFound:
            return False
        except InvalidObject as error:
            # The test in the patch failed. The change that made it fail causes the next pass.
            self._log.info("trigger.kept", **_identity(target), error=error)
            return False
        return True

    async def _fail(self, target: T, kind: PassKind, trigger: Trigger | None, done: StepsReport) -> PassReport:
        await self._write_status(target, done.status)
        self._log.warning("step.failed", **_identity(target), step=done.failed_step, error=done.error, path=kind)
        return PassReport(kind=kind, trigger=trigger, failed_step=done.failed_step, error=done.error)


def _identity(target: Target) -> dict[str, str]:
    return {"namespace": target.reference.namespace, "name": target.reference.name}


def _merged(first: Mapping[str, Json], second: Mapping[str, Json]) -> dict[str, Json]:
    """Return the status of two reports, with the times of all their steps."""
    times = [status["steps"] for status in (first, second)]
    steps: dict[str, Json] = {}
    for each in times:
        assert isinstance(each, dict)  # noqa: S101 - our own reports
        steps.update(each)
    return {**first, **second, "steps": steps}
