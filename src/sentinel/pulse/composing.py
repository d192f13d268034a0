"""Composing events for the resources that are due."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec

from sentinel.core import events
from sentinel.core.ids import RANDOM_BYTES, uuid7s
from sentinel.core.json import Malformed
from sentinel.core.pulse.message import Composer
from sentinel.core.pulse.observation import FetchedResource, MalformedItem
from sentinel.core.pulse.pacing import PacedDecision
from sentinel.core.times import timestamp
from sentinel.pulse.report import PendingEvent

DueResource: TypeAlias = tuple[FetchedResource, PacedDecision]


class ComposedEvents(msgspec.Struct, frozen=True):
    """Events that are ready to be sent, and the resources for which there is none."""

    pending: Sequence[PendingEvent]
    malformed: Sequence[MalformedItem]


class EventComposer:
    """Composes the events of one pulse."""

    def __init__(self, *, resource_type: str, composer: Composer, randomness: Callable[[int], bytes]) -> None:
        """`randomness` returns the given number of random bytes, for the ids of events."""
        self._resource_type = resource_type
        self._composer = composer
        self._randomness = randomness

    def compose(self, due: Sequence[DueResource], *, now: datetime, traceparent: str) -> ComposedEvents:
        time = timestamp(now)
        ids = uuid7s(now, self._randomness(RANDOM_BYTES * len(due)))
        decode, compose = self._composer.decode, self._composer.compose
        types: dict[str, str] = {}
        pending: list[PendingEvent] = []
        malformed: list[MalformedItem] = []
        for event_id, (resource, paced) in zip(ids, due, strict=True):
            kind = paced.resource.kind
            if kind not in types:
                types[kind] = events.event_type(kind, self._resource_type)
            try:
                composed = compose(decode(resource.document), paced.decision.reason)
            except Malformed as error:
                # Fields that no decision reads are decoded only here, so they may be invalid.
                malformed.append(MalformedItem(paced.resource.id, str(error)))
                continue
            event = events.Event(event_id, types[kind], paced.resource.id, time, composed.data, traceparent)
            pending.append(PendingEvent(paced, event, composed.missing, composed.failed))
        return ComposedEvents(pending, malformed)
