"""What this process knows of the instances that talk to it.

Every call of an agent needs its instance, and a heartbeat must not cost a query. So an instance is read once, when
its agent first calls, and read again when the log says that it has changed, here or at another hub. What
heartbeats report is only in memory until `flush` writes it, every few seconds for all instances together.

Reads of one instance may overlap. The result of a read that began before another one that has ended is dropped, so
a caller that has changed an instance and then calls `refresh` never sees it go back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Protocol, TypeAlias

import msgspec

from sentinel.core.hub.instance import Instance
from sentinel.core.hub.metrics_samples import Sample
from sentinel.core.hub.sync import Assignment
from sentinel.ports.hub_store import Heartbeats, HubEvent, HubEventType, HubStore, InstanceRecord

_MAX_SAMPLES: Final = 3_000
"""Of one instance between two flushes: as many as an agent collects in a day. The newest are kept."""
_FLUSH_SIZE: Final = 500
"""How many instances one transaction writes, so that others need not wait for long."""
_READ_SIZE: Final = 500

_NEVER: Final = datetime.min.replace(tzinfo=UTC)


class KnownInstance:
    """An instance, with what its agent has reported to this process."""

    __slots__ = ("calls", "heard_time", "is_dirty", "read_number", "record", "samples", "session_expires", "told")

    def __init__(self, record: InstanceRecord, *, read_number: int) -> None:
        self.record = record
        """The instance as it is stored, with what heartbeats have reported since."""
        self.read_number = read_number
        self.heard_time = _NEVER
        """When this process last heard of it."""
        self.samples: list[Sample] = []
        """What is to be flushed."""
        self.is_dirty = False
        """Whether something is to be flushed."""
        self.told: Assignment | None = None if record.sync.has_update else record.sync.assignment
        """The assignment that a response has last told the agent about. Its heartbeats repeat it, so this only
        saves time. It is unknown for an instance that another hub has served."""
        self.session_expires = _NEVER
        """The latest expiry of the session's tokens that this process has seen."""
        self.calls = 0
        """How many calls of its agent are in progress."""

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def life(self) -> Instance:
        return self.record.life

    @property
    def session(self) -> SessionKey:
        return session_key(self.record.life)

    def replace(self, stored: InstanceRecord) -> None:
        """Take over what was read from the store, and keep what heartbeats have reported since it was written."""
        if stored.life.incarnation != self.life.incarnation:
            self.samples, self.is_dirty = [], False
        if session_key(stored.life) != self.session:
            self.told, self.session_expires, self.heard_time = stored.sync.assignment, _NEVER, _NEVER
        self.record = with_reports(stored, self.record)

    def keep(self, samples: Sequence[Sample]) -> None:
        """Flush these samples, too, which are older than those that are kept."""
        self.samples = [*samples, *self.samples][-_MAX_SAMPLES:]
        self.is_dirty = True


SessionKey: TypeAlias = "tuple[int, int]"
"""Incarnation and session."""


def session_key(life: Instance) -> SessionKey:
    """Return what tells one session of an instance from all others. Later sessions are greater."""
    return (life.incarnation, life.session)


def with_reports(stored: InstanceRecord, heard: InstanceRecord) -> InstanceRecord:
    """Return what is stored, with the reports in `heard` if they are of the same session and not older."""
    if session_key(stored.life) != session_key(heard.life) or heard.life.last_seen < stored.life.last_seen:
        return stored
    times = [time for time in (stored.sync.last_in_sync, heard.sync.last_in_sync) if time is not None]
    return msgspec.structs.replace(
        stored,
        life=msgspec.structs.replace(stored.life, last_seen=heard.life.last_seen, message=heard.life.message),
        status=heard.status,
        sync=msgspec.structs.replace(
            stored.sync, reported_hash=heard.sync.reported_hash, last_in_sync=max(times, default=None)
        ),
    )


class InstanceListener(Protocol):
    """Notices changes of known instances."""

    def instance_changed(self, known: KnownInstance) -> None:
        """The instance may have another session, state or assignment. Must not block."""


