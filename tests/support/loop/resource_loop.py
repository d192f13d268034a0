"""The closed loop of API, pulses, broker and adapters, and one resource in it.

The same scenarios run in several deployments. A deployment starts, stops and kills its processes. Tests observe a
resource through the API, the adapters' fake backend and the log of the pulses.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Self

import aiohttp
import msgspec

from tests.support.brokers.rabbitmq import TIMEOUT, unique
from tests.support.fleet.http_client import FleetHttp
from tests.support.loop import loop_adapters
from tests.support.loop.fake_backend import FakeBackend, TaskCall
from tests.support.loop.status_view import ReportView, StatusView, read_report, read_status
from tests.support.processes.service import Line, ServiceProcess
from tools.services.server import free_port

ADAPTERS = ("quota", "zones")
MISSING_ADAPTER = "nobody"
"""A required adapter that does not run."""
KINDS: Sequence[Mapping[str, object]] = (
    {"plural": "clusters", "kind": "Cluster", "required_adapters": ADAPTERS},
    {"plural": "workloads", "kind": "Workload", "required_adapters": ["zones"]},
    {"plural": "manifests", "kind": "Manifest", "required_adapters": ["zones", MISSING_ADAPTER]},
)
PLURALS = tuple(str(kind["plural"]) for kind in KINDS)
MAX_AGE_NOT_READY = timedelta(seconds=1)
MAX_AGE_READY = timedelta(seconds=3)
SETTINGS = {
    "SENTINEL_POLL_INTERVAL": "200ms",
    "SENTINEL_MAX_AGE_NOT_READY": "1s",
    "SENTINEL_MAX_AGE_READY": "3s",
    "SENTINEL_PULSE_ON_PROGRESS": "false",
    "SENTINEL_LOG__LEVEL": "info",
    "SENTINEL_LOG__FORMAT": "json",
}


class PublishedEvent(msgspec.Struct, frozen=True):
    """A published event, as a pulse logs it."""

    event_id: str
    resource_id: str
    generation: int
    reason: str


class ResourceLoop(ABC):
    """A deployment. It runs inside `async with`; the end kills every process."""

    def __init__(self, directory: Path, settings: Mapping[str, str] = SETTINGS) -> None:
        self.directory = directory
        self._settings = settings
        self.backend = FakeBackend()
        self.url = f"http://127.0.0.1:{free_port()}"
        """The URL of the API, which stays the same after a restart."""
        self.fleet = FleetHttp(self.url)
        self.processes: list[ServiceProcess] = []
        """All processes so far, for their logs."""
        self._tracebacks_seen = 0
        module = Path(loop_adapters.__file__)
        shutil.copy(module, directory / module.name)

    async def __aenter__(self) -> Self:
        await self.backend.__aenter__()
        await self.fleet.__aenter__()
        try:
            await self.start_missing()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        # Delayed responses would otherwise keep their connections open.
        await self.backend.release()
        await self.kill_all()
        await self.fleet.__aexit__(*error)
        await self.backend.__aexit__(*error)

    @abstractmethod
    async def start_missing(self) -> None:
        """Start the processes that do not run, and wait until they serve."""

    @abstractmethod
    async def kill_all(self) -> None:
        """Kill every process."""

    @abstractmethod
    async def kill_adapter(self, name: str) -> None:
        """Kill it like a power cut."""

    @abstractmethod
    async def start_adapter(self, name: str) -> None: ...

    @abstractmethod
    def without_adapter(self, name: str) -> AbstractAsyncContextManager[None]:
        """Stop this adapter gracefully inside the context."""

    @abstractmethod
    def without_api(self) -> AbstractAsyncContextManager[None]:
        """Kill the API inside the context."""

    @abstractmethod
    def pulse(self, plural: str) -> ServiceProcess:
        """The process that polls this kind."""

    @property
    def environ(self) -> dict[str, str]:
        """The environment of every process."""
        return {**self._settings, "BACKEND_URL": self.backend.url}

    def adapter_file(self, name: str, *, endpoint: str = "") -> Path:
        """Write an adapter's settings next to its module."""
        file = self.directory / f"{name}.yaml"
        settings = {
            "task": f"loop_adapters:{name}",
            "hyperfleet_api": {"endpoint": endpoint or self.url, "timeout": "5s"},
        }
        file.write_bytes(msgspec.json.encode(settings))
        return file

    def kinds_file(self) -> Path:
        file = self.directory / "kinds.yaml"
        file.write_bytes(msgspec.json.encode({"kinds": KINDS}))
        return file

    def published(self, resource_id: str) -> list[PublishedEvent]:
        """The published events about a resource, from the logs of the pulses."""
        return [
            msgspec.convert(line, PublishedEvent)
            for process in self.processes
            for line in process.lines
            if line.get("event") == "event.published" and line["resource_id"] == resource_id
        ]

    async def reason_of(self, event_id: str) -> str:
        """Return why a pulse published this event."""

        def logged_reason() -> str | None:
            lines = (line for process in self.processes for line in process.lines)
            of_event = (line for line in lines if line.get("event") == "event.published")
            return next((str(line["reason"]) for line in of_event if line["event_id"] == event_id), None)

        # The adapter may get the event before the pulse gets the broker's confirmation.
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            while (reason := logged_reason()) is None:  # noqa: ASYNC110 - there is no event to await
                await asyncio.sleep(0.02)
        return reason

    def new_tracebacks(self) -> list[Line]:
        """The logged tracebacks since the last call, without those of tasks."""
        lines = (line for process in self.processes for line in process.lines if line.get("level") == "error")
        faults = [line for line in lines if "traceback" in line and line["event"] != "evaluation.broken"]
        new, self._tracebacks_seen = faults[self._tracebacks_seen :], len(faults)
        return new

    async def until_polled(self, plural: str, count: int = 2) -> None:
        """Wait for the end of `count` polls of a kind; the first may already be running."""
        pulse = self.pulse(plural)
        for _ in range(count):
            await pulse.until_event("cycle.done", since=len(pulse.lines), resource_type=plural)

    def resource(self, plural: str = "clusters") -> LoopResource:
        """A resource that does not exist yet, so that a test can set up its tasks first."""
        return LoopResource(self, plural, unique(plural))


