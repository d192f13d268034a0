"""What the hub tells its observers. Logs and metrics are rendered from it."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from sentinel.core.hub.analysis import Verdict
from sentinel.core.hub.deployment import Strategy
from sentinel.core.hub.instance import StateChanged
from sentinel.core.hub.rollout_state import RollbackState, RolloutState
from sentinel.hub.refusals import RefusalReason


class HubObserver(Protocol):
    """An observer of the hub. Use cases and loops call it, so methods must not block."""

    def registered(
        self, instance_id: str, *, owner: str, incarnation: int, session: int, agent_version: str
    ) -> None:
        """An agent has begun a session."""

    def state_changed(self, instance_id: str, change: StateChanged) -> None: ...

    def heartbeat(self) -> None:
        """A heartbeat was accepted."""

    def call_ended(self, method: str, refusal: RefusalReason | None, duration: timedelta) -> None:
        """A call has ended, or a stream was opened; `refusal` is None if it succeeded."""

    def call_refused(self, method: str, instance_id: str, refusal: RefusalReason, text: str, address: str) -> None:
        """A call was refused, or a stream has ended; `instance_id` is what it named."""

    def call_failed(self, method: str, error: Exception) -> None:
        """A call has failed because of a bug."""

    def stream_opened(self) -> None: ...

    def stream_closed(self) -> None: ...

    def deployment_changed(
        self, deployment_id: str, state: RolloutState, rollback: RollbackState, reason: str
    ) -> None:
        """A deployment has another state."""

    def deployment_ended(self, strategy: Strategy, outcome: RolloutState, duration: timedelta) -> None:
        """A deployment is over, with the rollback that it began."""

    def canaries_judged(self, deployment_id: str, verdict: Verdict) -> None:
        """The metrics of canaries were analysed."""

    def event_sent(self, event_type: str) -> None:
        """An event was sent to an agent."""

    def flushed(self, instances: int, duration: timedelta) -> None:
        """What heartbeats of these instances had reported was written."""
