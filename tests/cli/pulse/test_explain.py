"""`sentinel explain`: its output and its exit codes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from sentinel.cli.pulse.explain import explain
from tests.cli.pulse.inspection_commands import body_of, code_of, invoke, write_config
from tests.support.fleet.fake_api import FakeResponse, FleetServer, make_resource

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOW = ("--at", "2026-03-01T12:00:00Z")


def ago(**age: float) -> datetime:
    return AT - timedelta(**age)


def populate(server: FleetServer) -> None:
    server.put(
        make_resource("due", phase="NotReady", last_updated=ago(minutes=5), labels={"region": "eu"}),
        make_resource("calm", last_updated=ago(minutes=4), labels={"region": "us"}),
        make_resource("changed", generation=2, last_updated=ago(seconds=5)),
        make_resource("new", observed_generation=None, generation=0, phase=None),
        make_resource("ahead", observed_generation=9, last_updated=ago(days=2)),
        make_resource("fast", last_updated=AT + timedelta(minutes=4)),
    )


async def test_the_json_has_all_members_in_order(tmp_path: Path, server: FleetServer) -> None:
    populate(server)
    config = write_config(tmp_path, server, message_data={"id": ".id", "region": ".labels.region"})

    result = await invoke(explain, "--config", config, *NOW, "--output", "json")

    body = body_of(result)
    assert code_of(result) == 0
    assert list(body) == ["at", "resource_type", "shard", "resources", "summary", "malformed"]
    assert (body["at"], body["resource_type"], body["shard"]) == ("2026-03-01T12:00:00Z", "clusters", "all")
    assert body["resources"][0] == {
        "id": "due",
        "kind": "Cluster",
        "generation": 1,
        "observed_generation": 1,
        "ready": False,
        "last_updated_time": "2026-03-01T11:55:00Z",
        "decision": "publish",
        "reason": "max age expired (not ready)",
        "next_event_time": "2026-03-01T12:00:00Z",
        "warnings": [],
        "data": {"id": "due", "region": "eu"},
    }
    rows = {row["id"]: row for row in body["resources"]}
    assert rows["calm"]["next_event_time"] == "2026-03-01T12:26:00Z"
    assert rows["calm"]["data"] == {"id": "calm", "region": "us"}
    assert rows["new"]["last_updated_time"] is None
    assert rows["ahead"]["warnings"][0] == "observed_generation ahead of generation - potential API issue"
    assert {name: body["summary"][name] for name in ("fetched", "publish", "skip")} == {
        "fetched": 6,
        "publish": 4,
        "skip": 2,
    }
    assert body["summary"]["events_per_minute"] == pytest.approx(3 * 6 + 3 / 30)


async def test_the_table_has_a_row_for_each_resource_and_a_summary(tmp_path: Path, server: FleetServer) -> None:
    populate(server)

    result = await invoke(explain, "--config", write_config(tmp_path, server), *NOW)

    lines = [line.split("  ") for line in result.stdout.splitlines()]
    cells = {line[0]: [cell.strip() for cell in line[1:] if cell.strip()] for line in lines}
    assert code_of(result) == 0
    assert cells["ID"] == ["READY", "GENERATION", "AGE", "DECISION", "REASON", "NEXT EVENT"]
    assert cells["due"] == ["no", "1/1", "5m", "publish", "max age expired (not ready)", "now"]
    assert cells["calm"] == ["yes", "1/1", "4m", "skip", "max age not expired", "in 26m"]
    assert cells["changed"][:4] == ["yes", "2/1", "5s", "publish"]
    assert cells["new"][:3] == ["no", "0/0", "never"]
    assert cells["fast"][2:] == ["4m ahead", "skip", "max age not expired", "in 30m"]
    assert cells["max age expired (not ready)"] == ["1", "6"]
    assert "6 clusters (selector: all) at 2026-03-01T12:00:00Z: 4 to publish, 2 to skip" in result.stdout


async def test_the_yaml_equals_the_json(tmp_path: Path, server: FleetServer) -> None:
    populate(server)
    config = write_config(tmp_path, server)

    as_json = await invoke(explain, "--config", config, *NOW, "--output", "json")
    as_yaml = await invoke(explain, "--config", config, *NOW, "--output", "yaml")

    assert yaml.safe_load(as_yaml.stdout) == body_of(as_json)


async def test_one_resource_is_shown_with_its_data_and_warnings(tmp_path: Path, server: FleetServer) -> None:
    populate(server)
    config = write_config(tmp_path, server, message_data={"id": ".id", "zone": ".labels.zone"})

    result = await invoke(explain, "--config", config, "--id", "due", *NOW)
    as_json = await invoke(explain, "--config", config, "--id", "due", *NOW, "--output", "json")

    assert 'data: {"id":"due","zone":""}' in result.stdout
    assert "warning: message_data.zone: the resource has no such field" in result.stdout
    assert "calm" not in result.stdout
    assert [row["id"] for row in body_of(as_json)["resources"]] == ["due"]
    assert body_of(as_json)["summary"]["fetched"] == 1


async def test_a_time_in_another_zone_is_converted_to_utc(tmp_path: Path, server: FleetServer) -> None:
    populate(server)

    result = await invoke(
        explain,
        "--config",
        write_config(tmp_path, server),
        "--at",
        "2026-03-01T14:00:00+02:00",
        "--output=json",
    )

    assert body_of(result)["at"] == "2026-03-01T12:00:00Z"


async def test_the_default_time_is_now(tmp_path: Path, server: FleetServer) -> None:
    before = datetime.now(UTC)
    result = await invoke(explain, "--config", write_config(tmp_path, server), "--output=json")
    after = datetime.now(UTC)

    assert before <= datetime.fromisoformat(body_of(result)["at"]) <= after
    assert body_of(result)["resources"] == []


async def test_warnings_and_malformed_items_are_logged_once_each(tmp_path: Path, server: FleetServer) -> None:
    populate(server)
    server.put(*({"id": n} for n in range(21)))
    config = write_config(tmp_path, server, message_data={"id": ".id", "zone": ".labels.zone"})

    result = await invoke(explain, "--config", config, *NOW, "--output=json", "--log-format=json")

    assert code_of(result) == 0
    assert result.stderr.count("message_data.zone") == 1
    assert result.stderr.count("observed_generation ahead of generation") == 1
    assert '"resources":6,"first_resource_id":"due"' in result.stderr
    assert result.stderr.count("resource.malformed") == 11
    assert body_of(result)["summary"]["malformed"] == 21


async def test_malformed_items_are_listed_with_their_ids(tmp_path: Path, server: FleetServer) -> None:
    server.put(
        make_resource("calm", last_updated=AT), {"id": "cls-x", "generation": "s3cret"}, {"kind": "Cluster"}
    )
    config = write_config(tmp_path, server)
    problems = ("Expected `int | null`, got `str` - at `$.generation`", "Object missing required field `id`")

    table = await invoke(explain, "--config", config, *NOW)
    as_json = await invoke(explain, "--config", config, *NOW, "--output=json")

    assert "2 could not be read and get no events:" in table.stdout
    assert f"cls-x    page 1, items[1]  {problems[0]}" in table.stdout
    assert f"unknown  page 1, items[2]  {problems[1]}" in table.stdout
    assert body_of(as_json)["malformed"] == [
        {"id": "cls-x", "message": problems[0], "position": "page 1, items[1]"},
        {"id": None, "message": problems[1], "position": "page 1, items[2]"},
    ]
    assert "s3cret" not in table.stdout + table.stderr + as_json.stdout + as_json.stderr


async def test_a_malformed_id_exits_1_with_its_problem(tmp_path: Path, server: FleetServer) -> None:
    server.put({"id": "cls-x", "generation": "two"})

    result = await invoke(explain, "--config", write_config(tmp_path, server), "--id=cls-x")

    assert code_of(result) == 1
    assert "cls-x (page 1, items[0]): Expected `int | null`" in result.stderr


async def test_terminal_control_characters_are_escaped(tmp_path: Path, server: FleetServer) -> None:
    server.put(make_resource("\x1b[2Jcls", last_updated=AT))

    result = await invoke(explain, "--config", write_config(tmp_path, server), *NOW)

    assert "\x1b" not in result.stdout
    assert r"\x1b[2Jcls" in result.stdout


@pytest.mark.parametrize(
    "time", ["yesterday", "2026-03-01", "2026-03-01T12:00:00", "9999-12-31T23:59:59-01:00", ""]
)
async def test_an_invalid_time_exits_2_before_any_request(tmp_path: Path, server: FleetServer, time: str) -> None:
    result = await invoke(explain, "--config", write_config(tmp_path, server), "--at", time)

    assert code_of(result) == 2
    assert "2025-10-21T12:00:00Z" in str(result.exception)
    assert server.received == []


async def test_a_bad_configuration_exits_2_before_any_request(tmp_path: Path, server: FleetServer) -> None:
    config = write_config(tmp_path, server, pol_interval="5s")

    result = await invoke(explain, "--config", config)

    assert code_of(result) == 2
    assert "pol_interval: unknown key; did you mean poll_interval?" in result.stderr
    assert result.stdout == ""
    assert server.received == []


async def test_an_unknown_id_exits_1_and_names_the_selector(tmp_path: Path, server: FleetServer) -> None:
    populate(server)
    selector = [{"label": "region", "value": "eu"}]
    config = write_config(tmp_path, server, resource_selector=selector)

    result = await invoke(explain, "--config", config, "--id", "calm", "--output=json")

    assert code_of(result) == 1
    assert "calm: no such resource among the 1 clusters that were read (selector: region=eu" in result.stderr
    assert result.stdout == ""


async def test_a_failing_api_exits_1_without_data_and_without_the_token(tmp_path: Path) -> None:
    def script(request: object) -> FakeResponse | None:
        return (
            FakeResponse(403, b'{"detail": "token s3cret-t0ken is not welcome"}')
            if len(server.received) > 1
            else None
        )

    async with FleetServer(script=script) as server:
        populate(server)
        config = write_config(tmp_path, server)

        result = await invoke(
            explain, "--config", config, "--output=json", environ={"HYPERFLEET_API_TOKEN": "s3cret-t0ken"}
        )

    assert code_of(result) == 1
    assert "the fleet could not be read: page 2" in result.stderr
    assert "403" in result.stderr
    assert "s3cret-t0ken" not in result.stderr
    assert result.stdout == ""


async def test_the_field_errors_of_the_api_are_quoted(tmp_path: Path) -> None:
    problem = b'{"title": "Bad Request", "errors": [{"field": "size", "message": "size must be at most 100"}]}'
    async with FleetServer(script=lambda _: FakeResponse(400, problem)) as server:
        result = await invoke(explain, "--config", write_config(tmp_path, server))

    assert code_of(result) == 1
    assert "400 Bad Request: Bad Request: size: size must be at most 100" in result.stderr


async def test_set_flags_apply(tmp_path: Path, server: FleetServer) -> None:
    populate(server)
    config = write_config(tmp_path, server)

    result = await invoke(
        explain, "--config", config, "--set", "max_age_ready=1m", "--id=calm", *NOW, "--output=json"
    )

    assert body_of(result)["resources"][0]["reason"] == "max age expired (ready)"


async def test_paused_and_requested_resources_show_the_reason(tmp_path: Path, server: FleetServer) -> None:
    paused = make_resource("paused", generation=2, last_updated=ago(minutes=4)) | {"paused": True}
    asked = make_resource("asked", last_updated=ago(minutes=4))
    server.put(paused, asked | {"pulse_requested_time": ago(seconds=1).isoformat()})
    config = write_config(tmp_path, server)

    table = await invoke(explain, "--config", config, *NOW)
    as_json = await invoke(explain, "--config", config, *NOW, "--output", "json")

    lines = table.stdout.splitlines()
    assert lines[1].split()[-3:] == ["skip", "paused", "paused"]
    assert lines[2].split()[-4:] == ["publish", "pulse", "requested", "now"]
    rows = {row["id"]: row for row in body_of(as_json)["resources"]}
    assert rows["paused"]["next_event_time"] is None
    assert rows["asked"]["reason"] == "pulse requested"
