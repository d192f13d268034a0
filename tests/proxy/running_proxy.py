"""The small proxy in the test's own process, on free ports of loopback, from KDL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from sentinel.core import kdl
from sentinel.core.proxy.model import Configuration
from sentinel.core.proxy.reading import read
from sentinel.proxy.configuration_file import LoadedConfiguration
from sentinel.proxy.service import Proxy
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import get_logger
from sentinel.runtime.probes.metrics import Metrics

LISTENER = 'listeners { listener "web" { address "127.0.0.1:0" } }\n'


def configuration(text: str) -> Configuration:
    """Read a configuration without checking it: port 0 is invalid in a file."""
    parsed = kdl.parse(text)
    assert parsed.problems == ()
    return read(parsed.document)


def upstream(name: str, *urls: str, more: str = "") -> str:
    """Return an upstream whose targets are these servers."""
    targets = "; ".join(f'target "{url.removeprefix("http://")}"' for url in urls)
    return f'upstreams {{ upstream "{name}" {{ {targets}\n{more} }} }}\n'


def forward_all(url: str, *, route: str = "", more: str = "") -> str:
    """Return a configuration that forwards every request to one server. `route` and `more` add to both blocks."""
    return f'routes {{ route "all" {{ matches {{ path-prefix "/" }}; upstream "u"\n{route} }} }}\n' + upstream(
        "u", url, more=more
    )


class RunningProxy:
    """A proxy that serves. `wanted` is what the next reload reads."""

    def __init__(self, text: str, *, listeners: str = LISTENER) -> None:
        self.listeners = listeners
        self.wanted = LoadedConfiguration(configuration=configuration(listeners + text))
        self.stopping = Stopping()
        self.metrics = Metrics(component="proxy")
        assert self.wanted.configuration is not None
        self.proxy = Proxy(
            self.wanted.configuration,
            load=lambda: self.wanted,
            metrics=self.metrics,
            clock=SystemClock(),
            log=get_logger("proxy"),
        )

    @property
    def address(self) -> str:
        return str(self.proxy.listeners[0].address)

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    async def reload(self, text: str) -> None:
        self.wanted = LoadedConfiguration(configuration=configuration(self.listeners + text))
        await self.proxy.reload()

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric over all series with these labels."""
        return sum(
            sample.value
            for family in self.metrics.collect()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


@asynccontextmanager
async def running_proxy(text: str, *, listeners: str = LISTENER) -> AsyncIterator[RunningProxy]:
    """Run a proxy. At the end it drains."""
    running = RunningProxy(text, listeners=listeners)
    part = running.proxy.part()
    assert part.registry is not None
    running.metrics.add(part.registry)
    try:
        await running.proxy.start()
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for loop in part.loops:
                group.create_task(loop(running.stopping))
            yield running
            running.stopping.request()
    finally:
        await running.proxy.close()


@asynccontextmanager
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    """A client that neither follows redirects nor decompresses."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20), auto_decompress=False) as session:
        yield session
