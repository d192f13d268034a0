"""An in-memory fleet: a verified fake of `ports.fleet.FleetReader`.

It passes the same contract suite as the HTTP driver. It yields real documents in the encoding of the HyperFleet
API, with flat status fields and matching conditions. Times are arguments; the fleet has no clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import count

import msgspec

from sentinel.core.fleet.documents import Metadata
from sentinel.core.json import Json, Malformed
from sentinel.core.labels import Selector
from sentinel.core.pulse.observation import malformed_item, read_resource
from sentinel.ports.fleet import FetchError, FleetPage
from sentinel.testing.clock import START

_READY, _NOT_READY = "Ready", "NotReady"


class FakeCondition(msgspec.Struct, frozen=True):
    """One condition of a status."""

    type: str
    status: str
    reason: str
    message: str
    observed_generation: int
    last_updated_time: datetime
    last_transition_time: datetime


class FakeStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """The reported status. Times and conditions are absent until an adapter has reported."""

    phase: str
    observed_generation: int
    last_updated_time: datetime | None = None
    last_transition_time: datetime | None = None
    conditions: tuple[FakeCondition, ...] = ()


class FakeOwner(msgspec.Struct, frozen=True):
    """The owner of a resource."""

    id: str
    kind: str


class FakeDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """A resource as the fleet serves it."""

    id: str
    kind: str
    name: str
    labels: Mapping[str, str]
    metadata: Metadata
    spec: Json
    generation: int
    created_time: datetime
    updated_time: datetime
    status: FakeStatus
    owner: FakeOwner | None = msgspec.field(default=None, name="ownerResource")
    paused: bool = False
    pulse_requested_time: datetime | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the last report said that the resource is ready."""
        return self.status.phase == _READY


