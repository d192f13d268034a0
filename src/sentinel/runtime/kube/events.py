"""Records Kubernetes Events: what an operator did to an object, for `kubectl describe`.

    recorder = EventRecorder(api=api, component="sentinel-operator", instance=pod_name, ...)
    recorder.record(objects.reference(config), EventType.NORMAL, "Started", "The pulse has started")

Recording is best effort and never blocks or fails its caller. Events wait in a bounded queue for a loop that sends
them. If the API server does not take them, the oldest are dropped and counted. The permission `create` suffices:
an event that repeats within some minutes is not sent again, instead of counted up in the first one.
"""

from __future__ import annotations

import asyncio
import random
import re
import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from sentinel.core.kube.objects import ObjectReference
from sentinel.core.times import timestamp
from sentinel.ports.clock import Clock
from sentinel.ports.kube import AlreadyExists, KubeKind, KubeObject, KubeUnavailable, KubeWriter
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log
from sentinel.runtime.secret_text import mask_secret_text
from sentinel.runtime.send_queue import SendFailure, SendQueue
from sentinel.runtime.workqueue import is_cancelled

EVENT = KubeKind("", "v1", "Event", "events")
BACKOFF = Backoff(initial=timedelta(seconds=1), maximum=timedelta(seconds=30), jitter=0.2)
"""The delays between attempts to send one event."""
ATTEMPTS = 6
"""How often an event is sent while the API server is unavailable: for about a minute."""
MAX_WAITING = 200
REPEAT_AFTER = timedelta(minutes=5)
"""How long an equal event is not sent again."""
FLUSH_TIMEOUT = timedelta(seconds=2)

_MAX_MESSAGE = 1024
_MAX_MASKED = 8 * _MAX_MESSAGE
"""Masking comes first, because half of a secret is not recognized, but the end of a long text is cut anyway."""
_MAX_WORD = 128
"""The longest reason and instance that Kubernetes allows."""
_MAX_NAME = 253
_MAX_RECENT = 1000
_NOT_IN_NAMES = re.compile(r"[^a-z0-9.-]")


class EventType(StrEnum):
    """How serious an event is. Kubernetes knows no other types."""

    NORMAL = "Normal"
    WARNING = "Warning"


class _Recorded(msgspec.Struct, frozen=True):
    """Equal for events that repeat each other."""

    about: tuple[str, str, str, str]
    type: EventType
    reason: str
    message: str


class _Waiting(msgspec.Struct, frozen=True):
    recorded: _Recorded
    namespace: str
    body: KubeObject


class EventRecorder:
    """Sends Events about objects."""

    def __init__(
        self,
        *,
        api: KubeWriter,
        component: str,
        instance: str,
        clock: Clock,
        log: Log,
        redact: Callable[[str], str] = mask_secret_text,
        backoff: Backoff = BACKOFF,
        jitter: Callable[[], float] = random.random,
        make_suffix: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        """`component` names the operator, `instance` its process. `make_suffix` returns hexadecimal digits that
        make the names of events unique."""
        self._api = api
        self._component = component
        self._instance = instance
        self._clock = clock
        self._log = log
        self._redact = redact
        self._make_suffix = make_suffix
        self._queue = SendQueue[_Waiting](
            self._create,
            on_drop=self._drop,
            max_waiting=MAX_WAITING,
            attempts=ATTEMPTS,
            backoff=backoff,
            jitter=jitter,
            clock=clock,
        )
        self._recent: dict[tuple[str, str, str, str], tuple[_Recorded, datetime]] = {}
        """When recent events were recorded, the oldest first."""
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """How many events were lost: the queue was full, or the API server did not take them."""
        return self._dropped

    def record(
        self,
        about: ObjectReference,
        type: EventType,  # noqa: A002  # the field's name
        reason: str,
        message: str,
    ) -> None:
        """Record an event about an object. `reason` is one word in CamelCase.

        Secrets in the message are masked, and it is shortened to 1 kB.
        """
        now = self._clock.now()
        text = _shortened(self._redact(message[:_MAX_MASKED]))
        recorded = _Recorded((about.kind, about.namespace, about.name, about.uid), type, reason, text)
        if self._is_repeated(recorded, now):
            return
        namespace = about.namespace or "default"  # where Kubernetes wants events about objects without one
        event = _Waiting(recorded, namespace, self._event(about, namespace, recorded, now))
        oldest = self._queue.add(event)
        if oldest is not None:
            self._drop(oldest, "too many events are waiting")

    async def run(self, stopping: Stopping) -> None:
        """Send events until stopped, then those that are left."""
        await stopping.interrupts(self._queue.send_all())
        await self.flush()

    async def flush(self) -> None:
        """Try to send each waiting event once, for a limited time.

        Call it again when everything else has stopped, such as in a part's `close`: stopping is an event, too.
        """
        dropped = await self._queue.flush(FLUSH_TIMEOUT)
        if dropped:
            self._dropped += dropped
            self._log.warning("events.dropped", events=dropped, error="no time left to send them")

    async def _create(self, event: _Waiting) -> SendFailure | None:
        """Create an event. Returns why it failed. Sent again with the same name, it is not created twice."""
        try:
            await self._api.create(EVENT, event.body, namespace=event.namespace)
        except AlreadyExists:
            return None  # an earlier attempt succeeded, and its response was lost
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled(error):
                raise
            return SendFailure(error, is_final=not isinstance(error, KubeUnavailable))
        return None

    def _drop(self, event: _Waiting, error: BaseException | str) -> None:
        self._dropped += 1
        self._recent.pop(event.recorded.about, None)  # it may be recorded again
        kind, namespace, name, _ = event.recorded.about
        self._log.warning(
            "events.dropped", kind=kind, namespace=namespace, name=name, reason=event.recorded.reason, error=error
        )

    def _is_repeated(self, recorded: _Recorded, now: datetime) -> bool:
        """Whether it equals the last event of its object, and that was recorded recently. If not, remember it.

        An equal event after another one is news: the object has returned to that state.
        """
        last = self._recent.pop(recorded.about, None)
        if last is not None and last[0] == recorded and timedelta(0) <= now - last[1] < REPEAT_AFTER:
            self._recent[recorded.about] = last
            return True
        self._recent[recorded.about] = recorded, now
        if len(self._recent) > _MAX_RECENT:
            del self._recent[next(iter(self._recent))]
        return False

    def _event(self, about: ObjectReference, namespace: str, recorded: _Recorded, now: datetime) -> KubeObject:
        involved = {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
            "resourceVersion": about.resource_version,
        }
        time = timestamp(now.replace(microsecond=0))
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": _event_name(about.name, self._make_suffix()), "namespace": namespace},
            "involvedObject": {field: value for field, value in involved.items() if value},
            "type": recorded.type.value,
            "reason": recorded.reason[:_MAX_WORD],
            "message": recorded.message,
            "count": 1,
            "firstTimestamp": time,
            "lastTimestamp": time,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance[:_MAX_WORD],
        }


def _event_name(name: str, suffix: str) -> str:
    """Return a name that is a valid DNS name. The names of some kinds, such as `system:node`, are not."""
    allowed = _NOT_IN_NAMES.sub("-", name.lower())[: _MAX_NAME - len(suffix) - 1]
    labels = (label.strip("-") for label in allowed.split("."))
    return ".".join((*(label for label in labels if label), suffix))


def _shortened(text: str) -> str:
    """Shorten to what Kubernetes allows, which is counted in bytes."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= _MAX_MESSAGE:
        return encoded.decode()
    return encoded[: _MAX_MESSAGE - len("…".encode())].decode(errors="ignore") + "…"
