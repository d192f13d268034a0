"""A fake HyperFleet API on loopback.

It keeps documents in order of insertion and serves them in any `PageShape`. Before each response it calls a script
that may return a fault instead, or change the fleet, for example to insert a resource between two pages. With
cursors it also supports `fields`. `python -m tests.support.fleet.fake_api --count 100000` runs a fast server for
benchmarks, which renders its pages from one template.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import ssl
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum, auto
from typing import Any, TypeAlias, assert_never

import msgspec
from aiohttp import web

from sentinel.core.projection import compile_fields
from sentinel.core.pulse.listing import PageShape
from tests.support.http.loopback import LoopbackServer, listen

Document: TypeAlias = dict[str, Any]

_SEARCH = re.compile(r"labels\.([^=]+)='((?:[^']|'')*)'")


class ResponseFault(StrEnum):
    """Faults of a response.

    - GARBAGE: 200 with text that is not JSON.
    - TRUNCATED: correct headers, half of the body, then a closed connection.
    - HALF: a well-formed page that lacks half of its items.
    - EMPTY: 200 without a body.
    - DROP: a closed connection without a response.
    - HANG: no response until the client disconnects or the server stops.
    """

    GARBAGE = auto()
    TRUNCATED = auto()
    HALF = auto()
    EMPTY = auto()
    DROP = auto()
    HANG = auto()


class FakeResponse(msgspec.Struct, frozen=True):
    """A response that a script returns."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    content_type: str = "application/json"


class FleetRequest(msgspec.Struct, frozen=True):
    """A request as it was received."""

    number: int
    """Counted from 1."""
    target: str
    """Path and query as sent."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    peer: object
    """The client's address."""

    @property
    def page(self) -> int:
        return int(self.query.get("page", "0"))


Script: TypeAlias = Callable[[FleetRequest], ResponseFault | FakeResponse | None]


