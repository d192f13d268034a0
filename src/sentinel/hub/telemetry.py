"""Metrics and log events of the hub. `web.metrics` has those of REST requests."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from sentinel.core.hub.agent_versions import is_supported
from sentinel.core.hub.analysis import Verdict
from sentinel.core.hub.deployment import Strategy
from sentinel.core.hub.instance import StateChanged
from sentinel.core.hub.rollout_state import TERMINAL, RollbackState, RolloutState
from sentinel.core.hub.states import CONNECTED, State
from sentinel.hub.refusals import RefusalReason
from sentinel.ports.clock import Clock
from sentinel.ports.hub_store import HubStore
from sentinel.ports.webhook_store import Delivery
from sentinel.runtime.log import Log
from sentinel.runtime.probes.gauges import StoredGauges
from sentinel.version import __version__

PREFIX: Final = "hub"
METRICS_PREFIX: Final = f"{PREFIX}_"
MAX_LAGS: Final = 1_000
"""How many instances out of sync have their own series. With more, other metrics show the problem."""

_CALL_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_DEPLOYMENT_BUCKETS = (1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400)


class HubTelemetry:
    """Counts what happens, reads gauges from the store when metrics are scraped, and logs. A `HubObserver`."""

    def __init__(
        self,
        *,
        store: HubStore,
        clock: Clock,
        registry: CollectorRegistry,
        log: Log,
        expected_agents: int | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._log = log
        self.refresh_if_stale = StoredGauges(self.refresh, clock=clock, log=log).refresh_if_stale
        self._online = Gauge(
            "hub_agents_online", "Instances that are online, deploying or degraded.", registry=registry
        )
        self._offline = Gauge("hub_agents_offline", "Instances that are offline.", registry=registry)
        self._instances = Gauge("hub_instances", "Instances by state.", ["state"], registry=registry)
        for state in State:
            self._instances.labels(state.value)
        self._lag = Gauge(
            "hub_config_sync_lag_seconds",
            "Seconds since an instance last ran what is assigned to it; only those that do not run it now.",
            ["instance"],
            registry=registry,
        )
        if expected_agents is not None:
            Gauge("hub_agents_expected", "Agents that should be online, by the settings.", registry=registry).set(
                expected_agents
            )
        self._deployment_duration = Histogram(
            "hub_deployment_duration_seconds",
            "Duration of finished deployments.",
            ["strategy", "outcome"],
            buckets=_DEPLOYMENT_BUCKETS,
            registry=registry,
        )
        for strategy in Strategy:
            for outcome in TERMINAL:
                self._deployment_duration.labels(strategy.value, outcome.value)
        self._deployment_failures = Counter(
            "hub_deployment_failures_total", "Deployments that have failed.", registry=registry
        )
        self._heartbeats = Counter("hub_heartbeats_total", "Accepted heartbeats.", registry=registry)
        self._calls = Counter(
            "hub_grpc_calls_total",
            "Finished calls of agents, and opened streams, by status.",
            ["method", "status"],
            registry=registry,
        )
        self._call_seconds = Histogram(
            "hub_grpc_call_duration_seconds",
            "Duration of calls of agents; of streams, until they are open.",
            ["method"],
            buckets=_CALL_BUCKETS,
            registry=registry,
        )
        self._streams = Gauge("hub_streams", "Open streams of events to agents.", registry=registry)
        self._events = Counter(
            "hub_stream_events_total", "Events that were sent to agents.", ["type"], registry=registry
        )
        self._webhook_attempts = Counter(
            "hub_webhook_attempts_total",
            "Events that were sent to webhooks, by outcome: delivered, failed, or dead.",
            ["webhook", "outcome"],
            registry=registry,
        )
        self._webhook_missed = Counter(
            "hub_webhook_missed_events_total",
            "Events that a webhook cannot get any more, because they are no longer kept.",
            ["webhook"],
            registry=registry,
        )
        self._webhook_pending = Gauge(
            "hub_webhook_pending_events",
            "Events that a webhook still has to deliver, at the hub that works for it.",
            ["webhook"],
            registry=registry,
        )
        self._flush_seconds = Histogram(
            "hub_flush_duration_seconds", "Duration of writing what heartbeats have reported.", registry=registry
        )

    def registered(
        self, instance_id: str, *, owner: str, incarnation: int, session: int, agent_version: str
    ) -> None:
        self._log.info(
            "instance.registered", instance=instance_id, owner=owner, incarnation=incarnation, session=session
        )
        if not is_supported(agent_version, __version__):
            self._log.warning(
                "agent.unsupported", instance=instance_id, agent_version=agent_version, hub_version=__version__
            )

    def state_changed(self, instance_id: str, change: StateChanged) -> None:
        self._log.info(
            "instance.state",
            instance=instance_id,
            before=change.before.value,
            after=change.after.value,
            trigger=change.trigger.value,
        )

    def heartbeat(self) -> None:
        self._heartbeats.inc()

    def call_ended(self, method: str, refusal: RefusalReason | None, duration: timedelta) -> None:
        self._calls.labels(method, "OK" if refusal is None else refusal.name).inc()
        self._call_seconds.labels(method).observe(duration.total_seconds())

    def call_refused(self, method: str, instance_id: str, refusal: RefusalReason, text: str, address: str) -> None:
        self._log.info(
            "call.refused", method=method, instance=instance_id, status=refusal.name, reason=text, address=address
        )

    def call_failed(self, method: str, error: Exception) -> None:
        self._log.exception("call.failed", method=method, error=error)

    def stream_opened(self) -> None:
        self._streams.inc()

    def stream_closed(self) -> None:
        self._streams.dec()

    def deployment_changed(
        self, deployment_id: str, state: RolloutState, rollback: RollbackState, reason: str
    ) -> None:
        self._log.info(
            "deployment.state",
            deployment=deployment_id,
            state=state.value,
            rollback=rollback.value,
            reason=reason,
        )

    def deployment_ended(self, strategy: Strategy, outcome: RolloutState, duration: timedelta) -> None:
        self._deployment_duration.labels(strategy.value, outcome.value).observe(duration.total_seconds())
        if outcome is RolloutState.FAILED:
            self._deployment_failures.inc()

    def canaries_judged(self, deployment_id: str, verdict: Verdict) -> None:
        self._log.info(
            "deployment.analysis",
            deployment=deployment_id,
            outcome=verdict.outcome.value,
            reason=verdict.reason,
            requests=verdict.requests,
        )

    def event_sent(self, event_type: str) -> None:
        self._events.labels(event_type).inc()

    def flushed(self, instances: int, duration: timedelta) -> None:
        self._flush_seconds.observe(duration.total_seconds())
        self._log.debug("heartbeats.flushed", instances=instances, duration=duration)

    def webhook_started(self, name: str) -> None:
        # From zero: Prometheus does not see the first increase of a series that begins with 1.
        for outcome in ("delivered", "failed", "dead"):
            self._webhook_attempts.labels(name, outcome)
        self._webhook_missed.labels(name)

    def webhook_delivered(self, name: str) -> None:
        self._webhook_attempts.labels(name, "delivered").inc()

    def webhook_failed(self, name: str, delivery: Delivery) -> None:
        is_dead = delivery.failed_time is not None
        self._webhook_attempts.labels(name, "dead" if is_dead else "failed").inc()
        self._log.warning(
            "webhook.dead_letter" if is_dead else "webhook.failed",
            webhook=name,
            number=delivery.event.number,
            type=delivery.event.type.value,
            attempts=delivery.attempts,
            error=delivery.error,
        )

    def webhook_missed(self, name: str, events: int) -> None:
        self._webhook_missed.labels(name).inc(events)
        self._log.warning("webhook.missed", webhook=name, events=events)

    def webhook_pending(self, name: str, count: int) -> None:
        self._webhook_pending.labels(name).set(count)

    async def refresh(self) -> None:
        """Read the gauges from the store, which all hubs share. Raises `Unavailable`."""
        counts = await self._store.count_by_state()
        lagging = await self._store.out_of_sync(limit=MAX_LAGS)
        now = self._clock.now()
        for state in State:
            self._instances.labels(state.value).set(counts.get(state, 0))
        self._online.set(sum(counts.get(state, 0) for state in CONNECTED))
        self._offline.set(counts.get(State.OFFLINE, 0))
        self._lag.clear()
        for instance in lagging:
            lag = instance.sync.lag(now)
            if lag is not None:
                self._lag.labels(instance.id).set(lag.total_seconds())