class LoopResource:
    """One resource of the loop."""

    def __init__(self, loop: ResourceLoop, plural: str, resource_id: str) -> None:
        self.id = resource_id
        self.path = f"{plural}/{resource_id}"
        self._loop = loop
        self._plural = plural

    async def create(self, *, chained: bool = False) -> Self:
        """Create it; if `chained`, the adapter zones waits for quota."""
        spec = {"size": 1, "chained": chained}
        await self._loop.fleet.create(self.id, self._plural, id=self.id, spec=spec)
        return self

    async def change(self, size: int = 2) -> None:
        """Change the spec, which increments the generation."""
        reply = await self._loop.fleet.call("PATCH", self.path, {"spec": {"size": size}})
        assert reply.status == 200, reply

    async def request_pulse(self) -> None:
        reply = await self._loop.fleet.call("POST", f"{self.path}/pulse")
        assert reply.status == 202, reply

    async def pause(self) -> None:
        reply = await self._loop.fleet.call("POST", f"{self.path}/pause")
        assert reply.status == 202, reply

    async def delete(self) -> None:
        reply = await self._loop.fleet.call("DELETE", self.path)
        assert reply.status == 202, reply

    async def remove(self) -> None:
        """Remove it completely, so that no pulse is sent for it after the test."""
        await self._loop.fleet.call("DELETE", self.path)
        await self._loop.fleet.call("POST", f"{self.path}/force-delete", {"reason": "the test is over"})

    async def status(self) -> StatusView:
        return read_status(await self._loop.fleet.get(self.path))

    async def reports(self) -> dict[str, ReportView]:
        """The latest stored report of each adapter."""
        listed = await self._loop.fleet.get(f"{self.path}/statuses")
        return {
            item["adapter"]: read_report(item, item["last_report_time"], is_stored=True)
            for item in listed["items"]
        }

    async def discarded(self) -> list[ReportView]:
        """The discarded reports that the API still lists."""
        listed = await self._loop.fleet.get(f"{self.path}/statuses/discarded")
        return [read_report(item, item["observed_time"], is_stored=False) for item in listed["items"]]

    async def until(self, holds: Callable[[StatusView], bool], *, timeout: timedelta = TIMEOUT) -> StatusView:
        """Poll the API until the condition holds; it may be down meanwhile."""
        seen: StatusView | str = "nothing"
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                while True:
                    try:
                        seen = await self.status()
                        if holds(seen):
                            return seen
                    except aiohttp.ClientError as error:
                        seen = str(error)
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"timeout; last status {seen}, reports {await self.reports()}") from None

    async def until_ready(self, generation: int = 1, *, timeout: timedelta = TIMEOUT) -> StatusView:
        return await self.until(lambda now: now.is_ready and now.generation == generation, timeout=timeout)

    async def until_gone(self) -> None:
        await self._loop.fleet.until(404, self.path)

    async def until_called_because(self, reason: str, *, since: int) -> TaskCall:
        """Wait until zones is called again because of an event with this reason. On a slow machine earlier events
        may still arrive."""
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            for count in itertools.count(1):
                call = (await self._loop.backend.until_called(self.id, count=count, since=since))[count - 1]
                if await self._loop.reason_of(call.event_id) == reason:
                    return call
        raise AssertionError("unreachable")

    async def until_evaluated(
        self, adapter: str = "zones", *, since: int, generation: int | None = None
    ) -> ReportView:
        """Wait until an adapter evaluates again and the API has its report; return the report."""
        (call, *_) = await self._loop.backend.until_called(self.id, adapter, generation=generation, since=since)
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            while (report := await self._report_on(call)) is None:  # noqa: ASYNC110 - there is no event to await
                await asyncio.sleep(0.05)
        return report

    async def _report_on(self, call: TaskCall) -> ReportView | None:
        known = (*(await self.reports()).values(), *await self.discarded())
        about = [each for each in known if (each.adapter, each.generation) == (call.adapter, call.generation)]
        return min((each for each in about if each.time >= call.time), key=lambda each: each.time, default=None)
