"""The sidecar of one cluster.

It watches the cluster itself, whose annotations say what the sidecar may do and whether its trigger was handled,
and then the cluster's objects. Each change of an object is judged; drift is reported to observers and, unless the
cluster says otherwise, triggers the operator.

It keeps no state outside its memory. After a restart, objects are judged by the fingerprints that the operator
attested on them, and a trigger that is still there is waited for as if this process had written it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from sentinel.core.drift import trigger
from sentinel.core.drift.judgement import Judgement
from sentinel.core.drift.schedule import TriggerSchedule
from sentinel.core.drift.trigger import ClusterView, DriftMode
from sentinel.core.kube import objects
from sentinel.core.kube.objects import ObjectReference
from sentinel.drift.sidecar.object_watch import ObjectWatch
from sentinel.drift.sidecar.plan import DriftPlan
from sentinel.drift.sidecar.report import DriftObserver, Judged
from sentinel.drift.sidecar.trigger_loop import TriggerLoop
from sentinel.ports.clock import Clock
from sentinel.ports.kube import KubeApi, KubeObject
from sentinel.runtime.kube.changes import Change, Deleted
from sentinel.runtime.kube.reflector import Reflector
from sentinel.runtime.lifecycle.part import Loop, Part
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log
from sentinel.runtime.probes.health import HealthCheck

TRIGGER_CHECK: Final = "trigger"


class DriftSidecar:
    """Watches the objects of a cluster and triggers its operator."""

    def __init__(
        self,
        plan: DriftPlan,
        *,
        api: KubeApi,
        observer: DriftObserver,
        clock: Clock,
        log: Log,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._plan = plan
        self._observer = observer
        self._time = _MonotonicTime(clock)
        self._reference = ObjectReference(plan.target.api_version, plan.target.kind, plan.namespace, plan.cluster)
        self._trigger = TriggerLoop(
            plan,
            api=api,
            schedule=TriggerSchedule(debounce=plan.debounce, ack_timeout=plan.ack_timeout),
            observer=observer,
            now=self._time.now,
            clock=clock,
            log=log,
            jitter=jitter,
        )
        self._cluster = Reflector[ClusterView](
            api=api,
            kind=plan.target,
            namespace=plan.namespace,
            field_selector=f"metadata.name={plan.cluster}",
            keep=self._read_view,
            handler=self._handle_cluster,
            clock=clock,
            log=log,
        )
        self._watches = [
            ObjectWatch(
                kind,
                plan,
                api=api,
                on_judgement=self._judged,
                on_relist=observer.relisted,
                now=self._time.now,
                clock=clock,
                log=log,
            )
            for kind in plan.kinds
        ]

    @property
    def reference(self) -> ObjectReference:
        """The cluster, for Kubernetes Events about it. It has a uid once the cluster was read."""
        return self._reference

    def part(self, *, loops: Sequence[Loop] = ()) -> Part:
        """Return the sidecar as a part. `loops` are those of its observers."""
        checks: dict[str, HealthCheck] = {watch.check_name: watch.problem for watch in self._watches}
        checks[TRIGGER_CHECK] = self._problem
        return Part(
            name="drift",
            loops=(self._cluster.run, self._run_watches, self._trigger.run, *loops),
            checks=checks,
        )

    async def _run_watches(self, stopping: Stopping) -> None:
        # The cluster first: it may say that nothing is to be reported.
        if await stopping.interrupts(self._wait_for_cluster()):
            return
        async with asyncio.TaskGroup() as group:
            for watch in self._watches:
                group.create_task(watch.run(stopping))
                group.create_task(watch.run_queue(stopping))

    async def _wait_for_cluster(self) -> None:
        await self._cluster.wait_until_synced()
        if not self._cluster.items():
            self._trigger.cluster_changed(None)

    def _problem(self) -> str | None:
        return self._cluster.problem() or self._trigger.problem()

    def _read_view(self, cluster: KubeObject) -> ClusterView:
        return trigger.read_view(
            objects.read_annotations(cluster),
            self._plan.rules.annotations,
            uid=objects.uid(cluster),
            is_deleting=objects.deletion_time(cluster) is not None,
        )

    def _handle_cluster(self, change: Change[ClusterView]) -> None:
        if isinstance(change, Deleted):
            self._trigger.cluster_changed(None)
        else:
            self._reference = msgspec.structs.replace(self._reference, uid=change.kept.uid)
            self._trigger.cluster_changed(change.kept)

    def _judged(self, judgement: Judgement, time: datetime) -> None:
        mode = self._trigger.mode
        if mode is DriftMode.OFF:
            return
        self._observer.judged(Judged(judgement, mode, self._trigger.is_maintenance))
        if judgement.is_drift and mode is DriftMode.ENFORCE:
            paths = [change.path for change in judgement.changes] or [""]
            self._trigger.drifted(judgement, paths, time)


class _MonotonicTime:
    """A time that is never set back. By a wall clock that is set back, a trigger would be late by as much."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start: tuple[datetime, float] | None = None

    def now(self) -> datetime:
        time = asyncio.get_running_loop().time()
        if self._start is None:
            self._start = self._clock.now(), time
        start, loop_start = self._start
        return start + timedelta(seconds=time - loop_start)