class FakeFleet:
    """A `FleetReader` over resources of one kind, which tests may edit at any time, even during a walk."""

    def __init__(
        self,
        *,
        kind: str = "Cluster",
        selector: Selector | None = None,
        page_size: int = 100,
        has_stream: bool = False,
    ) -> None:
        """`has_stream`: its pages say that the server streams changes, as `FakeFleetStream` does."""
        if page_size < 1:
            raise ValueError(f"page_size: expected 1 or more, got {page_size}")
        self.kind = kind
        self._selector = selector or Selector()
        self._page_size = page_size
        self._has_stream = has_stream
        self._items: dict[str, FakeDocument | bytes] = {}
        self._encoded = count(1)
        self._failure = ""
        self._failing_walks = 0
        self._pages_before_failure = 0
        self._retry_after = timedelta(0)
        self._resume_at = 0.0

    async def walk(self) -> AsyncGenerator[FleetPage, None]:
        fails_at = None
        remaining = self._resume_at - asyncio.get_running_loop().time()
        if remaining > 0:
            raise FetchError(self._failure, retry_after=timedelta(seconds=remaining))
        if self._failing_walks:
            self._failing_walks -= 1
            fails_at = self._pages_before_failure
        # The order is fixed when the walk begins, so that an edit neither loses nor repeats a resource.
        keys = list(self._items)
        for number, first in enumerate(range(0, max(len(keys), 1), self._page_size)):
            await asyncio.sleep(0)  # a walk that never yields would hide races that a server shows
            if number == fails_at:
                raise self._fetch_error()
            yield self._page(keys[first : first + self._page_size])
        if fails_at is not None:
            raise self._fetch_error()

    async def close(self) -> None:
        """Do nothing; a closed fake can be walked again."""

    def put(
        self,
        resource_id: str,
        *,
        name: str = "",
        labels: Mapping[str, str] | None = None,
        spec: Json = None,
        owner: FakeOwner | None = None,
        generation: int = 1,
        observed_generation: int = 0,
        is_ready: bool = False,
        last_updated_time: datetime | None = None,
        at: datetime = START,
    ) -> None:
        """Add or replace a resource. By default no adapter has reported on it."""
        name = name or resource_id
        labels = labels or {}
        status = FakeStatus(_READY if is_ready else _NOT_READY, observed_generation)
        if last_updated_time is not None:
            status = _status(status, observed_generation, is_ready, last_updated_time, "Reported", "")
        self._items[resource_id] = FakeDocument(
            id=resource_id,
            kind=self.kind,
            name=name,
            labels=labels,
            metadata=Metadata(name, labels),
            spec={} if spec is None else spec,
            generation=generation,
            created_time=at,
            updated_time=at,
            status=status,
            owner=owner,
        )

    def put_encoded(self, document: bytes) -> None:
        """Add an item exactly as given, even one that is not a valid resource or not valid JSON."""
        self._items[f"item {next(self._encoded)}"] = document

    def change_spec(self, resource_id: str, spec: Json, *, at: datetime) -> None:
        """Change the spec, which creates a generation that no adapter has observed."""
        document = self._existing(resource_id)
        self._items[resource_id] = msgspec.structs.replace(
            document, spec=spec, generation=document.generation + 1, updated_time=at
        )

    def request_pulse(self, resource_id: str, *, at: datetime) -> None:
        """Request an event."""
        self._items[resource_id] = msgspec.structs.replace(self._existing(resource_id), pulse_requested_time=at)

    def pause(self, resource_id: str) -> None:
        """Stop events for a resource."""
        self._items[resource_id] = msgspec.structs.replace(self._existing(resource_id), paused=True)

    def resume(self, resource_id: str) -> None:
        """Allow events again."""
        self._items[resource_id] = msgspec.structs.replace(self._existing(resource_id), paused=False)

    def report(
        self,
        resource_id: str,
        *,
        generation: int,
        is_ready: bool,
        at: datetime,
        reason: str = "Reported",
        message: str = "",
    ) -> bool:
        """Store an adapter's report. Return False if the resource is unknown or the report is outdated."""
        document = self.get(resource_id)
        if document is None or generation < document.status.observed_generation:
            return False
        status = _status(document.status, generation, is_ready, at, reason, message)
        self._items[resource_id] = msgspec.structs.replace(document, status=status)
        return True

    def remove(self, resource_id: str) -> None:
        """Remove a resource."""
        self._existing(resource_id)
        del self._items[resource_id]

    def fail(
        self,
        error: str = "the fleet does not respond",
        *,
        walks: int = 1,
        after_pages: int = 0,
        retry_after: timedelta = timedelta(0),
    ) -> None:
        """Make the next `walks` walks raise `FetchError` after `after_pages` pages. 0 walks ends the failure.

        With `retry_after`, the server asks to wait: all walks fail until that time has passed.
        """
        self._failure = error
        self._retry_after = retry_after
        self._failing_walks = walks
        self._pages_before_failure = after_pages

    def get(self, resource_id: str) -> FakeDocument | None:
        """The current resource, or None."""
        item = self._items.get(resource_id)
        return item if isinstance(item, FakeDocument) else None

    def documents(self) -> list[FakeDocument]:
        """All current resources in walk order, ignoring the selector."""
        return [item for item in self._items.values() if isinstance(item, FakeDocument)]

    def _fetch_error(self) -> FetchError:
        self._resume_at = asyncio.get_running_loop().time() + self._retry_after.total_seconds()
        return FetchError(self._failure, retry_after=self._retry_after)

    def _existing(self, resource_id: str) -> FakeDocument:
        document = self.get(resource_id)
        if document is None:
            raise KeyError(resource_id)
        return document

    def _page(self, keys: Sequence[str]) -> FleetPage:
        resources = []
        malformed = []
        documents = []
        for key in keys:
            item = self._items.get(key)
            if item is None:
                continue
            document = item if isinstance(item, bytes) else _encode(item)
            documents.append(document)
            try:
                resource = read_resource(msgspec.Raw(document))
            except Malformed as problem:
                malformed.append(malformed_item(document, problem, key))
                continue
            if self._selector.matches(resource.observation.labels):
                resources.append(resource)
        version = None if malformed else hash(tuple(documents))
        return FleetPage(resources, malformed, version, has_stream=self._has_stream)

    def encoded(self, resource_id: str) -> bytes:
        """The current document of a resource."""
        return _encode(self._existing(resource_id))


_encode = msgspec.json.Encoder().encode


def _status(
    before: FakeStatus, generation: int, is_ready: bool, at: datetime, reason: str, message: str
) -> FakeStatus:
    """The status after a report. The transition time changes only with the phase."""
    phase = _READY if is_ready else _NOT_READY
    transition = before.last_transition_time
    if transition is None or phase != before.phase:
        transition = at
    conditions = tuple(
        FakeCondition(name, str(is_ready), reason, message, generation, at, transition)
        for name in ("Available", "Ready")
    )
    return FakeStatus(phase, generation, at, transition, conditions)
