"""Use cases of the fleet API, independent of HTTP.

Each write is one function `work(transaction)` that the store runs. It locks and reads what the rules in
`core.fleet.lifecycle` need, raises one of `web.errors` if the request cannot be carried out, and writes the result
through a `ResourceChange`. The store may run it more than once, so it has no other side effects.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Protocol, assert_never

import msgspec
from msgspec import UNSET

from sentinel.api.change import ResourceChange, WrittenResource, aggregation_key, state_of
from sentinel.api.kinds import Kinds
from sentinel.api.request_bodies import ResourceDraft, ResourcePatch, apply_patch
from sentinel.api.schemas import Waiting, WaitingList
from sentinel.core.access import Identity, Role
from sentinel.core.fleet import documents, lifecycle, reports, versions
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
from sentinel.core.ids import uuid7
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
from sentinel.runtime.tracing import NO_TRACING, Tracer
from sentinel.web import etag, idempotency
from sentinel.web.audit import Auditor
from sentinel.web.errors import Conflict, Invalid, NotFound
from sentinel.web.idempotency import IdempotencyKey
from sentinel.web.problem import FieldError
from sentinel.web.routing import Caller

MAX_DISCARDED_REPORTS = 50
"""Per resource; older ones are deleted."""
MAX_ADAPTERS = 100
"""Per resource. Required adapters may always report."""
MAX_CHILDREN = 2000
"""Per resource. A family is deleted in one transaction, which must finish within the request timeout."""

_SERVER = Caller(Identity("sentinel", Role.ADMIN), "", "")
"""The caller of background work."""


class Created(msgspec.Struct, frozen=True):
    """The result of a creation."""

    written: WrittenResource
    is_replayed: bool = False
    """An earlier request with the same idempotency key created it."""


class ReportObserver(Protocol):
    """Counts reports. A discarded one may leave no trace in the store."""

    def report_stored(self) -> None: ...

    def report_discarded(self, reason: DiscardReason) -> None: ...


class ResourcePath(msgspec.Struct, frozen=True):
    """The resource that the path of a URL names."""

    plural: str
    """Empty for `resources/{id}`, which matches any kind."""
    id: str
    parent: str | None = None
    """The parent's id, if the path has one."""


