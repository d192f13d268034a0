"""A TCP proxy on loopback that fails in every way a network can."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Self

from tools.services.server import free_port

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class TcpProxy:
    """Forwards connections inside `async with`."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._responding = asyncio.Event()
        self._responding.set()
        self._requesting = asyncio.Event()
        self._requesting.set()
        self.accepted = 0
        """How many connections were accepted so far, including those that failed at once."""
        self.has_been_reset = False
        """Whether the client has ended a connection without sending the rest."""
        self.sent = bytearray()
        """What the client sent over the last connection."""
        self.port = free_port()

    @property
    def open(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.cut()

    async def accept(self) -> None:
        """Accept connections, again."""
        if self._server is None:
            self._server = await asyncio.start_server(self._forward_both, "127.0.0.1", self.port)

    def refuse(self) -> None:
        """Refuse new connections. Open ones stay."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def cut(self) -> None:
        """Refuse new connections, and close all open ones."""
        self.refuse()
        await self._end_all()

    async def reset(self) -> None:
        """Reset all open connections, and accept new ones."""
        for writer in self._connections.values():
            plain = writer.get_extra_info("socket")
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        await self._end_all()

    def hold_responses(self) -> None:
        """Accept connections and requests, and hold back everything that the server sends."""
        self._responding.clear()

    def release_responses(self) -> None:
        """Send what was held back."""
        self._responding.set()

    def hold_requests(self) -> None:
        """Read nothing from the client, without closing connections."""
        self._requesting.clear()

    def release_requests(self) -> None:
        self._requesting.set()

    async def _end_all(self) -> None:
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _forward_both(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        self.accepted += 1
        self.sent = bytearray()
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(*self._target)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._forward(reader, upstream_writer, record=self.sent))
                    group.create_task(self._forward(upstream_reader, writer, record=None))
            finally:
                upstream_writer.transport.abort()
        except (asyncio.CancelledError, OSError, ExceptionGroup):
            pass
        finally:
            writer.transport.abort()
            del self._connections[task]

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, record: bytearray | None
    ) -> None:
        """Forward requests, which are recorded, or responses."""
        while data := await self._read(reader, is_request=record is not None):
            if record is not None:
                record += data
            else:
                await self._responding.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError

    async def _read(self, reader: asyncio.StreamReader, *, is_request: bool) -> bytes:
        if is_request:
            await self._requesting.wait()
        try:
            return await reader.read(65536)
        except ConnectionResetError:
            self.has_been_reset = self.has_been_reset or is_request
            raise
