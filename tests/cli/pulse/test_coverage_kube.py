"""`sentinel coverage --kube`: the SentinelConfigs of a cluster."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sentinel.cli.pulse.coverage import coverage
from sentinel.core.json import Json
from sentinel.operator.sentinel_config import SENTINEL_CONFIG
from sentinel.testing.kube import FakeKubeServer
from tests.cli.pulse.inspection_commands import body_of, code_of, invoke, write_config
from tests.support.fleet.fake_api import FleetServer, make_resource


@pytest.fixture
async def kube() -> AsyncIterator[FakeKubeServer]:
    # Each object is a second younger than the one before: Kubernetes keeps no fractions.
    ages = itertools.count()
    start = datetime.now(UTC)
    async with FakeKubeServer(now=lambda: start + next(ages) * timedelta(seconds=1)) as server:
        server.register(SENTINEL_CONFIG, has_status=True)
        yield server


@pytest.fixture
def kubeconfig(kube: FakeKubeServer, tmp_path: Path) -> Path:
    file = tmp_path / "kubeconfig"
    file.write_bytes(kube.kubeconfig())
    return file


def create(kube: FakeKubeServer, server: FleetServer, name: str, region: str, **spec: Json) -> None:
    kube.create(
        SENTINEL_CONFIG,
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "resourceType": "clusters",
                "shardSelector": {"matchLabels": {"region": region}},
                "hyperfleetAPI": {"url": server.url},
                "broker": {"type": "rabbitmq", "topic": "events", "url": "amqp://broker.example"},
                **spec,
            },
        },
    )


async def test_gaps_and_overlaps_of_a_cluster_are_shown(
    kube: FakeKubeServer, kubeconfig: Path, server: FleetServer
) -> None:
    for number, region in enumerate(("us", "eu", "asia")):
        server.put(make_resource(f"cls-{number}", labels={"region": region}))
    create(kube, server, "us", "us")
    create(kube, server, "eu", "eu")
    both: Json = {"matchExpressions": [{"key": "region", "operator": "In", "values": ["eu", "africa"]}]}
    create(kube, server, "eu-africa", "", shardSelector=both)

    result = await invoke(coverage, "--kube", f"--kubeconfig={kubeconfig}", "--fail-on=any", "--output=json")

    body = body_of(result)
    assert code_of(result) == 1
    assert body["gaps"] == ["cls-2"]
    assert body["overlaps"] == [{"id": "cls-1", "configs": ["default/eu", "default/eu-africa"]}]
    assert body["configs"][-1] == {"file": "default/us", "matched": 1}


async def test_files_and_a_cluster_are_compared_together(
    kube: FakeKubeServer, kubeconfig: Path, server: FleetServer, tmp_path: Path
) -> None:
    server.put(make_resource("cls-0", labels={"region": "us"}))
    create(kube, server, "us", "us")
    file = write_config(tmp_path, server)

    result = await invoke(coverage, "--kube", f"--kubeconfig={kubeconfig}", f"--config={file}", "--output=json")

    assert body_of(result)["overlaps"] == [{"id": "cls-0", "configs": [str(file), "default/us"]}]


async def test_an_invalid_config_of_a_cluster_is_a_warning(
    kube: FakeKubeServer, kubeconfig: Path, server: FleetServer
) -> None:
    create(kube, server, "us", "us")
    create(kube, server, "broken", "eu", pollInterval="often")

    result = await invoke(coverage, "--kube", f"--kubeconfig={kubeconfig}", "--output=json")

    assert code_of(result) == 0
    assert "broken is not counted" in result.stderr
    assert [each["file"] for each in body_of(result)["configs"]] == ["default/us"]


async def test_a_duplicate_in_a_cluster_is_a_warning_and_no_overlap(
    kube: FakeKubeServer, kubeconfig: Path, server: FleetServer
) -> None:
    server.put(make_resource("cls-0", labels={"region": "us"}))
    create(kube, server, "z-older", "us")
    create(kube, server, "a-younger", "us")

    result = await invoke(coverage, "--kube", f"--kubeconfig={kubeconfig}", "--fail-on=any", "--output=json")

    assert code_of(result) == 0
    expected = "a-younger is not counted: Duplicate: z-older watches the same clusters (region=us)"
    assert expected in result.stderr
    assert [each["file"] for each in body_of(result)["configs"]] == ["default/z-older"]


async def test_a_cluster_that_cannot_be_read_fails(kube: FakeKubeServer, kubeconfig: Path) -> None:
    kube.fail_next(500)

    result = await invoke(coverage, "--kube", f"--kubeconfig={kubeconfig}")

    assert code_of(result) == 1
    assert "the SentinelConfigs could not be read" in result.stderr


async def test_a_kubeconfig_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    result = await invoke(coverage, "--kube", f"--kubeconfig={tmp_path / 'none'}")

    assert code_of(result) == 2
    assert "none" in result.stderr


async def test_neither_files_nor_a_cluster_is_refused() -> None:
    result = await invoke(coverage)

    assert code_of(result) == 2
    assert "expected --config or --kube" in str(result.exception)
