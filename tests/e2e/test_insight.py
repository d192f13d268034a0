"""Answers before anything is sent, given by a process of its own, against what `sentinel run` then does."""

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
from tests.support.processes.service import SentinelProcess

TIMEOUT = 60.0
INHERITED = ("PATH", "HOME", "LANG", "COVERAGE_PROCESS_START")
"""Nothing else of whoever runs the tests: variables count as settings, and a broker must not be needed."""


async def sentinel(
    *arguments: object, program: tuple[str, ...] = ("-m", "sentinel.cli")
) -> tuple[int, bytes, bytes]:
    """Exit code, output and errors of a command, called as users call it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *program,
        *map(str, arguments),
        env={name: os.environ[name] for name in INHERITED if name in os.environ},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(TIMEOUT):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, output, errors


async def answer(*arguments: object) -> dict[str, Any]:
    """What a command that succeeds prints for scripts."""
    code, output, errors = await sentinel(*arguments, "--output=json")
    assert code == 0, errors.decode()
    body: dict[str, Any] = msgspec.json.decode(output)
    return body


def write(file: Path, settings: dict[str, object]) -> Path:
    file.write_bytes(msgspec.json.encode(settings))
    return file


def resources_of_every_shape(now: datetime) -> Iterator[Document]:
    """Flat, camel case, by conditions and by none; of every age that is clearly on one side of its limit."""
    ages = (-60, 1, 20, 40, 10_000, None)
    for n, (shape, age, is_ready, generation, observed) in enumerate(
        product(("flat", "camel", "conditions"), ages, (True, False), (0, 1, 2), (0, 1, 2))
    ):
        moment = None if age is None else (now - timedelta(minutes=age)).isoformat()
        document = make_resource(f"{shape}-{n}", generation=generation, labels={"region": f"r{n % 3}"})
        status: Document = {}
        if shape == "conditions":
            names = (("Reconciled", "Ready")[n % 2], "Available")
            status["conditions"] = [
                condition(name, str(is_ready), observed_generation=observed, last_updated=moment or "")
                for name in names
            ]
            if moment is None:
                for each in status["conditions"]:
                    each["last_updated_time"] = "0001-01-01T00:00:00Z"
        else:
            names = (
                ("observedGeneration", "lastUpdatedTime")
                if shape == "camel"
                else ("observed_generation", "last_updated_time")
            )
            status |= {"phase": "Ready" if is_ready else "Pending", names[0]: observed}
            if moment is not None:
                status[names[1]] = moment
        document["status"] = status
        yield document
    yield make_resource("no-status") | {"status": None}
    yield {"id": "bare"}
    yield {"id": 7, "kind": "Malformed"}
    yield make_resource("bad-time") | {"status": {"last_updated_time": "yesterday"}}


@pytest.mark.parametrize("shape", [PageShape.NUMBERED, PageShape.CURSOR])
async def test_run_without_pacing_publishes_what_explain_lists(
    tmp_path: Path, inbox: Inbox, shape: PageShape
) -> None:
    async with FleetServer(shape=shape) as server:
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
        explanation = await answer("explain", "--config", write(tmp_path / "sentinel.yaml", settings))
        due = {row["id"]: row["data"] for row in explanation["resources"] if row["decision"] == "publish"}

        environ = {"BROKER_TYPE": "rabbitmq", "BROKER_URL": inbox.url, "BROKER_EXCHANGE": inbox.exchange}
        async with SentinelProcess(tmp_path, settings, environ=environ) as service:
            events = await inbox.events(len(due))
            cycle = await service.until_event("cycle.done")

    assert {event["subject"]: event["data"] for event in events} == due
    assert len(events) == len(due) == explanation["summary"]["publish"] == cycle["published"]
    assert explanation["summary"]["skip"] == cycle["skipped"]
    assert explanation["summary"]["malformed"] == 2
    assert 100 < len(due) < len(explanation["resources"]) - 50
    assert await inbox.is_empty()


async def test_explain_needs_no_broker_and_loads_neither_its_library_nor_rich(
    tmp_path: Path,
) -> None:
    script = (
        "import sys\n"
        "from sentinel.cli.main import main\n"
        "try:\n"
        "    main(sys.argv[1:])\n"
        "except SystemExit as end:\n"
        "    sys.stderr.write(f'{end.code:d} ' + repr({'aio_pika', 'rich', 'opentelemetry'} & set(sys.modules)))\n"
    )
    async with FleetServer() as server:
        settings: dict[str, object] = {"resource_type": "clusters", "hyperfleet_api": {"endpoint": server.url}}
        config = write(tmp_path / "sentinel.yaml", settings)

        _, _, errors = await sentinel("explain", "--config", config, program=("-c", script))

    assert errors == b"0 set()"


async def test_a_closed_pipe_ends_explain_quietly(tmp_path: Path) -> None:
    async with FleetServer() as server:
        server.put_many(2_000)
        settings: dict[str, object] = {
            "resource_type": "clusters",
            "hyperfleet_api": {"endpoint": server.url, "page_size": 1000},
        }
        config = write(tmp_path / "sentinel.yaml", settings)
        ours, theirs = os.pipe()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "sentinel.cli",
            "explain",
            "--config",
            config,
            stdout=theirs,
            stderr=asyncio.subprocess.PIPE,
        )
        os.close(theirs)
        async with asyncio.timeout(TIMEOUT):
            with os.fdopen(ours, "rb") as head:
                first = await asyncio.to_thread(head.readline)
            _, errors = await process.communicate()

    assert first.startswith(b"ID ")
    assert b"Traceback" not in errors
    assert process.returncode == 1


async def test_coverage_finds_the_known_gaps_of_five_configurations(tmp_path: Path) -> None:
    regions = ("us-east", "us-west", "eu-west", "eu-north", "asia")
    fleet = [
        make_resource(f"cls-{n:05}", labels={"region": regions[n % 5] if n % 100 else "moon", "tier": f"t{n % 3}"})
        for n in range(10_000)
    ]
    pages = [
        msgspec.json.encode({"page": n + 1, "size": 500, "total": 10_000, "items": fleet[500 * n : 500 * n + 500]})
        for n in range(20)
    ]
    async with FleetServer(script=lambda request: FakeResponse(body=pages[request.page - 1])) as server:
        configs = [
            write(
                tmp_path / f"{region}.yaml",
                {
                    "resource_type": "clusters",
                    "resource_selector": [{"label": "region", "value": region}],
                    "hyperfleet_api": {"endpoint": server.url, "page_size": 500},
                },
            )
            for region in regions
        ]
        found = await answer("coverage", *(f"--config={config}" for config in configs))
        code, _, _ = await sentinel("coverage", *(f"--config={config}" for config in configs), "--fail-on=gaps")

    assert found["total"] == 10_000
    assert found["gaps"] == [f"cls-{n:05}" for n in range(0, 10_000, 100)]
    assert found["overlaps"] == []
    assert [each["matched"] for each in found["configs"]] == [1_900, 2_000, 2_000, 2_000, 2_000]
    assert [each["resource_selector"] for each in found["suggestions"]] == [[{"label": "region", "value": "moon"}]]
    assert code == 1
    assert len(server.received) == 2 * 20


async def test_a_forecast_counts_the_requests_that_run_makes(tmp_path: Path, inbox: Inbox) -> None:
    async with FleetServer() as server:
        server.put(*(make_resource(f"cls-{n}", last_updated=datetime.now(UTC)) for n in range(95)))
        settings: dict[str, object] = {
            "resource_type": "clusters",
            "poll_interval": "500ms",
            "hyperfleet_api": {"endpoint": server.url, "page_size": 10},
        }
        expected = await answer("forecast", "--over=1m", "--config", write(tmp_path / "sentinel.yaml", settings))
        before = len(server.received)

        environ = {"BROKER_TYPE": "rabbitmq", "BROKER_URL": inbox.url, "BROKER_EXCHANGE": inbox.exchange}
        async with SentinelProcess(tmp_path, settings, environ=environ) as service:
            for _ in range(3):
                await service.until_event("cycle.done", since=len(service.lines))
            await service.stop()
            cycles = sum(line.get("event") in ("cycle.done", "cycle.broken_off") for line in service.lines)
        requests = len(server.received) - before

    assert expected["fleet"] == {"resources": 95, "ready": 95, "not_ready": 0, "malformed": 0}
    seconds = max(0.5, expected["now"]["cycle_seconds"])
    assert expected["now"]["api_requests_per_second"] * seconds == pytest.approx(requests / cycles, rel=0.2)
