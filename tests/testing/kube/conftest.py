"""A fake API server, and a client of it that is not ours."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sentinel.testing.kube import FakeKubeServer
from tests.support.kube.plain_http import PlainHttp, plain_http


@pytest.fixture
async def server() -> AsyncIterator[FakeKubeServer]:
    async with FakeKubeServer() as running:
        yield running


@pytest.fixture
async def http(server: FakeKubeServer) -> AsyncIterator[PlainHttp]:
    async with plain_http(server.url) as client:
        yield client
