"""API servers under the control of a test: what a contract suite needs of one, and how it gets it.

A server provides a `ControlledServer`. `open_kube` makes a `Kube` of it: clients through a proxy that can fail, a
fresh namespace, and the kind `Widget`.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Protocol
from urllib.parse import urlsplit

from sentinel.drivers.kube.access import ClusterAccess
from sentinel.drivers.kube.client import WATCH_TIMEOUT, KubeClient
from sentinel.drivers.kube.connection import IDLE_TIMEOUT, REQUEST_TIMEOUT, ApiConnection
from sentinel.ports.kube import KubeApi, KubeKind
from tests.support.kube.widgets import install_widgets
from tests.support.tcp_proxy import TcpProxy

NAMESPACE = KubeKind("", "v1", "Namespace", "namespaces", is_namespaced=False)
USER_AGENT = "contract-test/1.0"


class ControlledServer(Protocol):
    """A running API server.

    A real one must expire versions of ConfigMaps and Widgets by a compaction alone, so its watch cache is off for
    them: `--watch-cache-sizes=configmaps#0,widgets.contract.example.com#0`. All other kinds get bookmarks.
    """

    @property
    def url(self) -> str:
        """The URL of the server, on loopback."""

    def access(self, url: str) -> ClusterAccess:
        """Return the access of an administrator to this server through another URL."""

    async def expire_versions(self) -> None:
        """Make every version before the current one too old, as a compaction of etcd does."""

    async def restart(self) -> None:
        """Restart the server at the same URL, with the same objects. Returns once it is ready."""


class Kube:
    """A server in a contract test."""

    def __init__(self, server: ControlledServer, proxy: TcpProxy, namespace: str, clients: AsyncExitStack) -> None:
        self.namespace = namespace
        """Empty, and of this test only."""
        self.proxy = proxy
        """Between the clients and the server. It is not between `direct` and the server."""
        self._server = server
        self._clients = clients
        self.api = self.client()
        """A client of an administrator."""
        self.direct = self._make(server.url)
        """Another one, whose connections do not fail."""

    def client(
        self,
        *,
        timeout: timedelta = REQUEST_TIMEOUT,
        watch_timeout: timedelta = WATCH_TIMEOUT,
        idle_timeout: timedelta = IDLE_TIMEOUT,
    ) -> KubeApi:
        """Return another client of an administrator, which is closed at the end of the test."""
        url = urlsplit(self._server.url)._replace(netloc=f"127.0.0.1:{self.proxy.port}").geturl()
        return self._make(url, watch_timeout, timeout=timeout, idle_timeout=idle_timeout)

    async def expire_versions(self) -> None:
        """Make every version before the current one too old."""
        await self._server.expire_versions()

    async def restart(self) -> None:
        """Restart the server."""
        await self._server.restart()

    def _make(self, url: str, watch_timeout: timedelta = WATCH_TIMEOUT, **timeouts: timedelta) -> KubeApi:
        connection = ApiConnection(self._server.access(url), user_agent=USER_AGENT, **timeouts)
        client = KubeClient(connection, watch_timeout=watch_timeout)
        self._clients.push_async_callback(client.close)
        return client


@asynccontextmanager
async def open_kube(server: ControlledServer) -> AsyncIterator[Kube]:
    """Prepare a server for one test."""
    target = urlsplit(server.url)
    assert target.hostname is not None
    assert target.port is not None
    async with TcpProxy(target.hostname, target.port) as proxy, AsyncExitStack() as clients:
        kube = Kube(server, proxy, f"test-{uuid.uuid4().hex[:12]}", clients)
        await kube.direct.create(NAMESPACE, {"metadata": {"name": kube.namespace}})
        await install_widgets(kube.direct)
        yield kube
