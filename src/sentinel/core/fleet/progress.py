"""Progress: a required adapter becomes `Available`, and other adapters may wait for that.

Aggregation records when it last happened and how many times. The pulse reads both to send one event for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec
from msgspec import UNSET, UnsetType

from sentinel.core.fleet.documents import Condition, ResourceStatus


class Progress(msgspec.Struct, frozen=True):
    """When a required adapter last became `Available`, and how many times one has; unset until one has."""

    time: datetime | UnsetType = UNSET
    count: int | UnsetType = UNSET


def after(previous: ResourceStatus | None, mirrored: Iterable[Condition], *, generation: int) -> Progress:
    """Return the progress of a resource whose adapter conditions are now `mirrored`.

    Only the current generation counts for an adapter that waits for another. So an adapter whose condition was
    True for an older generation and is True for this one has progressed, at the time of its report, although the
    condition had no transition. A repeated or withdrawn condition is not progress and keeps the last values, so
    neither the time nor the count ever decreases, not even with a new generation.
    """
    last = Progress() if previous is None else Progress(previous.last_progress_time, previous.progress_count)
    former = {} if previous is None else {condition.type: condition for condition in previous.conditions}
    completed = []
    for condition in mirrored:
        if not condition.is_true or condition.observed_generation != generation:
            continue
        before = former.get(condition.type)
        if before is None:
            # Its first report, or it has just become required and may have completed its part long ago.
            completed.append(condition.last_transition_time)
        elif not before.is_true or before.observed_generation != generation:
            completed.append(condition.last_updated_time)
    if not completed:
        return last
    # A later completion may carry an earlier time (another clock, a delayed report). The count tells them apart.
    latest = max(completed) if last.time is UNSET else max(*completed, last.time)
    return Progress(latest, (last.count or 0) + len(completed))
