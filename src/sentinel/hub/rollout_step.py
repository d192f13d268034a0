"""One step of a deployment: an event, the decision, and everything that is stored because of it.

A step is one transaction. It locks the deployment and every instance that it changes, so that it decides by their
present state. It sends nothing: agents learn from their streams and heartbeats what was stored, at every hub. So a
hub may die before or after any step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final, assert_never

import msgspec

from sentinel.core.hub import rollout, rollout_queries
from sentinel.core.hub import sync as syncing
from sentinel.core.hub.deployment import InstanceFacts, TargetVersion
from sentinel.core.hub.instance import Command as InstanceCommand
from sentinel.core.hub.instance import DeploymentEnded, DeploymentStarted, Timeouts, advance
from sentinel.core.hub.instance import StateChanged as InstanceStateChanged
from sentinel.core.hub.rollout_state import (
    Acknowledged,
    Analyse,
    Assign,
    BeginDeploying,
    Command,
    EndDeploying,
    Event,
    Observed,
    Refuse,
    Reported,
    Rollout,
    RowChanged,
    SendDeployment,
    StateChanged,
    TimePassed,
)
from sentinel.core.hub.states import State
from sentinel.core.hub.sync import Assignment
from sentinel.hub import deployment_documents, instance_changes
from sentinel.hub.rollout_copies import RolloutCopy
from sentinel.ports.hub_store import HubEventType, HubTransaction, InstanceRecord
from sentinel.ports.rollout_store import DeploymentEvent, DeploymentRecord, RolloutRow

_OF_INSTANCES: Final = (Assign, BeginDeploying, EndDeploying, SendDeployment)


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """What a step has stored."""

    before: Rollout
    copy: RolloutCopy
    analyses: Sequence[Analyse] = ()
    instance_changes: Sequence[tuple[str, InstanceStateChanged]] = ()
    instances: Collection[str] = ()
    """The ids of the instances that were stored."""


def facts_of(record: InstanceRecord) -> InstanceFacts:
    """Return the facts about an instance by which a deployment decides.

    `DEPLOYING` counts as online, because deployments themselves set it.
    """
    life, assignment = record.life, record.sync.assignment
    return InstanceFacts(
        instance_id=record.id,
        state=State.ONLINE if life.state is State.DEPLOYING else life.state,
        incarnation=life.incarnation,
        assigned=None if assignment is None else TargetVersion(assignment.version, assignment.hash),
        labels=record.labels,
    )


class RolloutStep:
    """A step in progress, in its transaction."""

    def __init__(
        self, transaction: HubTransaction, copy: RolloutCopy, *, now: datetime, timeouts: Timeouts
    ) -> None:
        """`copy` is what is stored, and locked."""
        self._transaction = transaction
        self._copy = copy
        self._rollout = copy.rollout
        self._now = now
        self._timeouts = timeouts
        self._events = copy.record.events
        self._locked: dict[str, InstanceRecord] = {}
        self._asked: set[str] = set()
        """The ids of instances that are locked or do not exist."""
        self._fresh: set[str] = set()
        """The locked instances that the deployment has not seen yet."""
        self._caused: dict[str, list[InstanceCommand]] = {}
        """The instances to store, with the changes of their states."""
        self._kept: set[str] = set()
        """Configurations that are not deleted before the step ends."""
        self._analyses: list[Analyse] = []
        self._refusal: str | None = None
        """Why the last event was refused."""

    @property
    def rollout(self) -> Rollout:
        return self._rollout

    def apply(self, event: Event) -> str | None:
        """Handle an event. Returns why it is refused, or None."""
        self._rollout, commands = self._advance(event)
        self._refusal = None
        for command in commands:
            self._perform(command)
        return self._refusal

    def announce(self) -> None:
        """Append the event of a new deployment that waits for others."""
        self._perform(StateChanged(self._rollout.state, self._rollout.rollback))

    def pass_time(self, listening_since: datetime) -> None:
        """Handle the deadlines that have passed."""
        deadline = rollout_queries.next_deadline(self._rollout, listening_since)
        if deadline is not None and deadline <= self._now:
            self.apply(TimePassed(listening_since))

    def incarnation(self, instance_id: str) -> int | None:
        """Return the present incarnation of an instance, which is then locked."""
        self._lock([instance_id])
        found = self._locked.get(instance_id)
        return None if found is None else found.life.incarnation

    def store(self) -> Stored:
        """Store what has changed, if anything."""
        before, after = self._copy.rollout, self._rollout
        changes = [
            (instance_id, change)
            for instance_id, commands in sorted(self._caused.items())
            for change in instance_changes.save(self._transaction, self._locked[instance_id], commands, self._now)
        ]
        if after is before and self._events == self._copy.record.events:
            return Stored(before=before, copy=self._copy)
        rows = [
            RolloutRow(self._copy.positions[instance_id], row)
            for instance_id, row in after.rows.items()
            if row is not before.rows[instance_id]
        ]
        record = msgspec.structs.replace(self._record(), revision=self._copy.record.revision + 1)
        self._transaction.save_deployment(record, rows)
        if record.events == self._copy.record.events:
            self._transaction.append_event(HubEventType.DEPLOYMENT_CHANGED, record.id, b"", self._now)
        return Stored(
            before=before,
            copy=self._copy.updated(record, rows),
            analyses=self._analyses,
            instance_changes=changes,
            instances=self._caused.keys(),
        )

    def _advance(self, event: Event) -> tuple[Rollout, Sequence[Command]]:
        """Return the rollout after an event, and what it causes.

        It has to know all instances that the event touches as they are. Which these are is known only afterwards,
        and it depends on how they are. So this is tried until all of them are locked.
        """
        touched: Collection[str] = _subjects(event)
        while True:
            self._lock(touched)
            observed, caused = self._observe()
            after, commands = rollout.advance(observed, event, self._now)
            every = (*caused, *commands)
            touched = {each.instance_id for each in every if isinstance(each, _OF_INSTANCES)}
            if touched <= self._asked:
                self._fresh.clear()
                return after, every

    def _observe(self) -> tuple[Rollout, Sequence[Command]]:
        """Observe each locked instance once: its lock keeps it unchanged until the step ends."""
        if not self._fresh:
            return self._rollout, ()
        seen = Observed(tuple(self._facts(each) for each in sorted(self._fresh)))
        return rollout.advance(self._rollout, seen, self._now)

    def _facts(self, instance_id: str) -> InstanceFacts:
        found = self._locked.get(instance_id)
        # Removed instances are deleted after some time.
        return InstanceFacts(instance_id=instance_id, state=State.REMOVED) if found is None else facts_of(found)

    def _lock(self, instance_ids: Collection[str]) -> None:
        """Lock in the order of the ids, which avoids deadlocks. Other deployments have other instances."""
        for instance_id in sorted(set(instance_ids) - self._asked):
            found = self._transaction.instance(instance_id)
            self._asked.add(instance_id)
            self._fresh.add(instance_id)
            if found is not None:
                self._locked[instance_id] = found

    def _perform(self, command: Command) -> None:
        match command:
            case Assign() | BeginDeploying() | EndDeploying() if command.instance_id not in self._locked:
                pass  # the instance was deleted
            case Assign():
                self._assign(command)
            case BeginDeploying():
                self._change(command.instance_id, DeploymentStarted(self._rollout.id))
            case EndDeploying():
                self._change(command.instance_id, DeploymentEnded(self._rollout.id, command.outcome))
            case RowChanged():
                row = self._rollout.rows[command.instance_id]
                shown = deployment_documents.row_event(self._rollout.id, row, self._rollout.to)
                self._append(HubEventType.DEPLOYMENT_INSTANCE, deployment_documents.encode(shown))
            case StateChanged():
                document = deployment_documents.document(self._record())
                self._append(HubEventType.DEPLOYMENT_STATE, deployment_documents.encode(document))
            case SendDeployment():
                pass  # agents are told what is stored: `subscriptions`, `sync.pending_actions`
            case Analyse():
                self._analyses.append(command)
            case Refuse():
                self._refusal = command.message
            case _:
                assert_never(command)

    def _assign(self, command: Assign) -> None:
        instance, version = self._locked[command.instance_id], command.version
        assignment = None
        if version is not None:
            if version.name.config_id not in self._kept:
                self._transaction.keep_config(version.name.config_id)
                self._kept.add(version.name.config_id)
            self._transaction.note_assigned(instance.id, instance.life.incarnation, version.name)
            assignment = Assignment(version.name, version.hash, self._now)
        self._locked[instance.id] = msgspec.structs.replace(
            instance, sync=syncing.assign(instance.sync, assignment, self._now)
        )
        self._caused.setdefault(instance.id, [])

    def _change(self, instance_id: str, event: DeploymentStarted | DeploymentEnded) -> None:
        instance = self._locked[instance_id]
        life, commands = advance(instance.life, event, self._now, self._timeouts)
        self._locked[instance_id] = instance_changes.with_life(instance, life)
        self._caused.setdefault(instance_id, []).extend(commands)

    def _append(self, event_type: HubEventType, data: bytes) -> None:
        self._events += 1
        self._transaction.append_event(event_type, self._rollout.id, data, self._now)
        self._transaction.add_deployment_event(
            DeploymentEvent(
                deployment_id=self._rollout.id,
                number=self._events,
                time=self._now,
                type=event_type.value,
                data=data,
            )
        )

    def _record(self) -> DeploymentRecord:
        return msgspec.structs.replace(
            self._copy.record,
            rollout=msgspec.structs.replace(self._rollout, rows={}, batches=()),
            counts=self._rollout.counts,
            events=self._events,
        )


def _subjects(event: Event) -> Mapping[str, None]:
    match event:
        case Acknowledged() | Reported():
            return {event.instance_id: None}
        case Observed():
            return dict.fromkeys(facts.instance_id for facts in event.instances)
        case _:
            return {}
