"""A real API server keeps the contract that the fake one keeps."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from sentinel.drivers.kube.access import ClusterAccess, find_access
from tests.contract.kube_api import KubeApiContract
from tests.support.kube.server import Kube, open_kube
from tests.support.kube.widgets import WIDGET
from tests.support.missing_service import skip_or_fail
from tools.services import kube_apiserver
from tools.services.kube_apiserver import ASSETS_VARIABLE, KubeApiServer, binaries


class ControlledKubeApiServer:
    """A `ControlledServer`."""

    def __init__(self, server: KubeApiServer) -> None:
        self._server = server
        self.url = server.url

    def access(self, url: str) -> ClusterAccess:
        admin = msgspec.structs.replace(self._server.admin, url=url)
        with tempfile.TemporaryDirectory() as directory:
            kubeconfig = Path(directory) / "kubeconfig"
            kubeconfig.write_bytes(admin.kubeconfig())
            return find_access(kubeconfig=kubeconfig, environ={})

    async def expire_versions(self) -> None:
        await asyncio.to_thread(self._server.compact)

    async def restart(self) -> None:
        await asyncio.to_thread(self._server.restart)


@pytest.fixture(scope="module")
def contract_server() -> Iterator[KubeApiServer]:
    """A server whose ConfigMaps and Widgets expire with a compaction."""
    programs = binaries.given()
    if programs is None:
        skip_or_fail(f"no programs for an API server ({ASSETS_VARIABLE} is not set): run `make test-kube`")
    with kube_apiserver.temporary_server(
        programs=programs, uncached_resources=("configmaps", str(WIDGET))
    ) as server:
        yield server


class TestKubeApiServer(KubeApiContract):
    @pytest.fixture
    async def kube(self, contract_server: KubeApiServer) -> AsyncIterator[Kube]:
        async with open_kube(ControlledKubeApiServer(contract_server)) as kube:
            yield kube
