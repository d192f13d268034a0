"""Decoding of server-sent events, the format of an event stream over HTTP.

A body arrives in chunks that may end anywhere, also within a character or between the two bytes of a line end. The
decoder keeps the bytes of one incomplete event, and no more than a limit. Browsers ignore an event without data;
here it counts if it names a type.
"""

from __future__ import annotations

import msgspec

MAX_EVENT = 16 * 1024 * 1024
"""The default limit for the bytes of one event."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventTooLarge(ValueError):
    """An event, or a line that does not end, is larger than the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"expected events of at most {limit} bytes, got more")


class ServerSentEvent(msgspec.Struct, frozen=True):
    """One event of a stream."""

    type: str
    """`message` if the server gave none."""
    data: bytes
    id: str
    """The last id that the stream has sent, with this event or before it; "" if there was none."""


class EventDecoder:
    """Decodes the events of one response."""

    def __init__(self, *, limit: int = MAX_EVENT) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        """The begin of a line that is not complete."""
        self._line_size = 0
        self._event_size = 0
        """The bytes of the complete lines of the incomplete event."""
        self._skips_newline = False
        """Whether the last chunk ended in a carriage return, so that a line feed would belong to it."""
        self._is_first_line = True
        self._type = ""
        self._id: str | None = None
        self._data: list[bytes] = []
        self.last_id = ""

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Return the events that are complete now. Raises `EventTooLarge`."""
        *lines, rest = self._split(chunk)
        if lines:
            lines[0] = b"".join((*self._parts, lines[0]))
            self._parts.clear()
            self._line_size = 0
            if self._is_first_line:
                lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
                self._is_first_line = False
        self._parts.append(rest)
        events = []
        for line in lines:
            self._event_size += len(line) + 1
            if line:
                self._take_field(line)
            elif (event := self._complete()) is not None:
                events.append(event)
        self._line_size += len(rest)
        if self._event_size + self._line_size > self._limit:
            raise EventTooLarge(self._limit)
        return events

    def _split(self, chunk: bytes) -> list[bytes]:
        if self._skips_newline and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._skips_newline = False
        if b"\r" in chunk:
            self._skips_newline = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return chunk.split(b"\n")

    def _take_field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data.append(value)
            case b"event":
                self._type = value.decode("utf-8", "replace")
            case b"id" if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
            case _:
                """A comment, which begins with a colon, or a field that means nothing here, such as `retry`."""

    def _complete(self) -> ServerSentEvent | None:
        if self._id is not None:
            self.last_id = self._id
        type_, data = self._type, self._data
        self._type, self._id, self._data, self._event_size = "", None, [], 0
        if not data and not type_:
            return None
        return ServerSentEvent(type_ or "message", b"\n".join(data), self.last_id)
