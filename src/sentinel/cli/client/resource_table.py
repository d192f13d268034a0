"""Resources as a table for people: the state of each, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import click
import msgspec

from sentinel.cli import table
from sentinel.cli.client import fleet, session
from sentinel.core.fleet import why
from sentinel.core.fleet.aggregate import ConditionReason
from sentinel.core.fleet.documents import AVAILABLE, READY, Phase, ResourceDocument, ResourceStatus

HEADER = ("NAME", "ID", "READY", "AVAILABLE", "GENERATION", "AGE", "WAITING FOR")

FIELDS = "name,generation,created_time,deleted_time,paused,status"


class ResourceSummary(msgspec.Struct, frozen=True):
    """The fields of a resource that a row shows.

    Lists are requested with `FIELDS`, because specs can be large.
    """

    id: str
    name: str
    generation: int
    created_time: datetime
    status: ResourceStatus
    deleted_time: datetime | None = None
    paused: bool = False

    @property
    def is_ready(self) -> bool:
        return self.status.phase is Phase.READY

    @property
    def is_deleting(self) -> bool:
        return self.deleted_time is not None


def decode(encoded: msgspec.Raw | bytes) -> ResourceSummary:
    """Decode the item of a list, or a whole document."""
    return fleet.decode(encoded, ResourceSummary)


def summarize(document: ResourceDocument) -> ResourceSummary:
    """Return the summary of a document."""
    return ResourceSummary(
        document.id,
        document.name,
        document.generation,
        document.created_time,
        document.status,
        document.deleted_time or None,
        document.paused is True,
    )


def state_cells(resource: ResourceSummary, required: Sequence[str]) -> tuple[str, ...]:
    """Return the cells that change only when the resource does: all but its age."""
    return (
        resource.name,
        resource.id,
        _ready(resource),
        _available(resource),
        _generation(resource),
        _waiting_for(resource, required),
    )


def cells(resource: ResourceSummary, required: Sequence[str], now: datetime) -> tuple[str, ...]:
    """Return the row of a resource."""
    *others, waiting_for = state_cells(resource, required)
    age = table.format_duration(max(now - resource.created_time, timedelta(0)))
    return (*others, age, waiting_for)


def lines(resources: Sequence[ResourceSummary], required: Sequence[str], now: datetime) -> Iterator[str]:
    """Yield the header, then a line for each resource; truncated and colored on a terminal."""
    columns = session.terminal_width()
    header, *rows = table.render(HEADER, [cells(resource, required, now) for resource in resources])
    yield session.truncate(header, columns)
    for resource, row in zip(resources, rows, strict=True):
        yield colored(session.truncate(row, columns), resource)


def colored(line: str, resource: ResourceSummary) -> str:
    """Color the line by the resource's state; unchanged if stdout is not a terminal."""
    if not session.is_terminal():
        return line
    if resource.is_deleting:
        return click.style(line, fg="red")
    if resource.paused:
        return click.style(line, dim=True)
    return line if resource.is_ready else click.style(line, fg="yellow")


def _ready(resource: ResourceSummary) -> str:
    if resource.is_deleting:
        text = "deleting"
    else:
        text = "yes" if resource.is_ready else "no"
    return f"{text}, paused" if resource.paused else text


def _available(resource: ResourceSummary) -> str:
    available = resource.status.condition(AVAILABLE)
    if available is None or not available.is_true:
        return "no"
    is_current = available.observed_generation == resource.generation
    return "yes" if is_current else f"yes (at {available.observed_generation})"


def _generation(resource: ResourceSummary) -> str:
    generation, observed = resource.generation, resource.status.observed_generation
    return f"{generation}" if observed == generation else f"{generation} ({observed} seen)"


def _waiting_for(resource: ResourceSummary, required: Sequence[str]) -> str:
    if resource.is_deleting:
        ready = resource.status.condition(READY)
        has_children = ready is not None and ready.reason == ConditionReason.RECONCILED_WAITING_FOR_CHILDREN
        return "children to be deleted" if has_children else "adapters to finalize"
    if resource.is_ready:
        return ""
    blocking = why.blocking_adapters(resource.status, generation=resource.generation, required=required)
    if not blocking and why.is_up_to_expression(resource.status):
        return "its expression for ready"
    return ", ".join(blocking)
