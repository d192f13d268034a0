"""What the operator knows of one SentinelConfig, from its creation to its deletion.

A reload replaces the pulse. What has to outlive the pulse is here: the pacer with the table of what was published,
the position in the stream, the status with its counters, and the election.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from sentinel.core.kube.conditions import Condition, find
from sentinel.core.kube.objects import ObjectReference
from sentinel.core.operator.failover import LastCycle, leader_end, read_last_cycle
from sentinel.core.operator.status import ConditionType, ConfigStatus, StatusReason
from sentinel.core.pulse.pacing import Pacer
from sentinel.operator.resolve import ResolvedConfig
from sentinel.ports.clock import Clock
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.ports.fleet_stream import StreamPosition
from sentinel.ports.publisher import Publisher
from sentinel.pulse.definition import ShardKey
from sentinel.pulse.report import CycleReport, PageReport, PublishedBatch, StreamReport
from sentinel.pulse.telemetry import PulseSeries
from sentinel.runtime.kube.leader_election import LastLeader, LeaderElector
from sentinel.runtime.secrets import Secret


class ManagedConfig:
    """One SentinelConfig. It observes the cycles of its pulse."""

    needs_every_decision = False

    def __init__(
        self,
        reference: ObjectReference,
        *,
        identity: str,
        conditions: Sequence[Condition],
        clock: Clock,
        on_status: Callable[[], None],
    ) -> None:
        """`identity` is that of this process in elections. `conditions` are those of the object, which another
        process may have written. `on_status` is called after each change of the status."""
        self.reference = reference
        self.pacer = Pacer()
        self.stream_position = StreamPosition()
        self.running: ResolvedConfig | None = None
        """What its pulse was built from, or its last one while it waits for another shard; None if it has none."""
        self.entries: Mapping[str, str] = {}
        """The settings of its pulse, secrets masked."""
        self.secrets: frozenset[Secret] = frozenset()
        """What its pulse uses and logs must not show."""
        self.series: PulseSeries | None = None
        """The metrics of its pulse; None if it has none."""
        self.failure = ""
        """Why its pulse has failed and does not run at the moment."""
        self.is_rejected = False
        """Whether the configuration that was last looked at cannot run."""
        self.publishers: set[Publisher] = set()
        """Those of its pulse, and of one that still stops."""
        self.elector: LeaderElector | None = None
        """None if this process publishes without an election."""
        self.has_new_leader = False
        """Whether this process has become the leader, and no cycle has begun since."""
        self._status = ConfigStatus(conditions=tuple(conditions))
        self._identity = identity
        self._clock = clock
        self._on_status = on_status
        self._cycle_started: datetime | None = None
        self._cycle_ended: datetime | None = None
        self._failing_since: datetime | None = None
        """When the first of consecutive cycles began in which events could not be published."""
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._failed_load: tuple[int, datetime] | None = None
        """The generation that could not be loaded, and when that was last counted."""
        self._led_until: datetime | None = None
        """When this process last stopped leading."""

    @property
    def name(self) -> str:
        return self.reference.name

    @property
    def is_running(self) -> bool:
        """Whether it has a pulse."""
        return self.series is not None

    @property
    def shard_key(self) -> ShardKey | None:
        """What its pulse watches; None if it has none."""
        return None if self.running is None or not self.is_running else self.running.definition.shard_key

    @property
    def may_publish(self) -> bool:
        """Whether this process publishes its events and writes its status."""
        return self.elector is None or self.elector.is_leader

    @property
    def is_duplicate(self) -> bool:
        """Whether it does not run because an older one watches the same resources."""
        accepted = find(self._status.conditions, ConditionType.ACCEPTED)
        return accepted is not None and accepted.reason == StatusReason.DUPLICATE

    @property
    def status(self) -> ConfigStatus:
        return self._status

    def set_status(self, status: ConfigStatus) -> None:
        if status != self._status:
            self._status = status
            self._on_status()

    def judge(self, generation: int, *verdicts: tuple[ConditionType, StatusReason, str, bool]) -> None:
        """Set conditions, and the generation that they are about, at once.

        A client that waits for the generation must not read the conditions of an earlier one.
        """
        status, now = self._status.observed(generation), self._clock.now()
        for condition, reason, message, is_true in verdicts:
            status = status.with_condition(condition, reason, message, is_true=is_true, now=now)
        if not self.is_running:
            status = status.without_condition(ConditionType.DEGRADED)
        self.set_status(status)

    def accept(self, generation: int, *, waits: str = "") -> None:
        """Set the conditions of a valid configuration. `waits` says for what it waits before it has an effect."""
        self._failed_load = None
        polls = self.is_running and not self.failure
        reason = StatusReason.POLLING if polls else StatusReason.STOPPED
        self.judge(
            generation,
            (ConditionType.ACCEPTED, StatusReason.VALID, "", True),
            (ConditionType.RUNNING, reason, self.failure or waits, polls),
        )

    def explain_delay(self, message: str) -> None:
        """Say why a newer generation is not judged yet. If the one that was judged is invalid, that says more."""
        accepted = find(self._status.conditions, ConditionType.ACCEPTED)
        if accepted is not None and accepted.reason == StatusReason.VALID:
            self.set_condition(ConditionType.ACCEPTED, StatusReason.VALID, message, is_true=True)

    def load_failed(self, generation: int, *, retry: timedelta) -> bool:
        """Remember that a generation could not be loaded. Returns whether that counts: once for each generation
        and each retry, however often it is looked at, such as by a new leader."""
        now = self._clock.now()
        if self._failed_load is not None:
            failed, counted = self._failed_load
            # A retry may come a little early. The wall clock may have been set back.
            if failed == generation and timedelta(0) <= now - counted < retry * 0.9:
                return False
        self._failed_load = generation, now
        return True

    def set_condition(
        self, condition: ConditionType, reason: StatusReason, message: str = "", *, is_true: bool
    ) -> None:
        self.set_status(
            self._status.with_condition(condition, reason, message, is_true=is_true, now=self._clock.now())
        )

    def pulse_failed(self, error: Exception) -> None:
        """Show that the pulse has ended with an error. It is started again after a while."""
        # Other errors may quote anything, secrets too.
        is_explained = isinstance(error, Misconfigured | Unavailable)
        self.failure = str(error) if is_explained else "an internal error; see the log of the operator"
        reason = StatusReason.PUBLISH_FAILED if is_explained else StatusReason.FETCH_FAILED
        now = self._clock.now()
        status = self._status.with_condition(
            ConditionType.RUNNING, StatusReason.STOPPED, self.failure, is_true=False, now=now
        )
        self.set_status(status.with_condition(ConditionType.DEGRADED, reason, self.failure, is_true=True, now=now))

    def pulse_started(self) -> None:
        """Show that the pulse runs, again."""
        self.failure = ""
        self.set_condition(ConditionType.RUNNING, StatusReason.POLLING, is_true=True)

    def describe_changes(self, config: ResolvedConfig, entries: Mapping[str, str]) -> list[str]:
        """Return how a configuration differs from the one that runs, for people: `spec.pollInterval: 5s -> 10s`.

        Secrets are masked, so that those that differ look the same.
        """
        before, running = self.entries, self.running
        changes = [
            f"{key}: {before.get(key, '') or 'unset'} -> {entries.get(key, '') or 'unset'}"
            for key in sorted(before.keys() | entries.keys())
            if before.get(key, "") != entries.get(key, "")
        ]
        if running is not None:
            if running.definition.api.token != config.definition.api.token:
                changes.append("spec.hyperfleetAPI: another token")
            if running.broker != config.broker and not any(each.startswith("spec.broker.") for each in changes):
                changes.append("spec.broker: other credentials")
        return changes

    def last_cycle(self) -> dict[str, str]:
        """Return what a successor needs to know of the last cycle, as annotations of the lease."""
        if self._cycle_started is None:
            return {}
        now = self._clock.now()
        ended = self._cycle_ended
        # The wall clock may have been set back meanwhile.
        return LastCycle(
            started=max(now - self._cycle_started, timedelta(0)),
            ended=None if ended is None else max(now - ended, timedelta(0)),
            failing=None if self._failing_since is None else max(now - self._failing_since, timedelta(0)),
        ).annotations(self._identity)

    def take_over(
        self, previous: LastLeader | None, *, conditions: Sequence[Condition], renew_interval: timedelta
    ) -> None:
        """Continue where the last leader ended: correct the table of published events, keep the times that it
        wrote."""
        now = self._clock.now()
        self.has_new_leader = True
        self.set_status(self._status.continuing(conditions))
        if self._led_until is not None and (previous is None or previous.seen <= self._led_until):
            self.pacer.take_over(leader_ended=self._led_until, lag=timedelta(0), now=now)  # nobody led meanwhile
            return
        ended, poll_interval = None, timedelta(0)
        if previous is not None and self.running is not None:
            poll_interval = self.running.definition.poll_interval
            ended = leader_end(
                read_last_cycle(previous.annotations, previous.identity),
                seen=previous.seen,
                was_alive=previous.was_alive,
                has_released=not previous.identity,
                renew_interval=renew_interval,
                poll_interval=poll_interval,
            )
        if ended is None:
            self.pacer.forget_published()
        else:
            self.pacer.take_over(leader_ended=ended, lag=poll_interval, now=now)

    def stopped_leading(self) -> None:
        """Remember how far this process had got."""
        self._led_until = self._clock.now()

    def abandon_publishing(self) -> None:
        """Let nothing be sent any more that is not confirmed yet: another process may lead soon."""
        for publisher in self.publishers:
            publisher.abandon()

    async def wait_until_idle(self) -> None:
        """Return when no cycle runs."""
        await self._is_idle.wait()

    def decided(self, page: PageReport) -> None:
        self._is_idle.clear()
        if self._cycle_ended is not None or self._cycle_started is None:
            self._cycle_started, self._cycle_ended = page.at, None

    def published(self, batch: PublishedBatch) -> None: ...

    def finished(self, report: CycleReport) -> None:
        self._cycle_started, self._cycle_ended = report.started, self._clock.now()
        self._is_idle.set()
        if not report.broker_error:
            self._failing_since = None
        elif self._failing_since is None:
            self._failing_since = report.started
        self._status = self._status.polled(
            at=report.started, resources=report.fetched if report.is_complete else None, published=report.published
        )
        if report.fetch_error:
            self.set_condition(ConditionType.DEGRADED, StatusReason.FETCH_FAILED, report.fetch_error, is_true=True)
        elif problem := report.broker_error or report.broker_unavailable:
            self.set_condition(ConditionType.DEGRADED, StatusReason.PUBLISH_FAILED, problem, is_true=True)
        elif report.is_complete:
            self.set_condition(ConditionType.DEGRADED, StatusReason.HEALTHY, is_true=False)
        self._on_status()

    def streamed(self, report: StreamReport) -> None:
        if report.published:
            self.set_status(self._status.streamed(published=report.published))

    def crashed(self, error: BaseException) -> None:
        self._cycle_ended = self._clock.now()
        self._is_idle.set()
        self.set_condition(
            ConditionType.DEGRADED,
            StatusReason.FETCH_FAILED,
            "the last cycle failed with an internal error; see the log of the operator",
            is_true=True,
        )
