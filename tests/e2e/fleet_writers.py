"""Clients that write until the server is killed, and check that confirmed writes are kept."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from datetime import UTC, datetime

import aiohttp
import msgspec

from tests.support.fleet.http_client import FleetHttp, report

_NEVER = datetime.min.replace(tzinfo=UTC)


class WrittenCluster:
    """A cluster with a single writer: the state that responses confirmed, and the last state that was sent."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.id = ""
        """Empty until the creation is confirmed."""
        self.confirmed_number = 0
        """The number in the spec. Each patch increments it, and so creates a generation."""
        self.sent_number = 0
        self.confirmed_report = _NEVER
        """The time of the last report."""
        self.sent_report = _NEVER

    @property
    def path(self) -> str:
        return f"clusters/{self.id}"

    async def create(self, fleet: FleetHttp) -> bool:
        """Create it, or retry a creation without a response. Return whether an earlier attempt had succeeded."""
        body = {"name": self.name, "spec": {"number": 0}, "labels": {"writer": self.name.partition(".")[0]}}
        reply = await fleet.call("POST", "clusters", body, {"Idempotency-Key": self.name})
        assert reply.status == 201, reply
        self.id = reply.json["id"]
        return reply.headers.get("Idempotent-Replayed") == "true"

    async def patch(self, fleet: FleetHttp) -> None:
        self.sent_number += 1
        reply = await fleet.call("PATCH", self.path, {"spec": {"number": self.sent_number}})
        assert reply.status == 200, reply
        self.confirmed_number = self.sent_number

    async def report(self, fleet: FleetHttp) -> None:
        self.sent_report = datetime.now(UTC)
        body = report("dns", generation=1 + self.confirmed_number, at=self.sent_report)
        reply = await fleet.call("POST", f"{self.path}/statuses", body)
        assert reply.status == 201, reply
        self.confirmed_report = self.sent_report

    async def verify(self, fleet: FleetHttp) -> None:
        """Check that confirmed writes are kept and that nothing is stored that was not sent."""
        document, statuses = await fleet.read(self.path)
        history = await fleet.get(f"{self.path}/history", size="1")
        number = msgspec.json.decode(document.spec)["number"]

        assert self.confirmed_number <= number <= self.sent_number
        assert document.generation == history["total"] == 1 + number
        last_report = max((status.last_report_time for status in statuses), default=_NEVER)
        assert self.confirmed_report <= last_report <= self.sent_report
        # A read confirms a write like a response does: the next crash must not lose it.
        self.confirmed_number, self.confirmed_report = number, last_report


class Writers:
    """Concurrent writers. Each creates, patches and reports on one cluster after another."""

    def __init__(self, count: int) -> None:
        self.clusters: list[WrittenCluster] = []
        self._count = count
        self._rounds = itertools.count()

    async def run(self, fleet: FleetHttp, *, responses: int, then: Callable[[], None]) -> None:
        """Write until the server disconnects. Call `then` after this many responses, while the writers go on."""
        count = 0
        number = next(self._rounds)

        def on_response() -> None:
            nonlocal count
            count += 1
            if count == responses:
                then()

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for writer in range(self._count):
                group.create_task(self._write(fleet, f"w{writer}-{number}", on_response))
        assert count >= responses, "the server disconnected too early"

    async def _write(self, fleet: FleetHttp, writer: str, on_response: Callable[[], None]) -> None:
        try:
            for number in range(1000):
                cluster = WrittenCluster(f"{writer}.{number}")
                self.clusters.append(cluster)
                await cluster.create(fleet)
                on_response()
                for _ in range(3):
                    await cluster.patch(fleet)
                    on_response()
                    await cluster.report(fleet)
                    on_response()
        except aiohttp.ClientError:
            return
        raise AssertionError("the server did not disconnect")
