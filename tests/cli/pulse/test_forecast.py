"""`sentinel forecast`: its output and its exit codes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sentinel.cli.pulse.forecast import forecast
from tests.cli.pulse.inspection_commands import body_of, code_of, invoke, write_config
from tests.support.fleet.fake_api import FakeResponse, FleetServer, make_resource


def populate(server: FleetServer) -> None:
    now = datetime.now(UTC)
    server.put(
        *(make_resource(f"ready-{n}", last_updated=now - timedelta(minutes=3 * n)) for n in range(10)),
        *(make_resource(f"busy-{n}", phase="NotReady", last_updated=now) for n in range(2)),
    )


async def test_the_json_has_the_current_the_requested_and_the_largest_size(
    tmp_path: Path, server: FleetServer
) -> None:
    populate(server)
    config = write_config(tmp_path, server, poll_interval="5s")

    result = await invoke(forecast, "--config", config, "--fleet-size=1200", "--output=json")

    body = body_of(result)
    assert code_of(result) == 0
    assert list(body) == [
        "at",
        "resource_type",
        "shard",
        "poll_interval_seconds",
        "fleet",
        "now",
        "at_size",
        "largest_fleet",
        "measured",
        "assumed",
    ]
    assert body["fleet"] == {"resources": 12, "ready": 10, "not_ready": 2, "malformed": 0}
    assert body["now"]["events_per_minute"] == pytest.approx(2 * 4 + 10 / 30, rel=0.05)
    assert body["at_size"]["events_per_minute"] == pytest.approx(100 * body["now"]["events_per_minute"], rel=0.01)
    assert body["now"]["api_requests_per_second"] == pytest.approx(3 / 5)
    assert body["at_size"]["api_requests_per_second"] == pytest.approx(240 / 5)
    assert body["at_size"]["cpu_millicores"] > body["now"]["cpu_millicores"] > 0
    assert body["now"]["memory_mebibytes"] > 10
    assert body["largest_fleet"] > 12


async def test_log_lines_of_events_cost_cpu_unless_the_level_hides_them(
    tmp_path: Path, server: FleetServer
) -> None:
    populate(server)
    config = write_config(tmp_path, server)

    costs = [
        body_of(await invoke(forecast, "--config", config, f"--log-level={level}", "--output=json"))["assumed"][
            "cpu_microseconds_per_sent_event"
        ]
        for level in ("debug", "info", "warning", "error")
    ]

    assert costs[0] == costs[1] > costs[2] == costs[3]


async def test_the_table_has_a_column_for_each_size(tmp_path: Path, server: FleetServer) -> None:
    populate(server)
    # The interval leaves 80 ms for each of 240 pages, so that a slow machine keeps it, too.
    config = write_config(tmp_path, server, poll_interval="20s")

    result = await invoke(forecast, "--config", config, "--fleet-size=1200", "--over=5m")

    lines = {line.strip().partition("  ")[0]: line for line in result.stdout.splitlines()}
    assert code_of(result) == 0
    assert "12 clusters (selector: all): 10 ready, 2 not; over 5m" in result.stdout
    assert "12 RESOURCES  1,200 RESOURCES" in result.stdout
    assert lines["API requests a second"].split()[-2:] == ["0.15", "12"]
    assert "max age expired (not ready)" in lines
    assert "one process keeps polling every 20s up to about" in result.stdout


async def test_without_a_size_only_the_current_one_is_shown(tmp_path: Path, server: FleetServer) -> None:
    populate(server)
    config = write_config(tmp_path, server)

    result = await invoke(forecast, "--config", config, "--over=1m", "--output=json")

    assert body_of(result)["at_size"] is None


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--fleet-size=0", "0"),
        ("--fleet-size=many", "many"),
        ("--over=30s", "1m or more"),
        ("--over=5", "a duration such as 30s"),
        ("--answer-after=-1s", "0s or more"),
    ],
)
async def test_invalid_flags_exit_2_before_any_request(
    tmp_path: Path, server: FleetServer, option: str, message: str
) -> None:
    result = await invoke(forecast, "--config", write_config(tmp_path, server), option)

    assert code_of(result) == 2
    assert message in str(result.exception)
    assert server.received == []


async def test_an_empty_fleet_exits_1_with_a_message(tmp_path: Path, server: FleetServer) -> None:
    result = await invoke(forecast, "--config", write_config(tmp_path, server), "--output=json")

    assert code_of(result) == 1
    assert "nothing to measure" in result.stderr
    assert result.stdout == ""


async def test_a_failing_api_exits_1(tmp_path: Path) -> None:
    async with FleetServer(script=lambda request: FakeResponse(404)) as server:
        result = await invoke(forecast, "--config", write_config(tmp_path, server))

    assert code_of(result) == 1
    assert "the fleet could not be read" in result.stderr


async def test_a_bad_configuration_exits_2(tmp_path: Path, server: FleetServer) -> None:
    result = await invoke(forecast, "--config", write_config(tmp_path, server, poll="1s"))

    assert code_of(result) == 2
    assert "poll" in result.stderr
