"""Decides when a sidecar sends a trigger.

    schedule = TriggerSchedule(debounce=Debounce(window, max_wait), ack_timeout=timedelta(seconds=60))
    schedule.drifted(resource, paths, now)
    match schedule.next(now):
        case Send(): ...  # then `began`, and `succeeded` or `failed`

Drift is first collected into a burst. Drift of a path in conflict is delayed until its backoff has passed, or
until something else is triggered: a trigger restores everything. What was triggered stays outstanding until the
operator clears the trigger. If it does not, the trigger is sent again.

Nothing is forgotten before the operator has acknowledged it. A trigger that could not be written is due again, and
takes along what drifted meanwhile. If the response was lost but the cluster shows the trigger, it was written.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from sentinel.core.drift import debounce
from sentinel.core.drift.conflicts import Conflict, Conflicts, FieldPath
from sentinel.core.drift.debounce import Burst, Debounce
from sentinel.core.drift.trigger import ClusterView

MAX_PATHS = 1_000
"""How many drifted paths are remembered until they are corrected."""


class Batch(msgspec.Struct, frozen=True):
    """What one trigger is about."""

    burst: Burst
    fields: tuple[FieldPath, ...] = ()


class Send(msgspec.Struct, frozen=True):
    """Write a trigger now."""

    batch: Batch
    is_repeated: bool
    """The operator did not acknowledge the last one, and nothing else drifted."""


class Acknowledged(msgspec.Struct, frozen=True):
    """The operator has cleared the trigger."""

    batch: Batch
    after: timedelta
    """The time since the trigger was sent."""


class _Sent(msgspec.Struct, frozen=True):
    value: str
    batch: Batch
    time: datetime


class TriggerSchedule:
    """What has drifted, and which triggers are due, being written or not acknowledged."""

    def __init__(self, *, debounce: Debounce, ack_timeout: timedelta) -> None:
        self._debounce = debounce
        self._ack_timeout = ack_timeout
        self._conflicts = Conflicts()
        self._view: ClusterView | None = None
        self._collecting: Batch | None = None
        """Drift in the debounce window."""
        self._delayed: Batch | None = None
        """Drift of paths in conflict."""
        self._delayed_until: datetime | None = None
        self._unsent: Batch | None = None
        """Drift whose trigger could not be written."""
        self._sending: _Sent | None = None
        self._outstanding: _Sent | None = None
        self._is_shown = False
        """Whether the cluster has shown the latest trigger."""
        self._retry_time: datetime | None = None

    @property
    def has_pending(self) -> bool:
        """Whether something drifted that has not been triggered yet."""
        return any(each is not None for each in (self._collecting, self._delayed, self._unsent, self._sending))

    @property
    def outstanding(self) -> str:
        """The trigger that the operator has not acknowledged; empty if there is none."""
        return "" if self._outstanding is None else self._outstanding.value

    @property
    def has_outstanding(self) -> bool:
        """Whether the operator has yet to acknowledge a trigger, also if a later one is not written yet."""
        is_replaced = self._unsent is not None or self._sending is not None
        return self._outstanding is not None or (
            is_replaced and self._view is not None and bool(self._view.trigger)
        )

    def drifted(self, resource: str, paths: Iterable[str], now: datetime) -> Conflict | None:
        """Add a drifted object. Returns the conflict if someone keeps changing all of these paths."""
        fields = tuple(FieldPath(resource, path) for path in paths)[:MAX_PATHS]
        conflict = self._conflicts.drifted(fields, now)
        drift = Batch(debounce.add(None, resource, now), fields)
        if conflict is not None and conflict.until > now:
            self._delayed = _merge_if(self._delayed, drift)
            self._delayed_until = min(self._delayed_until or conflict.until, conflict.until)
        else:
            self._collecting = _merge_if(self._collecting, drift)
        return conflict

    def cluster_seen(self, view: ClusterView | None, now: datetime) -> Acknowledged | None:
        """Record what the cluster says. None: there is no such cluster. Returns what was acknowledged."""
        before, self._view = self._view, view
        if view is None or view.is_deleting or (before is not None and before.uid != view.uid):
            self._outstanding, self._is_shown = None, False
            return None
        latest = self._sending or self._outstanding
        if latest is None:
            if before is None and view.trigger:
                self._adopt(view, now)
            return None
        if view.trigger == latest.value:
            self._is_shown = True
        elif not view.trigger and self._is_shown:
            return self._acknowledge(latest, now)
        return None

    def next(self, now: datetime, *, not_before: datetime | None = None) -> Send | datetime | None:
        """Return a trigger to send now, when to look again, or None if nothing is to be done until something
        changes. `not_before` is the end of a maintenance."""
        pending, outstanding, due = self._pending(), self._outstanding, self._due()
        if due is None or self._sending is not None or not self._has_cluster:
            return None
        due = max((due, *(gate for gate in (self._retry_time, not_before) if gate is not None)))
        if due > now:
            return due
        if pending is None:
            return Send(_opened_at(outstanding.batch, now), is_repeated=True) if outstanding is not None else None
        # The outstanding one was already sent, so its age is not how long this trigger took.
        merged = pending if outstanding is None else _merge(pending, outstanding.batch)
        return Send(_opened_at(merged, pending.burst.opened), is_repeated=False)

    def began(self, send: Send, value: str, now: datetime) -> None:
        """Record that a trigger is being written."""
        self._sending = _Sent(value, send.batch, now)
        self._collecting = self._delayed = self._delayed_until = self._unsent = self._outstanding = None
        self._is_shown = False

    def succeeded(self) -> None:
        """Record that the trigger was written."""
        if self._sending is not None:  # otherwise it was already acknowledged
            self._outstanding, self._sending = self._sending, None
        self._retry_time = None

    def failed(self, retry_time: datetime) -> bool:
        """Record that writing the trigger failed. Returns whether it is due again: the cluster may show it."""
        if self._sending is None or self._is_shown:
            self.succeeded()
            return False
        self._unsent, self._sending = self._sending.batch, None
        self._retry_time = retry_time
        return True

    def pending_now(self) -> Send | None:
        """Return what is to be sent before the process ends: not the drift of paths in conflict."""
        batch = _merge_if(self._unsent, self._collecting)
        if batch is None or self._sending is not None or not self._has_cluster:
            return None
        return Send(batch, is_repeated=False)

    def clear(self) -> None:
        """Forget everything that has drifted: nothing is to be triggered any more."""
        self._collecting = self._delayed = self._delayed_until = self._unsent = self._outstanding = None

    @property
    def _has_cluster(self) -> bool:
        return self._view is not None and not self._view.is_deleting

    def _pending(self) -> Batch | None:
        return _merge_if(_merge_if(self._unsent, self._collecting), self._delayed)

    def _due(self) -> datetime | None:
        """Return when the next trigger is due, whether or not it may be sent then."""
        times = [
            *(() if self._unsent is None else (self._unsent.burst.opened,)),
            *(() if self._collecting is None else (self._debounce.due(self._collecting.burst),)),
            *(() if self._delayed_until is None else (self._delayed_until,)),
            *(() if self._outstanding is None else (self._outstanding.time + self._ack_timeout,)),
        ]
        return min(times, default=None)

    def _adopt(self, view: ClusterView, now: datetime) -> None:
        """Wait for the acknowledgement of a trigger that the last process wrote."""
        objects = (view.trigger_resource,) if view.trigger_resource else ()
        batch = Batch(Burst(now, now, objects))
        self._outstanding, self._is_shown = _Sent(view.trigger, batch, now), True

    def _acknowledge(self, latest: _Sent, now: datetime) -> Acknowledged:
        self._sending = self._outstanding = None
        self._is_shown = False
        self._conflicts.corrected(latest.batch.fields, now)
        return Acknowledged(latest.batch, now - latest.time)


def _merge_if(earlier: Batch | None, later: Batch | None) -> Batch | None:
    return earlier or later if earlier is None or later is None else _merge(earlier, later)


def _merge(earlier: Batch, later: Batch) -> Batch:
    fields = tuple(dict.fromkeys((*earlier.fields, *later.fields)))[:MAX_PATHS]
    return Batch(debounce.merge(earlier.burst, later.burst), fields)


def _opened_at(batch: Batch, opened: datetime) -> Batch:
    return Batch(msgspec.structs.replace(batch.burst, opened=opened), batch.fields)
