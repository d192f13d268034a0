"""Reading from RabbitMQ so that no message can end its connection.

Anyone may publish, and AMQP allows almost anything in the properties of a message. pamqp cannot decode some of
it: a timestamp in micro- or nanoseconds, a name or text that is not UTF-8. aiormq then closes the connection,
the broker delivers the same message over the next one, and the queue is blocked until the message is removed.

So aiormq reads from a stream that repairs header frames first; the stream is the one place where aiormq can be
extended. Properties that cannot be decoded are removed, and the rest stays as it is. The message is then delivered
like any other, and dead-lettered if it is no longer a valid event.
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
"""The start of a content header: the class, an unused weight, the size of the body."""
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
_LENGTH_PREFIXED_VALUES = "AFSx"
"""Value types that start with their length."""


class RepairingTransport(TransportFactory):
    """Gives aiormq a connection whose frames can all be decoded."""

    def __init__(self, *, host: str, port: int, ssl_context: ssl.SSLContext | None) -> None:
        self._host = host
        self._port = port
        self._ssl_context = ssl_context

    async def create(self, url: object, **kwargs: object) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = FrameReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await loop.create_connection(
                lambda: protocol, self._host, self._port, ssl=self._ssl_context
            )
        except OSError as error:
            raise AMQPConnectionError(*error.args) from error
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


class FrameReader(asyncio.StreamReader):
    """A stream that repairs the header frames of messages; aiormq reads it only with `readexactly`."""

    def __init__(self) -> None:
        super().__init__()
        self._unread = b""
        """The rest of the current frame."""

    async def readexactly(self, n: int) -> bytes:
        while len(self._unread) < n:
            self._unread += await self._next_frame()
        data, self._unread = self._unread[:n], self._unread[n:]
        return data

    def at_eof(self) -> bool:
        return not self._unread and super().at_eof()

    async def _next_frame(self) -> bytes:
        head = await super().readexactly(_FRAME.size)
        if head.startswith(constants.AMQP):
            return head  # not a frame: the broker rejects the protocol version
        kind, channel, size = _FRAME.unpack(head)
        rest = await super().readexactly(size + 1)
        if kind != constants.FRAME_HEADER:
            return head + rest
        payload = repair_header(rest[:-1])
        return _FRAME.pack(kind, channel, len(payload)) + payload + rest[-1:]


def repair_header(payload: bytes) -> bytes:
    """Remove what pamqp cannot decode from a content header; return the same object if it can decode all."""
    if _is_decodable(payload) or len(payload) < _FIXED.size:
        return payload
    fixed = payload[: _FIXED.size]
    try:
        repaired = fixed + _repair_properties(payload[_FIXED.size :])
    except (struct.error, ValueError):
        repaired = b""
    return repaired if repaired and _is_decodable(repaired) else fixed + _FLAGS.pack(0)


def _repair_properties(encoded: bytes) -> bytes:
    """Return the flags and values of the properties that can be decoded."""
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
            part = _repair_table(part)
        if _succeeds(decode.by_type, part, kind):
            kept |= flag
            parts.append(part)
    return _FLAGS.pack(kept) + b"".join(parts)


def _property_size(encoded: bytes, offset: int, kind: str) -> int:
    if kind == "shortstr":
        return 1 + encoded[offset] if offset < len(encoded) else 0
    if kind == _TABLE:
        return _LENGTH.size + _length(encoded, offset)
    return _WIDTHS[kind]


def _repair_table(encoded: bytes) -> bytes:
    entries = _entries(encoded[_LENGTH.size :])
    return _table(b"".join(entry for entry in entries if _succeeds(decode.field_table, _table(entry))))


def _entries(encoded: bytes) -> Iterator[bytes]:
    """Yield each name with its value, up to the first of unknown length."""
    offset = 0
    while offset < len(encoded):
        kind_at = offset + 1 + encoded[offset]
        kind, value_at = chr(encoded[kind_at]) if kind_at < len(encoded) else "", kind_at + 1
        if kind and kind in _LENGTH_PREFIXED_VALUES:
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
    return _succeeds(ContentHeader().unmarshal, payload)


def _succeeds(decoder: Callable[..., Any], *arguments: object) -> bool:
    try:
        decoder(*arguments)
    except Exception:  # pamqp documents ValueError, and raises several others
        return False
    return True
