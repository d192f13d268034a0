"""The hub, as an agent sees it.

A client has one session at a time. It keeps the token of the session, renews it, and sends it with every call.
What the hub asks for arrives in two ways, as events of a stream and as actions of a heartbeat, and both are the
same values here. Types of events and actions that are not known are left out: a hub may be newer than its agents.

Failures are of three kinds, whatever the call:

* `HubUnavailable`: nothing is known of the outcome, or the hub could not do it now. Try again later.
* `SessionEnded`: the hub does not know the session any more. Register, then try again.
* `CallRefused`: the same call is refused again until someone changes something.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol, TypeAlias

import msgspec

from sentinel.core.hub.instance import Health
from sentinel.core.hub.metrics_samples import Metrics, Sample
from sentinel.ports.errors import Unavailable


class FailureReason(StrEnum):
    """Why a call failed."""

    UNAVAILABLE = "unavailable"
    """The hub cannot be reached, or its database cannot."""
    TIMEOUT = "timeout"
    BUSY = "busy"
    """The hub has too much to do."""
    UNAUTHENTICATED = "unauthenticated"
    """A token or a certificate is missing, wrong, expired or revoked."""
    DENIED = "denied"
    """It is the instance or the configuration of someone else."""
    NOT_FOUND = "not_found"
    PRECONDITION = "precondition"
    """The instance is draining, or was removed."""
    INVALID = "invalid"
    MISCONFIGURED = "misconfigured"
    """A file of this agent cannot be used."""
    INTERNAL = "internal"
    """The hub has failed."""


class HubUnavailable(Unavailable):
    """The call may have had its effect or not. Trying again may help."""

    def __init__(self, text: str, reason: FailureReason) -> None:
        super().__init__(text)
        self.reason = reason


class SessionEnded(Exception):
    """The session has expired, another one has replaced it, or the instance was removed."""

    def __init__(self, text: str, reason: FailureReason) -> None:
        super().__init__(text)
        self.reason = reason


class CallRefused(Exception):
    """The hub does not do this, now or later. The text is the hub's."""

    def __init__(self, text: str, reason: FailureReason) -> None:
        super().__init__(text)
        self.reason = reason


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent says about its instance."""

    instance_id: str
    name: str
    hostname: str = ""
    agent_version: str = ""
    sentinel_version: str = ""
    labels: Mapping[str, str] = {}
    capabilities: Sequence[str] = ()


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """What Register returns, without the token."""

    assigned_version: str
    """Empty: nothing is assigned."""
    assigned_hash: str
    heartbeat_interval: timedelta
    expires: datetime | None


class InstanceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How the proxy is."""

    health: Health
    message: str = ""
    uptime: timedelta = timedelta(0)
    active_connections: int = 0


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent reports."""

    status: InstanceStatus
    config_version: str = ""
    config_hash: str = ""
    metrics: Metrics | None = None
    """Taken just now."""
    buffered: Sequence[Sample] = ()
    """Those that earlier heartbeats could not deliver, ascending."""


class AssignmentNotice(msgspec.Struct, frozen=True, kw_only=True):
    """A version is assigned to the instance by hand."""

    id: str
    """Of an action: the same until it is done, another one when the same version is assigned once more. Of an
    event: unique."""
    is_action: bool
    version: str
    hash: str
    change_summary: str = ""
    """Why, for people. Only events have it."""


class DeploymentNotice(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment has reached the instance, or takes it back."""

    id: str
    deployment_id: str
    is_rollback: bool
    version: str
    hash: str
    deadline: datetime | None = None
    strategy: str = ""
    """By the names of the protocol. Only events have it, and the batch."""
    batch_position: int = 0
    batch_total: int = 0


class ReportRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The hub has waited for a report about a deployment for long."""

    id: str
    deployment_id: str
    is_rollback: bool


class DrainNotice(msgspec.Struct, frozen=True, kw_only=True):
    """The instance has to finish its connections, and to leave the fleet."""

    id: str
    timeout: timedelta | None = None
    reason: str = ""


class Ping(msgspec.Struct, frozen=True):
    """The stream is alive."""

    id: str
    server_time: datetime | None = None
    """When the hub sent it, by its own clock, in whole seconds."""


Notice: TypeAlias = "AssignmentNotice | DeploymentNotice | ReportRequest | DrainNotice | Ping"


class HeartbeatResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What the hub answers to a heartbeat."""

    is_update_available: bool
    assigned_version: str
    actions: Sequence[Notice] = ()


class FetchedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A version with the secrets that it names. The hash is not verified."""

    version: str
    hash: str
    content: str
    secrets: Mapping[str, bytes] = {}

    def __repr__(self) -> str:
        return f"FetchedConfig(version={self.version!r}, hash={self.hash!r})"


class DeploymentProgress(StrEnum):
    """How far a deployment is, by the names of the protocol."""

    PENDING = "PENDING"
    IN_PROGRESS = "IN_PROGRESS"
    VALIDATING = "VALIDATING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    ROLLED_BACK = "ROLLED_BACK"


class DeploymentReport(msgspec.Struct, frozen=True, kw_only=True):
    """A report about a deployment."""

    deployment_id: str
    is_rollback: bool
    state: DeploymentProgress
    message: str = ""
    error_details: str = ""


class Instruction(StrEnum):
    """What the hub answers to a report or an acknowledgement."""

    NONE = ""
    ROLLBACK = "rollback"
    """Go back. The deployment that says where to comes as an event and as an action."""
    STOP = "stop"
    """The deployment is over."""


class HubClient(Protocol):
    """A connection to the hub, which opens when it is needed. One task may use it while others do."""

    async def register(self, registration: Registration) -> Session:
        """Begin a session, which ends the one before, on a new connection if the last one failed."""

    async def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatResponse:
        """Report how the instance is, and learn what to do."""

    async def deregister(self, reason: str) -> None:
        """Leave the fleet."""

    async def config(self, version: str = "") -> FetchedConfig:
        """Fetch this version; an empty one is what is assigned. Refused with `NOT_FOUND` if nothing is."""

    async def config_version(self, version: str) -> FetchedConfig:
        """Fetch a version that is or was assigned, to go back to it."""

    def subscribe(self) -> AbstractAsyncContextManager[AsyncIterator[Notice]]:
        """Open the stream of events. Once it is entered, no event is missed until the stream ends.

        The stream ends with an exception, as a call does, or normally.
        """

    async def acknowledge(
        self, deployment_id: str, *, is_rollback: bool, is_accepted: bool, rejection_reason: str = ""
    ) -> Instruction:
        """Accept or reject a deployment."""

    async def report(self, report: DeploymentReport) -> Instruction:
        """Report how far a deployment is."""

    async def close(self) -> None:
        """Close the connection, without a word to the hub."""