def every(nth: int, *faults: ResponseFault | FakeResponse) -> Script:
    """Fail every nth request, with each fault in turn."""
    return lambda request: None if request.number % nth else faults[request.number // nth % len(faults)]


def only(number: int, fault: ResponseFault | FakeResponse) -> Script:
    """Fail one request."""
    return lambda request: fault if request.number == number else None


def condition(kind: str, status: str, *, observed_generation: int = 1, last_updated: str = "") -> Document:
    """Return an entry of `status.conditions` in the format of the public API."""
    time = last_updated or "2026-03-01T12:00:00Z"
    return {
        "type": kind,
        "status": status,
        "observed_generation": observed_generation,
        "created_time": time,
        "last_updated_time": time,
        "last_transition_time": time,
        "reason": "AllAdaptersReconciled",
        "message": "All required adapters report Available=True for the tracked generation",
    }


def make_resource(
    resource_id: str,
    *,
    kind: str = "Cluster",
    generation: int = 1,
    observed_generation: int | None = 1,
    phase: str | None = "Ready",
    last_updated: datetime | None = None,
    labels: Mapping[str, str] | None = None,
    conditions: Sequence[Document] | None = None,
) -> Document:
    """Return a resource. Fields that are None are omitted."""
    status: Document = {
        "phase": phase,
        "observed_generation": observed_generation,
        "last_updated_time": None if last_updated is None else last_updated.isoformat(),
        "conditions": None if conditions is None else list(conditions),
    }
    return {
        "id": resource_id,
        "kind": kind,
        "href": f"/api/hyperfleet/v1/{kind.lower()}s/{resource_id}",
        "name": resource_id,
        "generation": generation,
        "labels": dict(labels or {}),
        "metadata": {"name": resource_id, "labels": dict(labels or {})},
        "spec": {"nodes": 3},
        "status": {name: value for name, value in status.items() if value is not None},
    }


def big_resource(number: int, *, last_updated: datetime | None = None) -> Document:
    """Return a resource of about 1.8 kB, a realistic size."""
    time = (last_updated or datetime(2026, 3, 1, 12, tzinfo=UTC)).isoformat()
    document = make_resource(
        f"0195a1b2-7c3e-7d2a-9f1b-{number:012x}",
        generation=3,
        observed_generation=3,
        last_updated=last_updated or datetime(2026, 3, 1, 12, tzinfo=UTC),
        labels={"region": "us-east", "environment": "production", "tier": "gold"},
        conditions=[
            condition(kind, "True", observed_generation=3, last_updated=time) for kind in ("Ready", "Available")
        ],
    )
    document |= {"created_time": time, "updated_time": time}
    document |= {"created_by": "someone@example.com", "updated_by": "someone@example.com"}
    document["spec"] = {
        "provider": "gcp",
        "release": {"image": "example.com/release:4.17.3", "channel": "stable-4.17"},
        "network": {"machine": "10.0.0.0/16", "pods": "10.128.0.0/14", "services": "172.30.0.0/16"},
        "pools": [{"name": f"pool-{n}", "machine": "n2-standard-8", "nodes": n} for n in range(4)],
        "owner": {"team": "fleet", "contact": "fleet@example.com", "cost_center": "4711"},
    }
    return document


class ResourceShape(StrEnum):
    """Where a server writes labels and status.

    - PLAIN: as our own API does: labels at the top, flat status fields, conditions besides.
    - METADATA: as the specification of the pulse does: labels in `metadata`, flat status fields, no conditions.
    - CONDITIONS: as the public API does: labels at the top, a status of conditions only, two of them for adapters.
    """

    PLAIN = auto()
    METADATA = auto()
    CONDITIONS = auto()


def shaped_resource(shape: ResourceShape, number: int, *, last_updated: datetime) -> Document:
    """Return a resource of about 1.8 kB in this shape."""
    document = big_resource(number, last_updated=last_updated)
    status, time = document["status"], last_updated.isoformat()
    match shape:
        case ResourceShape.PLAIN:
            pass
        case ResourceShape.METADATA:
            del document["labels"], status["conditions"]
            status["last_transition_time"] = time
            document["ownerResource"] = {"id": "org-1", "kind": "Organization"}
            document["spec"]["pools"] += [
                {"name": f"pool-{n}", "machine": "n2-standard-8", "nodes": n} for n in range(4, 16)
            ]
        case ResourceShape.CONDITIONS:
            del document["metadata"], document["spec"]["network"], document["spec"]["pools"][1:]
            kinds = ("Reconciled", "LastKnownReconciled", "ValidationSuccessful", "DnsSuccessful")
            document["status"] = {
                "conditions": [condition(kind, "True", observed_generation=3, last_updated=time) for kind in kinds]
            }
        case _:
            assert_never(shape)
    return document


class FleetServer(LoopbackServer):
    """Serves documents on numbered pages or with cursors."""

    def __init__(
        self,
        *,
        shape: PageShape = PageShape.NUMBERED,
        newest_first: bool = False,
        honours_selector: bool = True,
        cap: int = 1000,
        script: Script | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(tls=tls)
        self.shape = shape
        self.script = script
        self.received: list[FleetRequest] = []
        self.hung_up = asyncio.Event()
        """Set when a client has disconnected from a hanging request."""
        self._newest_first = newest_first
        self._honours_selector = honours_selector
        self._cap = cap
        self._rows: dict[int, Document] = {}
        self._last_row = 0
        self._arrived = asyncio.Condition()
        self._stopping = asyncio.Event()

    def make_runner(self) -> web.AppRunner:
        application = web.Application()
        application.router.add_get("/{path:.*}", self._handle)
        application.on_shutdown.append(self._stop)
        return web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=1)

    async def _stop(self, application: web.Application) -> None:
        self._stopping.set()

    @property
    def resources(self) -> list[Document]:
        """Every document, in list order."""
        rows = sorted(self._rows, reverse=self._newest_first)
        return [self._rows[row] for row in rows]

    def put(self, *documents: Document) -> None:
        """Add documents, or replace those with the same id in place."""
        for document in documents:
            row = self._row(document.get("id"))
            if row is None:
                row = self._last_row = self._last_row + 1
            self._rows[row] = document

    def put_many(self, count: int, *, prefix: str = "cls") -> list[str]:
        """Add `count` resources. Return their ids in order."""
        ids = [f"{prefix}-{number}" for number in range(count)]
        self.put(*map(make_resource, ids))
        return ids

    def get(self, resource_id: str) -> Document:
        row = self._row(resource_id)
        assert row is not None, resource_id
        return self._rows[row]

    def remove(self, resource_id: str) -> None:
        row = self._row(resource_id)
        assert row is not None, resource_id
        del self._rows[row]

    def change_spec(self, resource_id: str) -> None:
        """Raise the generation, as a user's change does."""
        self.get(resource_id)["generation"] += 1

    def report(self, resource_id: str, at: datetime, *, phase: str = "Ready") -> None:
        """Set the status that adapters report for the current generation at this time."""
        document = self.get(resource_id)
        document["status"] |= {
            "phase": phase,
            "observed_generation": document["generation"],
            "last_updated_time": at.isoformat(),
        }

    async def requests(self, count: int, *, timeout: float = 60) -> list[FleetRequest]:
        """Wait until `count` requests have arrived."""
        async with asyncio.timeout(timeout), self._arrived:
            await self._arrived.wait_for(lambda: len(self.received) >= count)
        return self.received

    def _row(self, resource_id: object) -> int | None:
        rows = (row for row, document in self._rows.items() if document.get("id") == resource_id is not None)
        return next(rows, None)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        received = FleetRequest(
            len(self.received) + 1,
            request.raw_path,
            dict(request.query),
            dict(request.headers),
            request.transport.get_extra_info("peername"),
        )
        async with self._arrived:
            self.received.append(received)
            self._arrived.notify_all()
        fault = self.script(received) if self.script is not None else None
        match fault:
            case None:
                return web.json_response(body=msgspec.json.encode(self._page(received)))
            case FakeResponse():
                return web.Response(
                    status=fault.status,
                    body=fault.body,
                    headers=dict(fault.headers),
                    content_type=fault.content_type,
                )
            case ResponseFault.GARBAGE:
                return web.json_response(body=b'{"page": 1, "items": [{"id": "cls-')
            case ResponseFault.EMPTY:
                return web.json_response(body=b"")
            case ResponseFault.HALF:
                return web.json_response(body=msgspec.json.encode(self._page(received, keep=0.5)))
            case ResponseFault.TRUNCATED:
                return await self._cut_off(request, msgspec.json.encode(self._page(received)))
            case ResponseFault.DROP:
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            case ResponseFault.HANG:
                return await self._hang()
            case _:
                assert_never(fault)

    async def _cut_off(self, request: web.Request, body: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(body))})
        await response.prepare(request)
        await response.write(body[: len(body) // 2])
        assert request.transport is not None
        request.transport.close()
        return response

    async def _hang(self) -> web.StreamResponse:
        try:
            await self._stopping.wait()
        except asyncio.CancelledError:
            self.hung_up.set()
            raise
        return web.Response(status=503)

    def _page(self, received: FleetRequest, *, keep: float = 1) -> object:
        size = min(int(received.query.get("size", "100")), self._cap)
        selected = {row: self._rows[row] for row in sorted(self._rows, reverse=self._newest_first)}
        if self._honours_selector:
            selector = _selection(received.query)
            selected = {
                row: document
                for row, document in selected.items()
                if selector.items() <= document.get("labels", {}).items()
            }
        total = len(selected)
        if self.shape is PageShape.WHOLE:
            return list(selected.values())
        rows = list(selected)
        if "after" in received.query:
            total, last = map(int, received.query["after"].split(":"))
            rows = [row for row in rows if row > last]
        else:
            rows = rows[(received.page - 1) * size :]
        following = f"{total}:{rows[size - 1]}" if len(rows) > size else None
        rows = rows[:size]
        items = [selected[row] for row in rows[: int(len(rows) * keep)]]
        page: Document = {"page": received.page, "size": len(items), "total": total, "items": items}
        if self.shape is not PageShape.CURSOR:
            return page
        if "fields" in received.query:
            projection = compile_fields(received.query["fields"])
            page["items"] = [msgspec.Raw(projection.apply(msgspec.json.encode(item))) for item in items]
        return page | {"next": following}


def _selection(query: Mapping[str, str]) -> dict[str, str]:
    if "search" in query:
        return {label: value.replace("''", "'") for label, value in _SEARCH.findall(query["search"])}
    pairs = (pair.partition("=") for pair in query.get("labels", "").split(",") if pair)
    return {label: value for label, _, value in pairs}


_EVENTS_PER_CHUNK = 100


class BulkPages:
    """Pages of big resources that differ only in their ids, and in the times of their reports if there are any."""

    def __init__(
        self,
        *,
        count: int,
        last_updated: datetime,
        has_cursor: bool,
        shape: ResourceShape,
        walks_between_reports: int = 0,
    ) -> None:
        """Each resource is reported on once in so many walks, a second later each time; with 0, never."""
        self._count = count
        self._last_updated = last_updated
        self._has_cursor = has_cursor
        self._shape = shape
        self._walks_between_reports = walks_between_reports
        self._walks = 0
        self._templates: dict[tuple[int, str], bytes] = {}

    def page(self, query: Mapping[str, str]) -> bytes:
        size = int(query["size"])
        first = int(query["after"]) if "after" in query else (int(query["page"]) - 1) * size
        end, fields = min(first + size, self._count), query.get("fields", "")
        if not first:
            self._walks += 1
        items = b",".join(
            [
                self._template(self._reports(number), fields).replace(b"%012x" % 0, b"%012x" % number)
                for number in range(first, end)
            ]
        )
        following = b""
        if self._has_cursor:
            following = b',"next":"%d"' % end if end < self._count else b',"next":null'
        return b'{"page":%d,"size":%d,"total":%d,"items":[%b]%b}' % (
            first // size + 1,
            end - first,
            self._count,
            items,
            following,
        )

    def events(self, query: Mapping[str, str]) -> Iterator[bytes]:
        """Yield the beginning of a stream: every resource, in chunks, and `resource.synced`."""
        template = b"event: resource.changed\nid: 1~\ndata: %b\n\n" % self._template(0, query.get("fields", ""))
        for first in range(0, self._count, _EVENTS_PER_CHUNK):
            numbers = range(first, min(first + _EVENTS_PER_CHUNK, self._count))
            yield b"".join([template.replace(b"%012x" % 0, b"%012x" % number) for number in numbers])
        yield b"event: resource.synced\nid: 1\ndata: {}\n\n"

    def _reports(self, number: int) -> int:
        """The number of reports on a resource. Those of one walk are spread evenly over the fleet."""
        between = self._walks_between_reports
        return (self._walks + number) // between if between else 0

    def _template(self, reports: int, fields: str) -> bytes:
        found = self._templates.get((reports, fields))
        if found is None:
            last_updated = self._last_updated + timedelta(seconds=reports)
            found = msgspec.json.encode(shaped_resource(self._shape, 0, last_updated=last_updated))
            if fields:
                found = compile_fields(fields).apply(found)
            self._templates[reports, fields] = found
        return found


async def serve_in_bulk(pages: BulkPages) -> None:
    """Serve until standard input ends. The first line of output is the address."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response(body=pages.page(request.query))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for chunk in pages.events(request.query):
            await response.write(chunk)
        while True:
            await response.write(b":\n\n")
            await asyncio.sleep(10)

    runner = web.ServerRunner(web.Server(handle, access_log=None, handler_cancellation=True), shutdown_timeout=0.1)
    sys.stdout.write(f"{await listen(runner)}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--last-updated", type=datetime.fromisoformat, default=datetime.now(UTC))
    parser.add_argument("--cursor", action="store_true", help="support cursors and fields")
    parser.add_argument("--shape", type=ResourceShape, default=ResourceShape.PLAIN)
    parser.add_argument("--walks-between-reports", type=int, default=0)
    arguments = parser.parse_args()
    asyncio.run(
        serve_in_bulk(
            BulkPages(
                count=arguments.count,
                last_updated=arguments.last_updated,
                has_cursor=arguments.cursor,
                shape=arguments.shape,
                walks_between_reports=arguments.walks_between_reports,
            )
        )
    )
