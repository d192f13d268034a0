"""`sentinel explain`, `coverage` and `forecast` as processes, compared with what `sentinel run` does."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sentinel.core.pulse.listing import PageShape
from tests.support.brokers.rabbitmq import Inbox
from tests.support.fleet.fake_api import Document, FakeResponse, FleetServer, condition, make_resource
from tests.support.processes.service import SentinelProcess, run_command

TIMEOUT = 60.0


async def run_json(*command: object) -> dict[str, Any]:
    """Run a command that must succeed, and return its JSON output."""
    completed = await run_command(*command, "--output=json")
    assert completed.code == 0, completed.stderr
    output: dict[str, Any] = msgspec.json.decode(completed.stdout)
    return output


def write_config(file: Path, settings: dict[str, object]) -> Path:
    file.write_bytes(msgspec.json.encode(settings))
    return file


def resources_of_every_shape(now: datetime) -> Iterator[Document]:
    """Yield resources with every form of status. No age is close to a limit, so slow tests agree."""
    ages = (-60, 1, 20, 40, 10_000, None)
    for n, (shape, age, is_ready, generation, observed) in enumerate(
        product(("flat", "camel", "conditions"), ages, (True, False), (0, 1, 2), (0, 1, 2))
    ):
        updated = None if age is None else (now - timedelta(minutes=age)).isoformat()
        document = make_resource(f"{shape}-{n}", generation=generation, labels={"region": f"r{n % 3}"})
        status: Document = {}
        if shape == "conditions":
            names = (("Reconciled", "Ready")[n % 2], "Available")
            status["conditions"] = [
                condition(name, str(is_ready), observed_generation=observed, last_updated=updated or "")
                for name in names
            ]
            if updated is None:
                for each in status["conditions"]:
                    each["last_updated_time"] = "0001-01-01T00:00:00Z"
        else:
            names = (
                ("observedGeneration", "lastUpdatedTime")
                if shape == "camel"
                else ("observed_generation", "last_updated_time")
            )
            status |= {"phase": "Ready" if is_ready else "Pending", names[0]: observed}
            if updated is not None:
                status[names[1]] = updated
        document["status"] = status
        yield document
    yield make_resource("no-status") | {"status": None}
    yield {"id": "bare"}
    yield {"id": 7, "kind": "Malformed"}
    yield make_resource("bad-time") | {"status": {"last_updated_time": "yesterday"}}


@pytest.mark.parametrize("shape", [PageShape.NUMBERED, PageShape.CURSOR])
async def test_run_without_pacing_publishes_what_explain_lists(
    server: FleetServer, inbox: Inbox, broker: dict[str, str], shape: PageShape, tmp_path: Path
) -> None:
    server.shape = shape
    server.put(*resources_of_every_shape(datetime.now(UTC)))
    settings: dict[str, object] = {
        "resource_type": "clusters",
        "poll_interval": "10m",
        "max_age_not_ready": "10m",
        "max_age_ready": "30m",
        "republish_interval": "0s",
        "hyperfleet_api": {"endpoint": server.url, "page_size": 50},
        "message_data": {"id": ".id", "kind": ".kind", "region": ".metadata.labels.region"},
    }
    config = write_config(tmp_path / "sentinel.yaml", settings)

    explanation = await run_json("explain", "--config", config)
    due = {row["id"]: row["data"] for row in explanation["resources"] if row["decision"] == "publish"}
    async with SentinelProcess(tmp_path, config, environ=broker) as service:
        events = await inbox.events(len(due))
        cycle = await service.until_event("cycle.done")

    assert {event["subject"]: event["data"] for event in events} == due
    assert len(events) == len(due) == explanation["summary"]["publish"] == cycle["published"]
    assert explanation["summary"]["skip"] == cycle["skipped"]
    assert explanation["summary"]["malformed"] == 2
    assert 100 < len(due) < len(explanation["resources"]) - 50
    assert await inbox.is_empty()


async def test_explain_needs_no_broker_and_loads_neither_its_library_nor_rich(
    server: FleetServer, tmp_path: Path
) -> None:
    script = (
        "import sys\n"
        "from sentinel.cli.main import main\n"
        "try:\n"
        "    main(sys.argv[1:])\n"
        "except SystemExit as end:\n"
        "    sys.stderr.write(f'{end.code:d} ' + repr({'aio_pika', 'rich', 'opentelemetry'} & set(sys.modules)))\n"
    )
    settings: dict[str, object] = {"resource_type": "clusters", "hyperfleet_api": {"endpoint": server.url}}
    config = write_config(tmp_path / "sentinel.yaml", settings)

    completed = await run_command("explain", "--config", config, program=("-c", script))

    assert completed.stderr == "0 set()"


async def test_a_closed_pipe_ends_explain_quietly(server: FleetServer, tmp_path: Path) -> None:
    server.put_many(2_000)
    settings: dict[str, object] = {
        "resource_type": "clusters",
        "hyperfleet_api": {"endpoint": server.url, "page_size": 1000},
    }
    config = write_config(tmp_path / "sentinel.yaml", settings)
    read_end, write_end = os.pipe()

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sentinel.cli", "explain", "--config", config),
        stdout=write_end,
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(write_end)
    async with asyncio.timeout(TIMEOUT):
        with os.fdopen(read_end, "rb") as output:
            first = await asyncio.to_thread(output.readline)
        _, errors = await process.communicate()

    assert first.startswith(b"ID ")
    assert b"Traceback" not in errors
    assert process.returncode == 1


async def test_coverage_finds_the_known_gaps_of_five_configurations(server: FleetServer, tmp_path: Path) -> None:
    regions = ("us-east", "us-west", "eu-west", "eu-north", "asia")
    fleet = [
        make_resource(f"cls-{n:05}", labels={"region": regions[n % 5] if n % 100 else "moon", "tier": f"t{n % 3}"})
        for n in range(10_000)
    ]
    pages = [
        msgspec.json.encode({"page": n + 1, "size": 500, "total": 10_000, "items": fleet[500 * n : 500 * n + 500]})
        for n in range(20)
    ]
    server.script = lambda request: FakeResponse(body=pages[request.page - 1])
    configs = [
        write_config(
            tmp_path / f"{region}.yaml",
            {
                "resource_type": "clusters",
                "resource_selector": [{"label": "region", "value": region}],
                "hyperfleet_api": {"endpoint": server.url, "page_size": 500},
            },
        )
        for region in regions
    ]

    coverage = await run_json("coverage", *(f"--config={config}" for config in configs))
    failed = await run_command("coverage", *(f"--config={config}" for config in configs), "--fail-on=gaps")

    assert coverage["total"] == 10_000
    assert coverage["gaps"] == [f"cls-{n:05}" for n in range(0, 10_000, 100)]
    assert coverage["overlaps"] == []
    assert [each["matched"] for each in coverage["configs"]] == [1_900, 2_000, 2_000, 2_000, 2_000]
    selectors = [suggestion["resource_selector"] for suggestion in coverage["suggestions"]]
    assert selectors == [[{"label": "region", "value": "moon"}]]
    assert failed.code == 1
    assert len(server.received) == 2 * 20


async def test_a_forecast_counts_the_requests_that_run_makes(
    server: FleetServer, broker: dict[str, str], tmp_path: Path
) -> None:
    server.put(*(make_resource(f"cls-{n}", last_updated=datetime.now(UTC)) for n in range(95)))
    settings: dict[str, object] = {
        "resource_type": "clusters",
        "poll_interval": "500ms",
        "hyperfleet_api": {"endpoint": server.url, "page_size": 10},
    }
    config = write_config(tmp_path / "sentinel.yaml", settings)

    forecast = await run_json("forecast", "--over=1m", "--config", config)
    before = len(server.received)
    async with SentinelProcess(tmp_path, config, environ=broker) as service:
        for _ in range(3):
            await service.until_event("cycle.done", since=len(service.lines))
        await service.stop()
        cycles = sum(line.get("event") in ("cycle.done", "cycle.broken_off") for line in service.lines)
    requests = len(server.received) - before

    assert forecast["fleet"] == {"resources": 95, "ready": 95, "not_ready": 0, "malformed": 0}
    seconds = max(0.5, forecast["now"]["cycle_seconds"])
    assert forecast["now"]["api_requests_per_second"] * seconds == pytest.approx(requests / cycles, rel=0.2)
