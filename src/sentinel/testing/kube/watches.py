"""Watches: changes as a stream of events.

An event is ADDED or DELETED also when a change makes an object enter or leave the selection. Tests may send
bookmarks, expire and close all open watches at any moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta

import msgspec

from sentinel.ports.kube import Cause, KubeObject
from sentinel.testing.kube.errors import ApiError
from sentinel.testing.kube.kinds import ServedKind
from sentinel.testing.kube.objects import metadata_of
from sentinel.testing.kube.registry import in_version
from sentinel.testing.kube.requests import ApiRequest
from sentinel.testing.kube.selection import Selection
from sentinel.testing.kube.store import WATCH_EXPIRED, Change, ObjectStore

_LAST_BOOKMARK = timedelta(seconds=2)
"""How long before its end a watch gets a last bookmark."""

_encode = msgspec.json.encode


class _OpenWatch:
    """A running watch, as `Watches` controls it."""

    def __init__(self, wake: asyncio.Event) -> None:
        self.wake = wake
        self.is_closed = False
        self.is_expired = False
        self.is_bookmark_due = False


class _Parameters(msgspec.Struct, frozen=True):
    """What a client asked for."""

    served: ServedKind
    selection: Selection
    version: int
    duration: timedelta
    has_initial_events: bool
    marks_end_of_initial_events: bool
    has_bookmarks: bool


class Watches:
    """The open watches."""

    def __init__(self, store: ObjectStore, *, bookmark_interval: timedelta, timeout: timedelta) -> None:
        self._store = store
        self._bookmark_interval = bookmark_interval
        self._timeout = timeout
        self._open: set[_OpenWatch] = set()

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    def close(self) -> None:
        """End the responses of all open watches in order."""
        for watch in self._open:
            watch.is_closed = True
            watch.wake.set()

    def expire(self) -> None:
        """End all open watches with a 410 in the stream."""
        for watch in self._open:
            watch.is_expired = True
            watch.wake.set()

    def send_bookmarks(self) -> None:
        """Send a bookmark to all open watches that asked for them."""
        for watch in self._open:
            watch.is_bookmark_due = True
            watch.wake.set()

    def events(self, served: ServedKind, selection: Selection, request: ApiRequest) -> AsyncIterator[bytes]:
        """Return the lines of a watch. Raises `ApiError` for invalid parameters; a 410 is a line."""
        version = request.number("resourceVersion")
        return self._events(
            _Parameters(
                served=served,
                selection=selection,
                version=version,
                duration=timedelta(seconds=request.number("timeoutSeconds")) or self._timeout,
                has_initial_events=_has_initial_events(request, version),
                marks_end_of_initial_events=request.flag("sendInitialEvents"),
                has_bookmarks=request.flag("allowWatchBookmarks"),
            )
        )

    async def _events(self, parameters: _Parameters) -> AsyncIterator[bytes]:
        with self._store.subscribed() as changed:
            watch = _OpenWatch(changed)
            self._open.add(watch)
            try:
                async for line in self._lines(watch, parameters):
                    yield line
            except ApiError as error:
                yield _line("ERROR", error.status)
            finally:
                self._open.discard(watch)

    async def _lines(self, watch: _OpenWatch, parameters: _Parameters) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        served, selection, position = parameters.served, parameters.selection, parameters.version
        end = loop.time() + parameters.duration.total_seconds()
        next_bookmark = self._next_bookmark(loop.time(), end)

        if parameters.has_initial_events:
            position = self._store.version
            for each in self._store.objects(served.resource):
                if selection.matches(each):
                    yield _line("ADDED", in_version(served, each))
            if parameters.marks_end_of_initial_events and parameters.has_bookmarks:
                yield _bookmark(served, position, is_end_of_initial_events=True)
        else:
            self._store.check_watch(served.resource, position)

        while True:
            watch.wake.clear()
            for change in self._store.changes_after(served.resource, position):
                position = change.version
                line = _event_line(served, selection, change)
                if line:
                    yield line
            if position < self._store.version and not self._store.changes_after(served.resource, position):
                position = self._store.version
            if watch.is_expired:
                raise ApiError.expired(WATCH_EXPIRED)
            if watch.is_closed or loop.time() >= end:
                return
            if watch.is_bookmark_due or loop.time() >= next_bookmark:
                # A regular bookmark says that something changed since the beginning, here or elsewhere.
                is_wanted = watch.is_bookmark_due or position > parameters.version
                watch.is_bookmark_due = False
                next_bookmark = self._next_bookmark(loop.time(), end)
                if parameters.has_bookmarks and is_wanted:
                    yield _bookmark(served, position)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout_at(min(end, next_bookmark)):
                    await watch.wake.wait()

    def _next_bookmark(self, now: float, end: float) -> float:
        regular = now + self._bookmark_interval.total_seconds()
        last = end - _LAST_BOOKMARK.total_seconds()
        return min(regular, last) if last > now else regular


def _has_initial_events(request: ApiRequest, version: int) -> bool:
    given = request.query.get("sendInitialEvents")
    match = request.query.get("resourceVersionMatch", "")
    if given is None:
        if match:
            raise _forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
        return version == 0
    if match != "NotOlderThan":
        raise _forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    return request.flag("sendInitialEvents")


def _forbidden(message: str) -> ApiError:
    cause = Cause("resourceVersionMatch", f"Forbidden: {message}", "FieldValueForbidden")
    return ApiError.invalid("meta.k8s.io", "ListOptions", "", [cause])


def _event_line(served: ServedKind, selection: Selection, change: Change) -> bytes:
    """Return the event of a change; empty if it does not concern the selection."""
    was = change.before is not None and selection.matches(change.before)
    if change.after is not None and selection.matches(change.after):
        return _line("MODIFIED" if was else "ADDED", in_version(served, change.after))
    if change.before is None or not was:
        return b""
    metadata = {**metadata_of(change.before), "resourceVersion": str(change.version)}
    return _line("DELETED", in_version(served, {**change.before, "metadata": metadata}))


def _bookmark(served: ServedKind, version: int, *, is_end_of_initial_events: bool = False) -> bytes:
    metadata: KubeObject = {"resourceVersion": str(version)}
    if is_end_of_initial_events:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    body: KubeObject = {"kind": served.kind.kind, "apiVersion": served.kind.api_version, "metadata": metadata}
    return _line("BOOKMARK", body)


def _line(kind: str, body: KubeObject) -> bytes:
    return _encode({"type": kind, "object": body}) + b"\n"
