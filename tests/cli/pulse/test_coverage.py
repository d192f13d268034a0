"""`sentinel coverage`: its output and its exit codes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from sentinel.cli.options import OutputFormat
from sentinel.cli.pulse.coverage import FailOn, coverage, run_coverage
from sentinel.cli.pulse.covered_configs import ConfigLoader
from sentinel.operator import manifests
from sentinel.pulse import settings as pulse_settings
from tests.cli.pulse.inspection_commands import (
    body_of,
    code_of,
    invoke,
    sentinel_config,
    write_config,
    write_manifests,
)
from tests.support.fleet.fake_api import FakeResponse, FleetServer, make_resource


def region_config(directory: Path, server: FleetServer, region: str, **more: object) -> Path:
    selector = [{"label": "region", "value": region}]
    return write_config(directory, server, name=region, resource_selector=selector, **more)


def populate(server: FleetServer) -> None:
    for n, region in enumerate(("us", "us", "eu", "eu", "eu", "asia")):
        server.put(make_resource(f"cls-{n}", labels={"region": region, "env": "prod" if n % 2 else "dev"}))


async def test_the_json_has_gaps_overlaps_and_matches_per_configuration(
    tmp_path: Path, server: FleetServer
) -> None:
    populate(server)
    us, eu = (region_config(tmp_path, server, region) for region in ("us", "eu"))
    dev = write_config(tmp_path, server, name="dev", resource_selector=[{"label": "env", "value": "dev"}])

    result = await invoke(coverage, "--config", us, "--config", eu, "--config", dev, "--output", "json")

    body = body_of(result)
    assert code_of(result) == 0
    assert list(body)[:4] == ["total", "gaps", "overlaps", "configs"]
    assert body["total"] == 6
    assert body["gaps"] == ["cls-5"]
    assert body["overlaps"] == [
        {"id": "cls-0", "configs": [str(us), str(dev)]},
        {"id": "cls-2", "configs": [str(eu), str(dev)]},
        {"id": "cls-4", "configs": [str(eu), str(dev)]},
    ]
    assert body["configs"] == [
        {"file": str(us), "matched": 2},
        {"file": str(eu), "matched": 3},
        {"file": str(dev), "matched": 3},
    ]
    assert body["suggestions"] == [
        {"resource_selector": [{"label": "region", "value": "asia"}], "covers": 1, "overlaps": 0}
    ]


async def test_the_fleet_is_read_once_without_a_selector(tmp_path: Path, server: FleetServer) -> None:
    populate(server)
    configs = [f"--config={region_config(tmp_path, server, region)}" for region in ("us", "eu", "asia")]

    await invoke(coverage, *configs)

    assert [request.target for request in server.received] == [
        "/api/hyperfleet/v1/clusters?page=1&size=5",
        "/api/hyperfleet/v1/clusters?page=2&size=5",
    ]


async def test_suggestions_can_be_pasted_into_a_configuration(tmp_path: Path, server: FleetServer) -> None:
    populate(server)
    server.put(make_resource("quoted", labels={"region": "007"}), make_resource("bare"))
    config = region_config(tmp_path, server, "us")

    result = await invoke(coverage, "--config", config)

    blocks = result.stdout.split("\n\n")
    pasted = tmp_path / "pasted.yaml"
    first, second, third = (block for block in blocks if "resource_selector:" in block)
    base = f"resource_type: clusters\nhyperfleet_api: {{endpoint: {server.url}}}\n"
    pasted.write_text(base + third)
    settings = pulse_settings.load(file=pasted, environ={}).settings
    assert code_of(result) == 0
    assert "8 clusters: 6 watched by none, 0 by more than one" in result.stdout
    assert "watched by none: bare, cls-2, cls-3, cls-4, cls-5, quoted" in result.stdout
    assert "No single selector fits all of them" in result.stdout
    assert yaml.safe_load(first) == {"resource_selector": [{"label": "region", "value": "eu"}]}
    assert yaml.safe_load(second) == {"resource_selector": [{"label": "region", "value": "007"}]}
    assert first.startswith("# 3 of 6\n")
    assert settings is not None
    assert settings.definition.shard == "region=asia"
    assert "For 1 of them no label helps" in result.stdout


async def test_the_table_shows_configurations_that_overlap(tmp_path: Path, server: FleetServer) -> None:
    populate(server)
    eu, everything = region_config(tmp_path, server, "eu"), write_config(tmp_path, server, name="all")

    result = await invoke(coverage, "--config", eu, "--config", everything)

    assert f"{eu} + {everything}          3  cls-2" in result.stdout
    assert "0 watched by none, 3 by more than one" in result.stdout
    assert "resource_selector:" not in result.stdout


async def test_the_table_shortens_long_lists(tmp_path: Path, server: FleetServer) -> None:
    server.put(*(make_resource(f"cls-{n:02}", labels={"serial": f"{n:02}"}) for n in range(30)))

    result = await invoke(coverage, "--config", region_config(tmp_path, server, "us"))

    assert "cls-19 and 10 more" in result.stdout
    assert "and 10 more labels" in result.stdout
    assert "For 30 of them no label helps" in result.stdout


@pytest.mark.parametrize(
    ("regions", "fail_on", "code"),
    [
        (["us"], "gaps", 1),
        (["us"], "overlaps", 0),
        (["us"], "any", 1),
        (["us", "eu", "asia"], "any", 0),
        (["us", "us", "eu", "asia"], "gaps", 0),
        (["us", "us", "eu", "asia"], "overlaps", 1),
        (["us", "us", "eu", "asia"], "any", 1),
    ],
)
async def test_fail_on_decides_the_exit_code(
    tmp_path: Path, server: FleetServer, regions: list[str], fail_on: str, code: int
) -> None:
    populate(server)
    configs = [f"--config={region_config(tmp_path, server, region)}" for region in regions]

    result = await invoke(coverage, *configs, "--fail-on", fail_on, "--output=json")

    assert code_of(result) == code
    assert body_of(result)["total"] == 6


async def test_different_resource_types_exit_2_before_any_request(tmp_path: Path, server: FleetServer) -> None:
    us, eu = (
        region_config(tmp_path, server, "us"),
        region_config(tmp_path, server, "eu", resource_type="nodepools"),
    )

    result = await invoke(coverage, "--config", us, "--config", eu)

    assert code_of(result) == 2
    assert f"clusters ({us}), nodepools ({eu})" in result.stderr
    assert server.received == []


async def test_different_endpoints_exit_2_unless_one_is_chosen(tmp_path: Path, server: FleetServer) -> None:
    populate(server)
    us = region_config(tmp_path, server, "us")
    eu = region_config(tmp_path, server, "eu", hyperfleet_api={"endpoint": "http://elsewhere.invalid"})

    refused = await invoke(coverage, "--config", us, "--config", eu)
    chosen = await invoke(
        coverage,
        "--config",
        us,
        "--config",
        eu,
        f"--set=hyperfleet_api.endpoint={server.url}",
        "--output=json",
    )

    assert code_of(refused) == 2
    assert "hyperfleet_api.endpoint: expected the same in every configuration" in refused.stderr
    assert code_of(chosen) == 0
    assert body_of(chosen)["gaps"] == ["cls-5"]


async def test_the_problems_of_all_configurations_are_printed(tmp_path: Path, server: FleetServer) -> None:
    us = region_config(tmp_path, server, "us", pol_interval="5s")
    eu = region_config(tmp_path, server, "eu", max_age="5s")

    result = await invoke(coverage, "--config", us, "--config", eu)

    assert code_of(result) == 2
    assert "pol_interval" in result.stderr
    assert "max_age" in result.stderr
    assert server.received == []


async def test_a_failing_api_exits_1(tmp_path: Path) -> None:
    async with FleetServer(script=lambda request: FakeResponse(404)) as server:
        result = await invoke(coverage, "--config", region_config(tmp_path, server, "us"), "--output=json")

    assert code_of(result) == 1
    assert "the fleet could not be read" in result.stderr
    assert result.stdout == ""


def in_region(*regions: str) -> dict[str, object]:
    return {"matchExpressions": [{"key": "region", "operator": "In", "values": list(regions)}]}


class TestSentinelConfigs:
    async def test_each_config_of_a_manifest_is_compared(self, tmp_path: Path, server: FleetServer) -> None:
        populate(server)
        file = write_manifests(
            tmp_path,
            sentinel_config(server, "us", shardSelector=in_region("us")),
            {"kind": "Deployment", "apiVersion": "apps/v1"},
            sentinel_config(server, "others", shardSelector=in_region("us", "eu")),
        )

        result = await invoke(coverage, "--config", file, "--output", "json")

        body = body_of(result)
        assert code_of(result) == 0
        assert body["gaps"] == ["cls-5"]
        assert body["configs"] == [
            {"file": f"{file}#us", "matched": 2},
            {"file": f"{file}#others", "matched": 5},
        ]
        assert body["overlaps"][0] == {"id": "cls-0", "configs": [f"{file}#us", f"{file}#others"]}
        assert [request.target for request in server.received] == [
            "/api/hyperfleet/v1/clusters?page=1&size=5",
            "/api/hyperfleet/v1/clusters?page=2&size=5",
        ]

    async def test_settings_files_and_manifests_are_compared(self, tmp_path: Path, server: FleetServer) -> None:
        populate(server)
        settings = region_config(tmp_path, server, "us")
        manifest = write_manifests(tmp_path, sentinel_config(server, "eu", shardSelector=in_region("eu", "asia")))

        result = await invoke(coverage, "--config", settings, "--config", manifest, "--output", "json")

        body = body_of(result)
        assert code_of(result) == 0
        assert (body["gaps"], body["overlaps"]) == ([], [])
        assert body["configs"] == [{"file": str(settings), "matched": 2}, {"file": str(manifest), "matched": 4}]

    async def test_suggestions_can_be_pasted_into_a_sentinel_config(
        self, tmp_path: Path, server: FleetServer
    ) -> None:
        populate(server)
        server.put(make_resource("bare"))
        file = write_manifests(tmp_path, sentinel_config(server, "us", shardSelector=in_region("us", "eu")))

        result = await invoke(coverage, "--config", file)

        (block,) = (block for block in result.stdout.split("\n\n") if "matchLabels:" in block)
        suggested = sentinel_config(server, "more", **yaml.safe_load(block))
        loaded = manifests.read_object(suggested)
        assert loaded.settings is not None
        assert loaded.settings.definition.shard == "region=asia"
        assert "run one Sentinel with an empty shardSelector" in result.stdout

    async def test_the_connection_can_be_replaced(self, tmp_path: Path, server: FleetServer) -> None:
        populate(server)
        api = {"url": "http://in-cluster.invalid", "tokenSecretRef": {"name": "token"}}
        file = write_manifests(tmp_path, sentinel_config(server, "all", hyperfleetAPI=api))

        result = await invoke(
            coverage,
            "--config",
            file,
            f"--set=hyperfleet_api.endpoint={server.url}",
            "--output=json",
            environ={"HYPERFLEET_API_TOKEN": "t0ken"},
        )

        assert code_of(result) == 0
        assert body_of(result)["gaps"] == []
        assert server.received[0].headers["Authorization"] == "Bearer t0ken"
        assert "Secrets are not read" not in result.stderr

    async def test_a_missing_token_is_a_warning(self, tmp_path: Path, server: FleetServer) -> None:
        api = {"url": server.url, "tokenSecretRef": {"name": "token"}}
        file = write_manifests(tmp_path, sentinel_config(server, "all", hyperfleetAPI=api))

        result = await invoke(coverage, "--config", file)

        assert "Secrets are not read here; set HYPERFLEET_API_TOKEN to the token" in result.stderr

    async def test_one_resource_type_can_be_chosen(self, tmp_path: Path, server: FleetServer) -> None:
        populate(server)
        file = write_manifests(
            tmp_path, sentinel_config(server, "all"), sentinel_config(server, "pools", resourceType="nodepools")
        )

        refused = await invoke(coverage, "--config", file)
        chosen = await invoke(coverage, "--config", file, "--resource-type=clusters", "--output=json")
        nothing = await invoke(coverage, "--config", file, "--resource-type=manifests")

        assert code_of(refused) == 2
        assert (
            f"clusters ({file}#all), nodepools ({file}#pools); choose one with --resource-type" in refused.stderr
        )
        assert body_of(chosen)["configs"] == [{"file": f"{file}#all", "matched": 6}]
        assert code_of(nothing) == 2
        assert nothing.stderr == "expected at least one configuration of manifests, got none\n"

    async def test_problems_exit_2_before_any_request(self, tmp_path: Path, server: FleetServer) -> None:
        file = write_manifests(
            tmp_path,
            sentinel_config(server, "us", pollInterval="5"),
            sentinel_config(server, "eu", shardSelector={"matchLabels": {"a": 1}}),
            {"resource_type": "clusters"},
        )

        result = await invoke(coverage, "--config", file, "--set=log.level=loud")

        assert code_of(result) == 2
        assert [line.split(": ")[1] for line in result.stderr.splitlines()] == [
            "kind",
            "spec.pollInterval",
            "spec.shardSelector.matchLabels.a",
        ]
        assert server.received == []

    async def test_a_bad_variable_is_one_problem(self, tmp_path: Path, server: FleetServer) -> None:
        file = write_manifests(tmp_path, sentinel_config(server, "a"), sentinel_config(server, "b"))

        result = await invoke(coverage, "--config", file, "--set=log.level=loud")

        assert code_of(result) == 2
        assert len(result.stderr.splitlines()) == 1

    async def test_objects_of_a_cluster_are_compared(
        self, server: FleetServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        populate(server)
        objects = [
            sentinel_config(server, "us", shardSelector=in_region("us")),
            sentinel_config(server, "broken", pollInterval="never"),
        ]
        loader = ConfigLoader(environ={}, sets=[], log_overrides={})

        loaded = loader.load_objects(objects)
        code = await asyncio.to_thread(
            run_coverage, loaded, resource_type=None, fail_on=FailOn.GAPS, output=OutputFormat.JSON
        )

        assert code == 1
        assert [each.name for each in loaded.configs] == ["hyperfleet-system/us"]
        assert loaded.warnings[0].startswith("broken is not counted: spec.pollInterval: expected a duration")
        assert json.loads(capsys.readouterr().out)["configs"] == [{"file": "hyperfleet-system/us", "matched": 2}]
