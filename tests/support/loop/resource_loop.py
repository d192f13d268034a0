"""The closed loop as users run it - API, pulses, adapters, a broker between them - and one resource within it.

The same scenarios are played in several worlds. A world says how its processes are started, stopped and killed;
what happens to a resource is the same in all of them, and is seen through the API, through the workshop where the
adapters' work is done, and in the log of the pulses.
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
from types import TracebackType
from typing import Self

import aiohttp
import msgspec

from tests.support.brokers.rabbitmq import TIMEOUT, unique
from tests.support.fleet.http_client import FleetHttp
from tests.support.loop import loop_adapters
from tests.support.loop.fake_backend import Visit, Workshop
from tests.support.loop.status_view import Report, Standing, read_report, read_standing
from tests.support.processes.service import Line, ServiceProcess
from tools.services import free_port

ADAPTERS = ("quota", "zones")
NOBODY = "nobody"
"""An adapter that is required and that nobody runs."""
KINDS: Sequence[Mapping[str, object]] = (
    {"plural": "clusters", "kind": "Cluster", "required_adapters": ADAPTERS},
    {"plural": "workloads", "kind": "Workload", "required_adapters": ["zones"]},
    {"plural": "manifests", "kind": "Manifest", "required_adapters": ["zones", NOBODY]},
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


class Published(msgspec.Struct, frozen=True):
    """What a pulse says of an event that it has published."""

    event_id: str
    resource_id: str
    generation: int
    reason: str


class Loop(ABC):
    """A world. It runs between `async with` and its end, where everything that still runs is killed."""

    def __init__(self, directory: Path, settings: Mapping[str, str] = SETTINGS) -> None:
        self.directory = directory
        self._settings = settings
        self.workshop = Workshop()
        self.url = f"http://127.0.0.1:{free_port()}"
        """The API's, also after a restart."""
        self.fleet = FleetHttp(self.url)
        self.processes: list[ServiceProcess] = []
        """All that there have been: the log of the former ones still tells."""
        self._faults_told = 0
        module = Path(loop_adapters.__file__)
        shutil.copy(module, directory / module.name)

    async def __aenter__(self) -> Self:
        await self.workshop.__aenter__()
        await self.fleet.__aenter__()
        try:
            await self.mend()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Whoever is being held would otherwise keep its connection until the very end.
        await self.workshop.release()
        await self.end()
        await self.fleet.__aexit__(kind, error, trace)
        await self.workshop.__aexit__(kind, error, trace)

    @abstractmethod
    async def mend(self) -> None:
        """Starts whatever does not run; returns when it serves."""

    @abstractmethod
    async def end(self) -> None:
        """Kills whatever runs."""

    @abstractmethod
    async def kill_adapter(self, name: str) -> None:
        """As a power cut would."""

    @abstractmethod
    async def start_adapter(self, name: str) -> None: ...

    @abstractmethod
    def without_adapter(self, name: str) -> AbstractAsyncContextManager[None]:
        """Meanwhile this adapter does not run; it was stopped in order."""

    @abstractmethod
    def without_api(self) -> AbstractAsyncContextManager[None]:
        """Meanwhile there is no API; it was killed."""

    @abstractmethod
    def pulse(self, plural: str) -> ServiceProcess:
        """The process that polls this kind."""

    @property
    def environ(self) -> dict[str, str]:
        """What every process is given."""
        return {**self._settings, "WORKSHOP_URL": self.workshop.url}

    def adapter_file(self, name: str, *, endpoint: str = "") -> Path:
        """An adapter's settings, beside its module."""
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

    def published(self, resource_id: str) -> list[Published]:
        """What the pulses say they have published about a resource."""
        return [
            msgspec.convert(line, Published)
            for process in self.processes
            for line in process.lines
            if line.get("event") == "event.published" and line["resource_id"] == resource_id
        ]

    async def reason_of(self, event_id: str) -> str:
        """Why a pulse published this event."""

        def told() -> str | None:
            lines = (line for process in self.processes for line in process.lines)
            of_event = (line for line in lines if line.get("event") == "event.published")
            return next((str(line["reason"]) for line in of_event if line["event_id"] == event_id), None)

        # The adapter may have seen the event before the pulse has had its confirmation.
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            while (reason := told()) is None:  # noqa: ASYNC110 - it is in one of several logs
                await asyncio.sleep(0.02)
        return reason

    def faults(self) -> list[Line]:
        """The errors with a traceback that were logged since somebody last asked; those of a task are none."""
        lines = (line for process in self.processes for line in process.lines if line.get("level") == "error")
        faults = [line for line in lines if "traceback" in line and line["event"] != "evaluation.broken"]
        new, self._faults_told = faults[self._faults_told :], len(faults)
        return new

    async def polls(self, plural: str, count: int = 2) -> None:
        """So many of a kind's polls, ended from now on; the first of them may have begun before."""
        pulse = self.pulse(plural)
        for _ in range(count):
            await pulse.until_event("cycle.done", since=len(pulse.lines), resource_type=plural)

    def subject(self, plural: str = "clusters") -> Subject:
        """A resource that is not there yet, so that its tasks can be prepared before anybody comes for them."""
        return Subject(self, plural, unique(plural))


