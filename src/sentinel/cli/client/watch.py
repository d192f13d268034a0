"""`sentinel watch`: what changes in a fleet, as it changes.

By polling: of one resource conditionally, so that an unchanged one costs a header; of a list page by page, of
which only what has changed is printed. A server that goes away is waited for, since watching its restart is half
of what people watch for.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import TypeAlias

import click
import msgspec

from sentinel.cli import options, table
from sentinel.cli.client import rows, session
from sentinel.cli.client.fleet import FleetClient, is_missing, read
from sentinel.cli.client.session import ServerOptions
from sentinel.cli.options import Output
from sentinel.drivers.rest.errors import RequestRejected, ServerError
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.process import ExitCode

INTERVAL = timedelta(seconds=1)

_INTERRUPTED = 128 + signal.SIGINT


class ChangeType(StrEnum):
    """What became of a resource since the last look."""

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"


class WatchEvent(msgspec.Struct, frozen=True):
    """A change, as it is printed for scripts: a line of JSON each, or a document of YAML."""

    change: ChangeType
    resource: msgspec.Raw
    """As it is now; as it was last seen where it is gone."""


Snapshot: TypeAlias = Mapping[str, bytes]
"""Encoded resources by id, in the order of their list."""


@click.command
@click.argument("plural")
@click.argument("resource_id", metavar="[ID]", default="")
@session.selector_option
@click.option(
    "--interval", callback=session.duration, default="1s", help="How long to wait between looks. Default: 1s."
)
@options.output_option
@session.server_options
def watch(
    plural: str, resource_id: str, selector: str, interval: timedelta, output: Output, target: ServerOptions
) -> int:
    """Print the resources of a kind, or the one with this ID, and go on with what changes, until Ctrl-C.

    With --output json, each change is a line: {"change": "added|modified|deleted", "resource": {…}}.
    """
    if resource_id and selector:
        raise click.UsageError("expected either an ID or --selector")
    return follow(target, plural, resource_id, query={"labels": selector}, output=output, interval=interval)


def follow(
    target: ServerOptions,
    plural: str,
    resource_id: str,
    *,
    query: Mapping[str, str],
    output: Output,
    interval: timedelta,
) -> int:
    """Prints changes until somebody interrupts it, which is how it is meant to end, or until the one resource that
    is watched is gone."""

    async def look_on(fleet: FleetClient) -> int:
        view = _One(fleet, plural, resource_id) if resource_id else _List(fleet, plural, _asked(query, output))
        printer: _Printer | None = None
        before: Snapshot = {}
        is_away = False
        while True:
            try:
                found = await view.look()
                if printer is None:
                    printer = _Printer(output, (await fleet.kind(view.plural)).required_adapters)
                printer.show(found, list(changes(before, found)))
                before, is_away = found, False
            except ServerError as error:
                if printer is None or not error.is_retryable:
                    raise
                if not is_away:
                    session.fail(f"{error} – trying again until Ctrl-C")
                is_away = True
            if resource_id and not before:
                return ExitCode.SUCCESS
            await asyncio.sleep(interval.total_seconds())

    code = target.use(look_on)
    return ExitCode.SUCCESS if code == _INTERRUPTED else code


def changes(before: Snapshot, now: Snapshot) -> Iterator[WatchEvent]:
    """What happened between two looks, in the order of the list; what is gone comes last."""
    for resource_id, document in now.items():
        if resource_id not in before:
            yield WatchEvent(ChangeType.ADDED, msgspec.Raw(document))
        elif before[resource_id] != document:
            yield WatchEvent(ChangeType.MODIFIED, msgspec.Raw(document))
    for resource_id, document in before.items():
        if resource_id not in now:
            yield WatchEvent(ChangeType.DELETED, msgspec.Raw(document))


class _One:
    """A look at one resource, which is sent only where it has changed."""

    def __init__(self, fleet: FleetClient, plural: str, resource_id: str) -> None:
        self.plural = plural
        self._fleet = fleet
        self._id = resource_id
        self._seen: Snapshot = {}
        self._etag = ""

    async def look(self) -> Snapshot:
        try:
            fetched = await self._fleet.get_unless(self.plural, self._id, self._etag)
        except RequestRejected as refused:
            if self._seen and is_missing(refused):
                return {}
            raise
        if fetched is not None:
            self.plural = fetched.plural
            self._etag = fetched.etag
            self._seen = {self._id: fetched.body}
        return self._seen


class _List:
    """A look at a whole list."""

    def __init__(self, fleet: FleetClient, plural: str, query: Mapping[str, str]) -> None:
        self.plural = plural
        self._fleet = fleet
        self._query = query

    async def look(self) -> Snapshot:
        walk = self._fleet.walk(self.plural, self._query)
        return {read(each, _Identified).id: bytes(each) async for each in walk}


class _Printer:
    """Prints what has changed: for people, only where it can be seen in a row."""

    def __init__(self, output: Output, required: Sequence[str]) -> None:
        self._output = output
        self._required = required
        self._shown: dict[str, tuple[str, ...]] | None = None

    def show(self, found: Snapshot, events: Sequence[WatchEvent]) -> None:
        if self._output is Output.TABLE:
            self._show_rows(found, events)
            return
        for event in events:
            if self._output is Output.JSON:
                click.echo(msgspec.json.encode(event))
            else:
                click.echo(f"---\n{options.encode(event, self._output)}")

    def _show_rows(self, found: Snapshot, events: Sequence[WatchEvent]) -> None:
        is_first = self._shown is None
        shown = self._shown = self._shown or {}
        if not events and not is_first:
            return
        now, columns = SystemClock().now(), session.width()
        items = [rows.read(document) for document in found.values()]
        gone = [rows.read(event.resource) for event in events if event.change is ChangeType.DELETED]
        # All are laid out and few printed, so that columns stay where they are from one look to the next.
        cells = [rows.cells(item, self._required, now) for item in items]
        cells += [(*rows.cells(item, self._required, now)[:-1], "gone") for item in gone]
        header, *lines = table.render(rows.HEADER, cells)
        if is_first:
            click.echo(session.fitted(header, columns))
        for item, line in zip((*items, *gone), lines, strict=True):
            standing = rows.standing(item, self._required)
            if item.id not in found:
                shown.pop(item.id, None)
            elif shown.get(item.id) == standing:
                continue
            else:
                shown[item.id] = standing
            click.echo(rows.styled(session.fitted(line, columns), item))


class _Identified(msgspec.Struct):
    id: str


def _asked(query: Mapping[str, str], output: Output) -> Mapping[str, str]:
    return {**query, "fields": rows.FIELDS} if output is Output.TABLE else query
