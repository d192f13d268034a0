"""Encoding of events as AMQP 0-9-1 frames.

A library's encoder builds, sorts and checks objects for every message. But usually only the id, the subject and
the body size of an event differ from the previous event, and that encoder alone would use half of the time budget
of publishing. Here the constant parts are encoded once, and an event is assembled from bytes. The tests compare
the result with the library's decoder.

A message is a method frame (`basic.publish`), a header frame (properties, including headers, and the size of
the body) and body frames. A frame is

    type:1 channel:2 size:4 payload:size 0xCE
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from datetime import datetime
from itertools import chain
from struct import Struct

import pamqp.frame
from pamqp import commands

from sentinel.core import events

_FRAME = Struct(">BHI")
_FRAME_END = b"\xce"
_FRAME_OVERHEAD = _FRAME.size + len(_FRAME_END)
_BODY_FRAME = 3

_HEADER_FRAME = 2
_CONTENT = Struct(">HHQ")
"""The start of a header frame: class, weight (always 0), size of the body."""
_BASIC = commands.Basic.frame_id
_PERSISTENT = b"\x02"
_LENGTH = Struct(">I")
_SHORT_LENGTH = Struct(">B")
_TIMESTAMP = Struct(">Q")
_MAX_SHORT_STRING = 255

_FLAGS = commands.Basic.Properties.flags
_PRESENT = Struct(">H").pack(
    _FLAGS["content_type"]
    | _FLAGS["headers"]
    | _FLAGS["delivery_mode"]
    | _FLAGS["message_id"]
    | _FLAGS["timestamp"]
    | _FLAGS["message_type"]
)
"""Which properties follow. On the wire they have no names, only this order."""


class Unsendable(ValueError):
    """The protocol cannot carry the event; the message says why."""


class FrameEncoder:
    """Encodes events for one channel, all to the same exchange with the same routing key."""

    def __init__(
        self, *, channel: int, exchange: str, routing_key: str, mode: events.Mode, frame_max: int
    ) -> None:
        """`frame_max` was negotiated with the broker; 0 means no limit.

        Raises ValueError or TypeError if the protocol does not allow a name.
        """
        self._mode = mode
        self._channel = channel
        self._max_payload = frame_max - _FRAME_OVERHEAD if frame_max else 2**32 - 1
        publish = commands.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=True)
        self._publish = pamqp.frame.marshal(publish, channel)
        self._before_headers = _PRESENT + _short_string(events.content_type(mode), "content type")
        self._constant_headers = (
            _header("specversion", events.SPEC_VERSION)
            + _header("source", events.SOURCE)
            + _header("datacontenttype", events.DATA_CONTENT_TYPE)
        )
        # Events of one cycle share their type and mostly their time, so caching the last ones is enough.
        self._shared_key: tuple[str, str] | None = None
        self._shared_headers = b""
        self._shared_properties = b""

    def encode(self, event: events.Event) -> bytes:
        """Return all frames of one event; raise `Unsendable` if it does not fit the protocol."""
        if (event.type, event.time) != self._shared_key:
            self._encode_shared(event.type, event.time)
        event_id = event.id.encode()
        if len(event_id) > _MAX_SHORT_STRING:
            raise Unsendable(f"its id takes {len(event_id)} bytes, and the limit is {_MAX_SHORT_STRING}")
        subject = event.subject.encode()
        headers = b"".join(
            (
                self._shared_headers,
                _ID,
                _LENGTH.pack(len(event_id)),
                event_id,
                _SUBJECT,
                _LENGTH.pack(len(subject)),
                subject,
                _header("traceparent", event.traceparent) if event.traceparent else b"",
            )
        )
        body = events.body(event, self._mode)
        properties = b"".join(
            (
                _CONTENT.pack(_BASIC, 0, len(body)),
                self._before_headers,
                _LENGTH.pack(len(headers)),
                headers,
                _PERSISTENT,
                _SHORT_LENGTH.pack(len(event_id)),
                event_id,
                self._shared_properties,
            )
        )
        if len(properties) > self._max_payload:
            # A header frame cannot be split, and the broker closes the connection if it is too large.
            raise Unsendable(f"its attributes take {len(properties)} bytes, and the limit is {self._max_payload}")
        return b"".join(
            (
                self._publish,
                _FRAME.pack(_HEADER_FRAME, self._channel, len(properties)),
                properties,
                _FRAME_END,
                *self._body_frames(body),
            )
        )

    def _body_frames(self, body: bytes) -> Iterable[bytes]:
        if 0 < len(body) <= self._max_payload:
            return _FRAME.pack(_BODY_FRAME, self._channel, len(body)), body, _FRAME_END
        starts = range(0, len(body), self._max_payload)
        parts = [body[start : start + self._max_payload] for start in starts]
        frames = ((_FRAME.pack(_BODY_FRAME, self._channel, len(part)), part, _FRAME_END) for part in parts)
        return chain.from_iterable(frames)

    def _encode_shared(self, event_type: str, time: str) -> None:
        try:
            timestamp = _TIMESTAMP.pack(int(datetime.fromisoformat(time).timestamp()))
        except (ValueError, OverflowError, struct.error) as error:
            raise Unsendable(f"its time cannot be sent: {time!r}") from error
        self._shared_properties = timestamp + _short_string(event_type, "type")
        self._shared_headers = self._constant_headers + _header("type", event_type) + _header("time", time)
        self._shared_key = (event_type, time)


def _short_string(value: str, what: str) -> bytes:
    encoded = value.encode()
    if len(encoded) > _MAX_SHORT_STRING:
        raise Unsendable(f"its {what} takes {len(encoded)} bytes, and the limit is {_MAX_SHORT_STRING}")
    return _SHORT_LENGTH.pack(len(encoded)) + encoded


def _header_name(attribute: str) -> bytes:
    """The name, followed by the type tag of a long string, which every value is."""
    return _short_string(f"cloudEvents:{attribute}", "name") + b"S"


def _header(attribute: str, value: str) -> bytes:
    encoded = value.encode()
    return _header_name(attribute) + _LENGTH.pack(len(encoded)) + encoded


_ID = _header_name("id")
_SUBJECT = _header_name("subject")
