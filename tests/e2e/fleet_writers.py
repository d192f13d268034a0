"""Clients that write until the server dies under them, and remember what they were promised."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from datetime import UTC, datetime

import aiohttp
import msgspec

from tests.support.fleet.http_client import Body, FleetHttp, report

_NEVER = datetime.min.replace(tzinfo=UTC)


class Promise:
    """One resource as its only writer knows it: what was answered for sure, and what was sent besides."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.id = ""
        """Empty until its creation was answered."""
        self.patched = 0
        """The last number in the spec that was answered; each one sent makes a generation."""
        self.sent_patch = 0
        self.reported = _NEVER
        """The time of the last report that was answered."""
        self.sent_report = _NEVER

    @property
    def path(self) -> str:
        return f"clusters/{self.id}"

    @property
    def creation(self) -> Body:
        return {"name": self.name, "spec": {"number": 0}, "labels": {"writer": self.name.partition(".")[0]}}

    async def create(self, fleet: FleetHttp) -> bool:
        """Creates it, or repeats a creation whose answer was lost; whether an earlier try had succeeded."""
        reply = await fleet.call("POST", "clusters", self.creation, {"Idempotency-Key": self.name})
        assert reply.status == 201, reply
        self.id = reply.json["id"]
        return reply.headers.get("Idempotent-Replayed") == "true"

    async def patch(self, fleet: FleetHttp) -> None:
        self.sent_patch += 1
        reply = await fleet.call("PATCH", self.path, {"spec": {"number": self.sent_patch}})
        assert reply.status == 200, reply
        self.patched = self.sent_patch

    async def report(self, fleet: FleetHttp) -> None:
        self.sent_report = datetime.now(UTC)
        body = report("dns", generation=1 + self.patched, at=self.sent_report)
        reply = await fleet.call("POST", f"{self.path}/statuses", body)
        assert reply.status == 201, reply
        self.reported = self.sent_report

    async def verify(self, fleet: FleetHttp) -> None:
        """Everything that was promised is there, and nothing that was not sent."""
        document, statuses = await fleet.read(self.path)
        history = await fleet.get(f"{self.path}/history", size="1")
        number = msgspec.json.decode(document.spec)["number"]

        assert self.patched <= number <= self.sent_patch
        assert document.generation == history["total"] == 1 + number
        known = max((status.last_report_time for status in statuses), default=_NEVER)
        assert self.reported <= known <= self.sent_report
        # What has been seen is as good as answered: it may not vanish with the next crash.
        self.patched, self.reported = number, known


class Writers:
    """Many writers at once: each makes a resource, patches it, reports on it, and so on, until nobody answers."""

    def __init__(self, count: int) -> None:
        self.promises: list[Promise] = []
        self.answered = 0
        self._count = count
        self._rounds = itertools.count()

    async def run(self, fleet: FleetHttp, *, until: int, then: Callable[[], None]) -> None:
        """Writes; once `until` requests have been answered, does `then`, in the midst of it all."""
        self.answered = 0
        number = next(self._rounds)

        def count() -> None:
            self.answered += 1
            if self.answered == until:
                then()

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for writer in range(self._count):
                group.create_task(self._write(fleet, f"w{writer}-{number}", count))
        assert self.answered >= until, "the writers have ended before anything happened to the server"

    async def _write(self, fleet: FleetHttp, writer: str, count: Callable[[], None]) -> None:
        try:
            for number in range(1000):
                promise = Promise(f"{writer}.{number}")
                self.promises.append(promise)
                await promise.create(fleet)
                count()
                for _ in range(3):
                    await promise.patch(fleet)
                    count()
                    await promise.report(fleet)
                    count()
        except aiohttp.ClientError:
            return
        raise AssertionError("the server has answered everything")