class Registry:
    """The instances that agents of this process talk about. Also a reader of the log (`EventFeed`)."""

    def __init__(self, store: HubStore) -> None:
        self._store = store
        self._known: dict[str, KnownInstance] = {}
        self._loading: Counter[str] = Counter()
        """Ids that are being read for the first time."""
        self._reads = 0
        self._listeners: list[InstanceListener] = []
        self.is_flush_urgent = False
        """Whether a heartbeat has reported something that users wait for."""

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[KnownInstance]:
        return iter(self._known.values())

    def notify(self, listener: InstanceListener) -> None:
        """Tell a listener about changes from now on."""
        self._listeners.append(listener)

    def get(self, instance_id: str) -> KnownInstance | None:
        """Return an instance that is in memory."""
        return self._known.get(instance_id)

    async def find(self, instance_id: str) -> KnownInstance | None:
        """Return an instance, from the store if its agent has not called before. Raises `Unavailable`."""
        return self._known.get(instance_id) or await self.refresh(instance_id)

    async def refresh(self, instance_id: str) -> KnownInstance | None:
        """Read an instance again. What was committed before this call is in the result. Raises `Unavailable`."""
        self._loading[instance_id] += 1
        try:
            await self._read([instance_id])
        finally:
            self._loading[instance_id] -= 1
            if not self._loading[instance_id]:
                del self._loading[instance_id]
        return self._known.get(instance_id)

    async def refresh_known(self, instance_ids: Collection[str]) -> None:
        """Read instances again that are in memory. Raises `Unavailable`."""
        wanted = [each for each in instance_ids if each in self._known or each in self._loading]
        for start in range(0, len(wanted), _READ_SIZE):
            await self._read(wanted[start : start + _READ_SIZE])

    async def take(self, events: Sequence[HubEvent]) -> None:
        """Read instances again that events are about, if anybody here needs them."""
        types = (HubEventType.INSTANCE_STATE, HubEventType.INSTANCE_CHANGED)
        subjects = dict.fromkeys(event.subject for event in events if event.type in types)
        await self.refresh_known(subjects)

    async def resync(self) -> None:
        """Read every known instance again."""
        await self.refresh_known([*self._known, *self._loading])

    async def _read(self, instance_ids: Collection[str]) -> None:
        if not instance_ids:
            return
        self._reads += 1
        number = self._reads
        found: Mapping[str, InstanceRecord] = await self._store.instances_by_id(instance_ids)
        for record in found.values():
            self._put(record, number)

    def _put(self, record: InstanceRecord, number: int) -> None:
        known = self._known.get(record.id)
        if known is None:
            known = self._known[record.id] = KnownInstance(record, read_number=number)
        elif known.read_number > number:
            return
        else:
            known.read_number = number
            known.replace(record)
        for listener in self._listeners:
            listener.instance_changed(known)

    def report(
        self, known: KnownInstance, record: InstanceRecord, samples: Sequence[Sample], *, is_urgent: bool
    ) -> None:
        """Remember what a heartbeat has reported, until it is flushed."""
        known.record = record
        known.heard_time = record.life.last_seen
        known.samples = [*known.samples, *samples][-_MAX_SAMPLES:]
        known.is_dirty = True
        if is_urgent:
            self.is_flush_urgent = True

    async def flush(self) -> int:
        """Write what heartbeats have reported. Returns of how many instances. Raises `Unavailable`."""
        dirty = [known for known in self._known.values() if known.is_dirty]
        for start in range(0, len(dirty), _FLUSH_SIZE):
            await self._flush(dirty[start : start + _FLUSH_SIZE])
        return len(dirty)

    async def _flush(self, dirty: Sequence[KnownInstance]) -> None:
        heartbeats = [_heartbeats(known) for known in dirty]
        for known in dirty:
            known.samples, known.is_dirty = [], False
        try:
            await self._store.flush(heartbeats)
        except BaseException:
            for known, unwritten in zip(dirty, heartbeats, strict=True):
                if known.life.incarnation == unwritten.incarnation:
                    known.keep(unwritten.samples)
            raise

    def forget(self, is_obsolete: Callable[[KnownInstance], bool]) -> None:
        """Forget instances; their next call reads them again."""
        for known in [each for each in self._known.values() if not each.is_dirty and not each.calls]:
            if is_obsolete(known):
                del self._known[known.id]


def _heartbeats(known: KnownInstance) -> Heartbeats:
    record, life = known.record, known.life
    return Heartbeats(
        instance_id=record.id,
        incarnation=life.incarnation,
        session=life.session,
        last_seen=life.last_seen,
        message=life.message,
        status=record.status,
        reported_hash=record.sync.reported_hash,
        last_in_sync=record.sync.last_in_sync,
        samples=known.samples,
    )
