"""`sentinel watch`: print resources as they change.

It follows the server's stream, of a list or of one resource, so that a change shows when it happens. Where the
server has no stream, it polls: one resource with a conditional request, so that an unchanged one costs only
headers, and a list page by page. It keeps running while the server is down, because users often watch across a
restart.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from enum import StrEnum
from typing import TypeAlias

import click
import msgspec

from sentinel.cli import options, table
from sentinel.cli.client import names, resource_table, session
from sentinel.cli.client.fleet import FetchedDocument, FleetClient, decode, is_not_found
from sentinel.cli.client.session import ServerOptions
from sentinel.cli.options import OutputFormat
from sentinel.drivers.rest.errors import RequestRejected, ServerError
from sentinel.ports.fleet_stream import (
    Changed,
    Connected,
    Disconnected,
    FleetStream,
    Removed,
    StreamEnd,
    Synced,
)
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.process import ExitCode

DEFAULT_INTERVAL = timedelta(seconds=1)

_INTERRUPTED = 128 + signal.SIGINT


class ChangeType(StrEnum):
    """How a resource changed since it was last printed.

    Several changes between two polls are one.
    """

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"


class WatchEvent(msgspec.Struct, frozen=True):
    """A change, as printed for scripts: a line of JSON, or a YAML document."""

    change: ChangeType
    resource: msgspec.Raw
    """The resource as it is now, or as it was before it was deleted."""


Snapshot: TypeAlias = Mapping[str, bytes]
"""Encoded resources by id, in the order of their list."""


@click.command
@click.argument("plural")
@click.argument("resource_id", metavar="[ID]", default="")
@session.selector_option
@click.option(
    "--interval",
    callback=session.parse_duration,
    default="1s",
    help="The time between polls, where there is no stream. Default: 1s.",
)
@options.output_option
@session.server_options
def watch(
    plural: str, resource_id: str, selector: str, interval: timedelta, output: OutputFormat, server: ServerOptions
) -> int:
    """Print the resources of a kind, or the one with this ID or name, then their changes, until Ctrl-C.

    With --output json, each change is a line: {"change": "added|modified|deleted", "resource": {…}}.
    """
    if resource_id and selector:
        raise click.UsageError("expected either an ID or --selector")
    return run_watch(server, plural, resource_id, query={"labels": selector}, output=output, interval=interval)


def run_watch(
    server: ServerOptions,
    plural: str,
    resource_id: str,
    *,
    query: Mapping[str, str],
    output: OutputFormat,
    interval: timedelta,
) -> int:
    """Print changes until Ctrl-C, which is a success, or until the one watched resource is gone."""
    if output is OutputFormat.TABLE:
        query = {**query, "fields": resource_table.FIELDS}

    async def work(fleet: FleetClient) -> int:
        poller = _ResourcePoller(fleet, plural, resource_id) if resource_id else _ListPoller(fleet, plural, query)
        watching = _Watching(fleet, poller, output)
        await watching.poll()
        stream = poller.stream()
        if stream is not None:
            await watching.follow(stream)
        while not watching.is_over:
            await asyncio.sleep(interval.total_seconds())
            await watching.poll()
        return ExitCode.SUCCESS

    code = server.run(work)
    return ExitCode.SUCCESS if code == _INTERRUPTED else code


def changes(before: Snapshot, now: Snapshot) -> Iterator[WatchEvent]:
    """Yield the changes between two polls, in the order of the list, deletions last."""
    for resource_id, document in now.items():
        if resource_id not in before:
            yield WatchEvent(ChangeType.ADDED, msgspec.Raw(document))
        elif before[resource_id] != document and _is_different(before[resource_id], document):
            yield WatchEvent(ChangeType.MODIFIED, msgspec.Raw(document))
    for resource_id, document in before.items():
        if resource_id not in now:
            yield WatchEvent(ChangeType.DELETED, msgspec.Raw(document))


def _is_different(before: bytes, now: bytes) -> bool:
    """Whether two documents say something else; a stream may write the same one differently."""
    return decode(before, object) != decode(now, object)


class _Watching:
    """What has been printed so far, and how it is kept up to date."""

    def __init__(self, fleet: FleetClient, poller: _ResourcePoller | _ListPoller, output: OutputFormat) -> None:
        self._fleet = fleet
        self._poller = poller
        self._output = output
        self._printer: _Printer | None = None
        self._shown: Snapshot = {}
        self._is_disconnected = False

    @property
    def is_over(self) -> bool:
        """Whether the one resource that was watched is gone. A list is never over."""
        return self._poller.is_over_when_empty and not self._shown

    async def poll(self) -> None:
        """Poll once and print what has changed. Raises `ServerError` only if trying again does not help."""
        try:
            current = await self._poller.poll()
            if self._printer is None:
                self._printer = _Printer(
                    self._output, (await self._fleet.kind(self._poller.plural)).required_adapters
                )
            self._print(self._printer, current)
            self._is_disconnected = False
        except ServerError as error:
            if self._printer is None or not error.is_retryable:
                raise
            if not self._is_disconnected:
                session.fail(f"{error} – trying again until Ctrl-C")
            self._is_disconnected = True

    async def follow(self, stream: FleetStream) -> None:
        """Print what the stream brings. Return only if the server has none, or when there is nothing to watch."""
        current = dict(self._shown)
        listed: dict[str, bytes] | None = None
        """What the stream has listed since it began, until it is in sync."""
        async with aclosing(stream.follow()) as batches:
            async for batch in batches:
                for item in batch:
                    match item:
                        case Connected(is_resumed=False):
                            listed = {}
                        case Changed(resource=resource):
                            target = current if listed is None else listed
                            target[resource.observation.id] = bytes(resource.document)
                        case Removed(id=resource_id):
                            (current if listed is None else listed).pop(resource_id, None)
                        case Synced() if listed is not None:
                            current, listed = listed, None
                        case Disconnected(reason=StreamEnd.UNSUPPORTED):
                            await self.poll()  # or the resource is gone
                            return
                        case Disconnected():
                            await self.poll()  # it says what is wrong
                            current = dict(self._shown)
                        case _:
                            """Resumed, or a resource that cannot be read."""
                if listed is None and self._printer is not None:
                    self._print(self._printer, dict(current))
                if self.is_over:
                    return

    def _print(self, printer: _Printer, current: Snapshot) -> None:
        printer.print(current, list(changes(self._shown, current)))
        self._shown = current


class _ResourcePoller:
    """A poller of one resource, which the server sends only if it has changed."""

    is_over_when_empty = True

    def __init__(self, fleet: FleetClient, plural: str, reference: str) -> None:
        """The reference is an id or a name. Once it is found, the resource is followed by its id."""
        self.plural = plural
        self._fleet = fleet
        self._reference = reference
        self._id = ""
        self._latest: Snapshot = {}
        self._etag = ""

    async def poll(self) -> Snapshot:
        fetched: FetchedDocument | None
        if not self._id:
            fetched = await names.resolve(self._fleet, self._reference, plural=self.plural)
        else:
            try:
                fetched = await self._fleet.get_if_changed(self.plural, self._id, self._etag)
            except RequestRejected as rejected:
                if is_not_found(rejected):
                    return {}
                raise
        if fetched is not None:
            self.plural = fetched.plural
            self._etag = fetched.etag
            self._id = fetched.document.id
            self._latest = {self._id: fetched.body}
        return self._latest

    def stream(self) -> FleetStream | None:
        """Return the stream of the resource, after the first poll."""
        return self._fleet.stream_of(self.plural, self._id)


class _ListPoller:
    """A poller of a whole list."""

    is_over_when_empty = False

    def __init__(self, fleet: FleetClient, plural: str, query: Mapping[str, str]) -> None:
        self.plural = plural
        self._fleet = fleet
        self._query = query

    async def poll(self) -> Snapshot:
        items = self._fleet.list_all(self.plural, self._query)
        return {decode(item, _Identified).id: bytes(item) async for item in items}

    def stream(self) -> FleetStream | None:
        """Return the stream of the list, or None if streams cannot do what its query asks for."""
        return self._fleet.stream(self.plural, self._query)


class _Printer:
    """A printer of changes; a table shows only those that change a row."""

    def __init__(self, output: OutputFormat, required: Sequence[str]) -> None:
        self._output = output
        self._required = required
        self._printed: dict[str, tuple[str, ...]] | None = None

    def print(self, current: Snapshot, events: Sequence[WatchEvent]) -> None:
        if self._output is OutputFormat.TABLE:
            self._print_rows(current, events)
            return
        for event in events:
            if self._output is OutputFormat.JSON:
                click.echo(msgspec.json.encode(event))
            else:
                click.echo(f"---\n{options.encode(event, self._output)}")

    def _print_rows(self, current: Snapshot, events: Sequence[WatchEvent]) -> None:
        is_first = self._printed is None
        printed = self._printed = self._printed or {}
        if not events and not is_first:
            return
        now, columns = SystemClock().now(), session.terminal_width()
        resources = [resource_table.decode(document) for document in current.values()]
        deleted = [resource_table.decode(event.resource) for event in events if event.change is ChangeType.DELETED]
        # Lay out all rows, though few are printed, so that the columns keep their widths between polls.
        cells = [resource_table.cells(resource, self._required, now) for resource in resources]
        cells += [(*resource_table.cells(resource, self._required, now)[:-1], "gone") for resource in deleted]
        header, *lines = table.render(resource_table.HEADER, cells)
        if is_first:
            click.echo(session.truncate(header, columns))
        for resource, line in zip((*resources, *deleted), lines, strict=True):
            state = resource_table.state_cells(resource, self._required)
            if resource.id not in current:
                printed.pop(resource.id, None)
            elif printed.get(resource.id) == state:
                continue
            else:
                printed[resource.id] = state
            click.echo(resource_table.colored(session.truncate(line, columns), resource))


class _Identified(msgspec.Struct):
    id: str
