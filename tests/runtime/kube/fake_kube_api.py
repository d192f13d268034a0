"""An API server in memory, for virtual time, whose faults the test controls."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping

import msgspec

from sentinel.core.json import Json
from sentinel.core.kube import objects
from sentinel.core.kube.objects import ObjectKey
from sentinel.ports.kube import (
    AlreadyExists,
    Bookmark,
    Conflict,
    KubeKind,
    KubeObject,
    KubeUnavailable,
    ListChunk,
    ObjectChanged,
    ObjectDeleted,
    ObjectNotFound,
    ResourceExpired,
    WatchEvent,
)


class Call(msgspec.Struct, frozen=True):
    """A call that the server received."""

    verb: str
    time: float
    """In seconds of the event loop."""
    resource_version: str = ""
    selection: Mapping[str, str] = {}
    """Namespace and selectors."""
    body: KubeObject = {}


class FakeKubeApi:
    """Objects of one kind. Each verb works, fails, hangs, or loses its response, as the test says."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.objects: dict[ObjectKey, KubeObject] = {}
        self.chunk_size = 2
        self.open_streams = 0
        self.are_streams_short = False
        """Whether the server closes each stream after the events that it has."""
        self.repeats_events = False
        """Whether each stream begins with the first event."""
        self.hanging: set[str] = set()
        """Verbs whose calls never end."""
        self.losing: set[str] = set()
        """Verbs whose calls take effect, but whose responses are lost."""
        self.failing: dict[str, Exception] = {}
        """Verbs that always fail."""
        self.delays: dict[str, float] = {}
        """How long calls take, in seconds."""
        self.before_call: Callable[[], Awaitable[None]] | None = None
        """Awaited at the beginning of each call."""
        self._failures: dict[str, list[Exception]] = {}
        self._history: list[tuple[int, WatchEvent]] = []
        self._version = 0
        self._uids = 0
        self._oldest = 0
        self._endings = 0
        self._stream_error: Exception | None = None
        self._changed = asyncio.Condition()

    # What the test does

    def fail(self, verb: str, *errors: Exception) -> None:
        """Let the next calls of a verb fail, one with each error."""
        self._failures.setdefault(verb, []).extend(errors)

    def count(self, verb: str) -> int:
        return Counter(call.verb for call in self.calls)[verb]

    def times(self, verb: str) -> list[float]:
        return [call.time for call in self.calls if call.verb == verb]

    async def put(self, name: str, *, namespace: str = "prod", **fields: Json) -> KubeObject:
        """Create or change an object as another client would."""
        before = self.objects.get(ObjectKey(namespace, name))
        if before is None:
            self._uids += 1
        uid = f"u{self._uids}" if before is None else objects.uid(before)
        metadata: dict[str, Json] = {"name": name, "namespace": namespace, "uid": uid}
        return await self._store({"apiVersion": "ex.io/v1", "kind": "Widget", "metadata": metadata, **fields})

    async def put_all(self, names: Iterable[str], *, size: int) -> None:
        for name in names:
            await self.put(name, size=size)

    async def remove(self, name: str, *, namespace: str = "prod") -> None:
        """Delete an object as another client would."""
        removed = self.objects.pop(ObjectKey(namespace, name))
        self._version += 1
        metadata = {**objects.read_metadata(removed), "resourceVersion": str(self._version)}
        await self._record(ObjectDeleted({**removed, "metadata": metadata}))

    async def bookmark(self) -> None:
        """Send a bookmark with a new version, as if objects that the selector excludes had changed."""
        self._version += 1
        await self._record(Bookmark(str(self._version)))

    async def send(self, event: WatchEvent) -> None:
        """Send any event."""
        self._version += 1
        await self._record(event)

    def forget_history(self) -> None:
        """Let watches from all versions so far expire."""
        self._oldest = self._version = self._version + 1

    async def end_streams(self, error: Exception | None = None) -> None:
        """Close all open streams, or let them fail."""
        self._stream_error = error
        await self._end_streams()

    # What the code under test calls

    async def get(self, kind: KubeKind, name: str, *, namespace: str = "") -> KubeObject:
        await self._begin("get")
        found = self.objects.get(ObjectKey(namespace, name))
        self._end("get")
        if found is None:
            raise ObjectNotFound(f'{kind} "{name}" not found', status=404)
        return found

    async def list(
        self, kind: KubeKind, *, chunk_size: int = 500, **selection: str
    ) -> AsyncGenerator[ListChunk, None]:
        await self._begin("list", selection=selection)
        version = str(self._version)
        items = [each for key, each in self.objects.items() if _is_selected(key, **selection)]
        for start in range(0, max(len(items), 1), self.chunk_size):
            if start:
                await self._begin("list chunk")
            yield ListChunk(items[start : start + self.chunk_size], version)

    async def watch(
        self, kind: KubeKind, *, resource_version: str, **selection: str
    ) -> AsyncGenerator[WatchEvent, None]:
        await self._begin("watch", resource_version=resource_version, selection=selection)
        if int(resource_version) < self._oldest:
            raise ResourceExpired(f"too old resource version: {resource_version}", status=410)
        position = next(
            (at for at, (version, _) in enumerate(self._history) if version > int(resource_version)),
            len(self._history),
        )
        if self.repeats_events:
            position = 0
        ending = self._endings
        self.open_streams += 1
        try:
            while True:
                while position < len(self._history):
                    event = self._history[position][1]
                    position += 1
                    if isinstance(event, Bookmark) or _is_selected(objects.key(event.object), **selection):
                        yield event
                if self.are_streams_short:
                    return
                async with self._changed:
                    if self._endings == ending and position == len(self._history):
                        await self._changed.wait()
                if self._endings != ending:
                    if self._stream_error is not None:
                        raise self._stream_error
                    return
        finally:
            self.open_streams -= 1

    async def create(
        self, kind: KubeKind, body: KubeObject, *, namespace: str = "", is_dry_run: bool = False
    ) -> KubeObject:
        await self._begin("create", body=body)
        key = ObjectKey(namespace, objects.name(body))
        if key in self.objects:
            raise AlreadyExists(f'{kind} "{key.name}" already exists', status=409)
        self._uids += 1
        metadata = {**objects.read_metadata(body), "namespace": namespace, "uid": f"u{self._uids}"}
        stored = await self._store({**body, "metadata": metadata})
        self._end("create")
        return stored

    async def replace(
        self, kind: KubeKind, body: KubeObject, *, namespace: str = "", subresource: str = ""
    ) -> KubeObject:
        await self._begin("replace", body=body)
        current = self.objects.get(ObjectKey(namespace, objects.name(body)))
        if current is None:
            raise ObjectNotFound(f'{kind} "{objects.name(body)}" not found', status=404)
        if objects.resource_version(current) != objects.resource_version(body):
            raise Conflict("the object has been modified", status=409)
        stored = await self._store(body)
        self._end("replace")
        return stored

    async def close(self) -> None:
        await self.end_streams()

    async def _begin(
        self,
        verb: str,
        *,
        resource_version: str = "",
        selection: Mapping[str, str] | None = None,
        body: KubeObject | None = None,
    ) -> None:
        time = asyncio.get_running_loop().time()
        self.calls.append(Call(verb, time, resource_version, selection or {}, body or {}))
        if self.before_call is not None:
            await self.before_call()
        await asyncio.sleep(self.delays.get(verb, 0))
        if verb in self.hanging:
            await asyncio.Event().wait()
        if self._failures.get(verb):
            raise self._failures[verb].pop(0)
        if verb in self.failing:
            raise self.failing[verb]

    def _end(self, verb: str) -> None:
        if verb in self.losing:
            raise KubeUnavailable("connection reset by peer")

    async def _store(self, body: KubeObject) -> KubeObject:
        self._version += 1
        stored: KubeObject = {
            **body,
            "metadata": {**objects.read_metadata(body), "resourceVersion": str(self._version)},
        }
        self.objects[objects.key(stored)] = stored
        await self._record(ObjectChanged(stored))
        return stored

    async def _record(self, event: WatchEvent) -> None:
        self._history.append((self._version, event))
        async with self._changed:
            self._changed.notify_all()

    async def _end_streams(self) -> None:
        self._endings += 1
        async with self._changed:
            self._changed.notify_all()


def _is_selected(
    key: ObjectKey, *, namespace: str = "", label_selector: str = "", field_selector: str = ""
) -> bool:
    """Labels are not kept, so that they select everything."""
    return namespace in ("", key.namespace) and field_selector in ("", f"metadata.name={key.name}")
