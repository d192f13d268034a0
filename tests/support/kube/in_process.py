"""A connection to the fake API server without HTTP, so that it works on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast
from urllib.parse import parse_qsl, urlsplit

import msgspec

from sentinel.drivers.kube import status
from sentinel.drivers.kube.client import KubeClient
from sentinel.drivers.kube.connection import JSON, ApiConnection
from sentinel.ports.kube import KubeUnavailable
from sentinel.testing.kube import ApiError, FakeKubeServer
from sentinel.testing.kube.requests import ApiRequest, ApiResponse, StreamedResponse
from tests.support.kube.patch_types import MERGE_PATCH


class InProcessConnection(ApiConnection):
    """Calls the server directly. A call can be lost on its way, or its response on the way back."""

    def __init__(self, server: FakeKubeServer, *, user_agent: str = "test") -> None:
        self.server = "in-process"
        self._server = server
        self._headers = {"user-agent": user_agent}
        self.lost_responses = 0
        """How many of the next merge patches take effect without a response."""
        self.hanging_patches = 0
        """How many of the next merge patches never end."""
        self.is_down = False
        """Whether the server cannot be reached. Open watches fail when they would get the next event."""
        self._cut = asyncio.Event()

    def cut_watches(self) -> None:
        """Break all open streams, as a lost connection does."""
        self._cut.set()
        self._cut = asyncio.Event()

    async def send(self, method: str, path: str, *, body: object = None, content_type: str = JSON) -> bytes:
        is_merge_patch = content_type == MERGE_PATCH
        if is_merge_patch and self.hanging_patches:
            self.hanging_patches -= 1
            await asyncio.Event().wait()
        response = await self._respond(method, path, body, content_type)
        assert isinstance(response, ApiResponse)
        if is_merge_patch and self.lost_responses:
            self.lost_responses -= 1
            await asyncio.sleep(1)
            raise KubeUnavailable("connection reset by peer")
        return msgspec.json.encode(response.body)

    async def stream(self, path: str) -> AsyncGenerator[bytes, None]:
        response = await self._respond("GET", path)
        assert isinstance(response, StreamedResponse)
        cut = self._cut
        async with aclosing(cast("AsyncGenerator[bytes, None]", response.lines)) as lines:
            while (line := await _first(lines, cut)) is not None:
                yield line

    async def close(self) -> None:
        self.cut_watches()

    def redact(self, text: str) -> str:
        return text

    async def _respond(
        self, method: str, path: str, body: object = None, content_type: str = JSON
    ) -> ApiResponse | StreamedResponse:
        if self.is_down:
            raise KubeUnavailable("connection refused")
        url = urlsplit(path)
        content = b"" if body is None else msgspec.json.encode(body)
        headers = {**self._headers, "content-type": content_type}
        try:
            return await self._server.respond(
                ApiRequest(method, url.path, dict(parse_qsl(url.query)), headers, content)
            )
        except ApiError as error:
            found = status.decode_status(msgspec.json.encode(error.status))
            assert found is not None
            raise status.reported(found, self.redact) from None


def in_process_client(server: FakeKubeServer) -> KubeClient:
    """Make a client of the fake API server without HTTP."""
    return KubeClient(InProcessConnection(server))


async def _first(lines: AsyncGenerator[bytes, None], cut: asyncio.Event) -> bytes | None:
    """Return the next line, or None at the end. Raises `KubeUnavailable` if the connection is cut before."""
    line = asyncio.ensure_future(anext(lines, None))
    cutting = asyncio.ensure_future(cut.wait())
    try:
        await asyncio.wait({line, cutting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        cutting.cancel()
        if not line.done():
            line.cancel()
            await asyncio.wait({line})
    if line.cancelled():
        raise KubeUnavailable("connection reset by peer")
    return line.result()
