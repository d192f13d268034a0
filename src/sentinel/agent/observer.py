"""What the agent tells its observers about the hub. Logs and metrics are rendered from it."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol, TypeAlias

from sentinel.core.agent.orders import Report
from sentinel.ports.hub_client import (
    CallRefused,
    DrainNotice,
    HubUnavailable,
    InstanceStatus,
    Instruction,
    Notice,
    Session,
    SessionEnded,
)

HubFailure: TypeAlias = "HubUnavailable | SessionEnded | CallRefused"


class AgentObserver(Protocol):
    """An observer of the connection to the hub. Loops call it, so methods must not block."""

    def registered(self, session: Session) -> None: ...

    def online(self, offline_for: timedelta | None) -> None:
        """The first heartbeat after a registration was answered. None: the hub had not been away."""

    def failed(self, failure: HubFailure, retry_in: timedelta, *, is_new: bool) -> None:
        """The session has ended, or did not begin; `is_new` unless it was for the same reason the last time."""

    def heartbeat(self, status: InstanceStatus, *, is_in_sync: bool, delivered: int) -> None:
        """A heartbeat was answered. It delivered this many samples."""

    def postponed(self, failure: HubUnavailable) -> None:
        """A heartbeat was refused because the hub has too much to do."""

    def subscribed(self) -> None:
        """The stream of events is open."""

    def unsubscribed(self, failure: HubFailure | None) -> None:
        """The stream has ended, or did not open; None if it has ended normally."""

    def noticed(self, notice: Notice, *, is_event: bool) -> None:
        """The hub asks for something."""

    def clock_compared(self, ahead: timedelta) -> None:
        """A ping has shown how far the clock of this host is ahead of the hub's."""

    def fetched(self, version: str, failure: CallRefused | None) -> None:
        """A version was fetched, or the hub refuses to hand it out."""

    def reported(self, report: Report, instruction: Instruction, failure: CallRefused | None) -> None:
        """The hub has a report, or refuses it permanently."""

    def buffered(self, samples: int) -> None:
        """This many samples of metrics wait for delivery."""

    def scraped(self, problem: str) -> None:
        """The proxy's metrics were scraped, or could not be."""

    def draining(self, notice: DrainNotice) -> None:
        """The hub wants the instance to leave."""

    def away_too_long(self, timeout: timedelta) -> None:
        """The hub was away for so long that proxy and agent stop."""

    def proxy_stopped(self, problem: str) -> None:
        """The proxy was told to stop; `problem` is why that failed."""

    def deregistered(self, failure: HubFailure | None) -> None:
        """The instance has left the fleet, or could not say so."""

    def crashed(self, error: Exception) -> None:
        """A session has ended because of a bug."""
