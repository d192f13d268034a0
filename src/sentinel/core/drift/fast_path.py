"""What an operator does about a trigger: which steps run, what its status says, and when the trigger is cleared.

A trigger makes the operator restore what drifted at once, without the slow steps, such as upgrades and backups.
That is the fast path. A normal pass follows, because clearing the trigger changes the object. Someone who causes
drift all the time could keep the slow steps from running forever. So after five fast paths in a row, and when the
last full pass is five minutes old, a trigger causes a full pass: it clears the trigger after the urgent steps, and
then runs the others.

A pass that fails clears nothing: the trigger is there at the next attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from sentinel.core.drift import paths
from sentinel.core.drift.rules import AnnotationNames
from sentinel.core.json import Json
from sentinel.core.times import timestamp, to_utc

MAX_FAST_PATHS: Final = 5
FULL_PASS_INTERVAL: Final = timedelta(minutes=5)
UNKNOWN: Final = "unknown"
_MAX_COUNT: Final = 2**31 - 1
_MAX_RESOURCE: Final = 400


class Trigger(msgspec.Struct, frozen=True):
    """A request for the fast path, as the annotations of the object say it."""

    value: str
    """The time of the drift, as it was written. It identifies the trigger."""
    resource: str = ""
    """`KIND/NAMESPACE/NAME`, as it was written; empty if there is none."""

    @property
    def kind(self) -> str:
        """The kind of the resource, or `unknown`."""
        kind, _, rest = self.resource.partition("/")
        return kind if kind and rest else UNKNOWN


class PassKind(StrEnum):
    """What a pass does."""

    FAST = "fast"
    """The urgent steps. The normal pass follows when the trigger is cleared."""
    FORCED = "forced"
    """All steps, with a trigger, which is cleared after the urgent ones."""
    NORMAL = "normal"
    """All steps, without a trigger."""

    @property
    def is_full(self) -> bool:
        """Whether the slow steps run, too."""
        return self is not PassKind.FAST

    @property
    def has_trigger(self) -> bool:
        return self is not PassKind.NORMAL


class DriftStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`status.drift` of an object. Times are in whole seconds, because Kubernetes keeps no fractions."""

    last_drift_detected: datetime | None = None
    """When the last drift was detected, by the clock of the sidecar."""
    drift_correction_count: int = 0
    """How many triggers were handled."""
    last_correction_time: datetime | None = None
    """When the last trigger was handled. Earlier than `last_drift_detected` while a correction fails."""
    last_drift_resource: str = ""
    """The object that drifted, as the trigger names it."""
    last_full_reconcile_time: datetime | None = None
    consecutive_fast_paths: int = 0
    """Since the last full pass."""

    def detected(self, trigger: Trigger, now: datetime) -> DriftStatus:
        """Return the status when a trigger is found."""
        return msgspec.structs.replace(
            self,
            last_drift_detected=_trigger_time(trigger, now),
            last_drift_resource=trigger.resource[:_MAX_RESOURCE] or UNKNOWN,
        )

    def corrected(self, kind: PassKind, now: datetime) -> DriftStatus:
        """Return the status when the urgent steps have succeeded after a trigger."""
        fast_paths = self.consecutive_fast_paths + (kind is PassKind.FAST)
        return msgspec.structs.replace(
            self,
            drift_correction_count=min(self.drift_correction_count + 1, _MAX_COUNT),
            last_correction_time=_seconds(now),
            consecutive_fast_paths=min(fast_paths, _MAX_COUNT),
        )

    def completed(self, now: datetime) -> DriftStatus:
        """Return the status when all steps have succeeded."""
        return msgspec.structs.replace(self, last_full_reconcile_time=_seconds(now), consecutive_fast_paths=0)

    def encode(self) -> dict[str, Json]:
        """Return the status as the object holds it."""
        encoded: dict[str, Json] = {
            "driftCorrectionCount": self.drift_correction_count,
            "consecutiveFastPaths": self.consecutive_fast_paths,
        }
        for name, time in (
            ("lastDriftDetected", self.last_drift_detected),
            ("lastCorrectionTime", self.last_correction_time),
            ("lastFullReconcileTime", self.last_full_reconcile_time),
        ):
            if time is not None:
                encoded[name] = timestamp(time)
        if self.last_drift_resource:
            encoded["lastDriftResource"] = self.last_drift_resource
        return encoded


def read_status(value: Json) -> DriftStatus:
    """Return the status that an object holds. A status that cannot be read counts as empty."""
    try:
        status = msgspec.convert(value, DriftStatus)
    except msgspec.ValidationError:
        return DriftStatus()
    return DriftStatus(
        last_drift_detected=_in_utc(status.last_drift_detected),
        drift_correction_count=min(max(status.drift_correction_count, 0), _MAX_COUNT),
        last_correction_time=_in_utc(status.last_correction_time),
        last_drift_resource=status.last_drift_resource[:_MAX_RESOURCE],
        last_full_reconcile_time=_in_utc(status.last_full_reconcile_time),
        consecutive_fast_paths=min(max(status.consecutive_fast_paths, 0), _MAX_COUNT),
    )


def choose_pass(
    trigger: Trigger | None, status: DriftStatus, *, is_policy_enforced: bool, now: datetime
) -> PassKind:
    """Return which pass an object gets that is not paused.

    Unless the policy is enforced, anybody may have written the trigger, so it does not skip any step.
    """
    if trigger is None:
        return PassKind.NORMAL
    if not is_policy_enforced or status.consecutive_fast_paths >= MAX_FAST_PATHS:
        return PassKind.FORCED
    last = status.last_full_reconcile_time
    # A time in the future comes from a clock that was set back. It must not delay the full pass.
    if last is None or not timedelta(0) <= now - last < FULL_PASS_INTERVAL:
        return PassKind.FORCED
    return PassKind.FAST


def read_trigger(annotations: Mapping[str, str], names: AnnotationNames) -> Trigger | None:
    """Return the trigger of an object, or None if it has none."""
    value = annotations.get(names.trigger, "")
    return Trigger(value, annotations.get(names.trigger_resource, "")) if value else None


def clearing_patch(trigger: Trigger, names: AnnotationNames) -> list[dict[str, Json]]:
    """Return the JSON patch that removes this trigger, and fails if another one has replaced it."""
    patch: list[dict[str, Json]] = []
    for name, value in ((names.trigger, trigger.value), (names.trigger_resource, trigger.resource)):
        if value:
            path = paths.child(paths.ANNOTATIONS, name)
            patch += [{"op": "test", "path": path, "value": value}, {"op": "remove", "path": path}]
    return patch


def _trigger_time(trigger: Trigger, now: datetime) -> datetime:
    """Return when the trigger was written, or now if it does not say or says the future."""
    try:
        time = to_utc(msgspec.convert(trigger.value, datetime))
    except msgspec.ValidationError:
        return _seconds(now)
    return _seconds(min(time, now))


def _seconds(time: datetime) -> datetime:
    return time.replace(microsecond=0)


def _in_utc(time: datetime | None) -> datetime | None:
    return None if time is None else _seconds(to_utc(time))
