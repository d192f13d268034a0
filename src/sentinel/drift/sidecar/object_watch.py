"""Watches the objects of one kind and judges each change.

Only a fingerprint of each object is kept, never the object: a ConfigMap may have a megabyte.

Objects are selected by their labels on the server. So an object that loses a label and one that was deleted look
the same in a watch: `DELETED`. The object is read again to tell them apart. While it cannot be read, it stays in a
queue and is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeAlias

import msgspec

from sentinel.core.drift.fingerprint import Fingerprint
from sentinel.core.drift.judge import judge
from sentinel.core.drift.judge_status import StatusSummary, judge_status_update, summarize
from sentinel.core.drift.judgement import Judgement
from sentinel.core.kube import objects
from sentinel.core.kube.objects import ObjectKey
from sentinel.drift.sidecar.plan import DriftPlan
from sentinel.ports.clock import Clock
from sentinel.ports.kube import KubeApi, KubeError, KubeKind, KubeObject, KubeUnavailable, ObjectNotFound
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.kube.changes import Change, Deleted, EventReceived, Listed, ListReason, Observation
from sentinel.runtime.kube.reflector import Reflector
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log
from sentinel.runtime.workqueue import Again, Completed, RunResult, WorkQueue

CHUNK_SIZE: Final = 2
"""Objects in one response of a list. Two of the largest ConfigMaps are 2 MiB, and as much again when decoded."""
STALE_AFTER: Final = timedelta(minutes=3)
"""A watch without messages for this long is not ready: the API server sends a bookmark about every minute."""
_RETRY: Final = Backoff(initial=timedelta(milliseconds=500), maximum=timedelta(seconds=30), jitter=0)
_MAX_ATTEMPTS: Final = 3
"""This many failed reads of one object in a row make the watch not ready."""
_MAX_UNSELECTED: Final = 1_000
"""How many objects without the labels are remembered."""

OnJudgement: TypeAlias = "Callable[[Judgement, datetime], None]"
"""Called with a judgement and the time of its event."""


class _Known(msgspec.Struct, frozen=True):
    """What is kept of an object."""

    uid: str
    fingerprint: Fingerprint
    summary: StatusSummary | None


class _Vanished(msgspec.Struct, frozen=True):
    """An object that left the selection, and when."""

    known: _Known
    time: datetime


class ObjectWatch:
    """The objects of one kind."""

    def __init__(
        self,
        kind: KubeKind,
        plan: DriftPlan,
        *,
        api: KubeApi,
        on_judgement: OnJudgement,
        on_relist: Callable[[], None],
        now: Callable[[], datetime],
        clock: Clock,
        log: Log,
    ) -> None:
        """`now` returns a time that is never set back."""
        self.kind = kind
        self._api = api
        self._plan = plan
        self._on_judgement = on_judgement
        self._on_relist = on_relist
        self._now = now
        self._clock = clock
        self._log = log
        self._known: dict[ObjectKey, _Known] = {}
        """Selected objects, and those that lost a label: they may come back, changed meanwhile."""
        self._unselected: dict[ObjectKey, None] = {}
        self._vanished: dict[ObjectKey, list[_Vanished]] = {}
        self._attempts: dict[ObjectKey, int] = {}
        self._queue = WorkQueue[ObjectKey, None](clock=clock, log=log)
        self._last_message: datetime | None = None
        """When the API server last sent something."""
        self._reflector = Reflector[None](
            api=api,
            kind=kind,
            namespace=plan.namespace,
            label_selector=plan.label_selector,
            chunk_size=CHUNK_SIZE,
            keep=lambda kube_object: None,
            handler=self._handle_change,
            observe=self._observe,
            clock=clock,
            log=log,
        )

    @property
    def check_name(self) -> str:
        """The name of the readiness check."""
        return f"watch-{self.kind.plural}"

    def problem(self) -> str | None:
        """Return why changes may be missed. A readiness check."""
        problem, last = self._reflector.problem(), self._last_message
        if problem is None and last is not None and (silence := self._clock.now() - last) > STALE_AFTER:
            return f"{self.kind}: expected a bookmark every minute, got nothing for {silence.seconds} s"
        unread = next((key for key, attempts in self._attempts.items() if attempts >= _MAX_ATTEMPTS), None)
        if problem is None and unread is not None:
            return f"{self.kind} {unread}: left the selection and cannot be read"
        return problem

    async def run(self, stopping: Stopping) -> None:
        """Watch the objects until stopped."""
        await self._reflector.run(stopping)

    async def run_queue(self, stopping: Stopping) -> None:
        """Find out what happened to objects that left the selection, until stopped."""
        await self._queue.run(self._resolve, stopping)

    async def wait_until_synced(self) -> None:
        await self._reflector.wait_until_synced()

    def _observe(self, observation: Observation) -> None:
        if isinstance(observation, EventReceived | Listed):
            self._last_message = self._clock.now()
        if isinstance(observation, Listed) and observation.reason is not ListReason.FIRST:
            self._on_relist()

    def _handle_change(self, change: Change[None]) -> None:
        if isinstance(change, Deleted):
            known = self._known.get(change.key)
            if known is not None:  # otherwise it could not be judged when it appeared
                self._vanished.setdefault(change.key, []).append(_Vanished(known, self._now()))
                self._queue.add(change.key)
        else:
            self._unselected.pop(change.key, None)
            self._judge(change.key, change.object, self._now())

    def _judge(self, key: ObjectKey, kube_object: KubeObject, time: datetime) -> None:
        uid, known, summary = objects.uid(kube_object), self._known.get(key), summarize(kube_object)
        if known is not None and known.uid != uid:
            known = None
        judged, before = None, None
        if known is not None:
            before = known.fingerprint
            judged = judge_status_update(known.summary, summary, before, kube_object)
        judgement, fingerprint = judged or judge(before, kube_object, self._plan.rules)
        if fingerprint is not None:
            self._known[key] = _Known(uid, fingerprint, summary)
        self._on_judgement(judgement, time)

    async def _resolve(self, key: ObjectKey, _: Sequence[None]) -> RunResult:
        """Find out whether an object was deleted or has lost a label."""
        try:
            found = await self._read(key)
        except (KubeError, KubeUnavailable) as error:
            # A refusal says nothing about the object: a server that has just started may refuse every read.
            attempts = self._attempts.get(key, 0)
            delay = _RETRY.delay(attempts, 0)
            if isinstance(error, KubeUnavailable):
                delay = max(delay, min(error.retry_after, _RETRY.maximum))
            self._attempts[key] = attempts + 1
            self._log.warning("object.not_read", kind=str(self.kind), key=str(key), error=error, retry_in=delay)
            return Again(delay)
        self._attempts.pop(key, None)
        for vanished in self._vanished.pop(key, ()):
            if found is not None and objects.uid(found) == vanished.known.uid:
                self._judge(key, found, vanished.time)
                self._remember_unselected(key)
            else:
                self._deleted(key, vanished)
        return Completed()

    async def _read(self, key: ObjectKey) -> KubeObject | None:
        """Return the object as it is now, or None if there is none."""
        try:
            return await self._api.get(self.kind, key.name, namespace=self._plan.namespace)
        except ObjectNotFound:
            return None

    def _deleted(self, key: ObjectKey, vanished: _Vanished) -> None:
        if self._known.get(key) == vanished.known:
            del self._known[key]
            self._unselected.pop(key, None)
        judgement, _ = judge(vanished.known.fingerprint, None, self._plan.rules)
        self._on_judgement(judgement, vanished.time)

    def _remember_unselected(self, key: ObjectKey) -> None:
        if self._reflector.has_synced and key not in self._unselected:
            self._unselected[key] = None
        while len(self._unselected) > _MAX_UNSELECTED:
            oldest = next(iter(self._unselected))
            del self._unselected[oldest]
            self._known.pop(oldest, None)
