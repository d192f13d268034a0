"""One change to the fleet: what is written within a transaction, and never without its traces.

Whatever changes a resource leaves an audit entry, and where the generation rises a record of it, in the same
transaction. Deleting and removing go through families: children before parents, and a parent that only waited
for its last child goes with it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from sentinel.api.kinds import Kinds
from sentinel.core.fleet import documents, lifecycle
from sentinel.core.fleet.documents import GenerationRecord, KindRules, ResourceOperation
from sentinel.core.fleet.lifecycle import AggregationRules, ResourceState
from sentinel.ports.fleet_store import FleetTransaction, StoredResource
from sentinel.web.audit import Auditor
from sentinel.web.routing import Caller

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class WrittenResource(msgspec.Struct, frozen=True):
    """A resource, as it is after a change."""

    document: bytes
    version: int


class ResourceChange:
    """Made anew for every attempt at a transaction."""

    def __init__(
        self,
        transaction: FleetTransaction,
        *,
        kinds: Kinds,
        emits_public_names: bool,
        caller: Caller,
        now: datetime,
        auditor: Auditor,
    ) -> None:
        self.transaction = transaction
        self._kinds = kinds
        self._emits_public_names = emits_public_names
        self._caller = caller
        self._now = now
        self._auditor = auditor

    def rules(self, plural: str) -> AggregationRules:
        """What a resource of this kind is aggregated by."""
        return AggregationRules(self._kinds.of(plural), self._emits_public_names)

    def insert(self, state: ResourceState, *, plural: str, parent: str, root: str) -> WrittenResource:
        """Writes a new resource."""
        new = self._stored(state, plural=plural, parent=parent, root=root, version=self._next_version(0))
        self.transaction.insert(new)
        self._keep_generation(state, ResourceOperation.CREATE)
        self.audit(ResourceOperation.CREATE, state, detail=_generation(state))
        return WrittenResource(new.document, new.version)

    def raise_generation(
        self, stored: StoredResource, state: ResourceState, action: ResourceOperation
    ) -> WrittenResource:
        """Writes a resource whose generation has risen."""
        self._keep_generation(state, action)
        self.audit(action, state, detail=_generation(state))
        return self.update(stored, state)

    def update(self, stored: StoredResource, state: ResourceState) -> WrittenResource:
        """Writes what has become of a resource; the trace is the caller's to leave."""
        return self._replace(self._successor(stored, state))

    def mark(self, stored: StoredResource, state: ResourceState) -> WrittenResource:
        """Writes a resource that was only marked: whomever its conditions were aggregated for, they still are."""
        return self._replace(msgspec.structs.replace(self._successor(stored, state), adapters=stored.adapters))

    def settle(
        self, stored: StoredResource, before: ResourceState, after: ResourceState, *, children: int
    ) -> None:
        """Writes a resource after a report or an aggregation, or removes it where nothing keeps it any longer."""
        if after.is_finalized(self.rules(stored.plural), children=children):
            self._remove(stored, after)
            self.settle_parent(stored)
        elif after != before:
            self.update(stored, after)

    def settle_parent(self, removed: StoredResource) -> None:
        """A parent that is being deleted was waiting for this child; it may be next, and then its own parent."""
        parent = self.transaction.lock(removed.parent) if removed.parent else None
        if parent is None:
            return
        before = state_of(parent)
        if not before.document.is_deleting:
            return
        children = self.transaction.count_children(parent.id)
        after = lifecycle.reaggregate(before, self.rules(parent.plural), children=children)
        self.settle(parent, before, after, children=children)

    def delete(self, stored: StoredResource, state: ResourceState) -> tuple[WrittenResource, bool]:
        """Sends a resource and all that belongs to it on their way; whether it is gone already."""
        left = 0
        for child in self.transaction.children(stored.id):
            child_state = state_of(child)
            if child_state.document.is_deleting or not self.delete(child, child_state)[1]:
                left += 1
        rules = self.rules(stored.plural)
        deleted = lifecycle.delete(state, rules, children=left, actor=self._caller.identity.name, now=self._now)
        written = self.raise_generation(stored, deleted, ResourceOperation.DELETE)
        is_gone = deleted.is_finalized(rules, children=left)
        if is_gone:
            self._remove(stored, deleted)
        return written, is_gone

    def remove_family(self, stored: StoredResource, *, reason: str) -> None:
        """Removes a resource and all that belongs to it, whatever adapters say."""
        for child in self.transaction.children(stored.id):
            self.remove_family(child, reason=reason)
        self.transaction.remove(stored.id)
        self.audit(ResourceOperation.FORCE_DELETE, state_of(stored), detail=reason)

    def audit(self, action: ResourceOperation, state: ResourceState, *, detail: str = "") -> None:
        """Leaves the trace of a write."""
        document = state.document
        self.transaction.record(
            self._auditor.entry(
                self._caller,
                action=action,
                kind=document.kind,
                resource_id=document.id,
                now=self._now,
                detail=detail,
            )
        )

    def _remove(self, stored: StoredResource, state: ResourceState) -> None:
        self.transaction.remove(stored.id)
        self.audit(ResourceOperation.REMOVE, state, detail=_generation(state))

    def _keep_generation(self, state: ResourceState, change: ResourceOperation) -> None:
        document = state.document
        self.transaction.keep_generation(
            document.id,
            GenerationRecord(
                generation=document.generation,
                time=document.updated_time,
                actor=document.updated_by,
                change=change,
                labels=document.labels,
                spec=document.spec,
            ),
        )

    def _replace(self, new: StoredResource) -> WrittenResource:
        self.transaction.update(new)
        return WrittenResource(new.document, new.version)

    def _successor(self, stored: StoredResource, state: ResourceState) -> StoredResource:
        return self._stored(
            state,
            plural=stored.plural,
            parent=stored.parent,
            root=stored.root,
            version=self._next_version(stored.version),
        )

    def _next_version(self, version: int) -> int:
        """Rises with every write, and never names two states: not those of two resources that had one id after the
        other, nor those before and after a restored backup."""
        return max(version + 1, (self._now - _EPOCH) // _MICROSECOND)

    def _stored(
        self, state: ResourceState, *, plural: str, parent: str, root: str, version: int
    ) -> StoredResource:
        document = state.document
        return StoredResource(
            id=document.id,
            plural=plural,
            name=document.name,
            parent=parent,
            root=root,
            labels=document.labels,
            created_time=document.created_time,
            updated_time=document.updated_time,
            version=version,
            is_ready=document.status.phase is documents.Phase.READY,
            waiting=state.waiting,
            adapters=aggregated_for(self._kinds.of(plural), emits_public_names=self._emits_public_names),
            document=documents.encode_document(document),
            statuses=documents.encode_statuses(state.statuses),
        )


def _generation(state: ResourceState) -> str:
    return f"generation {state.document.generation}"


def aggregated_for(kind: KindRules, *, emits_public_names: bool) -> str:
    """What conditions are aggregated by, beside the resource itself, as `StoredResource.adapters` has it."""
    return ",".join((*kind.required_adapters, *(("+public",) if emits_public_names else ())))


def state_of(stored: StoredResource) -> ResourceState:
    """What the store has kept, decoded."""
    return ResourceState(
        documents.decode_document(stored.document), documents.decode_statuses(stored.statuses), stored.waiting
    )
