"""What agents have to do with deployments."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

import msgspec

from sentinel.core.hub.sync import DeploymentStep
from sentinel.ports.hub_store import InstanceRecord


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """Whether an agent accepts a deployment."""

    deployment_id: str
    is_rollback: bool
    is_accepted: bool
    rejection_reason: str


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a deployment is on an instance."""

    deployment_id: str
    is_rollback: bool
    state: str
    """By the names of the protocol: `IN_PROGRESS`."""
    message: str
    error_details: str


class Deployments(Protocol):
    """The deployments that reach instances. Every call may raise `Unavailable`."""

    def step(self, instance: InstanceRecord) -> Awaitable[DeploymentStep | None]:
        """Return what a deployment in progress wants from an instance."""

    def acknowledge(self, instance: InstanceRecord, acknowledgement: Acknowledgement) -> Awaitable[str | None]:
        """Return the instruction for the agent; None if there is no such deployment."""

    def report(self, instance: InstanceRecord, progress: Progress) -> Awaitable[str | None]:
        """Return the next action of the agent; None if there is no such deployment."""


class NoDeployments:
    """`Deployments` of a hub that has none."""

    async def step(self, instance: InstanceRecord) -> DeploymentStep | None:
        return None

    async def acknowledge(self, instance: InstanceRecord, acknowledgement: Acknowledgement) -> str | None:
        return None

    async def report(self, instance: InstanceRecord, progress: Progress) -> str | None:
        return None
