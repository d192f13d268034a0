"""Reading from RabbitMQ so that no message can end the connection it comes over.

Anybody may publish, and AMQP has few rules for what stands beside a body. pamqp cannot decode some of it: a
timestamp in micro- or nanoseconds, a name or text that is not UTF-8. aiormq then gives up the connection, the
broker delivers the same message over the next one, and the queue is blocked for as long as the message lives.

So frames are looked at before aiormq sees them, by a stream that it is given to read from, which is the one place
where it lets others in. Whatever of a message's properties cannot be decoded is left out, and the rest stays as it
came. What is left is delivered like any other message, and if it is no event any more, it is given up like any
other.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Callable, Iterator
from typing import Any

from aiormq.connection import TransportFactory
from aiormq.exceptions import AMQPConnectionError
from pamqp import constants, decode
from pamqp.commands import Basic
from pamqp.header import ContentHeader

_FRAME = struct.Struct(">BHI")
_FIXED = struct.Struct(">HHQ")
"""What a content header begins with: the class, a weight that nobody uses, and the size of the body."""
_FLAGS = struct.Struct(">H")
_LENGTH = struct.Struct(">I")
_MORE_FLAGS = 1

_TABLE = "table"
_WIDTHS = {"octet": 1, "timestamp": 8}
_VALUE_WIDTHS = {
    kind: width
    for width, kinds in ((0, "V"), (1, "bBt"), (2, "su"), (4, "Iif"), (5, "D"), (8, "lLdT"))
    for kind in kinds
}
_MEASURED_VALUES = "AFSx"
"""Types of values that say themselves how long they are."""


class Transport(TransportFactory):
    """How aiormq gets a connection whose frames can all be decoded."""

    def __init__(self, *, host: str, port: int, trust: ssl.SSLContext | None) -> None:
        """`trust` is for TLS, and None for plain connections."""
        self._host = host
        self._port = port
        self._trust = trust

    async def create(self, url: object, **kwargs: object) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = FrameReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await loop.create_connection(lambda: protocol, self._host, self._port, ssl=self._trust)
        except OSError as error:
            raise AMQPConnectionError(*error.args) from error
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


class FrameReader(asyncio.StreamReader):
    """A stream of frames, of which the headers of messages are mended; read by `readexactly` alone."""

    def __init__(self) -> None:
        super().__init__()
        self._frame = b""
        """What is left of the frame that is being read."""

    async def readexactly(self, n: int) -> bytes:
        while len(self._frame) < n:
            self._frame += await self._next_frame()
        asked, self._frame = self._frame[:n], self._frame[n:]
        return asked

    def at_eof(self) -> bool:
        return not self._frame and super().at_eof()

    async def _next_frame(self) -> bytes:
        head = await super().readexactly(_FRAME.size)
        if head.startswith(constants.AMQP):
            return head  # what a broker says to a version that it does not speak; it is no frame
        kind, channel, size = _FRAME.unpack(head)
        rest = await super().readexactly(size + 1)
        if kind != constants.FRAME_HEADER:
            return head + rest
        payload = mended(rest[:-1])
        return _FRAME.pack(kind, channel, len(payload)) + payload + rest[-1:]


def mended(payload: bytes) -> bytes:
    """A content header without what pamqp cannot decode of it; the very same where it can decode all of it."""
    if _is_decodable(payload) or len(payload) < _FIXED.size:
        return payload
    fixed = payload[: _FIXED.size]
    try:
        rest = fixed + _mended_properties(payload[_FIXED.size :])
    except (struct.error, ValueError):
        rest = b""
    return rest if rest and _is_decodable(rest) else fixed + _FLAGS.pack(0)


def _mended_properties(encoded: bytes) -> bytes:
    """The flags of the properties, and those that can be decoded."""
    [flags] = _FLAGS.unpack_from(encoded)
    if flags & _MORE_FLAGS:
        raise ValueError("more properties than AMQP 0-9-1 has")
    kept, parts = 0, []
    offset = _FLAGS.size
    for name in Basic.Properties.__slots__:
        flag = Basic.Properties.flags[name]
        if not flags & flag:
            continue
        kind = Basic.Properties.amqp_type(name)
        part = encoded[offset : offset + _property_size(encoded, offset, kind)]
        offset += len(part)
        if kind == _TABLE:
            part = _mended_table(part)
        if _can(decode.by_type, part, kind):
            kept |= flag
            parts.append(part)
    return _FLAGS.pack(kept) + b"".join(parts)


def _property_size(encoded: bytes, offset: int, kind: str) -> int:
    if kind == "shortstr":
        return 1 + encoded[offset] if offset < len(encoded) else 0
    if kind == _TABLE:
        return _LENGTH.size + _length(encoded, offset)
    return _WIDTHS[kind]


def _mended_table(encoded: bytes) -> bytes:
    entries = _entries(encoded[_LENGTH.size :])
    return _table(b"".join(entry for entry in entries if _can(decode.field_table, _table(entry))))


def _entries(encoded: bytes) -> Iterator[bytes]:
    """Each name with its value, as far as one can tell where they end."""
    offset = 0
    while offset < len(encoded):
        kind_at = offset + 1 + encoded[offset]
        kind, value_at = chr(encoded[kind_at]) if kind_at < len(encoded) else "", kind_at + 1
        if kind and kind in _MEASURED_VALUES:
            end = value_at + _LENGTH.size + _length(encoded, value_at)
        elif kind in _VALUE_WIDTHS:
            end = value_at + _VALUE_WIDTHS[kind]
        else:
            return
        yield encoded[offset:end]
        offset = end


def _table(entries: bytes) -> bytes:
    return _LENGTH.pack(len(entries)) + entries


def _length(encoded: bytes, offset: int) -> int:
    length: int = _LENGTH.unpack_from(encoded, offset)[0]
    return length


def _is_decodable(payload: bytes) -> bool:
    return _can(ContentHeader().unmarshal, payload)


def _can(decoder: Callable[..., Any], *arguments: object) -> bool:
    try:
        decoder(*arguments)
    except Exception:  # pamqp documents ValueError, and raises several others
        return False
    return True
