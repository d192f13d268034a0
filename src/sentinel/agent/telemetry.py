"""Metrics and log events of the agent's connection to the hub.

Every label has a fixed set of values. What repeats while the hub is away is counted each time, and logged once.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, assert_never

from prometheus_client import CollectorRegistry, Counter, Gauge

from sentinel.agent.observer import HubFailure
from sentinel.core.agent.orders import Report, ReportState
from sentinel.core.hub.instance import Health
from sentinel.core.hub.session_token import CLOCK_SKEW
from sentinel.ports.hub_client import (
    AssignmentNotice,
    CallRefused,
    DeploymentNotice,
    DrainNotice,
    FailureReason,
    HubUnavailable,
    InstanceStatus,
    Instruction,
    Notice,
    Ping,
    ReportRequest,
    Session,
    SessionEnded,
)
from sentinel.runtime.log import Log

PREFIX: Final = "sentinel_agent_"
_NOTICES: Final = {
    AssignmentNotice: "assignment",
    DeploymentNotice: "deployment",
    ReportRequest: "report_request",
    DrainNotice: "drain",
    Ping: "ping",
}


class AgentTelemetry:
    """Counts and logs. An `AgentObserver`."""

    def __init__(self, *, registry: CollectorRegistry, log: Log) -> None:
        self._log = log

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(PREFIX + name, text, labels, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(PREFIX + name, text, registry=registry)

        self._connected = gauge("connected", "Whether the last heartbeat was answered.")
        self._stream = gauge("stream_open", "Whether the stream of events is open.")
        self._in_sync = gauge("in_sync", "Whether the proxy runs what is assigned, by the last answer.")
        self._degraded = gauge("degraded", "Whether the last heartbeat has said DEGRADED or UNHEALTHY.")
        self._buffered = gauge("buffered_samples", "Samples of metrics that the hub does not have yet.")
        self._registrations = counter("registrations_total", "Sessions that have begun.")
        self._heartbeats = counter("heartbeats_total", "Heartbeats, by whether the hub has taken them.", "outcome")
        self._failures = counter(
            "connection_failures_total", "Sessions that have ended or did not begin, by reason.", "reason"
        )
        self._stream_ends = counter(
            "stream_ends_total", "Streams that have ended or did not open, by reason.", "reason"
        )
        self._notices = counter("notices_total", "What the hub has asked for.", "kind", "source")
        self._fetches = counter("fetches_total", "Versions that were fetched.", "outcome")
        self._reports = counter("reports_total", "Reports that were delivered, by state.", "state")
        self._scrapes = counter("proxy_scrapes_total", "Scrapes of the proxy's metrics.", "outcome")
        for outcome in ("ok", "busy"):
            self._heartbeats.labels(outcome)
        for outcome in ("ok", "failed"):
            self._scrapes.labels(outcome)
        for outcome in ("ok", "refused"):
            self._fetches.labels(outcome)
        for reason in FailureReason:
            self._failures.labels(reason.value)
        for state in ReportState:
            self._reports.labels(state.value)
        self._clock_ahead = gauge(
            "clock_ahead_seconds", "How far the clock of this host is ahead of the hub's, by the last ping."
        )
        self._clock_differs = False
        self._scrape_problem = ""
        self._is_postponed = False

    def registered(self, session: Session) -> None:
        self._registrations.inc()
        self._log.info(
            "hub.registered", assigned=session.assigned_version, heartbeat_interval=session.heartbeat_interval
        )

    def online(self, offline_for: timedelta | None) -> None:
        self._connected.set(1)
        if offline_for is None:
            self._log.info("hub.connected")
        else:
            self._log.info("hub.connected", offline_for=offline_for)

    def failed(self, failure: HubFailure, retry_in: timedelta, *, is_new: bool) -> None:
        self._connected.set(0)
        self._stream.set(0)
        self._failures.labels(failure.reason.value).inc()
        fields = {"reason": failure.reason.value, "error": str(failure), "retry_in": retry_in}
        if not is_new:
            self._log.debug("hub.still_failing", **fields)
            return
        match failure:
            case HubUnavailable():
                self._log.warning("hub.unavailable", **fields)
            case SessionEnded():
                self._log.info("hub.session_ended", **fields)
            case CallRefused():
                self._log.error("hub.refused", **fields)

    def heartbeat(self, status: InstanceStatus, *, is_in_sync: bool, delivered: int) -> None:
        self._heartbeats.labels("ok").inc()
        self._in_sync.set(is_in_sync)
        self._degraded.set(status.health is not Health.HEALTHY)
        self._is_postponed = False
        self._log.debug("heartbeat.answered", health=status.health.value, in_sync=is_in_sync, samples=delivered)

    def postponed(self, failure: HubUnavailable) -> None:
        self._heartbeats.labels("busy").inc()
        if not self._is_postponed:
            self._log.warning("heartbeat.postponed", error=str(failure))
        self._is_postponed = True

    def subscribed(self) -> None:
        self._stream.set(1)
        self._log.debug("stream.opened")

    def unsubscribed(self, failure: HubFailure | None) -> None:
        # Not a problem: connections have an age, and heartbeats say everything, too.
        self._stream.set(0)
        reason = "ended" if failure is None else failure.reason.value
        self._stream_ends.labels(reason).inc()
        self._log.debug("stream.ended", reason=reason, error="" if failure is None else str(failure))

    def noticed(self, notice: Notice, *, is_event: bool) -> None:
        kind = _NOTICES[type(notice)]
        self._notices.labels(kind, "event" if is_event else "heartbeat").inc()
        # Events are few. Heartbeats repeat what they ask for.
        log = self._log.info if is_event and not isinstance(notice, Ping) else self._log.debug
        log("hub.notice", kind=kind, id=notice.id, **_details(notice))

    def clock_compared(self, ahead: timedelta) -> None:
        self._clock_ahead.set(ahead.total_seconds())
        differs = abs(ahead) > CLOCK_SKEW
        if differs and not self._clock_differs:
            self._log.warning("clock.differs", ahead=ahead, effect="deadlines and buffered metrics are misjudged")
        elif self._clock_differs and not differs:
            self._log.info("clock.agrees", ahead=ahead)
        self._clock_differs = differs

    def fetched(self, version: str, failure: CallRefused | None) -> None:
        self._fetches.labels("ok" if failure is None else "refused").inc()
        if failure is None:
            self._log.info("config.fetched", version=version)
        else:
            self._log.error("config.refused", version=version, error=str(failure))

    def reported(self, report: Report, instruction: Instruction, failure: CallRefused | None) -> None:
        self._reports.labels(report.state.value).inc()
        fields = {
            "deployment": report.order.deployment_id,
            "rollback": report.order.is_rollback,
            "state": report.state.value,
        }
        if failure is None:
            self._log.info("deployment.reported", instruction=instruction.value, **fields)
        else:
            self._log.warning("report.refused", error=str(failure), **fields)

    def buffered(self, samples: int) -> None:
        self._buffered.set(samples)

    def scraped(self, problem: str) -> None:
        self._scrapes.labels("failed" if problem else "ok").inc()
        if problem and not self._scrape_problem:
            self._log.warning("proxy.metrics_unavailable", error=problem)
        elif self._scrape_problem and not problem:
            self._log.info("proxy.metrics_available")
        self._scrape_problem = problem

    def draining(self, notice: DrainNotice) -> None:
        self._log.info("agent.draining", reason=notice.reason, timeout=notice.timeout)

    def away_too_long(self, timeout: timedelta) -> None:
        self._log.error("hub.away_too_long", after=timeout, action="stop the proxy and the agent")

    def proxy_stopped(self, problem: str) -> None:
        if problem:
            self._log.error("proxy.not_stopped", error=problem)
        else:
            self._log.info("proxy.stopped")

    def deregistered(self, failure: HubFailure | None) -> None:
        if failure is None:
            self._log.info("hub.deregistered")
        else:
            self._log.warning("hub.not_deregistered", error=str(failure))

    def crashed(self, error: Exception) -> None:
        self._log.exception("session.crashed", error=error)


def _details(notice: Notice) -> dict[str, str | bool]:
    """Return what people want to know of a notice."""
    match notice:
        case AssignmentNotice():
            return {"version": notice.version, "summary": notice.change_summary}
        case DeploymentNotice():
            return {
                "deployment": notice.deployment_id,
                "version": notice.version,
                "rollback": notice.is_rollback,
                "strategy": notice.strategy,
                "batch": f"{notice.batch_position}/{notice.batch_total}",
            }
        case ReportRequest() | DrainNotice() | Ping():
            return {}
        case _:
            assert_never(notice)
