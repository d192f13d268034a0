"""Writes triggers to the cluster, when the schedule says so.

The patch touches two annotations and nothing else. Failures that pass by themselves are retried soon. Those that
need a person, such as a missing permission, are retried slowly and make the sidecar not ready. Nothing that
drifted is forgotten meanwhile. When the process stops, what is still collected is triggered at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from sentinel.core.drift import trigger
from sentinel.core.drift.judgement import Judgement
from sentinel.core.drift.schedule import Send, TriggerSchedule
from sentinel.core.drift.trigger import ClusterView, DriftMode
from sentinel.core.times import timestamp
from sentinel.drift.sidecar.plan import DriftPlan
from sentinel.drift.sidecar.report import (
    ConflictFound,
    DriftObserver,
    FailureClass,
    Triggered,
    TriggerFailed,
    classify,
)
from sentinel.ports.clock import Clock
from sentinel.ports.kube import KubeApi, KubeError, KubeUnavailable
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log
from sentinel.runtime.log_format import describe
from sentinel.runtime.workqueue import is_cancelled

FIELD_MANAGER: Final = "openbao-sentinel"
TRANSIENT_BACKOFF: Final = Backoff(initial=timedelta(milliseconds=500), maximum=timedelta(seconds=30), jitter=0.2)
"""The delays after failures that pass by themselves."""
PERMANENT_BACKOFF: Final = Backoff(initial=timedelta(seconds=10), maximum=timedelta(minutes=5), jitter=0.2)
"""The delays after failures that need a person."""
_MAX_RETRY_AFTER: Final = timedelta(minutes=5)
_PATCH_TIMEOUT: Final = timedelta(seconds=10)
_FLUSH_TIMEOUT: Final = timedelta(seconds=2)
_MAX_WAIT: Final = timedelta(days=1)
"""The longest timer for the end of a maintenance, which may be in the year 9999. Then it is checked again."""
_MAX_TRANSIENT_FAILURES: Final = 3
"""This many transient failures in a row make the sidecar not ready."""


class TriggerLoop:
    """Triggers the operator of one cluster."""

    def __init__(
        self,
        plan: DriftPlan,
        *,
        api: KubeApi,
        schedule: TriggerSchedule,
        observer: DriftObserver,
        now: Callable[[], datetime],
        clock: Clock,
        log: Log,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Annotations of the cluster restrict the mode of the plan. `now` returns a time that is never set back;
        `clock` is the wall clock."""
        self._api = api
        self._target = plan.target
        self._namespace, self._name = plan.namespace, plan.cluster
        self._annotations = plan.rules.annotations
        self._configured_mode = self._logged_mode = plan.mode
        self._schedule = schedule
        self._observer = observer
        self._now = now
        self._clock = clock
        self._log = log
        self._jitter = jitter
        self._view: ClusterView | None = None
        self._has_view = False
        self._last_value = ""
        self._changed = asyncio.Event()
        self._failures = 0
        self._problem: str | None = None
        self._problem_since: datetime | None = None
        self._has_outstanding = False

    @property
    def mode(self) -> DriftMode:
        """The mode in force. Without a cluster there is nothing to do."""
        if self._view is None or self._view.is_deleting:
            return DriftMode.OFF
        return trigger.effective_mode(self._configured_mode, self._view.mode)

    @property
    def is_maintenance(self) -> bool:
        """Whether triggers have to wait for the end of a maintenance."""
        return self._maintenance_end() is not None

    def problem(self) -> str | None:
        """Return why triggers cannot be written. A readiness check."""
        if not self._has_view:
            return f"{self._target.kind} {self._name}: not read yet"
        if self._view is None:
            return f"no {self._target.kind} {self._name} in the namespace {self._namespace}"
        return self._problem

    def cluster_changed(self, view: ClusterView | None) -> None:
        """Record what the cluster says. None: there is no such cluster."""
        view_before = self._view
        self._view, self._has_view = view, True
        acknowledged = self._schedule.cluster_seen(view, self._now())
        if acknowledged is not None:
            self._observer.acknowledged(acknowledged)
        if self.mode is not DriftMode.ENFORCE:
            self._schedule.clear()
            self._succeeded()
        if view is not None and self.mode is not self._logged_mode:
            self._logged_mode = self.mode
            self._log.info("mode.changed", mode=self.mode)
        if view is not None and view != view_before:
            for problem in trigger.problems(view):
                if view_before is None or problem not in trigger.problems(view_before):
                    self._log.warning("annotation.invalid", problem=problem)
        self._report_outstanding()
        self._changed.set()

    def drifted(self, judgement: Judgement, paths: Iterable[str], time: datetime) -> None:
        """Trigger the operator after the debounce window."""
        conflict = self._schedule.drifted(judgement.resource, paths, time)
        if conflict is not None and conflict.is_new:
            self._observer.conflict_found(ConflictFound(conflict, judgement))
        self._changed.set()

    async def run(self, stopping: Stopping) -> None:
        """Write triggers until stopped, then what is left."""
        await stopping.interrupts(self._write_triggers())
        await self._flush()

    async def _write_triggers(self) -> None:
        while True:
            self._changed.clear()
            action = None
            if self.mode is DriftMode.ENFORCE:
                action = self._schedule.next(self._now(), not_before=self._maintenance_end())
            if isinstance(action, Send):
                await self._write(action)
            else:
                await self._wait(action)

    async def _wait(self, until: datetime | None) -> None:
        seconds = None if until is None else (until - self._now()).total_seconds()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _write(self, send: Send) -> None:
        shown = "" if self._view is None else self._view.trigger
        value = self._last_value = trigger.next_value(self._clock.now(), (shown, self._last_value))
        self._schedule.began(send, value, self._now())
        patch = trigger.merge_patch(
            self._annotations, value=value, objects=send.batch.burst.objects, namespace=self._namespace
        )
        try:
            async with asyncio.timeout(_PATCH_TIMEOUT.total_seconds()):
                await self._api.merge_patch(
                    self._target, self._name, patch, namespace=self._namespace, field_manager=FIELD_MANAGER
                )
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled(error):
                self._schedule.failed(self._now())
                raise
            if self._failed(error):
                self._report_outstanding()
                return
        self._schedule.succeeded()
        self._succeeded()
        self._report_outstanding()
        latency = self._now() - send.batch.burst.opened
        self._observer.triggered(Triggered(value, send.batch, send.is_repeated, latency))

    def _failed(self, error: BaseException) -> bool:
        """Report a failure. Returns whether the trigger is due again: the cluster may already show it."""
        failure = classify(error)
        backoff = TRANSIENT_BACKOFF if failure.is_transient else PERMANENT_BACKOFF
        delay = backoff.delay(self._failures, self._jitter())
        if isinstance(error, KubeUnavailable):
            delay = max(delay, min(error.retry_after, _MAX_RETRY_AFTER))
        if not self._schedule.failed(self._now() + delay):
            return False
        self._failures += 1
        if not failure.is_transient or self._failures >= _MAX_TRANSIENT_FAILURES:
            self._set_problem(failure, error)
        if failure is FailureClass.OTHER and not isinstance(error, KubeError):
            self._log.exception("trigger.crashed", error=error)
        self._observer.trigger_failed(TriggerFailed(failure, error, self._failures, delay))
        return True

    def _report_outstanding(self) -> None:
        if self._schedule.has_outstanding != self._has_outstanding:
            self._has_outstanding = self._schedule.has_outstanding
            self._observer.outstanding_changed(self._has_outstanding)

    def _set_problem(self, failure: FailureClass, error: BaseException) -> None:
        self._problem_since = self._problem_since or self._clock.now().replace(microsecond=0)
        reason = "no response in time" if isinstance(error, TimeoutError) else describe(error)
        since = timestamp(self._problem_since)
        self._problem = f"cannot patch {self._target.kind} {self._name} ({failure}): {reason} (since {since})"

    def _succeeded(self) -> None:
        self._failures = 0
        self._problem = self._problem_since = None

    async def _flush(self) -> None:
        """Write what is left, once."""
        send = self._schedule.pending_now()
        if send is None or self.mode is not DriftMode.ENFORCE or self.is_maintenance:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_TIMEOUT.total_seconds()):
                await self._write(send)

    def _maintenance_end(self) -> datetime | None:
        """Return when a maintenance ends, by `now`. The annotation is a time of the wall clock."""
        end = None if self._view is None else trigger.maintenance_end(self._view)
        left = timedelta(0) if end is None else min(end - self._clock.now(), _MAX_WAIT)
        return self._now() + left if left > timedelta(0) else None
