"""Keeps a local copy of objects up to date, and tells a handler what changed.

The copy starts with a list and follows a watch from the version of that list. When a stream ends, the next one
resumes from the last version that was seen. When the API server no longer knows that version, everything is listed
again and compared, so a deletion in the gap is noticed too, and objects that did not change are not reported.

    queue = WorkQueue(...)
    reflector = Reflector(api=api, kind=CONFIG_MAP, handler=lambda change: queue.add(change.key), ...)
    part = Part(name="watch", loops=(reflector.run, ...), checks={"watch-configmaps": reflector.problem})

No failure ends the loop: a kind that is not installed yet and a missing permission are waited for like a server
that is down. Nothing is requested without a delay more than twice in a row, unless something changes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import aclosing
from datetime import datetime, timedelta
from functools import partial
from typing import Generic, TypeVar, Unpack, assert_never

from sentinel.core.kube import objects
from sentinel.core.kube.objects import ObjectKey
from sentinel.core.times import timestamp
from sentinel.ports.clock import Clock
from sentinel.ports.kube import (
    Bookmark,
    Forbidden,
    KubeError,
    KubeKind,
    KubeObject,
    KubeReader,
    KubeUnavailable,
    ListOptions,
    ObjectChanged,
    ObjectDeleted,
    ResourceExpired,
    Unauthorized,
    WatchEvent,
)
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.kube.changes import (
    Change,
    EventReceived,
    Listed,
    ListReason,
    Observation,
    RequestFailed,
    WatchStarted,
)
from sentinel.runtime.kube.object_copy import ObjectCopy
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log
from sentinel.runtime.log_format import describe
from sentinel.runtime.workqueue import is_cancelled

T = TypeVar("T")

BACKOFF = Backoff(initial=timedelta(milliseconds=500), maximum=timedelta(seconds=30), jitter=0.2)
"""The delays between failing requests."""
_AT_ONCE = timedelta(0)
_MAX_RETRY_AFTER = timedelta(minutes=5)
"""The longest delay that a server may request. A wrong `Retry-After` must not stop an operator for a day."""
_SHORT_STREAM = timedelta(seconds=1)
"""A stream that is closed earlier and without a change counts as a failure."""
_SETTLED = timedelta(seconds=30)
"""A stream that was open for so long works, although it may have been silent. Longer than a connection attempt."""
_RELIST_AFTER_FAILURES = 10
"""The version to resume from may be the problem: after a restored backup, it is one that the server never had."""


def _whole(kube_object: KubeObject) -> KubeObject:
    return kube_object


class Reflector(Generic[T]):
    """A local copy of the objects of one kind."""

    def __init__(
        self,
        *,
        api: KubeReader,
        kind: KubeKind,
        chunk_size: int = 500,
        keep: Callable[[KubeObject], T] = _whole,  # type: ignore[assignment]  # without it, T is KubeObject
        handler: Callable[[Change[T]], None],
        resync: timedelta | None = None,
        clock: Clock,
        log: Log,
        observe: Callable[[Observation], None] = lambda observation: None,
        backoff: Backoff = BACKOFF,
        jitter: Callable[[], float] = random.random,
        **options: Unpack[ListOptions],
    ) -> None:
        """`keep` returns what is kept of an object, by default all of it. `handler` gets each change after the
        copy was updated. Both are synchronous and quick. `observe` must not raise. A list comes in chunks of
        `chunk_size` objects, of which one is in memory at a time.

        With `resync`, everything is also listed again that long after the last list. A single object that may be
        absent is watched with the field selector `metadata.name=…`.
        """
        self._list_objects = partial(api.list, kind, chunk_size=chunk_size, **options)
        self._watch_objects = partial(api.watch, kind, **options)
        namespace = options.get("namespace", "")
        self._resync = resync
        self._clock = clock
        self._name = f"{kind} in {namespace}" if namespace else str(kind)
        self._log = log.bind(kind=str(kind), **({"namespace": namespace} if namespace else {}))
        self._observe = observe
        self._backoff = backoff
        self._jitter = jitter
        self._copy = ObjectCopy(keep=keep, handler=handler, log=self._log)
        self._version: str | None = None
        """The version from which a watch continues. None if objects have to be listed."""
        self._list_reason = ListReason.FIRST
        self._resync_time: float | None = None
        """When to list again, by the event loop's clock."""
        self._listing = _Requests()
        self._watching = _Requests()
        self._stream_opened: datetime | None = None
        self._synced = asyncio.Event()
        self._relists = 0

    @property
    def has_synced(self) -> bool:
        """Whether all objects have been listed once. Until then the copy is incomplete."""
        return self._synced.is_set()

    async def wait_until_synced(self) -> None:
        await self._synced.wait()

    @property
    def relists(self) -> int:
        """How often objects were listed again after the first time."""
        return self._relists

    def get(self, key: ObjectKey) -> T | None:
        """Return what is kept of an object, or None if there is no such object."""
        return self._copy.get(key)

    def items(self) -> dict[ObjectKey, T]:
        """Return a copy of what is kept of all objects."""
        return self._copy.items()

    def problem(self) -> str | None:
        """Return why the copy may be outdated, and since when. A readiness check."""
        problem, opened = self._watching.problem, self._stream_opened
        if problem is not None and opened is not None and self._clock.now() - opened >= _SETTLED:
            problem = None
        return self._listing.problem or problem or (None if self.has_synced else f"{self._name}: not listed yet")

    async def run(self, stopping: Stopping) -> None:
        """Follow the objects until stopped."""
        await stopping.interrupts(self._follow())

    async def _follow(self) -> None:
        while True:
            if self._version is not None and self._is_resync_due():
                self._list_again(ListReason.RESYNC)
            delay = await (self._list() if self._version is None else self._watch(self._version))
            await self._clock.sleep(delay)

    async def _list(self) -> timedelta:
        """List all objects and compare. Returns the delay before the next request."""
        version = ""
        self._copy.begin_list()
        try:
            async with aclosing(self._list_objects()) as chunks:
                async for chunk in chunks:
                    version = chunk.resource_version
                    # Compare each chunk now, so that its objects need not be kept. If a later chunk fails, the
                    # copy is newer than the last watch, which must not resume then: objects are listed again.
                    for kube_object in chunk.items:
                        self._copy.update(kube_object)
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled(error):
                raise
            return self._failed("list", self._listing, error)
        self._copy.end_list()
        self._listed(version)
        return _AT_ONCE

    def _listed(self, version: str) -> None:
        self._version = version
        self._listing.succeeded()
        self._relists += self.has_synced
        self._synced.set()
        if self._resync is not None:
            self._resync_time = asyncio.get_running_loop().time() + self._resync.total_seconds()
        log = self._log.debug if self._list_reason is ListReason.RESYNC else self._log.info
        log("reflector.listed", reason=self._list_reason, objects=len(self._copy))
        self._observe(Listed(self._list_reason, len(self._copy)))

    async def _watch(self, version: str) -> timedelta:
        """Follow one stream to its end. Returns the delay before the next request."""
        stream = _Stream()
        error: BaseException | None = None
        self._stream_opened = self._clock.now()
        self._observe(WatchStarted(version))
        try:
            async with (
                asyncio.timeout_at(self._resync_time) as resync,
                aclosing(self._watch_objects(resource_version=version)) as events,
            ):
                async for event in events:
                    self._receive(event, stream)
                    del event  # release it before the next one is read
        except (Exception, asyncio.CancelledError) as raised:
            if is_cancelled(raised):
                raise
            error = raised
        finally:
            self._stream_opened = None
        if resync.expired():
            if stream.is_long():
                self._watching.succeeded()
            return _AT_ONCE
        return self._after_stream(stream, error)

    def _receive(self, event: WatchEvent, stream: _Stream) -> None:
        self._observe(EventReceived(event))
        stream.is_alive = True
        if self._watching.problem is not None:
            self._log.info("reflector.recovered", verb="watch")
            self._watching.recovered()
        match event:
            case Bookmark(resource_version=version):
                is_new = version != self._version
            case ObjectChanged(object=kube_object):
                is_new = self._copy.update(kube_object)
            case ObjectDeleted(object=kube_object):
                is_new = self._copy.remove(kube_object)
            case _:
                assert_never(event)
        if is_new:  # otherwise its version may be an old one
            stream.has_changes = True
            self._version = (
                event.resource_version if isinstance(event, Bookmark) else objects.resource_version(event.object)
            )

    def _after_stream(self, stream: _Stream, error: BaseException | None) -> timedelta:
        if stream.has_changes or (stream.is_long() and (error is None or stream.is_alive)):
            self._watching.succeeded()
            if error is None:
                return _AT_ONCE
        if isinstance(error, ResourceExpired):
            self._list_again(ListReason.EXPIRED)
            if not self._watching.has_expired:  # normal after an outage, or after some minutes without changes
                self._watching.has_expired = True
                return _AT_ONCE
        elif isinstance(error, KubeError) and not isinstance(error, Unauthorized | Forbidden):
            self._list_again(ListReason.WATCH_FAILED)
        elif error is None and self._watching.failures == 0:  # normal while a server shuts down
            self._watching.failures = 1
            return self._backoff.delay(0, self._jitter())
        delay = self._failed("watch", self._watching, error)
        if self._watching.failures % _RELIST_AFTER_FAILURES == 0 and self._version is not None:
            self._list_again(ListReason.WATCH_FAILED)
        return delay

    def _failed(self, verb: str, requests: _Requests, error: BaseException | None) -> timedelta:
        """Show and log a failure. Returns the delay before the next request."""
        delay = self._backoff.delay(requests.failures, self._jitter())
        if isinstance(error, KubeUnavailable):
            delay = max(delay, min(error.retry_after, _MAX_RETRY_AFTER))
        reason = "the server closes every stream at once" if error is None else describe(error)
        requests.failed(f"cannot {verb} {self._name}: {reason}", self._clock.now())
        fields: dict[str, object] = {"verb": verb, "failures": requests.failures, "retry_in": delay}
        if error is None or isinstance(error, KubeUnavailable | KubeError):
            self._log.warning("reflector.failed", error=reason, **fields)
        else:
            self._log.exception("reflector.crashed", error=error, **fields)
        self._observe(RequestFailed(verb, error, delay))
        return delay

    def _list_again(self, reason: ListReason) -> None:
        self._version = None
        self._list_reason = reason

    def _is_resync_due(self) -> bool:
        return self._resync_time is not None and asyncio.get_running_loop().time() >= self._resync_time


class _Requests:
    """Consecutive failures of lists or of watches."""

    def __init__(self) -> None:
        self.failures = 0
        self.has_expired = False
        """Whether the version had expired, since the last success."""
        self.problem: str | None = None
        self._since: datetime | None = None

    def failed(self, problem: str, now: datetime) -> None:
        self.failures += 1
        self._since = self._since or now.replace(microsecond=0)
        self.problem = f"{problem} (since {timestamp(self._since)})"

    def recovered(self) -> None:
        """Show no problem. If it returns at once, the delays go on growing."""
        self.problem = self._since = None

    def succeeded(self) -> None:
        self.recovered()
        self.failures = 0
        self.has_expired = False


class _Stream:
    """What one stream has delivered."""

    def __init__(self) -> None:
        self._opened = asyncio.get_running_loop().time()
        self.is_alive = False
        """Whether anything came."""
        self.has_changes = False
        """Whether anything came that was not known. A server that repeats the same event makes no progress."""

    def is_long(self) -> bool:
        return asyncio.get_running_loop().time() - self._opened >= _SHORT_STREAM.total_seconds()
