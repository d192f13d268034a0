"""Deployments as agents see them: what they have to do, their acknowledgements and reports."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, Protocol

import msgspec

from sentinel.core.hub import rollout_queries
from sentinel.core.hub.rollout_state import Acknowledged, Reported, ReportedState
from sentinel.core.hub.sync import DeploymentStep
from sentinel.hub.agent_reports import clean
from sentinel.hub.registry import Registry
from sentinel.hub.rollout_copies import RolloutCopies
from sentinel.hub.rollout_runner import RolloutRunner
from sentinel.hub.subscriptions import DeploymentNotice
from sentinel.ports.clock import Clock
from sentinel.ports.hub_store import InstanceRecord

_STATES: Final = {state.value: state for state in ReportedState}


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
    """A state of the protocol, such as `IN_PROGRESS`."""
    message: str
    error_details: str


class Deployments(Protocol):
    """What deployments want from agents, and what agents answer. Every call may raise `Unavailable`."""

    def step(self, instance: InstanceRecord) -> Awaitable[DeploymentStep | None]:
        """Return what a deployment in progress wants from an instance."""

    def acknowledge(self, instance: InstanceRecord, acknowledgement: Acknowledgement) -> Awaitable[str | None]:
        """Return the instruction for the agent; None if there is no such deployment."""

    def report(self, instance: InstanceRecord, progress: Progress) -> Awaitable[str | None]:
        """Return the next action of the agent; None if there is no such deployment."""


class RolloutDeployments:
    """`Deployments` for the rollouts in progress. Heartbeats and streams are answered from memory."""

    def __init__(self, *, runner: RolloutRunner, copies: RolloutCopies, registry: Registry, clock: Clock) -> None:
        self._runner = runner
        self._copies = copies
        self._registry = registry
        self._clock = clock

    async def step(self, instance: InstanceRecord) -> DeploymentStep | None:
        deployment_id = instance.life.deployment_id
        if deployment_id is None:
            return None
        found = self._step(instance)
        if found is None:
            # The instance or the copy is stale, which is rare, so most heartbeats cost no query.
            await self._copies.refresh(deployment_id)
            found = self._step(instance)
            if found is None:
                await self._registry.refresh(instance.id)
        return found

    def notice(self, instance: InstanceRecord) -> DeploymentNotice | None:
        """Return what a deployment in progress wants of an instance whose agent has not answered yet."""
        copy = self._copies.get(instance.life.deployment_id or "")
        row = None if copy is None else copy.rollout.rows.get(instance.id)
        if copy is None or row is None or row.step is None or row.step.heard is not None:
            return None
        step, rollout = row.step, copy.rollout
        return DeploymentNotice(
            deployment_id=copy.id,
            version=step.version,
            strategy=rollout.strategy,
            batch_position=row.batch,
            batch_total=len(rollout.batches),
            begun=step.deadline - rollout.deployment_timeout,
            deadline=step.deadline,
            is_rollback=step.is_rollback,
        )

    async def acknowledge(self, instance: InstanceRecord, acknowledgement: Acknowledgement) -> str | None:
        event = Acknowledged(
            instance.id,
            is_accepted=acknowledgement.is_accepted,
            is_rollback=acknowledgement.is_rollback,
            reason=clean(acknowledgement.rejection_reason),
        )
        return await self._tell(instance, acknowledgement.deployment_id, event)

    async def report(self, instance: InstanceRecord, progress: Progress) -> str | None:
        # A state that only later versions of the agent know changes nothing.
        state = _STATES.get(progress.state, ReportedState.PENDING)
        texts = [clean(text) for text in (progress.message, progress.error_details) if text]
        message = clean(": ".join(dict.fromkeys(texts)))
        event = Reported(instance.id, state, is_rollback=progress.is_rollback, message=message)
        return await self._tell(instance, progress.deployment_id, event)

    async def _tell(
        self, instance: InstanceRecord, deployment_id: str, event: Acknowledged | Reported
    ) -> str | None:
        copy = await self._copies.find(deployment_id) if deployment_id.isprintable() else None
        if copy is None or instance.id not in copy.rollout.rows:
            return None
        answer = await self._runner.report(
            deployment_id, event, instance_id=instance.id, incarnation=instance.life.incarnation
        )
        return answer.next_action

    def _step(self, instance: InstanceRecord) -> DeploymentStep | None:
        copy = self._copies.get(instance.life.deployment_id or "")
        if copy is None:
            return None
        return rollout_queries.deployment_step(copy.rollout, instance.id, self._clock.now())
