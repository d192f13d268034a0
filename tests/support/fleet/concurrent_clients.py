"""Many clients at once on the same resources, and what must be true of each resource afterwards.

The model is sequential and needs no order: every patcher owns a member of the spec, so whatever the order, the
last value of each is known, and so is the number of generations; of an adapter's reports the newest by generation
and time stays, whichever came first. What clients were answered must fit some order of all that was done.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime, timedelta

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
    """What the clients of one resource have sent, and what they were answered."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.generation = 1
        """The newest that anybody was told of: reports about it are never ahead."""
        self.spec: dict[str, int] = {}
        self.versions: dict[int, int] = {}
        """By generation, of the patches that changed something."""
        self.sent: dict[str, list[tuple[int, datetime]]] = {}
        self.stored = 0
        self.discarded = 0
        self._moments = itertools.count()
        self._began = datetime.now(UTC)

    def moment(self) -> datetime:
        """Another one each time."""
        return self._began + timedelta(microseconds=next(self._moments))


async def patcher(fleet: FleetHttp, ledger: SentRequests, member: str, *, rounds: int) -> None:
    """Changes a member of the spec that is its own, and repeats itself, which changes nothing."""
    for value in range(rounds):
        patch = {"spec": {member: value}}

        changed = await fleet.call("PATCH", ledger.path, patch)
        repeated = await fleet.call("PATCH", ledger.path, patch)

        assert (changed.status, repeated.status) == (200, 200), (changed, repeated)
        generation = changed.json["generation"]
        assert generation not in ledger.versions, "two patches made the same generation"
        assert changed.json["spec"][member] == repeated.json["spec"][member] == value
        assert repeated.json["generation"] >= generation
        assert repeated.version >= changed.version
        ledger.versions[generation] = changed.version
        ledger.generation = max(ledger.generation, generation)
        ledger.spec[member] = value


async def reporter(fleet: FleetHttp, ledger: SentRequests, adapter: str, *, rounds: int) -> None:
    """Reports on the newest generation it knows of; another one may report as the same adapter beside it."""
    for number in range(rounds):
        generation, at = ledger.generation, ledger.moment()
        ledger.sent.setdefault(adapter, []).append((generation, at))

        reply = await fleet.call(
            "POST",
            f"{ledger.path}/statuses",
            report(adapter, generation=generation, at=at, available="True" if number % 2 else "False"),
        )

        assert reply.status in (201, 204), reply
        if reply.status == 201:
            ledger.stored += 1
        else:
            assert reply.headers["Discard-Reason"] in ("stale_generation", "stale_time")
            ledger.discarded += 1


def clients(fleet: FleetHttp, ledger: SentRequests, *, count: int, rounds: int) -> list[Awaitable[None]]:
    """So many clients of one resource: half of them patch, half of them report."""
    return [
        patcher(fleet, ledger, f"member_{number}", rounds=rounds)
        if number % 2
        else reporter(fleet, ledger, ADAPTERS[number // 2 % len(ADAPTERS)], rounds=rounds)
        for number in range(count)
    ]


async def run_concurrently(works: Sequence[Awaitable[None]]) -> None:
    """All at once; the first that fails fails all."""
    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(_awaited(work))


async def _awaited(work: Awaitable[None]) -> None:
    await work


async def verify(fleet: FleetHttp, ledger: SentRequests) -> None:
    """Compares a resource with the sequential model of all that was done to it."""
    changes = len(ledger.versions)
    document, statuses = await fleet.read(ledger.path)
    version = (await fleet.call("GET", ledger.path)).version
    history = await fleet.get(f"{ledger.path}/history", size="1")
    discarded = await fleet.get(f"{ledger.path}/statuses/discarded", size="1")

    assert document.generation == 1 + changes
    assert msgspec.json.decode(document.spec) == ledger.spec
    assert sorted(ledger.versions) == list(range(2, 2 + changes))
    by_generation = [ledger.versions[generation] for generation in sorted(ledger.versions)]
    assert all(earlier < later for earlier, later in itertools.pairwise(by_generation))
    assert version >= max(by_generation, default=0)
    assert {status.adapter: (status.observed_generation, status.last_report_time) for status in statuses} == {
        adapter: max(sent) for adapter, sent in ledger.sent.items()
    }
    assert history["total"] == 1 + changes
    assert discarded["total"] == min(50, ledger.discarded)
    situation = AggregationInput(
        generation=document.generation, updated_time=document.updated_time, required=REQUIRED, statuses=statuses
    )
    assert aggregate.aggregate(situation, previous=document.status) == document.status
    afresh = aggregate.aggregate(situation, previous=None)
    assert document.status.phase is afresh.phase
    assert document.status.observed_generation == afresh.observed_generation
    assert document.status.last_updated_time == afresh.last_updated_time
