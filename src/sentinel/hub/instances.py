"""What users do with instances: assign a version, drain, remove.

Each is one transaction with its audit entry and its event, by which every hub learns of it. The agent gets it from
its stream, or with its next heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import assert_never

import msgspec

from sentinel.core.hub import sync as syncing
from sentinel.core.hub.instance import (
    Command,
    DrainRequested,
    Refusal,
    RemovalRequested,
    StateChanged,
    Timeouts,
    advance,
)
from sentinel.core.hub.states import State
from sentinel.core.hub.sync import Assignment
from sentinel.core.hub.versions import VersionName
from sentinel.hub import instance_changes
from sentinel.hub.agents import KIND
from sentinel.hub.observer import HubObserver
from sentinel.hub.registry import Registry
from sentinel.ports.audit import AuditEntry
from sentinel.ports.clock import Clock
from sentinel.ports.hub_store import HubStore, HubTransaction, InstanceRecord
from sentinel.web.audit import Auditor
from sentinel.web.errors import Conflict, NotFound
from sentinel.web.problem import shown
from sentinel.web.routing import Caller

_Change = Callable[[HubTransaction, InstanceRecord, datetime], "tuple[InstanceRecord, Sequence[Command]]"]


class Instances:
    """The use cases of users. Every one may raise `NotFound`, `Conflict` and `Unavailable`."""

    def __init__(
        self,
        *,
        store: HubStore,
        registry: Registry,
        timeouts: Timeouts,
        clock: Clock,
        observer: HubObserver,
        auditor: Auditor,
    ) -> None:
        self._store = store
        self._registry = registry
        self._timeouts = timeouts
        self._clock = clock
        self._observer = observer
        self._auditor = auditor

    async def assign(self, caller: Caller, instance_id: str, version: VersionName) -> InstanceRecord:
        """Assign a version. The instance is offered exactly this one from now on."""

        def change(
            transaction: HubTransaction, instance: InstanceRecord, now: datetime
        ) -> tuple[InstanceRecord, Sequence[Command]]:
            _require_assignable(instance)
            # Locked, so that it is not deleted at the same time.
            config = transaction.config(version.config_id)
            found = None if config is None else transaction.version(version)
            if found is None:
                raise NotFound(f"there is no version {version}")
            transaction.note_assigned(instance.id, instance.life.incarnation, version)
            return _with_assignment(instance, Assignment(version, found.hash, now), now), ()

        return await self._change(caller, instance_id, "assign", str(version), change)

    async def unassign(self, caller: Caller, instance_id: str) -> InstanceRecord:
        """Assign nothing. The instance goes on with what it runs."""

        def change(
            transaction: HubTransaction, instance: InstanceRecord, now: datetime
        ) -> tuple[InstanceRecord, Sequence[Command]]:
            _require_assignable(instance)
            return _with_assignment(instance, None, now), ()

        return await self._change(caller, instance_id, "unassign", "", change)

    async def drain(self, caller: Caller, instance_id: str, reason: str) -> InstanceRecord:
        """Tell the agent to finish its connections and to deregister. After a timeout it is removed anyway."""
        return await self._change(caller, instance_id, "drain", reason, self._advancing(DrainRequested(reason)))

    async def remove(self, caller: Caller, instance_id: str, reason: str = "") -> InstanceRecord:
        """Drain an instance, after which it is removed; at once if it is offline."""
        return await self._change(caller, instance_id, "remove", reason, self._advancing(RemovalRequested(reason)))

    def _advancing(self, event: DrainRequested | RemovalRequested) -> _Change:
        def change(
            transaction: HubTransaction, instance: InstanceRecord, now: datetime
        ) -> tuple[InstanceRecord, Sequence[Command]]:
            life, commands = advance(instance.life, event, now, self._timeouts)
            if (refusal := instance_changes.refusal(commands)) is not None:
                raise Conflict(_conflict(refusal))
            return instance_changes.with_life(instance, life), commands

        return change

    async def _change(
        self, caller: Caller, instance_id: str, action: str, detail: str, change: _Change
    ) -> InstanceRecord:
        now = self._clock.now()
        entry: AuditEntry = self._auditor.entry(
            caller, action=action, kind=KIND, resource_id=instance_id, now=now, detail=detail
        )

        def work(transaction: HubTransaction) -> tuple[InstanceRecord, Sequence[StateChanged]]:
            before = transaction.instance(instance_id)
            if before is None:
                raise NotFound(f"there is no instance {shown(instance_id)}")
            after, commands = change(transaction, before, now)
            transaction.record(entry)
            return after, instance_changes.save(transaction, after, commands, now)

        after, changes = await self._store.transact(work)
        if self._registry.get(instance_id) is not None:
            await self._registry.refresh(instance_id)
        for each in changes:
            self._observer.state_changed(instance_id, each)
        return after


def _with_assignment(instance: InstanceRecord, assignment: Assignment | None, now: datetime) -> InstanceRecord:
    return msgspec.structs.replace(instance, sync=syncing.assign(instance.sync, assignment, now))


def _require_assignable(instance: InstanceRecord) -> None:
    life = instance.life
    if life.may_be_assigned:
        return
    if life.deployment_id is not None:
        raise Conflict(f"the deployment {life.deployment_id} is in progress on {instance.id}")
    raise Conflict(_conflict(Refusal.DRAINING if life.state is State.DRAINING else Refusal.REMOVED))


def _conflict(refusal: Refusal) -> str:
    match refusal:
        case Refusal.UNREGISTERED:
            return "the instance has not registered"
        case Refusal.DRAINING:
            return "the instance is draining"
        case Refusal.REMOVED:
            return "the instance was removed"
        case Refusal.BUSY:
            return "another deployment is in progress"
        case _:
            assert_never(refusal)
