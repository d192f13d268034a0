"""What the hub asks an agent to run, and what the agent tells the hub about it.

The hub repeats what it wants in events, in heartbeats and at registration. Each time it becomes a `Task`, and a
task that is known already changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from sentinel.core.hub.instance import Health


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment that wants a version from this instance, or the way back to the one before."""

    deployment_id: str
    is_rollback: bool = False
    deadline: datetime | None = None
    """When the hub stops waiting for a report."""

    @property
    def key(self) -> OrderKey:
        return OrderKey(self.deployment_id, self.is_rollback)


class OrderKey(msgspec.Struct, frozen=True):
    """Names an order: a rollback keeps the id of its deployment."""

    deployment_id: str
    is_rollback: bool


class Source(StrEnum):
    """How an agent learned what it has to run."""

    REGISTRATION = "registration"
    """The response to Register, which names the assigned version."""
    EVENT = "event"
    ACTION = "action"
    """An action in the response to a heartbeat."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A version that the instance has to run."""

    version: str
    """`<config>@<n>`."""
    hash: str
    """The hash of its content; empty if the hub did not say it."""
    order: Order | None = None
    """None if it was assigned by hand."""
    source: Source = Source.REGISTRATION
    marker: str = ""
    """The `event_id` or `action_id`, by which one assignment differs from the next of the same version."""
    may_be_applied: bool = False
    """Whether the assignment may have been applied already.

    Then only new values of secrets are applied, and changes by hand are kept.
    """


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """A version as the hub sent it."""

    version: str
    hash: str
    """The hash that the hub gave; the agent verifies it."""
    content: str
    secrets: Mapping[str, bytes] = {}
    """Values of the secrets that the content names with `secret=`."""

    def __repr__(self) -> str:
        """Show no secrets, and no content."""
        return f"Content({self.version}, {self.hash})"


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """What a heartbeat says about the configuration."""

    version: str = ""
    """The version that was applied last; empty if none was."""
    hash: str = ""
    """The hash of the current file; empty if there is no file."""
    message: str = ""
    """What people should know: what failed, what was changed by hand, that a restart is required."""
    health: Health = Health.HEALTHY
    """UNHEALTHY: the proxy does not run, or its health check fails. DEGRADED: the version before could not be
    restored."""


class ReportState(StrEnum):
    """What is said about an order, by the names of the protocol; the first two are acknowledgements."""

    ACCEPTED = "ACCEPTED"
    REJECTED = "REJECTED"
    IN_PROGRESS = "IN_PROGRESS"
    VALIDATING = "VALIDATING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    ROLLED_BACK = "ROLLED_BACK"

    @property
    def is_acknowledgement(self) -> bool:
        """Whether it is sent with AckDeployment, else with ReportDeploymentStatus."""
        return self in (ReportState.ACCEPTED, ReportState.REJECTED)

    @property
    def is_final(self) -> bool:
        """Whether nothing follows."""
        return self not in (ReportState.ACCEPTED, ReportState.IN_PROGRESS, ReportState.VALIDATING)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the hub has to know about an order. They are delivered in order."""

    order: OrderKey
    state: ReportState
    message: str = ""
    """What users should know. For a rejection, its reason."""
    details: str = ""
    """What the proxy said."""
