"""A resource's life: created, changed, reported on, deleted, finalised. Each step is a function to a new state.

Every step ends in aggregation, so that no state exists whose conditions contradict its generation and reports.
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

API_ROOT = "/api/hyperfleet/v1"


class AggregationRules(msgspec.Struct, frozen=True):
    """What is aggregated by, beside the resource itself."""

    kind: KindRules
    emits_public_names: bool = False
    """Whether the conditions appear under the public API's names as well."""


class ResourceState(msgspec.Struct, frozen=True):
    """A resource and the reports on it."""

    document: ResourceDocument
    statuses: tuple[AdapterStatus, ...] = ()
    waiting: Mapping[str, datetime] = {}
    """The required adapters that keep it from being ready, each with the moment since when."""

    def is_finalized(self, rules: AggregationRules, *, children: int) -> bool:
        """Whether it may be removed: it is being deleted, the adapters have cleaned up, no child is left."""
        return aggregate.is_finalized(_situation(self.document, self.statuses, rules, children))


def path_of(kind: KindRules, resource_id: str, parent_id: str = "") -> str:
    """Where a resource is found."""
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
    """A new resource, at generation 1; its conditions are there from the start."""
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
    return reaggregate(ResourceState(document), rules, children=0)


def change(
    state: ResourceState,
    rules: AggregationRules,
    *,
    labels: Mapping[str, str],
    spec: msgspec.Raw,
    actor: str,
    now: datetime,
) -> ResourceState | None:
    """The resource with these labels and this spec, a generation later; None where nothing would change."""
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
    """The resource on its way out, a generation later; one that is on its way already stays as it is."""
    document = state.document
    if document.is_deleting:
        return state
    moment = _not_before(document, now)
    return _next_generation(
        state,
        rules,
        msgspec.structs.replace(document, deleted_time=moment, updated_time=moment, updated_by=actor),
        children=children,
    )


def with_status(
    state: ResourceState, rules: AggregationRules, status: AdapterStatus, *, children: int
) -> ResourceState:
    """The resource with an adapter's status, which `reports.judge` has made of its report."""
    others = [each for each in state.statuses if each.adapter != status.adapter]
    statuses = tuple(sorted((*others, status), key=lambda each: each.adapter))
    return reaggregate(msgspec.structs.replace(state, statuses=statuses), rules, children=children)


def reaggregate(state: ResourceState, rules: AggregationRules, *, children: int) -> ResourceState:
    """The resource with its conditions aggregated anew: adapters, children or reports have changed."""
    situation = _situation(state.document, state.statuses, rules, children)
    status = aggregate.aggregate(situation, previous=state.document.status, public_names=rules.emits_public_names)
    return ResourceState(
        msgspec.structs.replace(state.document, status=status),
        state.statuses,
        aggregate.waiting(situation, status=status, previous=state.waiting),
    )


def request_pulse(state: ResourceState, *, now: datetime) -> ResourceState:
    """The resource with an event asked for."""
    return _marked(state, msgspec.structs.replace(state.document, pulse_requested_time=now))


def pause(state: ResourceState) -> ResourceState:
    """The resource without events until it is resumed."""
    return _marked(state, msgspec.structs.replace(state.document, paused=True))


def resume(state: ResourceState) -> ResourceState:
    """The resource with events again."""
    return _marked(state, msgspec.structs.replace(state.document, paused=UNSET))


def _next_generation(
    state: ResourceState, rules: AggregationRules, document: ResourceDocument, *, children: int
) -> ResourceState:
    raised = msgspec.structs.replace(document, generation=document.generation + 1)
    return reaggregate(_marked(state, raised), rules, children=children)


def _marked(state: ResourceState, document: ResourceDocument) -> ResourceState:
    return msgspec.structs.replace(state, document=document)


def _not_before(document: ResourceDocument, now: datetime) -> datetime:
    """Now, unless the clock was set back: then the time of the last change, so that time never runs backwards."""
    return max(now, document.updated_time)


def _situation(
    document: ResourceDocument, statuses: Sequence[AdapterStatus], rules: AggregationRules, children: int
) -> aggregate.AggregationInput:
    return aggregate.AggregationInput(
        generation=document.generation,
        updated_time=document.updated_time,
        required=rules.kind.required_adapters,
        statuses=statuses,
        children=children,
        is_deleting=document.is_deleting,
    )
