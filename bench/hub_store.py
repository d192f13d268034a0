"""The hub's store: what heartbeats, pages of instances and a storm of registrations cost on both databases.

    python -m tools.services postgresql -- python -m bench.hub_store [--output json]

10,000 instances. A flush has the heartbeats of 2,000 of them, each with a sample of metrics. A page has 100 of
those that a selector picks. In the storm, 5,000 agents register at once, and all have to succeed. CPU is that of
this process; what PostgreSQL itself needs is not in it. Wall time is only for reading.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from bench.budget import Budget, print_budgets
from bench.command_line import make_parser, print_json
from sentinel.core.labels import parse
from sentinel.ports.hub_store import Heartbeats, HubStore, InstanceQuery, InstanceRecord
from tests.support.databases import backends
from tests.support.databases.postgresql import database
from tests.support.hub.store_records import full_instance, heartbeats, opening_session, sample, saving
from tools.services.postgresql import POSTGRESQL_URL_VARIABLE

INSTANCES = 10_000
FLUSHED = 2_000
STORM = 5_000
PAGE_SIZE = 100

FLUSH_BUDGET = 60.0
"""CPU microseconds an instance. 10,000 agents with a heartbeat every 30 s are then 2% of a core."""
PAGE_BUDGET = 100.0
"""CPU milliseconds for a page with a selector."""
REGISTER_BUDGET = 2_000.0
"""CPU microseconds a registration: 5,000 agents are back within 10 s."""

_ROUNDS = 5


class Cost(msgspec.Struct, frozen=True):
    """CPU of this process, and wall time."""

    cpu: float
    wall: float


class DatabaseFigures(msgspec.Struct, frozen=True):
    """Of one database."""

    database: str
    flush: Cost
    """Microseconds an instance."""
    page: Cost
    """Milliseconds."""
    selected_page: Cost
    """Milliseconds, with a selector over labels."""
    register: Cost
    """Microseconds a registration, when all register at once."""


class HubStoreFigures(msgspec.Struct, frozen=True):
    """Of both databases."""

    databases: Sequence[DatabaseFigures]


async def measure() -> HubStoreFigures:
    """Measure on both databases."""
    with tempfile.TemporaryDirectory() as folder, database(os.environ[POSTGRESQL_URL_VARIABLE]) as server:
        sqlite = await _measure("SQLite", f"sqlite:///{Path(folder, 'hub.db')}")
        return HubStoreFigures((sqlite, await _measure("PostgreSQL", server)))


def budgets(figures: HubStoreFigures) -> list[Budget]:
    return [
        budget
        for each in figures.databases
        for budget in (
            Budget(f"hub store, {each.database}: CPU to flush an instance", each.flush.cpu, "µs", FLUSH_BUDGET),
            Budget(f"hub store, {each.database}: CPU of a page", each.selected_page.cpu, "ms", PAGE_BUDGET),
            Budget(f"hub store, {each.database}: CPU of a registration", each.register.cpu, "µs", REGISTER_BUDGET),
        )
    ]


def section(figures: HubStoreFigures) -> list[str]:
    """Return the section of the performance page."""
    rows: dict[str, tuple[str, Callable[[DatabaseFigures], Cost]]] = {
        f"flush of {FLUSHED:,} instances, each": ("µs", lambda each: each.flush),
        f"page of {PAGE_SIZE} out of {INSTANCES:,}": ("ms", lambda each: each.page),
        "the same with a selector over labels": ("ms", lambda each: each.selected_page),
        f"{STORM:,} registrations at once, each": ("µs", lambda each: each.register),
    }
    shown = figures.databases
    return [
        "\n## The hub's store\n",
        "CPU of the hub's process, in brackets wall time.\n",
        f"| what | {' | '.join(each.database for each in shown)} |",
        f"|---|{'---|' * len(shown)}",
        *(
            f"| {what} | {' | '.join(f'{of(each).cpu:.1f} {unit} ({of(each).wall:.1f})' for each in shown)} |"
            for what, (unit, of) in rows.items()
        ),
    ]


async def _measure(name: str, url: str) -> DatabaseFigures:
    backend = backends.sql(url)
    await backend.database.open()
    try:
        hub = backend.hub
        register = await _cheapest(1, lambda round_number: _storm(hub))
        fleet = [_instance(number) for number in range(INSTANCES)]
        for start in range(0, INSTANCES, 500):
            await hub.transact(saving(*fleet[start : start + 500]))
        selector = parse("zone=zone-1,tier!=tier-3").matches
        flush = await _cheapest(_ROUNDS, lambda number: hub.flush(_beats(fleet[:FLUSHED], number)))
        page = await _cheapest(_ROUNDS, lambda _: hub.instances(InstanceQuery(limit=PAGE_SIZE)))
        selected = await _cheapest(
            _ROUNDS, lambda _: hub.instances(InstanceQuery(limit=PAGE_SIZE, matches=selector))
        )
    finally:
        await backend.database.close()
    return DatabaseFigures(
        name,
        flush=_each(flush, FLUSHED, 1e6),
        page=_each(page, 1, 1e3),
        selected_page=_each(selected, 1, 1e3),
        register=_each(register, STORM, 1e6),
    )


def _instance(number: int) -> InstanceRecord:
    labels = {"zone": f"zone-{number % 3}", "tier": f"tier-{number % 7}", "rack": f"rack-{number % 100}"}
    return msgspec.structs.replace(full_instance(f"edge-{number:05}"), labels=labels)


def _beats(fleet: list[InstanceRecord], number: int) -> list[Heartbeats]:
    seconds = 30 * (number + 1)
    return [heartbeats(each, seconds, samples=[sample(seconds, seconds, latency_p99_ms=1.5)]) for each in fleet]


async def _storm(hub: HubStore) -> None:
    sessions = await asyncio.gather(*(hub.transact(opening_session(f"storm-{number}")) for number in range(STORM)))
    assert sessions == [1] * STORM
    assert await hub.newest_event() == STORM


async def _cheapest(rounds: int, work: Callable[[int], Awaitable[object]]) -> Cost:
    """The minimum of several rounds, because other load only adds to it. Seconds."""
    costs: list[Cost] = []
    for number in range(rounds):
        cpu, wall = time.process_time(), time.perf_counter()
        await work(number)
        costs.append(Cost(time.process_time() - cpu, time.perf_counter() - wall))
    return Cost(min(each.cpu for each in costs), min(each.wall for each in costs))


def _each(cost: Cost, count: int, unit: float) -> Cost:
    return Cost(cost.cpu / count * unit, cost.wall / count * unit)


def main() -> int:
    options = make_parser("hub_store", __doc__).parse_args()
    figures = asyncio.run(measure())
    within = budgets(figures)
    if options.output == "json":
        print_json(figures, is_within_budget=all(budget.is_kept for budget in within))
        return 0 if all(budget.is_kept for budget in within) else 1
    print("\n".join(section(figures)))
    return print_budgets(within)


if __name__ == "__main__":
    sys.exit(main())
