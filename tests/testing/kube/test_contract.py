"""The fake API server keeps the contract of a real one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from sentinel.drivers.kube.access import ClusterAccess
from sentinel.drivers.kube.credentials import Credentials
from sentinel.drivers.rest.proxies import NO_PROXIES
from sentinel.drivers.rest.tls import TlsSettings
from sentinel.testing.kube import FakeKubeServer
from tests.contract.kube_api import KubeApiContract
from tests.support.kube.server import Kube, open_kube


class ControlledFake:
    """A `ControlledServer`."""

    def __init__(self, server: FakeKubeServer) -> None:
        self._server = server
        self.url = server.url

    def access(self, url: str) -> ClusterAccess:
        credentials = Credentials(tls=TlsSettings())
        return ClusterAccess(server=url, credentials=credentials, proxies=NO_PROXIES, origin="the fake")

    async def expire_versions(self) -> None:
        self._server.expire_versions()

    async def restart(self) -> None:
        await self._server.restart()


class TestFakeKubeServer(KubeApiContract):
    @pytest.fixture
    async def kube(self) -> AsyncIterator[Kube]:
        fake = FakeKubeServer(bookmark_interval=timedelta(milliseconds=20))
        async with fake as server, open_kube(ControlledFake(server)) as kube:
            yield kube
