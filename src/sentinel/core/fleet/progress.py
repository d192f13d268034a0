"""Progress: a required adapter turns `Available`, and others may have waited for just that.

One idea that is met in three places: aggregation says when it was and how often, a decision asks whether it still
calls for an event, and pacing whether that event has been sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec
from msgspec import UNSET, UnsetType

from sentinel.core.fleet.documents import Condition, ResourceStatus
from sentinel.core.pulse.observation import Observation


class Progress(msgspec.Struct, frozen=True):
    """When a required adapter last turned `Available`, and how often one has; unset until one has."""

    time: datetime | UnsetType = UNSET
    count: int | UnsetType = UNSET


def after(previous: ResourceStatus | None, mirrored: Iterable[Condition], *, generation: int) -> Progress:
    """The progress of a resource whose adapters' conditions are now these.

    To whoever waits for an adapter, only what it says of the current generation counts. So one that was True of
    an older generation and now is of this one has turned, at the moment of its report, though the condition in
    that report has had no transition. What an adapter says again is no progress, nor what it takes back: the last
    moment stays what it was, and so neither it nor the count ever moves backwards, not by a new generation either.
    """
    last = Progress() if previous is None else Progress(previous.last_progress_time, previous.progress_count)
    former = {} if previous is None else {condition.type: condition for condition in previous.conditions}
    turned = []
    for condition in mirrored:
        if not condition.is_true or condition.observed_generation != generation:
            continue
        before = former.get(condition.type)
        if before is None:
            # Its first answer; or it has become required just now, and may have turned long ago.
            turned.append(condition.last_transition_time)
        elif not before.is_true or before.observed_generation != generation:
            turned.append(condition.last_updated_time)
    if not turned:
        return last
    # A later completion may bear an earlier time, by another clock or a slower way here: then the count tells.
    latest = max(turned) if last.time is UNSET else max(*turned, last.time)
    return Progress(latest, (last.count or 0) + len(turned))


def is_open(resource: Observation) -> bool:
    """Whether an adapter has turned available, and not every adapter is known to have looked again since.

    Both times are the adapters' own: our clock, and when by it a status was first seen, has no part in this. The
    report by which an adapter turned may itself be the oldest of all, where the others looked a moment later and
    still saw nothing of it; so equal times are an answer only where nobody is left who waits.
    """
    progress, updated = resource.last_progress_time, resource.last_updated_time
    if progress is None:
        return False
    return updated is None or progress > updated or (progress == updated and not resource.is_ready)


def stamp(resource: Observation) -> tuple[datetime, int] | None:
    """What tells a resource's last progress from any other of its own; None where there was none."""
    if resource.last_progress_time is None:
        return None
    return resource.last_progress_time, resource.progress_count