class FleetService:
    """The operations of the fleet API. One that raises has changed nothing."""

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
        tracer: Tracer = NO_TRACING,
    ) -> None:
        self._store = store
        self._kinds = kinds
        self._clock = clock
        self._observer = observer
        self._auditor = auditor
        self._emits_public_names = emits_public_names
        self._policies = policies or {}
        self._randomness = randomness
        self._tracer = tracer

    async def get(self, path: ResourcePath) -> StoredResource:
        """Return a resource. Raises `NotFound`."""
        return _require_match(await self._store.get(path.id), path)

    async def statuses(self, path: ResourcePath) -> tuple[AdapterStatus, ...]:
        """Return the latest report of each adapter, sorted by adapter."""
        return documents.decode_statuses((await self.get(path)).statuses)

    async def find(self, query: ListQuery) -> ListResult:
        """Return a page of a list. Raises `NotFound` if the query names a parent that does not exist."""
        if query.parent is not None:
            await self.get(ResourcePath(self._kinds.of(query.plural).parent, query.parent))
        return await self._store.find(query)

    async def discarded(
        self, path: ResourcePath, *, limit: int, offset: int
    ) -> tuple[Sequence[DiscardedReport], int]:
        """Return recently discarded reports, newest first, and their total."""
        await self.get(path)
        return await self._store.discarded(path.id, limit=limit, offset=offset)

    async def history(
        self, path: ResourcePath, *, limit: int, offset: int
    ) -> tuple[Sequence[GenerationRecord], int]:
        """Return past generations, newest first, and their total. Works for removed resources too."""
        records, total = await self._store.history(path.id, limit=limit, offset=offset)
        # The kind of a removed resource is not known. An existing one has to match the path.
        stored = await self._store.get(path.id)
        if stored is not None or not total:
            _require_match(stored, path)
        return records, total

    async def waiting(self, path: ResourcePath) -> WaitingList:
        """Return the adapters and children that keep a resource from being ready or from being removed."""
        stored = await self.get(path)
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
        """Create a resource, or return the one that a request with the same idempotency key created."""
        now = self._clock.now()
        resource_id = draft.id or uuid7(now, self._randomness(10))

        def work(transaction: FleetTransaction) -> Created:
            earlier = idempotency.recall(transaction, key)
            if earlier is not None:
                return Created(WrittenResource(earlier.body, earlier.version), is_replayed=True)
            owner, root = _lock_parent(transaction, kind, parent, draft)
            change = self._change(transaction, caller, now)
            state = lifecycle.create(
                change.rules(kind.plural),
                resource_id=resource_id,
                name=draft.name,
                labels=draft.labels,
                spec=draft.spec,
                owner=owner,
                actor=caller.identity.name,
                now=now,
            )
            written = change.insert(
                state, plural=kind.plural, parent=owner.id if owner else "", root=root or resource_id
            )
            idempotency.remember(transaction, key, version=written.version, body=written.document, now=now)
            return Created(written)

        try:
            return await idempotency.attempt(key, partial(self._store.transact, work))
        except (IdTaken, NameTaken, KeyTaken) as error:
            raise Conflict(_conflict_message(error, kind, draft, resource_id, parent)) from None

    async def patch(
        self, path: ResourcePath, patch: ResourcePatch, *, if_match: etag.Precondition | None, caller: Caller
    ) -> WrittenResource:
        """Apply a merge patch. One that changes nothing keeps the generation."""
        now = self._clock.now()

        def work(transaction: FleetTransaction) -> WrittenResource:
            stored, state = _lock(transaction, path, if_match)
            if state.document.is_deleting:
                raise Conflict(f"{_display_name(stored)} is being deleted")
            labels, spec = apply_patch(state.document, patch)
            change = self._change(transaction, caller, now)
            patched = lifecycle.change(
                state,
                change.rules(stored.plural),
                labels=labels,
                spec=spec,
                actor=caller.identity.name,
                now=now,
            )
            if patched is None:
                return _unchanged(stored)
            return change.update_generation(stored, patched, ResourceOperation.PATCH)

        return await self._store.transact(work)

    async def delete(
        self, path: ResourcePath, *, if_match: etag.Precondition | None, caller: Caller
    ) -> WrittenResource:
        """Begin to delete a resource and its children. Those that require no adapter are removed at once."""
        now = self._clock.now()

        def work(transaction: FleetTransaction) -> WrittenResource:
            stored, state = _lock(transaction, path, if_match)
            if state.document.is_deleting:
                return _unchanged(stored)
            # Its parent is not being deleted, or this resource would be too. So no parent waits for its removal.
            return self._change(transaction, caller, now).delete(stored, state)[0]

        return await self._store.transact(work)

    async def force_delete(self, path: ResourcePath, *, reason: str, caller: Caller) -> None:
        """Remove a resource that is being deleted, and its children, without waiting for adapters."""
        now = self._clock.now()

        def work(transaction: FleetTransaction) -> None:
            stored, state = _lock(transaction, path)
            if not state.document.is_deleting:
                raise Conflict(f"{_display_name(stored)} is not being deleted; delete it first")
            change = self._change(transaction, caller, now)
            change.remove_with_children(stored, reason=reason)
            change.reaggregate_parent(stored)

        await self._store.transact(work)

    async def request_pulse(self, path: ResourcePath, *, caller: Caller) -> WrittenResource:
        """Ask the pulse to publish an event now."""
        now = self._clock.now()
        step = partial(lifecycle.request_pulse, now=now)
        return await self._update_pulse_fields(path, ResourceOperation.PULSE, step, caller, now)

    async def pause(self, path: ResourcePath, *, caller: Caller) -> WrittenResource:
        """Ask the pulse to publish no events until `resume`."""
        now = self._clock.now()
        return await self._update_pulse_fields(path, ResourceOperation.PAUSE, lifecycle.pause, caller, now)

    async def resume(self, path: ResourcePath, *, caller: Caller) -> WrittenResource:
        """End a pause."""
        now = self._clock.now()
        return await self._update_pulse_fields(path, ResourceOperation.RESUME, lifecycle.resume, caller, now)

    async def report(
        self, path: ResourcePath, report: Report, *, caller: Caller
    ) -> reports.Accepted | reports.Discarded:
        """Store or discard an adapter's report. Raises `Invalid` if it is not acceptable.

        Of a discarded `Unknown`, the work in progress is stored.
        """
        now = self._clock.now()

        def work(transaction: FleetTransaction) -> reports.Accepted | reports.Discarded:
            stored, state = _lock(transaction, path)
            previous = next((each for each in state.statuses if each.adapter == report.adapter), None)
            admission = reports.admit(report, generation=state.document.generation, stored=previous, now=now)
            match admission:
                case reports.Rejected():
                    raise Invalid(tuple(FieldError(field, message) for field, message in admission.errors))
                case reports.Discarded():
                    discarded = _discarded_report(report, admission.reason, now)
                    transaction.record_discarded(stored.id, discarded, limit=MAX_DISCARDED_REPORTS)
                    if admission.status is not None and admission.status != previous:
                        after = lifecycle.with_work_in_progress(state, admission.status)
                        self._change(transaction, caller, now).update_work_in_progress(stored, after)
                case reports.Accepted():
                    if previous is None:
                        self._check_adapter_limit(stored, state, report.adapter)
                    _store_status(self._change(transaction, caller, now), stored, state, admission.status)
                case _:
                    assert_never(admission)
            return admission

        with self._tracer.span("sentinel.report", adapter=report.adapter, resource_id=path.id) as span:
            outcome = await self._store.transact(work)
            if isinstance(outcome, reports.Discarded):
                span.set(discarded=outcome.reason)
                self._observer.report_discarded(outcome.reason)
            else:
                self._observer.report_stored()
        return outcome

    def aggregation_key(self, kind: KindRules) -> str:
        """Return `StoredResource.adapters` of resources whose conditions match the current configuration."""
        return aggregation_key(kind, emits_public_names=self._emits_public_names)

    async def reaggregate(self, resource_id: str) -> None:
        """Aggregate a resource again because its kind requires other adapters or has other expressions."""
        now = self._clock.now()

        def work(transaction: FleetTransaction) -> None:
            stored = transaction.lock(resource_id)
            if stored is None:
                return
            change = self._change(transaction, _SERVER, now)
            before = state_of(stored)
            children = transaction.count_children(stored.id)
            after = lifecycle.reaggregate(before, change.rules(stored.plural), children=children, at=now)
            if after == before:
                change.update(stored, after)  # stores the new aggregation key
            change.update_or_remove(stored, before, after, children=children)

        await self._store.transact(work)

    async def _update_pulse_fields(
        self,
        path: ResourcePath,
        operation: ResourceOperation,
        step: Callable[[ResourceState], ResourceState],
        caller: Caller,
        now: datetime,
    ) -> WrittenResource:
        def work(transaction: FleetTransaction) -> WrittenResource:
            stored, before = _lock(transaction, path)
            change = self._change(transaction, caller, now)
            after = step(before)
            change.audit(operation, after)
            if after == before:
                return _unchanged(stored)
            return change.update(stored, after, is_reaggregated=False)

        return await self._store.transact(work)

    def _change(self, transaction: FleetTransaction, caller: Caller, now: datetime) -> ResourceChange:
        return ResourceChange(
            transaction,
            kinds=self._kinds,
            emits_public_names=self._emits_public_names,
            caller=caller,
            now=now,
            auditor=self._auditor,
        )

    def _check_adapter_limit(self, stored: StoredResource, state: ResourceState, adapter: str) -> None:
        is_required = adapter in self._kinds.of(stored.plural).required_adapters
        if not is_required and len(state.statuses) >= MAX_ADAPTERS:
            raise Conflict(f"{MAX_ADAPTERS} adapters report on {_display_name(stored)} already")


