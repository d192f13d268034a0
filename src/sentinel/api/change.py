"""The writes of one transaction on the fleet.

Every write of a resource records an audit entry, and a rise of its generation records that generation, in the same
transaction. Deletion works on families: children go before their parent, and a parent that only waited for its
last child goes with it.
"""

from __future__ import annotations

import hashlib
from datetime import datetime

import msgspec

from sentinel.api.kinds import Kinds
from sentinel.core import search
from sentinel.core.fleet import documents, lifecycle, versions
from sentinel.core.fleet.documents import GenerationRecord, KindRules, ResourceOperation
from sentinel.core.fleet.lifecycle import AggregationRules, ResourceState
from sentinel.ports.fleet_store import FleetTransaction, StoredResource
from sentinel.web.audit import Auditor
from sentinel.web.routing import Caller


class WrittenResource(msgspec.Struct, frozen=True):
    """A resource as it is after a write."""

    document: bytes
    version: int
    """The version of the document; its ETag."""


class ResourceChange:
    """Writes resources for one caller. Built for each attempt at a transaction."""

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
        """Return the rules that aggregate resources of this kind."""
        return AggregationRules(self._kinds.of(plural), self._emits_public_names, self._kinds.expressions(plural))

    def insert(self, state: ResourceState, *, plural: str, parent: str, root: str) -> WrittenResource:
        """Write a new resource."""
        new = self._stored(state, plural=plural, parent=parent, root=root, version=self._version_after(0))
        self.transaction.insert(new)
        self._record_generation(state, ResourceOperation.CREATE)
        return WrittenResource(new.document, new.version)

    def update_generation(
        self, stored: StoredResource, state: ResourceState, operation: ResourceOperation
    ) -> WrittenResource:
        """Write a resource whose generation has risen."""
        self._record_generation(state, operation)
        return self.update(stored, state)

    def update(
        self, stored: StoredResource, state: ResourceState, *, is_reaggregated: bool = True
    ) -> WrittenResource:
        """Write the new state of a resource. The caller records the audit entry.

        If it was not reaggregated, its conditions still belong to the adapters they were aggregated for before.
        """
        new = self._stored(
            state,
            plural=stored.plural,
            parent=stored.parent,
            root=stored.root,
            version=self._version_after(stored.version),
        )
        if not is_reaggregated:
            new = msgspec.structs.replace(new, adapters=stored.adapters)
        self.transaction.update(new)
        return WrittenResource(new.document, new.version)

    def update_work_in_progress(self, stored: StoredResource, state: ResourceState) -> None:
        """Write statuses in which only the work in progress differs. The document and its version do not change.

        No audit entry: the report was discarded.
        """
        self.transaction.update(
            msgspec.structs.replace(
                stored,
                version=versions.after_work_in_progress(stored.version, now=self._now),
                statuses=documents.encode_statuses(state.statuses),
            )
        )

    def update_or_remove(
        self, stored: StoredResource, before: ResourceState, after: ResourceState, *, children: int
    ) -> None:
        """Write a resource after a report or a reaggregation. Remove it if its deletion is complete."""
        if after.is_finalized(self.rules(stored.plural), children=children):
            self._remove(stored, after)
            self.reaggregate_parent(stored)
        elif after != before:
            self.update(stored, after)

    def reaggregate_parent(self, removed: StoredResource) -> None:
        """Update a parent that is being deleted and waited for this child. Remove it if this was its last child.

        The same then applies to its own parent.
        """
        parent = self.transaction.lock(removed.parent) if removed.parent else None
        if parent is None:
            return
        before = state_of(parent)
        if not before.document.is_deleting:
            return
        children = self.transaction.count_children(parent.id)
        after = lifecycle.reaggregate(before, self.rules(parent.plural), children=children, at=self._now)
        self.update_or_remove(parent, before, after, children=children)

    def delete(self, stored: StoredResource, state: ResourceState) -> tuple[WrittenResource, bool]:
        """Begin to delete a resource and its children. Also return whether it is already removed."""
        remaining = 0
        for child in self.transaction.children(stored.id):
            child_state = state_of(child)
            if child_state.document.is_deleting or not self.delete(child, child_state)[1]:
                remaining += 1
        rules = self.rules(stored.plural)
        deleted = lifecycle.delete(
            state, rules, children=remaining, actor=self._caller.identity.name, now=self._now
        )
        written = self.update_generation(stored, deleted, ResourceOperation.DELETE)
        is_removed = deleted.is_finalized(rules, children=remaining)
        if is_removed:
            self._remove(stored, deleted)
        return written, is_removed

    def remove_with_children(self, stored: StoredResource, *, reason: str) -> None:
        """Remove a resource and its children without waiting for adapters."""
        for child in self.transaction.children(stored.id):
            self.remove_with_children(child, reason=reason)
        self.transaction.remove(stored.id)
        self.audit(ResourceOperation.FORCE_DELETE, state_of(stored), detail=reason)

    def audit(self, operation: ResourceOperation, state: ResourceState, *, detail: str = "") -> None:
        """Record the audit entry of a write."""
        document = state.document
        self.transaction.record(
            self._auditor.entry(
                self._caller,
                action=operation,
                kind=document.kind,
                resource_id=document.id,
                now=self._now,
                detail=detail,
            )
        )

    def _remove(self, stored: StoredResource, state: ResourceState) -> None:
        self.transaction.remove(stored.id)
        self.audit(ResourceOperation.REMOVE, state, detail=_generation(state))

    def _record_generation(self, state: ResourceState, operation: ResourceOperation) -> None:
        document = state.document
        self.transaction.record_generation(
            document.id,
            GenerationRecord(
                generation=document.generation,
                time=document.updated_time,
                actor=document.updated_by,
                change=operation,
                labels=document.labels,
                spec=document.spec,
            ),
        )
        self.audit(operation, state, detail=_generation(state))

    def _version_after(self, version: int) -> int:
        return versions.after_change(version, now=self._now)

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
            adapters=aggregation_key(self._kinds.of(plural), emits_public_names=self._emits_public_names),
            document=documents.encode_document(document),
            statuses=documents.encode_statuses(state.statuses),
            attributes=search.attributes(document),
        )


def _generation(state: ResourceState) -> str:
    return f"generation {state.document.generation}"


def aggregation_key(kind: KindRules, *, emits_public_names: bool) -> str:
    """Return what `StoredResource.adapters` holds: the configuration that its conditions were aggregated with."""
    parts = list(kind.required_adapters)
    if emits_public_names:
        parts.append("+public")
    if kind.available or kind.ready:
        # Hashed, because the key is part of an index.
        expressions = hashlib.sha256(f"{kind.available}\0{kind.ready}".encode()).hexdigest()
        parts.append(f"+expressions:{expressions[:16]}")
    return ",".join(parts)


def state_of(stored: StoredResource) -> ResourceState:
    """Decode a stored resource."""
    return ResourceState(
        documents.decode_document(stored.document), documents.decode_statuses(stored.statuses), stored.waiting
    )
