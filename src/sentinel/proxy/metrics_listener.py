"""The address of `observability.metrics`. A reload may move it."""

from __future__ import annotations

from sentinel.core.proxy.model import MetricsEndpoint
from sentinel.runtime.listening import Address
from sentinel.runtime.log import Log
from sentinel.runtime.probes.listener import Listener
from sentinel.runtime.probes.metrics import Metrics
from sentinel.runtime.probes.pages import Page, metrics_pages


class MetricsListener:
    """Serves metrics where the configuration says, or nowhere."""

    def __init__(self, *, metrics: Metrics, log: Log) -> None:
        (self._page,) = metrics_pages(metrics).values()
        self._log = log
        self._endpoint: MetricsEndpoint | None = None
        self._pages: dict[str, Page] = {}
        self._listener: Listener | None = None

    async def move(self, endpoint: MetricsEndpoint | None) -> None:
        """Serve metrics there from now on. Raises `ListenError`, and then changes nothing."""
        if endpoint == self._endpoint:
            return
        before, earlier = self._endpoint, self._listener
        if endpoint is not None and before is not None and endpoint.address == before.address:
            self._pages.clear()
            self._pages[endpoint.path] = self._page
            self._endpoint = endpoint
            return
        if endpoint is None:
            self._listener = None
        else:
            pages = {endpoint.path: self._page}
            listener = Listener(Address(endpoint.address.host, endpoint.address.port), pages, log=self._log)
            await listener.__aenter__()
            self._listener, self._pages = listener, pages
        self._endpoint = endpoint
        if earlier is not None:
            await earlier.__aexit__(None, None, None)