def _require_match(stored: StoredResource | None, path: ResourcePath) -> StoredResource:
    if (
        stored is None
        or (path.plural and stored.plural != path.plural)
        or (path.parent is not None and stored.parent != path.parent)
    ):
        raise NotFound(f'no {path.plural or "resource"} with the id "{path.id}"')
    return stored


def _lock(
    transaction: FleetTransaction, path: ResourcePath, if_match: etag.Precondition | None = None
) -> tuple[StoredResource, ResourceState]:
    stored = _require_match(transaction.lock(path.id), path)
    if if_match is not None and not if_match.matches(etag.strong(stored.version)):
        # An ETag that was read with statuses is good, too. It is the version of the row.
        etag.require_match(if_match, version=versions.of_document(stored.version), name=_display_name(stored))
    return stored, state_of(stored)


def _lock_parent(
    transaction: FleetTransaction, kind: KindRules, parent: str | None, draft: ResourceDraft
) -> tuple[Owner | None, str]:
    """Lock the family that a new resource joins. Return its owner and the root of the family."""
    if not kind.parent:
        return None, ""
    try:
        stored, state = _lock(transaction, ResourcePath(kind.parent, parent or draft.owner))
    except NotFound as error:
        if parent is None:
            raise Invalid((FieldError("owner_references.id", str(error)),)) from None
        raise
    document = state.document
    if document.is_deleting:
        raise Conflict(f"{_display_name(stored)} is being deleted")
    if transaction.count_children(stored.id) >= MAX_CHILDREN:
        raise Conflict(f"{_display_name(stored)} has {MAX_CHILDREN} children already")
    owner = Owner(document.id, document.kind, document.href)
    draft.check_owner(owner)
    return owner, stored.root


def _conflict_message(
    error: IdTaken | NameTaken | KeyTaken,
    kind: KindRules,
    draft: ResourceDraft,
    resource_id: str,
    parent: str | None,
) -> str:
    match error:
        case IdTaken():
            return f'a resource with the id "{resource_id}" exists already'
        case NameTaken():
            scope = f" of {kind.parent}/{parent or draft.owner}" if kind.parent else ""
            return f'one of the {kind.plural}{scope} has the name "{draft.name}" already'
        case KeyTaken():
            return "another request with this Idempotency-Key is in progress; repeat this one later"
        case _:
            assert_never(error)


def _store_status(
    change: ResourceChange, stored: StoredResource, before: ResourceState, status: AdapterStatus
) -> None:
    children = change.transaction.count_children(stored.id) if before.document.is_deleting else 0
    after = lifecycle.with_status(before, change.rules(stored.plural), status, children=children)
    change.audit(ResourceOperation.REPORT, after, detail=status.adapter)
    change.update_or_remove(stored, before, after, children=children)


def _unchanged(stored: StoredResource) -> WrittenResource:
    return WrittenResource(stored.document, versions.of_document(stored.version))


def _display_name(stored: StoredResource) -> str:
    return f"{stored.plural}/{stored.id}"


def _discarded_report(report: Report, reason: DiscardReason, now: datetime) -> DiscardedReport:
    return DiscardedReport(**msgspec.structs.asdict(report), reason=reason, received_time=now)
