"""Encoding of events as Pub/Sub messages, and their grouping into publish requests.

Usually only the id and the subject of an event differ from the previous event. The other attributes are kept in a
message that is copied and completed. This uses the protobuf classes directly: the wrappers of the generated client
would use most of the time budget of publishing.

A request succeeds or fails as a whole. So events that Pub/Sub would reject, because they are too large or do
not fit an attribute, are skipped before they join others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from google.pubsub_v1.types import PublishRequest, PubsubMessage

from sentinel.core import events
from sentinel.ports.publisher import PublishOutcome

MAX_MESSAGES = 1_000
MAX_BYTES = 10_000_000
"""Pub/Sub's limits for one request."""
MAX_TEXT_BYTES = 1_024
"""Pub/Sub's limit for an attribute value and an ordering key."""

_PREFIX = "ce-"
_ID, _SUBJECT = f"{_PREFIX}id", f"{_PREFIX}subject"
_FRAMING = 64
"""Upper bound of the field lengths and names around an event's own parts."""

_MAX_SPLITS = 64
"""Enough to find a few invalid events among thousands, and an end if Pub/Sub rejects all of them."""

_Request = PublishRequest.pb()
_Message = PubsubMessage.pb()


class Unsendable(ValueError):
    """The event exceeds a limit of Pub/Sub; the message says which."""


class RequestLimits(msgspec.Struct, frozen=True, kw_only=True):
    """A request is sent when it reaches the first of these limits.

    No request waits to fill up: a publisher gets all events at once.
    """

    count: int = 500
    """Messages; more would hardly reduce the cost per event."""
    size: int = 1_000_000
    """Bytes; a larger event is sent alone."""
    time: timedelta = timedelta(milliseconds=20)
    """Time to encode it, because the event loop is blocked meanwhile."""

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MAX_MESSAGES:
            raise ValueError(f"count: expected between 1 and {MAX_MESSAGES}, got {self.count}")
        if not 1 <= self.size <= MAX_BYTES:
            raise ValueError(f"size: expected between 1 and {MAX_BYTES}, got {self.size}")
        if self.time <= timedelta(0):
            raise ValueError(f"time: expected more than 0s, got {self.time}")


class PublishBatch:
    """The events of one publish call and the outcome of each."""

    def __init__(self, events: Sequence[events.Event]) -> None:
        self.events = events
        self.outcomes = [PublishOutcome.UNCONFIRMED] * len(events)
        self.seconds: list[float] = []
        self.reasons: dict[int, str] = {}
        """The last error of a request, by the position of its first event."""
        self.splits = 0

    def first_error(self, default: str) -> str:
        """Return why the first event that was not confirmed failed; empty if all were."""
        for position, outcome in enumerate(self.outcomes):
            if outcome is not PublishOutcome.CONFIRMED:
                return self.reasons.get(position, default)
        return ""


class EncodedRequest:
    """Events that are sent together and succeed or fail together."""

    __slots__ = ("batch", "content", "positions")

    def __init__(self, batch: PublishBatch, content: Any, positions: list[int]) -> None:
        self.batch = batch
        self.content = content
        self.positions = positions

    def __len__(self) -> int:
        return len(self.positions)

    def set_outcome(self, outcome: PublishOutcome, seconds: float) -> None:
        outcomes = self.batch.outcomes
        for position in self.positions:
            outcomes[position] = outcome
        self.batch.seconds += [seconds] * len(self.positions)

    def set_error(self, reason: str) -> None:
        """Record why an attempt failed."""
        self.batch.reasons[self.positions[0]] = reason

    def split(self) -> Sequence[EncodedRequest]:
        """Return two requests with half of the events each, in order; empty if it cannot be split further."""
        if len(self) < 2 or self.batch.splits == _MAX_SPLITS:
            return ()
        self.batch.splits += 1
        middle = len(self) // 2
        return self._slice(slice(None, middle)), self._slice(slice(middle, None))

    def _slice(self, part: slice) -> EncodedRequest:
        content = _Request(topic=self.content.topic, messages=self.content.messages[part])
        return EncodedRequest(self.batch, content, self.positions[part])


