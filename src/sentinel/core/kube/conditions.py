"""Conditions in the status of Kubernetes objects, as `metav1.Condition` defines them.

Clients wait for conditions and measure how long they hold, so `lastTransitionTime` moves exactly when `status`
does. A new reason or message leaves it alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from sentinel.core.json import Json
from sentinel.core.times import timestamp, to_utc


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    """One aspect of an object's state."""

    type: str
    status: ConditionStatus
    last_transition_time: datetime
    """When `status` last changed, in whole seconds: Kubernetes keeps no fractions."""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    """The generation that the condition is about; 0 if unknown."""

    @property
    def is_true(self) -> bool:
        return self.status is ConditionStatus.TRUE


def read(kube_object: Mapping[str, Json]) -> list[Condition]:
    """Return the conditions in an object's status, the first of each type.

    Malformed ones are skipped: the status of an object is no reason to stop working on its spec.
    """
    status = kube_object.get("status")
    entries = status.get("conditions") if isinstance(status, dict) else None
    found: dict[str, Condition] = {}
    for entry in entries if isinstance(entries, list) else []:
        try:
            condition = msgspec.convert(entry, Condition)
        except msgspec.ValidationError:
            continue
        if condition.type:
            found.setdefault(condition.type, _in_utc(condition))
    return list(found.values())


def find(conditions: Sequence[Condition], type: str) -> Condition | None:  # noqa: A002  # the field's name
    """Return the condition of this type, or None."""
    return next((condition for condition in conditions if condition.type == type), None)


def with_condition(
    conditions: Sequence[Condition],
    *,
    type: str,  # noqa: A002  # the field's name
    status: ConditionStatus,
    reason: str,
    message: str,
    observed_generation: int,
    now: datetime,
) -> list[Condition]:
    """Return the conditions with this one in its place, or at the end if it is new."""
    before = find(conditions, type)
    if before is not None and before.status is status:
        time = before.last_transition_time
    else:
        time = now.replace(microsecond=0)
    condition = Condition(type, status, time, reason, message, observed_generation)
    if before is None:
        return [*conditions, condition]
    return [condition if each is before else each for each in conditions]


def encode(conditions: Sequence[Condition]) -> list[Json]:
    """Return the conditions as the status of an object holds them."""
    return [_encode(condition) for condition in conditions]


def _encode(condition: Condition) -> Json:
    # `reason` and `message` are required, even if they are empty.
    encoded: dict[str, Json] = {
        "type": condition.type,
        "status": condition.status.value,
        "lastTransitionTime": timestamp(condition.last_transition_time),
        "reason": condition.reason,
        "message": condition.message,
    }
    if condition.observed_generation:
        encoded["observedGeneration"] = condition.observed_generation
    return encoded


def _in_utc(condition: Condition) -> Condition:
    return msgspec.structs.replace(condition, last_transition_time=to_utc(condition.last_transition_time))
