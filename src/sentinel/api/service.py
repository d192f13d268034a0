"""What the fleet API does, apart from HTTP: each use case is one transaction over the store.

It reads what the rules in `core.fleet.lifecycle` need, refuses what cannot be done, and writes the result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Protocol, TypeVar, assert_never

import msgspec
from msgspec import UNSET

from sentinel.api.change import ResourceChange, WrittenResource, aggregated_for, state_of
from sentinel.api.kinds import Kinds
from sentinel.api.request_bodies import ResourceDraft, ResourcePatch, patched
from sentinel.api.schemas import Waiting, WaitingList
from sentinel.core.access import Identity, Role
from sentinel.core.events import uuid7
from sentinel.core.fleet import documents, lifecycle, reports
from sentinel.core.fleet.documents import (
    AdapterStatus,
    DiscardedReport,
    DiscardReason,
    GenerationRecord,
    KindRules,
    Owner,
    Report,
    ResourceOperation,
)
from sentinel.core.fleet.lifecycle import ResourceState
from sentinel.core.pulse.decision import Policy
from sentinel.ports.clock import Clock
from sentinel.ports.fleet_store import (
    FleetStore,
    FleetTransaction,
    IdTaken,
    ListQuery,
    ListResult,
    NameTaken,
    StoredResource,
)
from sentinel.ports.idempotency import KeyTaken
from sentinel.web import etag, idempotency
from sentinel.web.audit import Auditor
from sentinel.web.errors import Conflict, Invalid, NotFound
from sentinel.web.idempotency import IdempotencyKey
from sentinel.web.problem import FieldError
from sentinel.web.routing import Caller

T = TypeVar("T")

DISCARDED_PER_RESOURCE = 50
ADAPTERS_PER_RESOURCE = 100
CHILDREN_PER_RESOURCE = 2000
"""A family is deleted in one transaction, which must not take longer than a request may."""
_OURSELVES = Caller(Identity("sentinel", Role.ADMIN), "", "")
"""Who acts where nobody has asked."""


class Created(msgspec.Struct, frozen=True):
    """A resource that was created."""

    written: WrittenResource
    is_replayed: bool = False
    """It was created by an earlier request with the same idempotency key."""


class ReportObserver(Protocol):
    """Hears of what cannot be seen in the store afterwards."""

    def report_stored(self) -> None: ...

    def report_discarded(self, reason: DiscardReason) -> None: ...


class ResourcePath(msgspec.Struct, frozen=True):
    """Which resource a path names."""

    plural: str
    """Empty for `resources/{id}`, where the kind does not matter."""
    id: str
    parent: str | None = None
    """The parent's id, where the path names it."""


