"""A scripted API server, and clients of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

import pytest

from sentinel.drivers.kube.access import ClusterAccess
from sentinel.drivers.kube.client import KubeClient
from sentinel.drivers.kube.connection import ApiConnection
from sentinel.drivers.kube.credentials import Credentials
from sentinel.drivers.rest.proxies import NO_PROXIES
from sentinel.drivers.rest.tls import TlsSettings
from tests.drivers.kube.api_server import ApiServer
from tests.support.closing import CloseLater


class MakeClient(Protocol):
    def __call__(self, access: ClusterAccess | None = None, *, token: str = "", **changes: Any) -> KubeClient: ...


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as running:
        yield running


@pytest.fixture
def make_client(server: ApiServer, close_later: CloseLater) -> MakeClient:
    """Makes clients, by default of the server without TLS."""

    def make(access: ClusterAccess | None = None, *, token: str = "", **changes: Any) -> KubeClient:
        access = access or ClusterAccess(
            server=server.url,
            credentials=Credentials(tls=TlsSettings(), token=token),
            proxies=NO_PROXIES,
            origin="a test",
        )
        connection = ApiConnection(access, **{"user_agent": "hyperfleet-sentinel/1.2.3", **changes})
        return close_later(KubeClient(connection))

    return make


@pytest.fixture
def client(make_client: MakeClient) -> KubeClient:
    return make_client()
