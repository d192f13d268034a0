"""The status of a SentinelConfig: what the operator says about it, and when that has to be written.

A write costs an API server more than a read, so a status is written when a condition turns or a new generation was
observed, and otherwise at most every 30 seconds, also if another client has overwritten it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from sentinel.core.json import Json
from sentinel.core.kube import conditions
from sentinel.core.kube.conditions import Condition, ConditionStatus
from sentinel.core.times import timestamp

WRITE_INTERVAL: Final = timedelta(seconds=30)
"""Between two writes that only change numbers, times and messages."""

_MAX_MESSAGE: Final = 1_024


class ConditionType(StrEnum):
    """The conditions of a SentinelConfig."""

    ACCEPTED = "Accepted"
    RUNNING = "Running"
    DEGRADED = "Degraded"


class StatusReason(StrEnum):
    """The reasons of the conditions. They are part of the public surface."""

    VALID = "Valid"
    INVALID = "Invalid"
    DUPLICATE = "Duplicate"
    POLLING = "Polling"
    STOPPED = "Stopped"
    FETCH_FAILED = "FetchFailed"
    PUBLISH_FAILED = "PublishFailed"
    HEALTHY = "Healthy"


class ConfigStatus(msgspec.Struct, frozen=True):
    """The status of one SentinelConfig."""

    observed_generation: int = 0
    """The generation that was last judged."""
    conditions: tuple[Condition, ...] = ()
    last_poll_time: datetime | None = None
    resources: int = 0
    """Resources in the last complete poll."""
    published: int = 0
    """Events since the operator started it, reloads included."""

    def observed(self, generation: int) -> ConfigStatus:
        """Return the status after this generation was judged."""
        return msgspec.structs.replace(self, observed_generation=generation)

    def with_condition(
        self, condition: ConditionType, reason: StatusReason, message: str, *, is_true: bool, now: datetime
    ) -> ConfigStatus:
        """Return the status with a condition that is about the observed generation."""
        changed = conditions.with_condition(
            self.conditions,
            type=condition,
            status=ConditionStatus.TRUE if is_true else ConditionStatus.FALSE,
            reason=reason,
            message=message if len(message) <= _MAX_MESSAGE else message[: _MAX_MESSAGE - 1] + "…",
            observed_generation=self.observed_generation,
            now=now,
        )
        return msgspec.structs.replace(self, conditions=tuple(changed))

    def without_condition(self, condition: ConditionType) -> ConfigStatus:
        """Return the status without a condition that nothing can be said about."""
        kept = tuple(each for each in self.conditions if each.type != condition)
        return msgspec.structs.replace(self, conditions=kept)

    def continuing(self, written: Sequence[Condition]) -> ConfigStatus:
        """Return the status with the transition times that another process wrote, of conditions that agree."""
        times = {(each.type, each.status): each.last_transition_time for each in written}
        return msgspec.structs.replace(
            self,
            conditions=tuple(
                msgspec.structs.replace(
                    each, last_transition_time=times.get((each.type, each.status), each.last_transition_time)
                )
                for each in self.conditions
            ),
        )

    def polled(self, *, at: datetime, resources: int | None, published: int) -> ConfigStatus:
        """Return the status after a poll. `resources` is None if the poll was not complete."""
        return msgspec.structs.replace(
            self,
            last_poll_time=at,
            resources=self.resources if resources is None else resources,
            published=self.published + published,
        )

    def streamed(self, *, published: int) -> ConfigStatus:
        """Return the status after events were published between two polls."""
        return msgspec.structs.replace(self, published=self.published + published)

    def encode(self) -> dict[str, Json]:
        """Return the status as the object holds it."""
        encoded: dict[str, Json] = {
            "observedGeneration": self.observed_generation,
            "resources": self.resources,
            "published": self.published,
            "conditions": conditions.encode(self.conditions),
        }
        if self.last_poll_time is not None:
            encoded["lastPollTime"] = timestamp(self.last_poll_time.replace(microsecond=0))
        return encoded

    def merge_patch(self) -> dict[str, Json]:
        """Return the merge patch that makes the object hold this status, whatever an earlier process wrote."""
        return {"lastPollTime": None, **self.encode()}


def write_delay(
    status: ConfigStatus,
    *,
    written: ConfigStatus | None,
    written_at: datetime,
    now: datetime,
    is_overwritten: bool = False,
    interval: timedelta = WRITE_INTERVAL,
) -> timedelta | None:
    """Return how long a status waits before it is written; None if it is written already.

    `written` is the status at the last write, which was at `written_at`; None before the first. It
    `is_overwritten` if the API server has another one now.
    """
    if written is None or _turning(status) != _turning(written):
        return timedelta(0)
    if status == written and not is_overwritten:
        return None
    # A clock that was set back must not keep a status from being written.
    return min(max(written_at + interval - now, timedelta(0)), interval)


def _turning(status: ConfigStatus) -> object:
    """Return what is written at once."""
    return status.observed_generation, [
        (each.type, each.status, each.reason, each.observed_generation) for each in status.conditions
    ]