class _Shared(msgspec.Struct, frozen=True):
    """The parts that an event shares with the previous one."""

    key: tuple[str, str, str]
    message: Any
    size: int


class RequestEncoder:
    """Encodes events for one topic."""

    def __init__(
        self, *, topic: str, mode: events.Mode, ordering_key: str, limits: RequestLimits, now: Callable[[], float]
    ) -> None:
        """`topic` is the full name; `now` is a monotonic clock in seconds."""
        if _byte_length(ordering_key) > MAX_TEXT_BYTES:
            raise ValueError(
                f"ordering_key: expected at most {MAX_TEXT_BYTES} bytes, got {_byte_length(ordering_key)}"
            )
        self._mode = mode
        self._ordering_key = ordering_key
        self._limits = limits
        self._now = now
        self._empty = _Request(topic=topic)
        self._room = MAX_BYTES - self._empty.ByteSize()
        self._shared: _Shared | None = None

    def encode(self, batch: PublishBatch) -> Iterator[EncodedRequest]:
        """Yield the requests for the batch, each encoded on demand; events that cannot be sent are skipped."""
        limits, now, room = self._limits, self._now, min(self._limits.size, self._room)
        max_seconds = limits.time.total_seconds()
        request, size, start = self._new_request(batch), 0, now()
        for position, event in enumerate(batch.events):
            try:
                shared = self._shared_parts(event)
                body = events.body(event, self._mode)
                needed = self._measure(event, body, shared)
            except (ValueError, TypeError) as error:  # includes text that is not valid Unicode
                batch.outcomes[position] = PublishOutcome.UNSENDABLE
                batch.reasons[position] = f"cannot be sent: {error}"
                continue
            count = len(request)
            if count and (count == limits.count or size + needed > room or now() - start > max_seconds):
                yield request
                request, size, start = self._new_request(batch), 0, now()
            message = request.content.messages.add()
            message.CopyFrom(shared.message)
            message.data = body
            attributes = message.attributes
            attributes[_ID] = event.id
            attributes[_SUBJECT] = event.subject
            request.positions.append(position)
            size += needed
        if request.positions:
            yield request

    def _new_request(self, batch: PublishBatch) -> EncodedRequest:
        content = _Request()
        content.CopyFrom(self._empty)
        return EncodedRequest(batch, content, [])

    def _shared_parts(self, event: events.Event) -> _Shared:
        # Events of one cycle share their type, their trace and mostly their time, so caching the last ones is
        # enough.
        key = (event.type, event.time, event.traceparent)
        if self._shared is None or self._shared.key != key:
            attributes = {_PREFIX + name: value for name, value in events.attributes(event).items()}
            attributes["content-type"] = events.content_type(self._mode)
            for name, value in attributes.items():
                _checked_length(name, value)
            del attributes[_ID], attributes[_SUBJECT]
            message = _Message(attributes=attributes, ordering_key=self._ordering_key)
            self._shared = _Shared(key, message, message.ByteSize() + _FRAMING)
        return self._shared

    def _measure(self, event: events.Event, body: bytes, shared: _Shared) -> int:
        """Return an upper bound of the event's bytes in a request; raise `Unsendable` if that is too much."""
        needed = (
            shared.size + len(body) + _checked_length(_ID, event.id) + _checked_length(_SUBJECT, event.subject)
        )
        if needed > self._room:
            raise Unsendable(f"it takes {needed} bytes, and the limit of a request is {self._room}")
        return needed


def _checked_length(name: str, value: str) -> int:
    length = _byte_length(value)
    if length > MAX_TEXT_BYTES:
        raise Unsendable(f"its {name} takes {length} bytes, and the limit is {MAX_TEXT_BYTES}")
    return length


def _byte_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
