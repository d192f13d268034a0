"""The events of a stream of resources: what a reader is told about a change.

A reader that selects by labels is told that a resource is gone when it no longer matches. The server does not
remember what it has sent to whom. So it tells this to every reader that the resource does not match, but only
after a change of labels, because before one it did not match either.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from sentinel.core.fleet import change_position
from sentinel.core.fleet.change_position import Position, PositionLost
from sentinel.core.labels import Selector
from sentinel.core.projection import Projection
from sentinel.ports.change_log import Change, ChangedResource, CurrentResource
from sentinel.ports.fleet_store import ListPosition
from sentinel.web import server_sent_events

_MAX_CACHED: Final = 4
"""How many different `fields` one event is kept encoded for."""
_LISTING: Final = "~"

_encode = msgspec.json.Encoder().encode


class EventType(StrEnum):
    """The type of an event."""

    CHANGED = "resource.changed"
    REMOVED = "resource.removed"
    SYNCED = "resource.synced"


class EventId(msgspec.Struct, frozen=True):
    """The id of an event: where a reader goes on after it."""

    position: Position
    """In the log of changes."""
    is_listing: bool = False
    """The reader has not received every present resource yet."""
    listed: ListPosition | None = None
    """The last present resource that it has received, if it is listing; None if none."""

    def __str__(self) -> str:
        """Return the form that `parse_event_id` reads."""
        if not self.is_listing:
            return str(self.position)
        place = "" if self.listed is None else f"{self.listed.value}{_LISTING}{self.listed.id}"
        return f"{self.position}{_LISTING}{place}"


def parse_event_id(text: str) -> EventId:
    """Read an id that a client has sent back. Raises `PositionLost`."""
    position, is_listing, place = text.partition(_LISTING)
    if not place:
        return EventId(change_position.parse(position), bool(is_listing))
    created, _, resource_id = place.partition(_LISTING)
    if not (created.isascii() and created.isdigit() and len(created) < 19 and resource_id) or "\0" in resource_id:
        raise PositionLost("unreadable")
    return EventId(change_position.parse(position), True, ListPosition(int(created), resource_id))


class StreamQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader wants."""

    plural: str
    parent: str | None = None
    """Only the children of this resource; None for all."""
    resource_id: str | None = None
    """Only this resource; None for all."""
    selector: Selector = Selector()
    projection: Projection | None = None
    """The members of a resource that it wants; None for all."""

    def may_want(self, changed: ChangedResource) -> bool:
        """Return whether the reader has asked for this resource, whatever its labels."""
        return (
            changed.plural == self.plural
            and self.parent in (None, changed.parent)
            and self.resource_id in (None, changed.resource_id)
        )


class ResourceEvent(msgspec.Struct, frozen=True):
    """An encoded event."""

    type: EventType
    encoded: bytes


class ChangedEntry:
    """A change, and the resource as it was read after it."""

    __slots__ = ("_events", "change", "resource")

    def __init__(self, change: Change, resource: CurrentResource | None) -> None:
        """`resource` is None if it does not exist."""
        self.change = change
        if resource is not None and (resource.plural, resource.parent) != change.resource[1:]:
            resource = None  # the id belongs to another resource now
        self.resource = resource
        self._events: dict[tuple[EventType, Projection | None], ResourceEvent] = {}

    @property
    def size(self) -> int:
        """The size of its document."""
        return 0 if self.resource is None else len(self.resource.document)

    def event_type(self, query: StreamQuery) -> EventType | None:
        """Return what a reader is told, or None if the change does not matter to it."""
        if not query.may_want(self.change.resource):
            return None
        if self.resource is not None and query.selector.matches(self.resource.labels):
            return EventType.CHANGED
        return EventType.REMOVED if self.change.may_leave else None

    def event(self, query: StreamQuery) -> ResourceEvent | None:
        """Return the event for a reader, if any. Encoded once for all readers that want the same fields."""
        event_type = self.event_type(query)
        if event_type is None:
            return None
        return self._encoded(event_type, query.projection if event_type is EventType.CHANGED else None)

    def _encoded(self, event_type: EventType, projection: Projection | None) -> ResourceEvent:
        known = self._events.get((event_type, projection))
        if known is None:
            if self.resource is None or event_type is EventType.REMOVED:
                data = _encode({"id": self.change.resource.resource_id})
            else:
                data = project(self.resource.document, projection)
            known = encode(event_type, data, EventId(self.change.position))
            if len(self._events) < _MAX_CACHED:
                self._events[event_type, projection] = known
        return known


def project(document: bytes, projection: Projection | None) -> bytes:
    """Return the members of a document that a reader wants."""
    return document if projection is None else projection.apply(document)


def encode(event_type: EventType, data: bytes, event_id: EventId) -> ResourceEvent:
    """Encode an event."""
    return ResourceEvent(event_type, server_sent_events.encode(event_type, data, event_id=str(event_id)))
