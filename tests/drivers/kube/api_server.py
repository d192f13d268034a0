"""A scripted API server on loopback that controls every byte of a response, and how its connection ends."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import TypeAlias

import msgspec

from tests.support.http.stream_server import StreamServer


class ReceivedCall(msgspec.Struct, frozen=True):
    method: str
    path: str
    """With its query."""
    headers: Mapping[str, str]
    """With names in lower case."""
    body: bytes
    client_name: str
    """The common name of the client's certificate, or ""."""

    @property
    def line(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def token(self) -> str:
        return self.headers.get("authorization", "")

    @property
    def json(self) -> object:
        return msgspec.json.decode(self.body)


class Exchange:
    """A call, and the response to it."""

    def __init__(self, call: ReceivedCall, writer: asyncio.StreamWriter) -> None:
        self.call = call
        self.is_open = True
        """Whether the connection can be used for another call."""
        self._writer = writer

    async def respond(
        self, value: object = None, *, status: int = 200, body: bytes | None = None, **headers: str
    ) -> None:
        content = msgspec.json.encode(value) if body is None else body
        await self._send_head(status, {"content-length": str(len(content)), **headers})
        await self.send(content)

    async def begin_stream(self) -> None:
        """Send the head of a response whose end is not known. `send_event`, `end`, `cut` and `reset` go on."""
        self.is_open = False
        await self._send_head(200, {"transfer-encoding": "chunked"})

    async def send_event(self, kind: str, value: object) -> None:
        await self.send_chunk(msgspec.json.encode({"type": kind, "object": value}) + b"\n")

    async def send_chunk(self, content: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(content), content))

    async def send(self, content: bytes) -> None:
        self._writer.write(content)
        await self._writer.drain()

    async def end(self) -> None:
        """End the stream as a server does that closes a watch."""
        await self.send(b"0\r\n\r\n")

    def cut(self) -> None:
        """Close the connection without the end of the stream."""
        self._writer.close()

    def reset(self) -> None:
        self._writer.transport.abort()

    async def _send_head(self, status: int, headers: Mapping[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join([*lines, "", ""]).encode())


Script: TypeAlias = Callable[[Exchange], Awaitable[None]]


def status_object(code: int, reason: str = "", message: str = "", **details: object) -> dict[str, object]:
    """An error of the API server."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details,
        "code": code,
    }


def reply(value: object = None, *, status: int = 200, body: bytes | None = None, **headers: str) -> Script:
    """A script that responds with this value, or body."""

    async def script(exchange: Exchange) -> None:
        await exchange.respond(value, status=status, body=body, **headers)

    return script


def reply_error(code: int, reason: str = "", message: str = "", **details: object) -> Script:
    """A script that responds with a `Status`."""
    return reply(status_object(code, reason, message, **details), status=code)


def in_turn(*scripts: Script) -> Script:
    """A script that takes these in turn, and repeats the last."""
    left = list(scripts)

    async def script(exchange: Exchange) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(exchange)

    return script


class ApiServer(StreamServer):
    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls=tls)
        self.script: Script = reply({})
        self.calls: list[ReceivedCall] = []
        self.connections = 0
        """How many were opened so far."""
        self.closed = asyncio.Event()
        """Set when the peer, or the script, has closed a connection."""

    @property
    def lines(self) -> list[str]:
        """Method and path of every call so far."""
        return [call.line for call in self.calls]

    async def hang(self, exchange: Exchange) -> None:
        """A script that responds nothing."""
        await self.closed.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                exchange = Exchange(await _read_call(reader, writer), writer)
                self.calls.append(exchange.call)
                await self.script(exchange)
                if not exchange.is_open:
                    await reader.read()  # until the client closes the connection
                    break
        finally:
            self.closed.set()


async def _read_call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> ReceivedCall:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    certificate: Mapping[str, object] = writer.get_extra_info("peercert") or {}
    subject = certificate.get("subject", ())
    assert isinstance(subject, tuple)
    names = [value for part in subject for name, value in part if name == "commonName"]
    return ReceivedCall(method, path, headers, body, names[0] if names else "")
