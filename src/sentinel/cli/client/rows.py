"""Resources as a table for people: how each stands, and what it waits for."""

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
"""What a row needs of a resource; specs can be large."""


class Item(msgspec.Struct, frozen=True):
    """What a row shows of a resource."""

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


def read(encoded: msgspec.Raw | bytes) -> Item:
    """The item of a list, or a whole document."""
    return fleet.read(encoded, Item)


def of(document: ResourceDocument) -> Item:
    """The item that a document would be in a list."""
    return Item(
        document.id,
        document.name,
        document.generation,
        document.created_time,
        document.status,
        document.deleted_time or None,
        document.paused is True,
    )


def standing(item: Item, required: Sequence[str]) -> tuple[str, ...]:
    """The cells that change only when the resource does: all but its age."""
    return (
        item.name,
        item.id,
        _ready(item),
        _available(item),
        _generation(item),
        _waiting_for(item, required),
    )


def cells(item: Item, required: Sequence[str], now: datetime) -> tuple[str, ...]:
    """The row of a resource."""
    *others, waiting = standing(item, required)
    age = table.format_duration(max(now - item.created_time, timedelta(0)))
    return (*others, age, waiting)


def lines(items: Sequence[Item], required: Sequence[str], now: datetime) -> Iterator[str]:
    """The header, then a line for each resource, as wide as the terminal at most and coloured only there."""
    columns = session.width()
    header, *rows = table.render(HEADER, [cells(item, required, now) for item in items])
    yield session.fitted(header, columns)
    for item, row in zip(items, rows, strict=True):
        yield styled(session.fitted(row, columns), item)


def styled(line: str, item: Item) -> str:
    """The line in the colour of how the resource stands; as it is where colours would be noise."""
    if not session.is_on_screen():
        return line
    if item.deleted_time is not None:
        return click.style(line, fg="red")
    if item.paused:
        return click.style(line, dim=True)
    return line if item.is_ready else click.style(line, fg="yellow")


def _ready(item: Item) -> str:
    if item.deleted_time is not None:
        words = "deleting"
    else:
        words = "yes" if item.is_ready else "no"
    return f"{words}, paused" if item.paused else words


def _available(item: Item) -> str:
    available = item.status.condition(AVAILABLE)
    if available is None or not available.is_true:
        return "no"
    is_current = available.observed_generation == item.generation
    return "yes" if is_current else f"yes (at {available.observed_generation})"


def _generation(item: Item) -> str:
    observed = item.status.observed_generation
    return f"{item.generation}" if observed == item.generation else f"{item.generation} ({observed} seen)"


def _waiting_for(item: Item, required: Sequence[str]) -> str:
    if item.deleted_time is not None:
        ready = item.status.condition(READY)
        is_alone = ready is None or ready.reason != ConditionReason.RECONCILED_WAITING_FOR_CHILDREN
        return "adapters to finalise" if is_alone else "children to go"
    if item.is_ready:
        return ""
    return ", ".join(why.blocking_adapters(item.status, generation=item.generation, required=required))
