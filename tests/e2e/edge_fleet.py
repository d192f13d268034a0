"""A fleet of real agents and proxies on this machine, an application behind them, and a hub that can be killed.

All proxies run the same configurations. Each adds its number to the ports, as `sentinel up` does it. Every version
greets with its own name, by which the application behaves: it fails, is slow, or holds a health check for as long
as a test wants.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from sentinel.cli.up.instances import ports
from sentinel.cli.up.instances.folders import COMMAND
from sentinel.cli.up.instances.ports import Ports
from tests.support.http.scripted_server import ReceivedRequest, ScriptedResponse, ScriptedServer
from tests.support.processes.agent import AgentProcess, Host
from tests.support.processes.hub import TIMEOUT, RunningHub, serving
from tests.support.processes.service import CompletedCommand, ServiceProcess, run_command
from tools.services.server import free_port

CONFIG = "app"
_SLOW_SECONDS = 0.3
_START_TIMEOUT = 240.0


class Application:
    """What the proxies forward to. Versions that are not named here work."""

    def __init__(self) -> None:
        self.failing: set[str] = set()
        """Every other request to these versions fails."""
        self.slow: set[str] = set()
        self.ill: set[tuple[str, str]] = set()
        """Health checks of these versions on these instances fail."""
        self.holding: dict[str, asyncio.Event] = {}
        """Health checks of these versions wait for the event."""
        self.ids: dict[str, str] = {}
        """Instances by the `Host` of requests to their proxies."""
        self.held: set[str] = set()
        """The instances whose health checks wait, or have waited."""
        self.answered: Counter[tuple[str, str]] = Counter()
        """Requests of users, by version and instance."""
        self._server = ScriptedServer(self._respond)

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        for event in self.holding.values():
            event.set()
        await self._server.__aexit__(*error)

    @property
    def address(self) -> str:
        return self._server.url.removeprefix("http://")

    @asynccontextmanager
    async def hold(self, version: str) -> AsyncIterator[asyncio.Event]:
        """Let the health checks of a version wait until the event is set, at the latest at the end."""
        self.held.clear()
        self.holding[version] = event = asyncio.Event()
        try:
            yield event
        finally:
            event.set()

    async def _respond(self, request: ReceivedRequest) -> ScriptedResponse:
        self._server.requests.clear()
        version, instance = request.headers["X-Version"], self.ids[request.headers["Host"]]
        if request.path == "/health":
            if version in self.holding and not self.holding[version].is_set():
                self.held.add(instance)
                await self.holding[version].wait()
            return ScriptedResponse(503 if (version, instance) in self.ill else 200)
        self.answered[version, instance] += 1
        if version in self.slow:
            await asyncio.sleep(_SLOW_SECONDS)
        fails = version in self.failing and self.answered[version, instance] % 2
        return ScriptedResponse(500 if fails else 200, version.encode())


class Edge(Host):
    """One instance: a proxy and an agent, which can be killed and started again."""

    def __init__(self, folder: Path, number: int, block: Ports, *, hub: str, first: str) -> None:
        """`first` is what the proxy runs before anything is assigned to it."""
        self.id = f"edge-{number}"
        super().__init__(folder, hub=hub, instance_id=self.id)
        self._number = number
        self.port, self.metrics_port = block.listener + number, block.metrics + number
        self.config.write_text(first)
        self.settings["instance"]["labels"] = {"number": str(number)}
        self.settings["proxy"] |= {
            "test_command": [*COMMAND, "proxy", "--test", "-c", "{config}"],
            "health_url": f"{self.url}/health",
            # A health check that a test holds waits for it.
            "health": {"attempts": 3, "interval": "100ms", "timeout": "60s"},
            "metrics_url": f"http://127.0.0.1:{self.metrics_port}/metrics",
        }
        self._stack = AsyncExitStack()
        self.agent_process: AgentProcess
        self.proxy_process: ServiceProcess

    async def __aenter__(self) -> Self:
        await self.start_proxy()
        await self.start_agent()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def start_proxy(self) -> None:
        arguments = ("--port-offset", str(self._number), "--pid-file", str(self.folder / "proxy.pid"))
        process = ServiceProcess(["proxy", "-c", str(self.config), *arguments], environ={})
        self.proxy_process = await self._stack.enter_async_context(process)
        await process.until_event("service.started", timeout=_START_TIMEOUT)

    async def start_agent(self) -> None:
        self.agent_process = await self._stack.enter_async_context(self.agent())
        await self.agent_process.until_event("hub.connected", timeout=_START_TIMEOUT)

    async def restart_proxy(self) -> None:
        self.proxy_process.send_signal(signal.SIGKILL)
        await self.proxy_process.exit_code()
        await self.start_proxy()

    async def kill_agent(self) -> None:
        self.agent_process.send_signal(signal.SIGKILL)
        await self.agent_process.exit_code()


class EdgeFleet:
    """The hub, its instances, and the application."""

    def __init__(self, folder: Path, count: int, *hub_options: str) -> None:
        self._folder = folder
        self._block = _free_block()
        self._hub_options = hub_options
        self._hub_port = free_port()
        self._count = count
        self._stack = AsyncExitStack()
        self._saved: dict[str, int] = {}
        self.application = Application()
        self.edges: dict[str, Edge] = {}
        self.hub: RunningHub

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        await self._stack.enter_async_context(self.application)
        self._http = await self._stack.enter_async_context(aiohttp.ClientSession())
        await self.start_hub()
        await asyncio.gather(*(self.start_edge(number) for number in range(1, self._count + 1)))

    async def start_edge(self, number: int) -> Edge:
        """Start an instance that runs until the end."""
        folder, first = self._folder / f"edge-{number}", self.text("nothing")
        edge = Edge(folder, number, self._block, hub=f"127.0.0.1:{self._hub_port}", first=first)
        self.edges[edge.id] = edge
        self.application.ids[f"127.0.0.1:{edge.port}"] = edge.id
        return await self._stack.enter_async_context(edge)

    async def start_hub(self) -> None:
        database_url = f"sqlite:///{self._folder / 'hub.db'}"
        running = serving(database_url, *self._hub_options, port=self._hub_port)
        self.hub = await self._stack.enter_async_context(running)

    async def kill_hub(self) -> None:
        self.hub.process.send_signal(signal.SIGKILL)
        await self.hub.process.exit_code()

    def ids(self, first: int, last: int) -> list[str]:
        return [f"edge-{number}" for number in range(first, last + 1)]

    async def version(self, name: str) -> int:
        """Return the number of the version of this name, which is saved if it is new."""
        if name not in self._saved:
            if self._saved:
                saved = await self.hub.call("POST", f"configs/{CONFIG}/versions", {"content": self.text(name)})
            else:
                saved = await self.hub.call("POST", "configs", {"id": CONFIG, "content": self.text(name)})
            self._saved[name] = saved["version"]
        return self._saved[name]

    async def run(self, name: str, ids: Collection[str]) -> None:
        """Assign a version by hand, and wait until it runs."""
        number = await self.version(name)
        body = {"config_id": CONFIG, "version": number}
        for each in ids:
            await self.hub.call("PUT", f"instances/{each}/assignment", body)
        for each in ids:
            await self.hub.until_instance(each, state="online", in_sync=True, assigned=f"{CONFIG}@{number}")

    async def deploy(self, name: str, ids: Sequence[str], **request: Any) -> str:
        """Start a deployment, by default in batches of one without delay. Return its id."""
        body = {"config_id": CONFIG, "version": await self.version(name), "targets": {"ids": list(ids)}}
        defaults = {"strategy": "rolling", "rolling": {"batch_delay": "0s"}}
        created = await self.hub.call("POST", "deployments", body | defaults | request)
        return str(created["id"])

    async def command(self, *words: str) -> CompletedCommand:
        """Run a command of `sentinel hub` against this hub."""
        environ = {"SENTINEL_SERVER": await self.hub.process.url()}
        return await run_command("hub", *words, environ=environ, timeout=TIMEOUT.total_seconds())

    async def until(self, deployment_id: str, reached: Callable[[Mapping[str, Any]], bool]) -> dict[str, Any]:
        """Wait until a deployment has come so far."""
        found: dict[str, Any] = {}
        try:
            async with asyncio.timeout(TIMEOUT.total_seconds()):
                while not reached(found := await self.hub.call("GET", f"deployments/{deployment_id}")):  # noqa: ASYNC110  # of another process
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{found}; {await self.rows(deployment_id)}") from None
        return found

    async def until_over(self, deployment_id: str) -> tuple[str, str]:
        """Wait for the end. Return the state, and that of the rollback."""
        found = await self.until(
            deployment_id, lambda found: found["finished_time"] is not None and found["rollback"] != "running"
        )
        return found["state"], found["rollback"]

    async def until_row(self, deployment_id: str, instance_id: str, *states: str) -> None:
        """Wait until an instance is in one of these states."""
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            while (await self.rows(deployment_id))[instance_id] not in states:  # noqa: ASYNC110  # of another process
                await asyncio.sleep(0.05)

    async def until_held(self, count: int) -> set[str]:
        """Wait until so many instances wait for their health checks, and return them."""
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            while len(self.application.held) < count:  # noqa: ASYNC110  # a few times in all
                await asyncio.sleep(0.05)
        return set(self.application.held)

    async def calls(self, *methods: str) -> list[float]:
        """How often agents have made each of these calls so far."""
        text = (await self.hub.rest.call("GET", "/metrics")).content.decode()
        counted = {
            sample.labels["method"]: sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "hub_grpc_calls_total" and sample.labels["status"] == "OK"
        }
        return [counted.get(method, 0.0) for method in methods]

    async def rows(self, deployment_id: str) -> dict[str, str]:
        """The states of all targets."""
        found = await self.hub.call("GET", f"deployments/{deployment_id}/instances?size=1000")
        return {row["instance_id"]: row["state"] for row in found["items"]}

    async def messages(self, deployment_id: str) -> dict[str, str]:
        """What is said about each target."""
        found = await self.hub.call("GET", f"deployments/{deployment_id}/instances?size=1000")
        return {row["instance_id"]: row["message"] for row in found["items"]}

    async def story(self, deployment_id: str) -> list[tuple[str, str]]:
        """What has become of the targets, in this order: instance and state."""
        found = await self.hub.call("GET", f"deployments/{deployment_id}/events?size=1000")
        changes = [each["data"] for each in found["items"] if each["type"] == "deployment.instance"]
        return [(each["instance_id"], each["state"]) for each in changes]

    async def serving(self, ids: Collection[str]) -> dict[str, str]:
        """Ask the proxies which version they run."""
        return {each: await self.greeting(each) for each in ids}

    async def greeting(self, instance_id: str) -> str:
        async with self._http.get(f"{self.edges[instance_id].url}/") as response:
            return await response.text()

    @asynccontextmanager
    async def load(self, ids: Collection[str], *, interval: float = 0.1) -> AsyncIterator[None]:
        """Send requests to these proxies, as users do."""
        tasks = [asyncio.create_task(self._use(self.edges[each].url, interval)) for each in ids]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _use(self, url: str, interval: float) -> None:
        while True:
            began = time.monotonic()
            try:
                async with self._http.get(url) as response:
                    await response.read()
            except (aiohttp.ClientError, OSError):
                pass  # a proxy that restarts
            await asyncio.sleep(max(0.0, interval - (time.monotonic() - began)))

    def text(self, name: str, *, more: str = "") -> str:
        """Return a configuration that greets with this name. `more` are further routes."""
        return f"""
system
listeners {{ listener "web" {{ address "127.0.0.1:{self._block.listener}" }} }}
routes {{
    route "all" {{
        matches {{ path-prefix "/" }}
        upstream "application"
        policies {{ request-headers {{ set {{ X-Version "{name}" }} }} }}
    }}
    {more}
}}
upstreams {{ upstream "application" {{ target "{self.application.address}" }} }}
observability {{ metrics {{ address "127.0.0.1:{self._block.metrics}"; path "/metrics" }} }}
"""


def _free_block() -> Ports:
    """Ports that follow each other, below those that the system hands out."""
    for base in range(11_000, 32_000, 100):
        block = Ports(base)
        if all(map(ports.is_free, block.all)):
            return block
    raise AssertionError("no free block of ports")
