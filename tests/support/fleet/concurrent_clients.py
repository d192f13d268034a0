"""Concurrent clients of the same resources, and a check of the result.

The expected state does not depend on the order of requests. Every patcher owns a member of the spec, so the last
value of each member and the number of generations are known. Of an adapter's reports, the newest by generation and
time stays. The responses must be consistent with some order of all requests.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from sentinel.core.fleet import aggregate
from sentinel.core.fleet.aggregate import AggregationInput
from tests.support.fleet.http_client import FleetHttp, report

REQUIRED = ("validation", "dns")
ADAPTERS = (*REQUIRED, "extra", "more", "other")
KINDS: Sequence[dict[str, object]] = (
    {"plural": "clusters", "kind": "Cluster", "required_adapters": list(REQUIRED)},
)


class SentRequests:
    """The requests that clients of one resource have sent, and the responses they got."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.generation = 1
        """The newest in any response, so that reports are never ahead of the resource."""
        self.spec: dict[str, int] = {}
        self.versions: dict[int, int] = {}
        """The version that each effective patch returned, by generation."""
        self.reports: dict[str, list[tuple[int, datetime]]] = {}
        self.works: dict[str, tuple[int, datetime]] = {}
        """The latest work in progress of each adapter that reports it."""
        self.stored = 0
        self.discarded = 0
        self._ticks = itertools.count()
        self._start = datetime.now(UTC)

    def next_time(self) -> datetime:
        """Return a later time with every call."""
        return self._start + timedelta(microseconds=next(self._ticks))


async def patcher(fleet: FleetHttp, sent: SentRequests, member: str, *, rounds: int) -> None:
    """Patch a member of the spec that no other client patches. Send each patch twice."""
    for value in range(rounds):
        patch = {"spec": {member: value}}

        changed = await fleet.call("PATCH", sent.path, patch)
        repeated = await fleet.call("PATCH", sent.path, patch)

        assert (changed.status, repeated.status) == (200, 200), (changed, repeated)
        generation = changed.json["generation"]
        assert generation not in sent.versions, "two patches returned the same generation"
        assert changed.json["spec"][member] == repeated.json["spec"][member] == value
        assert repeated.json["generation"] >= generation
        assert repeated.version >= changed.version
        sent.versions[generation] = changed.version
        sent.generation = max(sent.generation, generation)
        sent.spec[member] = value


async def reporter(fleet: FleetHttp, sent: SentRequests, adapter: str, *, rounds: int) -> None:
    """Report on the newest known generation. Other clients may report as the same adapter."""
    for number in range(rounds):
        generation, at = sent.generation, sent.next_time()
        sent.reports.setdefault(adapter, []).append((generation, at))

        reply = await fleet.call(
            "POST",
            f"{sent.path}/statuses",
            report(adapter, generation=generation, at=at, available="True" if number % 2 else "False"),
        )

        assert reply.status in (201, 204), reply
        if reply.status == 201:
            sent.stored += 1
        else:
            assert reply.headers["Discard-Reason"] in ("stale_generation", "stale_time")
            sent.discarded += 1


async def worker(fleet: FleetHttp, sent: SentRequests, adapter: str, *, rounds: int) -> None:
    """Report a failure and then work in progress. No other client may report as this adapter."""
    for number in range(rounds):
        generation, at = sent.generation, sent.next_time()
        available = "Unknown" if number else "False"

        reply = await fleet.call(
            "PUT", f"{sent.path}/statuses", report(adapter, generation=generation, at=at, available=available)
        )

        if number:
            assert (reply.status, reply.headers["Discard-Reason"]) == (204, "unknown"), reply
            sent.works[adapter] = generation, at
            sent.discarded += 1
        else:
            assert reply.status == 201, reply
            sent.reports[adapter] = [(generation, at)]
            sent.stored += 1


def clients(fleet: FleetHttp, sent: SentRequests, *, count: int, rounds: int) -> list[Coroutine[Any, Any, None]]:
    """Return clients of one resource. Half of them patch, half of them report.

    With several rounds, one more reports work in progress. It must survive the reports of the others, most of
    which are written without a lock.
    """
    return [
        *([worker(fleet, sent, "worker", rounds=rounds)] if rounds > 1 else []),
        *(
            patcher(fleet, sent, f"member_{number}", rounds=rounds)
            if number % 2
            else reporter(fleet, sent, ADAPTERS[number // 2 % len(ADAPTERS)], rounds=rounds)
            for number in range(count)
        ),
    ]


async def run_concurrently(clients: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all clients concurrently. The first failure cancels the others."""
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client)


async def verify(fleet: FleetHttp, sent: SentRequests) -> None:
    """Compare a resource with the requests that were sent."""
    changes = len(sent.versions)
    document, statuses = await fleet.read(sent.path)
    version = (await fleet.call("GET", sent.path)).version
    history = await fleet.get(f"{sent.path}/history", size="1")
    discarded = await fleet.get(f"{sent.path}/statuses/discarded", size="1")

    assert document.generation == 1 + changes
    assert msgspec.json.decode(document.spec) == sent.spec
    assert sorted(sent.versions) == list(range(2, 2 + changes))
    by_generation = [sent.versions[generation] for generation in sorted(sent.versions)]
    assert all(earlier < later for earlier, later in itertools.pairwise(by_generation))
    assert version >= max(by_generation, default=0)
    assert {status.adapter: (status.observed_generation, status.last_report_time) for status in statuses} == {
        adapter: max(times) for adapter, times in sent.reports.items()
    }
    works = {each.adapter: each.newest for each in statuses if each.in_progress is not msgspec.UNSET}
    assert works == sent.works
    assert history["total"] == 1 + changes
    assert discarded["total"] == min(50, sent.discarded)
    inputs = AggregationInput(
        generation=document.generation, updated_time=document.updated_time, required=REQUIRED, statuses=statuses
    )
    assert aggregate.aggregate(inputs, previous=document.status, at=document.updated_time) == document.status
    from_scratch = aggregate.aggregate(inputs, previous=None, at=document.updated_time)
    assert document.status.phase is from_scratch.phase
    assert document.status.observed_generation == from_scratch.observed_generation
    assert document.status.last_updated_time == from_scratch.last_updated_time