class FleetService:
    """What callers ask of the fleet. Where it cannot be done, a refusal is raised, and nothing has changed."""

    def __init__(
        self,
        *,
        store: FleetStore,
        kinds: Kinds,
        clock: Clock,
        observer: ReportObserver,
        auditor: Auditor,
        emits_public_names: bool = False,
        policies: Mapping[str, Policy] | None = None,
        randomness: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._store = store
        self._kinds = kinds
        self._clock = clock
        self._observer = observer
        self._auditor = auditor
        self._emits_public_names = emits_public_names
        self._policies = policies or {}
        self._randomness = randomness

    async def get(self, target: ResourcePath) -> StoredResource:
        """The resource; raises `NotFound`."""
        return _found(await self._store.get(target.id), target)

    async def statuses(self, target: ResourcePath) -> tuple[AdapterStatus, ...]:
        """The latest report of each adapter, by name."""
        return documents.decode_statuses((await self.get(target)).statuses)

    async def find(self, query: ListQuery) -> ListResult:
        """A stretch of a list."""
        return await self._store.find(query)

    async def discarded(
        self, target: ResourcePath, *, limit: int, offset: int
    ) -> tuple[Sequence[DiscardedReport], int]:
        """Reports that were discarded lately, newest first, and how many there are."""
        await self.get(target)
        return await self._store.discarded(target.id, limit=limit, offset=offset)

    async def history(
        self, target: ResourcePath, *, limit: int, offset: int
    ) -> tuple[Sequence[GenerationRecord], int]:
        """Past generations, newest first, and how many there are; also of a resource that is gone."""
        records, total = await self._store.history(target.id, limit=limit, offset=offset)
        # Of what is gone nobody knows the kind any longer; of what is there, the path has to name it.
        stored = await self._store.get(target.id)
        if stored is not None or not total:
            _found(stored, target)
        return records, total

    async def waiting(self, target: ResourcePath) -> WaitingList:
        """What keeps a resource from being ready, or from going."""
        stored = await self.get(target)
        children = 0
        for kind in self._kinds:
            if kind.parent == stored.plural:
                found = await self._store.find(ListQuery(plural=kind.plural, parent=stored.id, limit=1))
                children += found.total or 0
        return WaitingList(
            waiting_for=[Waiting(adapter, since) for adapter, since in sorted(stored.waiting.items())],
            required_adapters=self._kinds.of(stored.plural).required_adapters,
            children=children,
            policy=self._policies.get(stored.plural, UNSET),
        )

    async def create(
        self,
        kind: KindRules,
        draft: ResourceDraft,
        *,
        parent: str | None,
        caller: Caller,
        key: IdempotencyKey | None = None,
    ) -> Created:
        """A new resource, or the one that this idempotency key has made before."""
        now = self._clock.now()
        actor = caller.identity.name
        resource_id = draft.id or uuid7(now, self._randomness(10))

        def work(change: ResourceChange) -> Created:
            earlier = idempotency.recall(change.transaction, key)
            if earlier is not None:
                return Created(WrittenResource(earlier.body, earlier.version), is_replayed=True)
            owner, root = _adopted(change.transaction, kind, parent, draft)
            state = lifecycle.create(
                change.rules(kind.plural),
                resource_id=resource_id,
                name=draft.name,
                labels=draft.labels,
                spec=draft.spec,
                owner=owner,
                actor=actor,
                now=now,
            )
            written = change.insert(
                state, plural=kind.plural, parent=owner.id if owner else "", root=root or resource_id
            )
            idempotency.remember(change.transaction, key, version=written.version, body=written.document, now=now)
            return Created(written)

        try:
            return await idempotency.attempt(key, lambda: self._change(work, caller, now))
        except (IdTaken, NameTaken, KeyTaken) as taken:
            raise Conflict(_what_is(taken, kind, draft, resource_id, parent)) from None

    async def patch(
        self, target: ResourcePath, patch: ResourcePatch, *, if_match: etag.Precondition | None, caller: Caller
    ) -> WrittenResource:
        """The resource with a merge patch applied; a patch that changes nothing keeps its generation."""
        now = self._clock.now()

        def work(change: ResourceChange) -> WrittenResource:
            stored, state = _locked(change.transaction, target)
            etag.require_match(if_match, version=stored.version, name=_name(stored))
            if state.document.is_deleting:
                raise Conflict(f"{_name(stored)} is being deleted")
            labels, spec = patched(state.document, patch)
            changed = lifecycle.change(
                state,
                change.rules(stored.plural),
                labels=labels,
                spec=spec,
                actor=caller.identity.name,
                now=now,
            )
            if changed is None:
                return WrittenResource(stored.document, stored.version)
            return change.raise_generation(stored, changed, ResourceOperation.PATCH)

        return await self._change(work, caller, now)

    async def delete(
        self, target: ResourcePath, *, if_match: etag.Precondition | None, caller: Caller
    ) -> WrittenResource:
        """The resource on its way out, with all that belongs to it; gone at once where no adapter is required."""

        def work(change: ResourceChange) -> WrittenResource:
            stored, state = _locked(change.transaction, target)
            etag.require_match(if_match, version=stored.version, name=_name(stored))
            if state.document.is_deleting:
                return WrittenResource(stored.document, stored.version)
            # Its parent lives, or it would be on its way already: nobody else waits for its end.
            return change.delete(stored, state)[0]

        return await self._change(work, caller, self._clock.now())

    async def force_delete(self, target: ResourcePath, *, reason: str, caller: Caller) -> None:
        """Removes a resource that is being deleted, and all that belongs to it, without waiting for adapters."""

        def work(change: ResourceChange) -> None:
            stored, state = _locked(change.transaction, target)
            if not state.document.is_deleting:
                raise Conflict(f"{_name(stored)} is not being deleted; delete it first")
            change.remove_family(stored, reason=reason)
            change.settle_parent(stored)

        await self._change(work, caller, self._clock.now())

    async def request_pulse(self, target: ResourcePath, *, caller: Caller) -> WrittenResource:
        """Asks the pulse for an event now."""
        now = self._clock.now()
        step = partial(lifecycle.request_pulse, now=now)
        return await self._mark(target, ResourceOperation.PULSE, step, caller, now)

    async def pause(self, target: ResourcePath, *, caller: Caller) -> WrittenResource:
        """Asks the pulse for no events until further notice."""
        return await self._mark(target, ResourceOperation.PAUSE, lifecycle.pause, caller, self._clock.now())

    async def resume(self, target: ResourcePath, *, caller: Caller) -> WrittenResource:
        """Ends a pause."""
        return await self._mark(target, ResourceOperation.RESUME, lifecycle.resume, caller, self._clock.now())

    async def report(
        self, target: ResourcePath, report: Report, *, caller: Caller
    ) -> reports.Accepted | reports.Discarded:
        """Takes an adapter's report, or discards it; raises `Invalid` where it is none."""
        now = self._clock.now()

        def work(change: ResourceChange) -> reports.Accepted | reports.Discarded:
            stored, state = _locked(change.transaction, target)
            known = next((each for each in state.statuses if each.adapter == report.adapter), None)
            verdict = reports.judge(report, generation=state.document.generation, stored=known, now=now)
            match verdict:
                case reports.Rejected():
                    raise Invalid(tuple(FieldError(field, message) for field, message in verdict.errors))
                case reports.Discarded():
                    change.transaction.keep_discarded(
                        stored.id, _discarded(report, verdict.reason, now), limit=DISCARDED_PER_RESOURCE
                    )
                    return verdict
                case reports.Accepted():
                    is_required = report.adapter in self._kinds.of(stored.plural).required_adapters
                    if known is None and not is_required and len(state.statuses) >= ADAPTERS_PER_RESOURCE:
                        raise Conflict(f"{ADAPTERS_PER_RESOURCE} adapters report on {_name(stored)} already")
                    _take(change, stored, state, verdict.status)
                    return verdict
                case _:
                    assert_never(verdict)

        outcome = await self._change(work, caller, now)
        if isinstance(outcome, reports.Discarded):
            self._observer.report_discarded(outcome.reason)
        else:
            self._observer.report_stored()
        return outcome

    def aggregated_for(self, kind: KindRules) -> str:
        """How the conditions of such a resource are marked that are up to date with the server's configuration."""
        return aggregated_for(kind, emits_public_names=self._emits_public_names)

    async def refresh(self, resource_id: str) -> None:
        """Aggregates a resource anew, because its kind requires other adapters than it was aggregated for."""

        def work(change: ResourceChange) -> None:
            stored = change.transaction.lock(resource_id)
            if stored is None:
                return
            before = state_of(stored)
            children = change.transaction.count_children(stored.id)
            after = lifecycle.reaggregate(before, change.rules(stored.plural), children=children)
            if after == before:
                # Written all the same: it now counts as aggregated for these adapters.
                change.update(stored, after)
            change.settle(stored, before, after, children=children)

        await self._change(work, _OURSELVES, self._clock.now())

    async def _mark(
        self,
        target: ResourcePath,
        action: ResourceOperation,
        step: Callable[[ResourceState], ResourceState],
        caller: Caller,
        now: datetime,
    ) -> WrittenResource:
        def work(change: ResourceChange) -> WrittenResource:
            stored, state = _locked(change.transaction, target)
            marked = step(state)
            change.audit(action, marked)
            if marked == state:
                return WrittenResource(stored.document, stored.version)
            return change.mark(stored, marked)

        return await self._change(work, caller, now)

    async def _change(self, work: Callable[[ResourceChange], T], caller: Caller, now: datetime) -> T:
        return await self._store.transact(
            lambda transaction: work(
                ResourceChange(
                    transaction,
                    kinds=self._kinds,
                    emits_public_names=self._emits_public_names,
                    caller=caller,
                    now=now,
                    auditor=self._auditor,
                )
            )
        )


def _found(stored: StoredResource | None, target: ResourcePath) -> StoredResource:
    if (
        stored is None
        or (target.plural and stored.plural != target.plural)
        or (target.parent is not None and stored.parent != target.parent)
    ):
        raise NotFound(f'no {target.plural or "resource"} with the id "{target.id}"')
    return stored


def _locked(transaction: FleetTransaction, target: ResourcePath) -> tuple[StoredResource, ResourceState]:
    stored = _found(transaction.lock(target.id), target)
    return stored, state_of(stored)


def _adopted(
    transaction: FleetTransaction, kind: KindRules, parent: str | None, draft: ResourceDraft
) -> tuple[Owner | None, str]:
    """The owner of a new resource, and the root of its family; the owner's family is locked from here on."""
    if not kind.parent:
        return None, ""
    try:
        stored, state = _locked(transaction, ResourcePath(kind.parent, parent or draft.owner))
    except NotFound as error:
        if parent is None:
            raise Invalid((FieldError("owner_references.id", str(error)),)) from None
        raise
    document = state.document
    if document.is_deleting:
        raise Conflict(f"{_name(stored)} is being deleted")
    if transaction.count_children(stored.id) >= CHILDREN_PER_RESOURCE:
        raise Conflict(f"{_name(stored)} has {CHILDREN_PER_RESOURCE} children already")
    owner = Owner(document.id, document.kind, document.href)
    draft.check_owner(owner)
    return owner, stored.root


def _what_is(
    taken: IdTaken | NameTaken | KeyTaken,
    kind: KindRules,
    draft: ResourceDraft,
    resource_id: str,
    parent: str | None,
) -> str:
    match taken:
        case IdTaken():
            return f'a resource with the id "{resource_id}" exists already'
        case NameTaken():
            within = f" of {kind.parent}/{parent or draft.owner}" if kind.parent else ""
            return f'one of the {kind.plural}{within} has the name "{draft.name}" already'
        case KeyTaken():
            return "another request with this Idempotency-Key is being carried out; repeat this one later"
        case _:
            assert_never(taken)


def _take(change: ResourceChange, stored: StoredResource, state: ResourceState, status: AdapterStatus) -> None:
    children = change.transaction.count_children(stored.id) if state.document.is_deleting else 0
    taken = lifecycle.with_status(state, change.rules(stored.plural), status, children=children)
    change.audit(ResourceOperation.REPORT, taken, detail=status.adapter)
    change.settle(stored, state, taken, children=children)


def _name(stored: StoredResource) -> str:
    return f"{stored.plural}/{stored.id}"


def _discarded(report: Report, reason: DiscardReason, now: datetime) -> DiscardedReport:
    return DiscardedReport(
        adapter=report.adapter,
        reason=reason,
        received_time=now,
        observed_generation=report.observed_generation,
        observed_time=report.observed_time,
        conditions=report.conditions,
        data=report.data,
        metadata=report.metadata,
    )
