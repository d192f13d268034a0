"""How events are laid out in Pub/Sub messages, and which of them share a request.

Of the attributes around an event only its id and its subject differ from those of the event before it. The
rest is kept as a message that is copied and completed, on the protobuf classes themselves: the wrappers that the
generated client offers for them would take most of what publishing may cost.

A request succeeds or fails as one, so whatever Pub/Sub would not take is found before it joins others: an event
that is too large, or that no attribute can hold, is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

import msgspec
from google.protobuf.message import Message as Protobuf  # type: ignore[import-untyped]  # it ships no types
from google.pubsub_v1.types import PublishRequest, PubsubMessage

from sentinel.core import events
from sentinel.ports.publisher import Outcome

MOST_MESSAGES = 1_000
MOST_BYTES = 10_000_000
"""What one request to Pub/Sub may hold."""
LONGEST_TEXT = 1_024
"""Bytes of an attribute's value, or of an ordering key."""

_PREFIX = "ce-"
_ID, _SUBJECT = f"{_PREFIX}id", f"{_PREFIX}subject"
_FRAMING = 64
"""More than the lengths and names around an event's own parts add up to."""

_MOST_DIVISIONS = 64
"""Enough to find a few events at fault among thousands, and an end where Pub/Sub will take none."""

_Request = PublishRequest.pb()
_Message = PubsubMessage.pb()


class Unsendable(ValueError):
    """An event that Pub/Sub has no room for; the text says why."""


class RequestLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request is closed and sent: at whichever of these comes first.

    Nothing waits for a request to fill up. A publisher is given all that there is to send.
    """

    count: int = 500
    """Messages; more of them hardly make an event cheaper."""
    size: int = 1_000_000
    """Bytes; an event that is larger than this by itself goes alone."""
    time: timedelta = timedelta(milliseconds=20)
    """What putting it together may take, because everything else in the process stands still meanwhile."""

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_MESSAGES:
            raise ValueError(f"count: expected between 1 and {MOST_MESSAGES}, got {self.count}")
        if not 1 <= self.size <= MOST_BYTES:
            raise ValueError(f"size: expected between 1 and {MOST_BYTES}, got {self.size}")
        if self.time <= timedelta(0):
            raise ValueError(f"time: expected more than 0s, got {self.time}")


class PublishBatch:
    """Events on their way, and what is known of each."""

    def __init__(self, events: Sequence[events.Event]) -> None:
        self.events = events
        self.outcomes = [Outcome.UNCONFIRMED] * len(events)
        self.seconds: list[float] = []
        self.reasons: dict[int, str] = {}
        """By the position of the first event of a request, the last that went wrong with it."""
        self.divisions = 0
        """How many requests were divided so far."""

    def explain(self, otherwise: str) -> str:
        """Why the first event that was not confirmed was not; empty where all were."""
        for position, outcome in enumerate(self.outcomes):
            if outcome is not Outcome.CONFIRMED:
                return self.reasons.get(position, otherwise)
        return ""


class EncodedRequest:
    """Events that are sent together, and share their fate."""

    __slots__ = ("batch", "content", "positions")

    def __init__(self, batch: PublishBatch, content: Protobuf, positions: list[int]) -> None:
        self.batch = batch
        self.content = content
        self.positions = positions

    def __len__(self) -> int:
        return len(self.positions)

    def answered(self, outcome: Outcome, seconds: float) -> None:
        """Notes Pub/Sub's word on all of them."""
        outcomes = self.batch.outcomes
        for position in self.positions:
            outcomes[position] = outcome
        self.batch.seconds += [seconds] * len(self.positions)

    def went_wrong(self, reason: str) -> None:
        """Notes why an attempt failed."""
        self.batch.reasons[self.positions[0]] = reason

    def halves(self) -> Sequence[EncodedRequest]:
        """The same events in two requests, in their order; none where there is no more use in it."""
        if len(self) < 2 or self.batch.divisions == _MOST_DIVISIONS:
            return ()
        self.batch.divisions += 1
        middle = len(self) // 2
        return self._part(slice(None, middle)), self._part(slice(middle, None))

    def _part(self, part: slice) -> EncodedRequest:
        content = _Request(topic=self.content.topic, messages=self.content.messages[part])
        return EncodedRequest(self.batch, content, self.positions[part])


class _Shared(msgspec.Struct, frozen=True):
    """What an event has in common with the one before it."""

    key: tuple[str, str, str]
    message: Protobuf
    size: int


class RequestEncoder:
    """Lays out events for one topic."""

    def __init__(
        self, *, topic: str, mode: events.Mode, ordering_key: str, limits: RequestLimits, now: Callable[[], float]
    ) -> None:
        """`topic` is the full name. `now` tells seconds, from wherever it likes."""
        if _length(ordering_key) > LONGEST_TEXT:
            raise ValueError(f"ordering_key: expected at most {LONGEST_TEXT} bytes, got {_length(ordering_key)}")
        self._mode = mode
        self._ordering_key = ordering_key
        self._limits = limits
        self._now = now
        self._empty = _Request(topic=topic)
        self._room = MOST_BYTES - self._empty.ByteSize()
        self._shared: _Shared | None = None

    def requests(self, batch: PublishBatch) -> Iterator[EncodedRequest]:
        """The requests that carry the batch, each laid out when asked for; what cannot be sent is passed over."""
        limits, now, room = self._limits, self._now, min(self._limits.size, self._room)
        longest = limits.time.total_seconds()
        request, size, begun = self._begin(batch), 0, now()
        for position, event in enumerate(batch.events):
            try:
                shared = self._share(event)
                body = events.body(event, self._mode)
                needed = self._measure(event, body, shared)
            except (ValueError, TypeError) as error:  # text that is not valid Unicode is one of them
                batch.outcomes[position] = Outcome.UNSENDABLE
                batch.reasons[position] = f"cannot be sent: {error}"
                continue
            count = len(request)
            if count and (count == limits.count or size + needed > room or now() - begun > longest):
                yield request
                request, size, begun = self._begin(batch), 0, now()
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

    def _begin(self, batch: PublishBatch) -> EncodedRequest:
        content = _Request()
        content.CopyFrom(self._empty)
        return EncodedRequest(batch, content, [])

    def _share(self, event: events.Event) -> _Shared:
        # Events of one cycle share their type, their trace and mostly their time: the last ones are enough.
        key = (event.type, event.time, event.traceparent)
        if self._shared is None or self._shared.key != key:
            named = {_PREFIX + name: value for name, value in events.attributes(event).items()}
            named["content-type"] = events.content_type(self._mode)
            for name, value in named.items():
                _check(name, value)
            del named[_ID], named[_SUBJECT]
            message = _Message(attributes=named, ordering_key=self._ordering_key)
            self._shared = _Shared(key, message, message.ByteSize() + _FRAMING)
        return self._shared

    def _measure(self, event: events.Event, body: bytes, shared: _Shared) -> int:
        """How much of a request the event takes, rounded up; raises `Unsendable` where that is too much."""
        needed = shared.size + len(body) + _check(_ID, event.id) + _check(_SUBJECT, event.subject)
        if needed > self._room:
            raise Unsendable(f"it takes {needed} bytes, and a request may have {self._room}")
        return needed


def _check(name: str, value: str) -> int:
    length = _length(value)
    if length > LONGEST_TEXT:
        raise Unsendable(f"its {name} takes {length} bytes, and an attribute may have {LONGEST_TEXT}")
    return length


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
