"""The operator: a pulse for each SentinelConfig of a namespace.

It is level-triggered. The reflector says that a SentinelConfig may have changed, and `_reconcile` compares what it
says now with what runs. A changed one is reloaded at once. The old pulse ends first: what it has sent is confirmed
on its own connection and recorded before the new one decides on anything. SentinelConfigs are reconciled side by
side, because a pulse may take long to stop while its broker does not respond; `held_shards` keeps two from
watching the same resources meanwhile.

An invalid configuration changes nothing that runs. It is tried again after 30 seconds, because what it refers to
may appear, such as a Secret.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from sentinel.core.kube import conditions, objects
from sentinel.core.kube.objects import ObjectKey
from sentinel.core.operator import duplicates
from sentinel.core.operator.duplicates import Claim
from sentinel.core.operator.status import WRITE_INTERVAL, ConditionType, StatusReason
from sentinel.core.pulse.pacing import Pacer
from sentinel.operator import manifests, resolve
from sentinel.operator.held_shards import HeldShards
from sentinel.operator.managed_config import ManagedConfig
from sentinel.operator.plans import BuildElector, BuildPulse, PulsePlan
from sentinel.operator.resolve import ResolvedConfig
from sentinel.operator.sentinel_config import SENTINEL_CONFIG, SentinelConfig
from sentinel.operator.status_writer import StatusWriter
from sentinel.ports.clock import Clock
from sentinel.ports.errors import Misconfigured
from sentinel.ports.kube import KubeApi, KubeError, KubeKind, KubeObject, KubeUnavailable, ObjectNotFound
from sentinel.pulse.definition import PulseDefinition
from sentinel.pulse.telemetry import PulseMetrics, PulseSeries
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.kube.changes import Change, Deleted, Modified, Observation, RequestFailed
from sentinel.runtime.kube.events import EventRecorder, EventType
from sentinel.runtime.kube.leader_election import CLIENT_GO, LastLeader, LeaderCallbacks
from sentinel.runtime.kube.reflector import Reflector
from sentinel.runtime.lifecycle.dynamic_parts import DynamicParts
from sentinel.runtime.lifecycle.part import Part
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log
from sentinel.runtime.probes.health import HealthCheck
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings.report import Loaded
from sentinel.runtime.workqueue import Again, Completed, RunResult, WorkQueue

RETRY: Final = timedelta(seconds=30)
"""The delay before a configuration that could not be loaded is tried again, and an absent one is looked for."""
SECRETS_INTERVAL: Final = timedelta(seconds=60)
"""How often Secrets are read again, to notice that they were rotated."""
SECRET: Final = KubeKind(group="", version="v1", kind="Secret", plural="secrets")

_SECRETS_RETRY: Final = timedelta(seconds=2)
"""The delay before a changed configuration whose Secrets could not be read is tried again."""
_RESTART: Final = Backoff(initial=timedelta(seconds=1), maximum=timedelta(seconds=30), jitter=0.2)
_START_TIMEOUT: Final = timedelta(seconds=5)
"""How long a reload waits for a broker while the old pulse still runs."""
_WORKERS: Final = 32
"""How many SentinelConfigs may start, reload or stop at the same time."""
_UNKNOWN: Final = "unknown"


class Operator:
    """Runs a pulse for each SentinelConfig. Pulses are parts of the service, beside the operator's own `part`."""

    def __init__(
        self,
        *,
        api: KubeApi,
        namespace: str,
        name: str = "",
        parts: DynamicParts,
        build_pulse: BuildPulse,
        identity: str,
        build_elector: BuildElector | None = None,
        renew_interval: timedelta = CLIENT_GO.retry_period,
        metrics: PulseMetrics,
        events: EventRecorder,
        clock: Clock,
        log: Log,
        set_secrets_in_use: Callable[[Hashable, Iterable[str]], None] = lambda user, secrets: None,
        emulator_host: str = "",
        retry: timedelta = RETRY,
        secrets_interval: timedelta = SECRETS_INTERVAL,
        status_interval: timedelta = WRITE_INTERVAL,
    ) -> None:
        """With a `name`, only that SentinelConfig runs. Without `build_elector`, this process always publishes.
        `identity` is that of this process in elections. Leaders renew their leases every `renew_interval`.

        `set_secrets_in_use` is called with the secrets of each SentinelConfig before their first use and when they
        have changed, so that logs can redact them. `emulator_host` replaces Google's service for Pub/Sub.

        A configuration that cannot be loaded is tried again after `retry`, and Secrets are read again after
        `secrets_interval`. A status whose conditions do not turn is written every `status_interval` at most.
        """
        self._retry = retry
        self._secrets_interval = secrets_interval
        self._api = api
        self._namespace = namespace
        self._name = name
        self._parts = parts
        self._build_pulse = build_pulse
        self._identity = identity
        self._build_elector = build_elector
        self._renew_interval = renew_interval
        self._metrics = metrics
        self._events = events
        self._clock = clock
        self._log = log
        self._set_secrets_in_use = set_secrets_in_use
        self._emulator_host = emulator_host
        self._managed: dict[ObjectKey, ManagedConfig] = {}
        self._loaded: dict[ObjectKey, tuple[str, int, Loaded[SentinelConfig]]] = {}
        """What was read of each object, by its uid and generation."""
        self._queue = WorkQueue[ObjectKey, None](clock=clock, log=log, workers=_WORKERS)
        self._shards = HeldShards(wake=self._queue.add)
        self._stopping = Stopping()
        # All of the namespace, also for a single name: another one may watch the same resources.
        self._reflector = Reflector[KubeObject](
            api=api,
            kind=SENTINEL_CONFIG,
            namespace=namespace,
            handler=self._handle_change,
            resync=retry if name else None,
            observe=self._count_failures,
            clock=clock,
            log=log,
        )
        self._status_writer = StatusWriter(
            api,
            managed=self._managed.get,
            stored=self._reflector.get,
            interval=status_interval,
            clock=clock,
            log=log,
        )

    def part(self) -> Part:
        """Return the loops and checks of the operator itself."""
        checks: dict[str, HealthCheck] = {"sentinelconfigs": self._reflector.problem}
        if self._name:
            checks["sentinelconfig"] = self._absence
        return Part(
            name="operator",
            loops=(self._reflector.run, self._run_queue, self._status_writer.run, self._events.run),
            checks=checks,
            close=self._events.flush,
        )

    async def _run_queue(self, stopping: Stopping) -> None:
        # Not before all are known: of two duplicates, the younger may be listed first.
        self._stopping = stopping
        if not await stopping.interrupts(self._reflector.wait_until_synced()):
            await self._queue.run(self._reconcile, stopping)

    def _handle_change(self, change: Change[KubeObject]) -> None:
        if isinstance(change, Modified) and _version(change.previous) == _version(change.kept):
            self._status_writer.add(change.key)  # only its status or its labels have changed
            return
        if isinstance(change, Deleted) and change.key not in self._managed:
            self._unload(change.key)
        self._queue.add(change.key if not self._name else ObjectKey(self._namespace, self._name))

    def _count_failures(self, observation: Observation) -> None:
        if isinstance(observation, RequestFailed):
            self._metrics.load_failed(shard=_UNKNOWN, resource_type=_UNKNOWN)

    def _absence(self) -> str | None:
        """Return why the named SentinelConfig does not run. A readiness check."""
        key = ObjectKey(self._namespace, self._name)
        if not self._reflector.has_synced:
            return None  # the other check says why
        if self._reflector.get(key) is None:
            return f"no SentinelConfig {self._name} in the namespace {self._namespace}"
        managed = self._managed.get(key)
        return None if managed is not None and managed.is_running else f"{self._name} does not run"

    async def _reconcile(self, key: ObjectKey, _: Sequence[None]) -> RunResult:
        self._shards.stop_waiting(key)
        found = self._reflector.get(key)
        managed = self._managed.get(key)
        if managed is not None and (found is None or objects.uid(found) != managed.reference.uid):
            await self._forget(key, managed)
            managed = None
        if found is None:
            return Completed()
        if managed is None:
            managed = self._adopt(key, found)
        generation = objects.generation(found)
        loaded = self._load(key, found)
        if loaded.settings is None:
            return self._reject(key, managed, generation, "; ".join(map(str, loaded.problems)))
        try:
            resolved = await self._resolve(key, loaded.settings)
        except KubeUnavailable as error:
            if not managed.is_running:
                return self._reject(key, managed, generation, str(error))
            return self._go_on_without_secrets(managed, generation, error)
        if isinstance(resolved, str):
            return self._reject(key, managed, generation, resolved)
        config, secrets = resolved
        managed.is_rejected = False
        claim = _claim(loaded.settings.definition, name=key.name, found=found)
        older = duplicates.holder(claim, self._claims())
        if older != claim:
            await self._give_way(key, managed, generation, older)
            return Completed()
        # Nothing is awaited between the check for duplicates and this.
        holder = self._shards.take(config.definition.shard_key, key)
        if holder is not None:
            return await self._wait_for_shard(key, managed, generation, holder, claim)
        entries = {each.key: each.value for each in loaded.entries}
        problem = await self._run(key, managed, generation, config, entries)
        if problem is not None:
            return self._reject(key, managed, generation, problem)
        managed.secrets = frozenset((*loaded.secrets, *secrets))
        self._mask_secrets(key)
        return Again(self._secrets_interval) if loaded.settings.secret_names else Completed()

    def _load(self, key: ObjectKey, found: KubeObject) -> Loaded[SentinelConfig]:
        uid, generation = objects.uid(found), objects.generation(found)
        if key not in self._loaded or self._loaded[key][:2] != (uid, generation):
            self._loaded[key] = uid, generation, manifests.read_object(found)
            self._mask_secrets(key)
        return self._loaded[key][2]

    def _unload(self, key: ObjectKey) -> None:
        self._loaded.pop(key, None)
        self._mask_secrets(key)

    def _mask_secrets(self, key: ObjectKey, secrets: Iterable[Secret] = ()) -> None:
        """Mask the secrets of a SentinelConfig in logs: those of its pulse, those in its spec, and these."""
        in_use = {*secrets}
        if key in self._managed:
            in_use.update(self._managed[key].secrets)
        if key in self._loaded:
            in_use.update(self._loaded[key][2].secrets)
        self._set_secrets_in_use(key, [secret.reveal() for secret in in_use])

    async def _resolve(
        self, key: ObjectKey, config: SentinelConfig
    ) -> tuple[ResolvedConfig, Sequence[Secret]] | str:
        """Read the Secrets that the configuration names. Returns what runs and its secrets, or what is wrong.

        Raises `KubeUnavailable`, which says nothing about the configuration.
        """
        data: dict[str, Mapping[str, str]] = {}
        for name in sorted(config.secret_names):
            try:
                secret = await self._api.get(SECRET, name, namespace=config.namespace)
            except ObjectNotFound:
                continue  # `resolve` says which field names it
            except KubeError as error:
                return f"cannot read the Secret {name}: {error}"
            data[name] = resolve.decode_secret(secret)
        resolved = resolve.resolve(config, data, emulator_host=self._emulator_host)
        self._mask_secrets(key, resolved.secrets)
        if resolved.settings is None:
            return "; ".join(map(str, resolved.problems))
        return resolved.settings, resolved.secrets

    def _claims(self) -> Iterator[Claim]:
        """Yield the shards that SentinelConfigs want. A rejected one keeps the shard that it runs, if any."""
        for key, found in self._reflector.items().items():
            managed = self._managed.get(key)
            config = self._load(key, found).settings
            if config is not None and (managed is None or not managed.is_rejected):
                yield _claim(config.definition, name=key.name, found=found)
            elif managed is not None and managed.running is not None and managed.is_running:
                kept = _claim(managed.running.definition, name=key.name, found=found)
                yield msgspec.structs.replace(kept, is_kept=True)

    def _adopt(self, key: ObjectKey, found: KubeObject) -> ManagedConfig:
        managed = self._managed[key] = ManagedConfig(
            objects.reference(found),
            identity=self._identity,
            conditions=conditions.read(found),
            clock=self._clock,
            on_status=lambda: self._status_writer.add(key),
        )
        if self._build_elector is not None:
            elector = managed.elector = self._build_elector(
                managed.name,
                LeaderCallbacks(
                    annotations=managed.last_cycle,
                    on_started_leading=lambda previous: self._started_leading(key, managed, previous),
                    on_stopped_leading=lambda reason: self._stopped_leading(managed, reason),
                    before_release=managed.wait_until_idle,
                    abandon=managed.abandon_publishing,
                ),
            )
            part = Part(name=_lease_part(managed), loops=(elector.run,), checks={"lease": elector.problem})
            self._parts.add(part.name, lambda: part, restart=_RESTART)
        return managed

    async def _forget(self, key: ObjectKey, managed: ManagedConfig) -> None:
        """Stop everything of a SentinelConfig that was deleted."""
        was_running = managed.is_running
        await self._end_pulse(key, managed)
        if was_running:
            self._record(managed, EventType.NORMAL, "Stopped", "the SentinelConfig was deleted")
            self._log.info("config.stopped", config=managed.name, cause="deleted")
        await self._parts.remove(_lease_part(managed))
        del self._managed[key]
        self._unload(key)
        self._run_duplicates()

    def _reject(self, key: ObjectKey, managed: ManagedConfig, generation: int, problem: str) -> RunResult:
        """Say what is wrong with the configuration. What runs goes on."""
        is_running = managed.is_running
        managed.is_rejected = True
        self._count_load_failure(managed, generation, retry=self._retry)
        rejected = (ConditionType.ACCEPTED, StatusReason.INVALID, problem, False)
        stopped = (ConditionType.RUNNING, StatusReason.STOPPED, "the configuration is invalid", False)
        managed.judge(generation, rejected, *(() if is_running else (stopped,)))
        suffix = "; the previous configuration goes on" if is_running else ""
        self._record(managed, EventType.WARNING, "Invalid", problem + suffix)
        self._log.warning("config.invalid", config=managed.name, problem=problem, is_running=is_running)
        self._run_duplicates()
        self._shards.wake_waiting(key)
        return Again(self._retry)

    def _go_on_without_secrets(self, managed: ManagedConfig, generation: int, error: KubeUnavailable) -> RunResult:
        """Let the pulse go on while its Secrets cannot be read, which says nothing about the configuration."""
        is_new = generation != managed.status.observed_generation
        retry = min(self._retry, _SECRETS_RETRY) if is_new else self._retry
        self._log.warning("config.not_read", config=managed.name, error=error, retry_in=retry)
        if is_new:
            self._count_load_failure(managed, generation, retry=retry)
            managed.explain_delay(f"generation {generation} is not loaded yet: {error}")
        return Again(retry)

    def _count_load_failure(self, managed: ManagedConfig, generation: int, *, retry: timedelta) -> None:
        if not managed.load_failed(generation, retry=retry):
            return
        if managed.series is not None:
            managed.series.load_failed()
        else:
            self._metrics.load_failed(shard=_UNKNOWN, resource_type=_UNKNOWN)

    async def _wait_for_shard(
        self, key: ObjectKey, managed: ManagedConfig, generation: int, holder: ObjectKey, claim: Claim
    ) -> RunResult:
        """Wait until another SentinelConfig, which no longer wants the shard or has to give way, has left it.

        What runs goes on, unless the other one waits for that in turn.
        """
        waits = f"waits until {holder.name} no longer watches {claim.resource_type} ({claim.shard})"
        self._log.info("config.waits", config=managed.name, holder=holder.name)
        self._queue.add(holder)
        if managed.is_running and self._shards.is_deadlocked(key):
            await self._stop_pulse(key, managed)
            self._record(managed, EventType.NORMAL, "Stopped", waits)
        managed.accept(generation, waits=waits)
        return Again(self._retry)

    async def _give_way(self, key: ObjectKey, managed: ManagedConfig, generation: int, older: Claim) -> None:
        """Do not run beside another SentinelConfig for the same resources: every event would come twice."""
        problem = f"{older.name} already watches {older.resource_type} ({older.shard})"
        was_running = managed.is_running
        await self._end_pulse(key, managed)
        if was_running:
            self._record(managed, EventType.WARNING, "Stopped", problem)
        if not managed.is_duplicate:
            self._log.warning("config.duplicate", config=managed.name, problem=problem)
        managed.judge(
            generation,
            (ConditionType.ACCEPTED, StatusReason.DUPLICATE, problem, False),
            (ConditionType.RUNNING, StatusReason.STOPPED, problem, False),
        )
        if was_running:
            self._run_duplicates()

    async def _run(
        self,
        key: ObjectKey,
        managed: ManagedConfig,
        generation: int,
        config: ResolvedConfig,
        entries: Mapping[str, str],
    ) -> str | None:
        """Make the pulse of this configuration run, if it does not yet. It begins with a cycle.

        Returns what is wrong if it cannot run. Then the pulse that ran before goes on.
        """
        is_reload = managed.running not in (None, config)
        if managed.is_running and not is_reload and not managed.has_new_leader:
            managed.accept(generation)
            return None
        series = self._series(managed, config)
        pacer = managed.pacer if _has_same_type(managed.running, config) else Pacer()
        plan = PulsePlan(
            name=managed.name,
            config=config,
            pacer=pacer,
            stream_position=managed.stream_position,
            series=series,
            observer=managed,
            may_publish=lambda: managed.may_publish,
            publishers=managed.publishers,
        )
        try:
            started = await self._start_first(plan)
        except BaseException:
            self._discard(key, managed, series)
            raise
        if isinstance(started, str):
            self._discard(key, managed, series)
            return started
        await self._parts.remove(_pulse_part(managed))
        if managed.series not in (None, series):
            managed.series.release()
        self._shards.release(key, kept=config.definition.shard_key)
        changes = managed.describe_changes(config, entries)
        managed.series, managed.pacer = series, pacer
        managed.running, managed.entries, managed.has_new_leader = config, entries, False
        managed.failure = ""
        is_added = self._parts.add(
            _pulse_part(managed),
            _first_then(started, lambda: self._build_pulse(plan)),
            restart=_RESTART,
            observe=lambda failure: self._observe_pulse(managed, failure),
        )
        if not is_added:
            await _close(started)
            return None  # the service is stopping
        managed.accept(generation)
        if is_reload:
            series.reloaded()
            self._log.info("config.reloaded", config=managed.name, changes=changes)
            self._record(managed, EventType.NORMAL, "Reloaded", ", ".join(changes))
        else:
            watched = f"watches {series.resource_type} ({series.shard})"
            self._log.info("config.started", config=managed.name, selector=series.shard)
            self._record(managed, EventType.NORMAL, "Started", watched)
        self._run_duplicates()
        return None

    async def _start_first(self, plan: PulsePlan) -> Part | str:
        """Build a pulse and connect it, while the one before still runs. Returns what is wrong if that fails.

        A broker that does not respond is not an error; the pulse connects while it runs.
        """
        try:
            part = self._build_pulse(plan)
        except Misconfigured as error:
            return str(error)
        try:
            async with asyncio.timeout(_START_TIMEOUT.total_seconds()):
                if await self._stopping.interrupts(_start(part)):
                    return part  # it is only closed
            return msgspec.structs.replace(part, start=None)
        except BaseException as error:
            await _close(part)
            match error:
                case Misconfigured():
                    return str(error)
                case TimeoutError():
                    return self._build_pulse(plan)
                case _:
                    raise

    def _discard(self, key: ObjectKey, managed: ManagedConfig, series: PulseSeries) -> None:
        """Release what was taken for a pulse that could not start."""
        if series is not managed.series:
            series.release()
        self._shards.release(key, kept=managed.shard_key)

    def _series(self, managed: ManagedConfig, config: ResolvedConfig) -> PulseSeries:
        """Return the metrics of the configuration. They continue if the labels are the same as before."""
        resource_type, shard = config.definition.resource_type, config.definition.shard
        series = managed.series
        if series is not None and (series.resource_type, series.shard) == (resource_type, shard):
            return series
        return self._metrics.claim(resource_type=resource_type, shard=shard)

    async def _end_pulse(self, key: ObjectKey, managed: ManagedConfig) -> None:
        """Stop the pulse for good, if there is one."""
        await self._stop_pulse(key, managed)
        managed.running, managed.secrets = None, frozenset()

    async def _stop_pulse(self, key: ObjectKey, managed: ManagedConfig) -> None:
        """Stop the pulse, wait until what it has sent is confirmed, and release its metrics and its shard."""
        await self._parts.remove(_pulse_part(managed))
        if managed.series is not None:
            managed.series.release()
            managed.series = None
        self._shards.release(key)

    def _observe_pulse(self, managed: ManagedConfig, failure: Exception | None) -> None:
        """Show whether a pulse that has been added runs. After a failure it is built again, at most 30 s later."""
        had_failed = bool(managed.failure)
        if failure is not None:
            managed.pulse_failed(failure)
            if not had_failed:
                self._record(managed, EventType.WARNING, "Stopped", managed.failure)
        elif had_failed:
            managed.pulse_started()
            self._record(managed, EventType.NORMAL, "Started", "runs again after a failure")

    def _run_duplicates(self) -> None:
        """Look again at duplicates: their shard may be free now."""
        for key, managed in self._managed.items():
            if managed.is_duplicate:
                self._queue.add(key)

    def _started_leading(self, key: ObjectKey, managed: ManagedConfig, previous: LastLeader | None) -> None:
        found = self._reflector.get(key)
        self._log.info("leadership.gained", config=managed.name, previous=previous and previous.identity)
        managed.take_over(
            previous,
            conditions=[] if found is None else conditions.read(found),
            renew_interval=self._renew_interval,
        )
        self._status_writer.add(key)
        self._queue.add(key)

    def _stopped_leading(self, managed: ManagedConfig, reason: str) -> None:
        self._log.info("leadership.ended", config=managed.name, reason=reason)
        managed.stopped_leading()

    def _record(self, managed: ManagedConfig, kind: EventType, reason: str, message: str) -> None:
        if managed.may_publish:
            self._events.record(managed.reference, kind, reason, message)


def _claim(definition: PulseDefinition, *, name: str, found: KubeObject) -> Claim:
    created = objects.creation_time(found) or datetime.max.replace(tzinfo=UTC)
    resource_type, requirements = definition.shard_key
    return Claim(created, name, resource_type, definition.shard, requirements)


def _version(found: KubeObject) -> tuple[str, int]:
    return objects.uid(found), objects.generation(found)


def _has_same_type(running: ResolvedConfig | None, config: ResolvedConfig) -> bool:
    """Whether ids mean the same resources, so that what was published stays paced.

    Another URL usually leads to the same API: a new host name, a port, TLS.
    """
    return running is None or running.definition.resource_type == config.definition.resource_type


async def _start(part: Part) -> None:
    if part.start is not None:
        await part.start()


async def _close(part: Part) -> None:
    if part.close is not None:
        await part.close()


def _first_then(first: Part, build: Callable[[], Part]) -> Callable[[], Part]:
    """Return a factory for a part that exists already. After a failure, it is built again."""
    ready = [first]
    return lambda: ready.pop() if ready else build()


def _pulse_part(managed: ManagedConfig) -> str:
    return f"pulse {managed.name}"


def _lease_part(managed: ManagedConfig) -> str:
    return f"lease {managed.name}"