class Subject:
    """One resource, and what is known of it."""

    def __init__(self, loop: Loop, plural: str, resource_id: str) -> None:
        self.id = resource_id
        self.path = f"{plural}/{resource_id}"
        self._loop = loop
        self._plural = plural

    async def create(self, *, chained: bool = False) -> Self:
        """Chained, its adapters depend on each other: zones on quota."""
        spec = {"size": 1, "chained": chained}
        await self._loop.fleet.create(self.id, self._plural, id=self.id, spec=spec)
        return self

    async def change(self, size: int = 2) -> None:
        """Raises the generation."""
        reply = await self._loop.fleet.call("PATCH", self.path, {"spec": {"size": size}})
        assert reply.status == 200, reply

    async def ask_for_pulse(self) -> None:
        reply = await self._loop.fleet.call("POST", f"{self.path}/pulse")
        assert reply.status == 202, reply

    async def pause(self) -> None:
        """From now on it gets no pulse."""
        reply = await self._loop.fleet.call("POST", f"{self.path}/pause")
        assert reply.status == 202, reply

    async def delete(self) -> None:
        reply = await self._loop.fleet.call("DELETE", self.path)
        assert reply.status == 202, reply

    async def remove(self) -> None:
        """Leaves nothing behind that would be looked at for ever."""
        await self._loop.fleet.call("DELETE", self.path)
        await self._loop.fleet.call("POST", f"{self.path}/force-delete", {"reason": "the test is over"})

    async def standing(self) -> Standing:
        return read_standing(await self._loop.fleet.get(self.path))

    async def reports(self) -> dict[str, Report]:
        """The last that the API took of each adapter."""
        listed = await self._loop.fleet.get(f"{self.path}/statuses")
        return {
            item["adapter"]: read_report(item, item["last_report_time"], is_taken=True) for item in listed["items"]
        }

    async def discarded(self) -> list[Report]:
        """Those that the API did not take, as far as it remembers."""
        listed = await self._loop.fleet.get(f"{self.path}/statuses/discarded")
        return [read_report(item, item["observed_time"], is_taken=False) for item in listed["items"]]

    async def until(self, holds: Callable[[Standing], bool], *, within: timedelta = TIMEOUT) -> Standing:
        """Asks the API until this holds, which nobody announces; it may be away meanwhile."""
        seen: Standing | str = "nothing"
        try:
            async with asyncio.timeout(within.total_seconds()):
                while True:
                    try:
                        seen = await self.standing()
                        if holds(seen):
                            return seen
                    except aiohttp.ClientError as error:
                        seen = str(error)
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"it does not come to hold: {seen}, {await self.reports()}") from None

    async def until_ready(self, generation: int = 1, *, within: timedelta = TIMEOUT) -> Standing:
        return await self.until(lambda now: now.is_ready and now.generation == generation, within=within)

    async def until_gone(self) -> None:
        await self._loop.fleet.until(404, self.path)

    async def until_looked_at_because(self, reason: str, *, since: int) -> Visit:
        """Waits until zones has looked again since that mark, at an event that was published for this reason; on
        a slow machine, events from before may still be on their way."""
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            for count in itertools.count(1):
                look = (await self._loop.workshop.until(self.id, count=count, since=since))[count - 1]
                if await self._loop.reason_of(look.event_id) == reason:
                    return look
        raise AssertionError("counting does not end")

    async def until_evaluated(
        self, adapter: str = "zones", *, since: int, generation: int | None = None
    ) -> Report:
        """Waits until an adapter has looked again since that mark, and the API has heard of it; what it heard."""
        (visit, *_) = await self._loop.workshop.until(self.id, adapter, generation=generation, since=since)
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            while (heard := await self._heard_of(visit)) is None:  # noqa: ASYNC110 - nobody announces it
                await asyncio.sleep(0.05)
        return heard

    async def _heard_of(self, visit: Visit) -> Report | None:
        known = (*(await self.reports()).values(), *await self.discarded())
        about = [each for each in known if (each.adapter, each.generation) == (visit.adapter, visit.generation)]
        return min((each for each in about if each.time >= visit.time), key=lambda each: each.time, default=None)
