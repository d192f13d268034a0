"""The reference operator: it keeps the objects of each OpenBaoCluster of a namespace in their desired state.

It is level-triggered. The reflector says that a cluster may have changed, and `_reconcile` reads it again and runs
a pass: the fast path if the sidecar has set a trigger, all steps otherwise. The operator does not watch the
objects themselves. That is the sidecar's work; without one, drift waits for the next pass.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from sentinel.core.drift.fast_path import FULL_PASS_INTERVAL
from sentinel.core.drift.rules import OPENBAO
from sentinel.core.json import Malformed
from sentinel.core.kube import objects
from sentinel.core.kube.conditions import ConditionStatus
from sentinel.core.kube.objects import ObjectKey, ObjectReference
from sentinel.drift.operator.admission_check import INTERVAL, AdmissionCheck
from sentinel.drift.operator.openbao import health
from sentinel.drift.operator.openbao.cluster import OPENBAO_CLUSTER, OpenBaoCluster, read_cluster
from sentinel.drift.operator.openbao.health import ReadHealth
from sentinel.drift.operator.openbao.server_objects import CONFIG_MAP, MANAGED_BY, SERVICE, STATEFUL_SET
from sentinel.drift.operator.openbao.status import ConditionType, ConditionUpdate, StatusWriter
from sentinel.drift.operator.openbao.steps import BackupStep, CertsStep, InfraStep, UpgradeStep
from sentinel.drift.operator.reconciler import PassReport, Reconciler
from sentinel.drift.operator.restoring import Restorer
from sentinel.drift.operator.telemetry import DriftMetrics
from sentinel.ports.clock import Clock
from sentinel.ports.kube import KubeApi, KubeError, KubeObject, KubeUnavailable, ObjectNotFound
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.kube.changes import Change, Deleted, Modified
from sentinel.runtime.kube.events import EventRecorder, EventType
from sentinel.runtime.kube.reflector import Reflector
from sentinel.runtime.lifecycle.part import Part
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log
from sentinel.runtime.workqueue import Again, Completed, RunResult, WorkQueue

FIELD_MANAGER: Final = MANAGED_BY
WATCHED_KINDS: Final = (STATEFUL_SET.kind, SERVICE.kind, CONFIG_MAP.kind)
"""What sidecars watch, and therefore what triggers name."""
RESYNC: Final = timedelta(minutes=4)
"""Between two passes without a cause. Less than `FULL_PASS_INTERVAL`: otherwise the first trigger after a quiet
time would always cause a full pass, because the last one is too old."""
HEALTH_INTERVAL: Final = timedelta(seconds=30)
RETRY: Final = Backoff(initial=timedelta(seconds=1), maximum=timedelta(minutes=1), jitter=0.2)
"""The delays between passes that fail."""
_WORKERS: Final = 4
assert RESYNC < FULL_PASS_INTERVAL  # noqa: S101


class _ClusterSummary(msgspec.Struct, frozen=True):
    """What is kept of a cluster. Everything else is read when it is needed."""

    reference: ObjectReference
    version: tuple[str, int, tuple[tuple[str, str], ...], bool]
    """Changes if a pass is needed: not with the status."""


class OpenBaoOperator:
    """Reconciles the clusters of one namespace."""

    def __init__(
        self,
        *,
        api: KubeApi,
        namespace: str,
        operator_version: str,
        read_health: ReadHealth,
        metrics: DriftMetrics,
        events: EventRecorder,
        clock: Clock,
        log: Log,
        sidecar_config: str = "",
        resync: timedelta = RESYNC,
        health_interval: timedelta = HEALTH_INTERVAL,
        policy_interval: timedelta = INTERVAL,
        retry: Backoff = RETRY,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._api = api
        self._read_health = read_health
        self._events = events
        self._log = log
        self._resync = resync
        self._health_interval = health_interval
        self._retry = retry
        self._jitter = jitter
        self._failures: dict[ObjectKey, int] = {}
        self._admission = AdmissionCheck(
            api, on_change=self._add_all, clock=clock, log=log, interval=policy_interval
        )
        self._status = StatusWriter(api, field_manager=FIELD_MANAGER, clock=clock)
        restorer = Restorer(api, rules=OPENBAO, field_manager=FIELD_MANAGER, log=log)
        self._certs = CertsStep(api, restorer, log=log)
        infra = InfraStep(
            restorer,
            admission=self._admission,
            operator_version=operator_version,
            sidecar_config=sidecar_config,
        )
        self._reconciler = Reconciler[OpenBaoCluster](
            api=api,
            kind=OPENBAO_CLUSTER,
            names=OPENBAO.annotations,
            field_manager=FIELD_MANAGER,
            steps=(self._certs, infra, UpgradeStep(), BackupStep()),
            write_status=self._status.merge,
            metrics=metrics,
            clock=clock,
            log=log,
        )
        self._queue = WorkQueue[ObjectKey, None](clock=clock, log=log, workers=_WORKERS)
        # Health is requested beside the passes: a server that does not respond must not delay a fast path.
        self._health_queue = WorkQueue[ObjectKey, None](clock=clock, log=log, workers=_WORKERS)
        self._reflector = Reflector[_ClusterSummary](
            api=api,
            kind=OPENBAO_CLUSTER,
            namespace=namespace,
            keep=_summarize,
            handler=self._handle_change,
            clock=clock,
            log=log,
        )

    def part(self) -> Part:
        """Return the loops and checks of the operator."""
        return Part(
            name="drift-operator",
            loops=(
                self._reflector.run,
                self._run_queue,
                self._run_health,
                self._admission.run,
                self._events.run,
            ),
            checks={"openbaoclusters": self._reflector.problem},
            close=self._events.flush,
        )

    async def _run_queue(self, stopping: Stopping) -> None:
        # The policy decides about sidecars, so the first pass comes after it was read.
        if not await stopping.interrupts(self._admission.refresh()):
            await self._queue.run(self._reconcile, stopping)

    async def _run_health(self, stopping: Stopping) -> None:
        await self._health_queue.run(self._check_health, stopping)

    def _handle_change(self, change: Change[_ClusterSummary]) -> None:
        if isinstance(change, Modified) and change.previous.version == change.kept.version:
            return  # only its status, which we write ourselves
        if isinstance(change, Deleted):
            self._forget(change.key, change.previous.reference)
        else:
            self._reconciler.add(change.kept.reference)
        self._queue.add(change.key)

    def _forget(self, key: ObjectKey, reference: ObjectReference) -> None:
        """Forget a deleted cluster. Kubernetes deletes its objects, because they name it as their owner."""
        self._reconciler.forget(reference)
        self._certs.forget(reference.uid)
        self._status.forget(reference.uid)
        self._failures.pop(key, None)

    def _add_all(self) -> None:
        for key in self._reflector.items():
            self._queue.add(key)

    async def _reconcile(self, key: ObjectKey, _: Sequence[None]) -> RunResult:
        try:
            found = await self._get(key)
            if found is None:
                return Completed()
            return await self._reconcile_object(key, found)
        except (KubeError, KubeUnavailable) as error:
            delay = self._next_retry(key)
            self._log.warning(
                "cluster.failed", namespace=key.namespace, name=key.name, error=error, retry_in=delay
            )
            return Again(delay)

    async def _reconcile_object(self, key: ObjectKey, found: KubeObject) -> RunResult:
        try:
            cluster = read_cluster(found)
        except Malformed as error:
            self._log.error("cluster.malformed", namespace=key.namespace, name=key.name, error=error)
            return Completed()
        if cluster.spec.paused:
            self._reconciler.leave(cluster.reference)
            await self._status.set_conditions(
                cluster,
                ConditionUpdate(ConditionType.READY, ConditionStatus.UNKNOWN, "Paused", "spec.paused is true"),
            )
            return Completed()
        report = await self._reconciler.run(cluster, is_policy_enforced=self._admission.problem is None)
        await self._report(cluster, report)
        self._health_queue.add(key)
        if report.failed_step:
            return Again(self._next_retry(key))
        self._failures.pop(key, None)
        return Again(self._resync)

    async def _report(self, cluster: OpenBaoCluster, report: PassReport) -> None:
        """Write conditions and record Events about a pass."""
        if report.failed_step:
            status, reason = ConditionStatus.FALSE, "StepFailed"
            message = f"{report.failed_step}: {report.error}"
        else:
            status, reason, message = ConditionStatus.TRUE, "Reconciled", "all objects are as wanted"
        updates = [ConditionUpdate(ConditionType.READY, status, reason, message), *self._degraded(cluster)]
        changed = await self._status.set_conditions(cluster, *updates)
        for update in changed:
            if update.reason in ("StepFailed", "AdmissionPoliciesNotReady"):
                self._events.record(cluster.reference, EventType.WARNING, update.reason, update.message)
        if report.trigger is not None and not report.failed_step:
            resource = report.trigger.resource or "an unknown object"
            self._events.record(
                cluster.reference, EventType.NORMAL, "DriftCorrected", f"drift of {resource}, {report.kind} pass"
            )

    def _degraded(self, cluster: OpenBaoCluster) -> list[ConditionUpdate]:
        """Return the condition `Degraded`, or nothing while it is not known."""
        problem = self._admission.problem
        if not cluster.has_sentinel:
            status, reason, message = ConditionStatus.FALSE, "SentinelDisabled", "no sidecar is wanted"
        elif not self._admission.is_known:
            return []
        elif problem is None:
            status, reason = ConditionStatus.FALSE, "AdmissionPoliciesReady"
            message = "the admission policy is enforced"
        else:
            status, reason = ConditionStatus.TRUE, "AdmissionPoliciesNotReady"
            message = f"the sidecar is not deployed: {problem}"
        return [ConditionUpdate(ConditionType.DEGRADED, status, reason, message)]

    async def _check_health(self, key: ObjectKey, _: Sequence[None]) -> RunResult:
        try:
            found = await self._get(key)
            if found is None:
                return Completed()
            cluster = read_cluster(found)
            ca_certificate = self._certs.ca_certificate(cluster)
            if cluster.spec.paused or not ca_certificate:
                return Completed()  # the next pass adds it again
            response = await self._read_health(health.health_url(cluster), ca_certificate)
            await self._status.set_conditions(cluster, health.condition(response))
        except (KubeError, KubeUnavailable, Malformed) as error:
            self._log.warning("health.not_written", namespace=key.namespace, name=key.name, error=error)
        return Again(self._health_interval)

    async def _get(self, key: ObjectKey) -> KubeObject | None:
        """Return a cluster that exists and is not being deleted.

        Not the reflector's copy: that may be older than what we wrote in the last pass, and the counters in the
        status would be too low.
        """
        try:
            found = await self._api.get(OPENBAO_CLUSTER, key.name, namespace=key.namespace)
        except ObjectNotFound:
            return None
        return None if objects.deletion_time(found) is not None else found

    def _next_retry(self, key: ObjectKey) -> timedelta:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        return self._retry.delay(failures, self._jitter())


def _summarize(found: KubeObject) -> _ClusterSummary:
    annotations: Mapping[str, str] = objects.read_annotations(found)
    return _ClusterSummary(
        objects.reference(found),
        (
            objects.uid(found),
            objects.generation(found),
            tuple(sorted(annotations.items())),
            objects.deletion_time(found) is not None,
        ),
    )
