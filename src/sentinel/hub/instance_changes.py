"""Stores a changed instance together with the events about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from sentinel.core.hub.instance import Command, Instance, Refusal, Refuse, StateChanged
from sentinel.hub import instance_documents
from sentinel.ports.hub_store import HubEventType, HubTransaction, InstanceRecord


def save(
    transaction: HubTransaction, instance: InstanceRecord, commands: Iterable[Command], now: datetime
) -> Sequence[StateChanged]:
    """Store an instance with the events that hubs and users get. Returns how its state has changed.

    Users get an event for each state. Other hubs get one in any case, because they may serve the agent.
    """
    transaction.save_instance(instance)
    changes = [command for command in commands if isinstance(command, StateChanged)]
    for change in changes:
        life = msgspec.structs.replace(instance.life, state=change.after)
        shown = instance_documents.document(msgspec.structs.replace(instance, life=life))
        transaction.append_event(HubEventType.INSTANCE_STATE, instance.id, instance_documents.encode(shown), now)
    if not changes:
        transaction.append_event(HubEventType.INSTANCE_CHANGED, instance.id, b"", now)
    return changes


def refusal(commands: Iterable[Command]) -> Refusal | None:
    """Return why `advance` has refused an event, or None."""
    return next((command.refusal for command in commands if isinstance(command, Refuse)), None)


def has_changed_state(commands: Iterable[Command]) -> bool:
    return any(isinstance(command, StateChanged) for command in commands)


def with_life(instance: InstanceRecord, life: Instance) -> InstanceRecord:
    return msgspec.structs.replace(instance, life=life)
