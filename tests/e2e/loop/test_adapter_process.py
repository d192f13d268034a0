"""`sentinel adapter` as a process: invalid configurations, probes and metrics."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.loop.deployments import RABBITMQ, MakeResource
from tests.support.loop.processes import AdapterProcess, ProcessLoop

pytestmark = pytest.mark.asyncio(loop_scope="package")

UNREACHABLE_BROKER = {"BROKER_TYPE": "rabbitmq", "BROKER_URL": "amqp://guest:guest@127.0.0.1:1/"}
ADAPTER = """\
from sentinel.adapter import Adapter, Done

mine = Adapter("mine")


@mine.task(kinds=["Cluster"])
async def ensure(cluster, context):
    return Done()
"""


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        pytest.param("task_timeout: soon", "adapter.yaml:4:15: task_timeout: expected", id="a bad duration"),
        pytest.param("concurency: 3", "adapter.yaml:4:1: concurency: unknown key", id="a misspelled key"),
        pytest.param("task: my_adapter:yours", "adapter.yaml:4:1: task: ", id="a key twice"),
    ],
)
async def test_an_invalid_configuration_exits_2_with_the_field(
    tmp_path: Path, settings: str, problem: str
) -> None:
    (tmp_path / "my_adapter.py").write_text(ADAPTER)
    file = tmp_path / "adapter.yaml"
    file.write_text(f"task: my_adapter:mine\nhyperfleet_api:\n  endpoint: http://127.0.0.1:1\n{settings}\n")

    async with AdapterProcess(file, environ=UNREACHABLE_BROKER) as process:
        code = await process.exit_code()

    assert code == 2
    assert problem in process.stderr.decode()


async def test_an_adapter_that_cannot_be_imported_exits_2_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "my_adapter.py").write_text(ADAPTER + "\nraise RuntimeError('half written')\n")
    file = tmp_path / "adapter.yaml"
    file.write_text("task: my_adapter:mine\nhyperfleet_api:\n  endpoint: http://127.0.0.1:1\n")

    async with AdapterProcess(file, environ=UNREACHABLE_BROKER) as process:
        code = await process.exit_code()

    assert code == 2
    assert "task: cannot import my_adapter: RuntimeError: half written" in process.stderr.decode()
    assert "my_adapter.py:10" in process.stderr.decode()


@RABBITMQ
async def test_probes_and_metrics_are_served(loop: ProcessLoop, make_resource: MakeResource) -> None:
    workload = await make_resource("workloads").create()
    await workload.until_ready()
    loop.backend.hold("zones", workload.id)
    mark = loop.backend.mark()
    await workload.request_pulse()
    await loop.backend.until_called(workload.id, since=mark)
    adapter = loop.adapter("zones")

    (readiness, ready), (liveness, _) = await adapter.readiness(), await adapter.liveness()
    samples = {
        (sample.name, *(value for name, value in sorted(sample.labels.items()) if name != "le")): sample.value
        for family in text_string_to_metric_families(await adapter.metrics_text())
        for sample in family.samples
    }

    assert (readiness, liveness) == (200, 200)
    checks = {name: check["status"] for name, check in ready["checks"].items()}
    assert (checks["hyperfleet_api"], checks["broker"]) == ("ok", "ok")
    assert samples["hyperfleet_adapter_evaluations_total", "zones", "done"] >= 1
    assert samples["hyperfleet_adapter_reports_total", "zones", "stored"] >= 1
    assert samples["hyperfleet_adapter_evaluation_duration_seconds_count", "zones"] >= 1
    assert samples["hyperfleet_adapter_queue_age_seconds_count", "zones"] >= 1
    assert samples["hyperfleet_adapter_in_flight", "zones"] == 1
