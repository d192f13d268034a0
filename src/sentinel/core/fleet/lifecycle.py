"""The lifecycle of a resource: create, change, report, delete, finalize. Each step returns a new state.

Every step ends with aggregation, so the conditions of a state always match its generation and reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import UNSET, UnsetType

from sentinel.core.fleet import aggregate
from sentinel.core.fleet.documents import (
    AdapterStatus,
    KindRules,
    Metadata,
    Owner,
    Phase,
    ResourceDocument,
    ResourceStatus,
)
from sentinel.core.fleet.expressions import ConditionExpressions

API_ROOT = "/api/hyperfleet/v1"


class AggregationRules(msgspec.Struct, frozen=True):
    """The settings of aggregation."""

    kind: KindRules
    emits_public_names: bool = False
    """Whether the conditions are also written under the names of the public API."""
    expressions: ConditionExpressions = ConditionExpressions()


class ResourceState(msgspec.Struct, frozen=True):
    """A resource and the statuses that its adapters reported."""

    document: ResourceDocument
    statuses: tuple[AdapterStatus, ...] = ()
    waiting: Mapping[str, datetime] = {}
    """The required adapters that keep the resource from being ready, each with the time since when."""

    def is_finalized(self, rules: AggregationRules, *, children: int) -> bool:
        """Whether the resource can be removed: it is being deleted, the adapters have finalized it, no child is
        left."""
        return aggregate.is_finalized(_aggregation_input(self.document, self.statuses, rules, children))


def path_of(kind: KindRules, resource_id: str, parent_id: str = "") -> str:
    """Return the path of a resource in the API."""
    if parent_id:
        return f"{API_ROOT}/{kind.parent}/{parent_id}/{kind.plural}/{resource_id}"
    return f"{API_ROOT}/{kind.plural}/{resource_id}"


def create(
    rules: AggregationRules,
    *,
    resource_id: str,
    name: str,
    labels: Mapping[str, str],
    spec: msgspec.Raw,
    owner: Owner | None,
    actor: str,
    now: datetime,
) -> ResourceState:
    """Return a new resource at generation 1, with its first conditions."""
    reference: Owner | UnsetType = owner or UNSET
    document = ResourceDocument(
        id=resource_id,
        kind=rules.kind.kind,
        href=path_of(rules.kind, resource_id, owner.id if owner else ""),
        name=name,
        labels=labels,
        spec=spec,
        generation=1,
        created_time=now,
        updated_time=now,
        created_by=actor,
        updated_by=actor,
        owner_references=reference,
        metadata=Metadata(name, labels),
        owner_resource=reference,
        status=ResourceStatus(Phase.NOT_READY, 0, now, now, ()),
    )
    return reaggregate(ResourceState(document), rules, children=0, at=now)


def change(
    state: ResourceState,
    rules: AggregationRules,
    *,
    labels: Mapping[str, str],
    spec: msgspec.Raw,
    actor: str,
    now: datetime,
) -> ResourceState | None:
    """Return the resource with these labels and this spec at the next generation; None if nothing changes."""
    document = state.document
    if spec == document.spec and labels == document.labels:
        return None
    return _next_generation(
        state,
        rules,
        msgspec.structs.replace(
            document,
            labels=labels,
            spec=spec,
            metadata=Metadata(document.name, labels),
            updated_by=actor,
            updated_time=_not_before(document, now),
        ),
        children=0,
    )


def delete(
    state: ResourceState, rules: AggregationRules, *, children: int, actor: str, now: datetime
) -> ResourceState:
    """Return the resource marked as deleted, at the next generation. One that is already marked is unchanged."""
    document = state.document
    if document.is_deleting:
        return state
    time = _not_before(document, now)
    return _next_generation(
        state,
        rules,
        msgspec.structs.replace(document, deleted_time=time, updated_time=time, updated_by=actor),
        children=children,
    )


def with_status(
    state: ResourceState, rules: AggregationRules, status: AdapterStatus, *, children: int
) -> ResourceState:
    """Return the resource with this adapter status, which `reports.admit` made from a report."""
    others = [each for each in state.statuses if each.adapter != status.adapter]
    statuses = tuple(sorted((*others, status), key=lambda each: each.adapter))
    return reaggregate(
        msgspec.structs.replace(state, statuses=statuses), rules, children=children, at=status.last_report_time
    )


def with_work_in_progress(state: ResourceState, status: AdapterStatus) -> ResourceState:
    """Return the resource with an adapter status in which only the work in progress differs.

    Conditions do not depend on it, so they are not aggregated.
    """
    statuses = tuple(status if each.adapter == status.adapter else each for each in state.statuses)
    return msgspec.structs.replace(state, statuses=statuses)


def reaggregate(state: ResourceState, rules: AggregationRules, *, children: int, at: datetime) -> ResourceState:
    """Return the resource with new conditions, after a change of its adapters, children or reports.

    `at` is the time of that change.
    """
    given = _aggregation_input(state.document, state.statuses, rules, children)
    status = aggregate.aggregate(
        given, previous=state.document.status, at=at, public_names=rules.emits_public_names
    )
    return ResourceState(
        msgspec.structs.replace(state.document, status=status),
        state.statuses,
        aggregate.waiting(given, status=status, previous=state.waiting),
    )


def request_pulse(state: ResourceState, *, now: datetime) -> ResourceState:
    """Return the resource with a requested pulse."""
    return _with_document(state, msgspec.structs.replace(state.document, pulse_requested_time=now))


def pause(state: ResourceState) -> ResourceState:
    return _with_document(state, msgspec.structs.replace(state.document, paused=True))


def resume(state: ResourceState) -> ResourceState:
    return _with_document(state, msgspec.structs.replace(state.document, paused=UNSET))


def _next_generation(
    state: ResourceState, rules: AggregationRules, document: ResourceDocument, *, children: int
) -> ResourceState:
    raised = msgspec.structs.replace(document, generation=document.generation + 1)
    return reaggregate(_with_document(state, raised), rules, children=children, at=raised.updated_time)


def _with_document(state: ResourceState, document: ResourceDocument) -> ResourceState:
    return msgspec.structs.replace(state, document=document)


def _not_before(document: ResourceDocument, now: datetime) -> datetime:
    """Return now, or the time of the last change if the clock was set back, so that times never decrease."""
    return max(now, document.updated_time)


def _aggregation_input(
    document: ResourceDocument, statuses: Sequence[AdapterStatus], rules: AggregationRules, children: int
) -> aggregate.AggregationInput:
    return aggregate.AggregationInput(
        generation=document.generation,
        updated_time=document.updated_time,
        required=rules.kind.required_adapters,
        statuses=statuses,
        children=children,
        is_deleting=document.is_deleting,
        expressions=rules.expressions,
    )
