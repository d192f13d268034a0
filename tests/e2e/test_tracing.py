"""One trace across the processes `sentinel run`, `sentinel adapter` and `sentinel api`, with a real RabbitMQ."""

from __future__ import annotations

from pathlib import Path

from tests.runtime.trace_collector import TraceCollector, attributes_of, paths_to_a_cycle
from tests.support.brokers.rabbitmq import PrivateRabbitMQ
from tests.support.fleet.http_client import FleetHttp
from tests.support.loop.processes import AdapterProcess, RabbitMQBroker
from tests.support.processes.service import ApiProcess, SentinelProcess
from tests.support.processes.up import write_adapter

KINDS = ({"plural": "clusters", "kind": "Cluster", "required_adapters": ["mine"]},)
ADAPTER = """\
from sentinel.adapter import Adapter, Done

adapter = Adapter("mine")


@adapter.task(kinds=["Cluster"])
async def ensure(cluster, context):
    return Done()
"""


async def test_one_trace_goes_through_pulse_adapter_and_api(
    tmp_path: Path, private_rabbitmq: PrivateRabbitMQ
) -> None:
    broker = RabbitMQBroker(private_rabbitmq).environ
    async with TraceCollector() as collector:
        tracing = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        async with (
            ApiProcess(
                f"sqlite:///{tmp_path / 'fleet.db'}", kinds=KINDS, directory=tmp_path, environ=tracing
            ) as api,
            FleetHttp(await api.url()) as fleet,
            AdapterProcess(
                write_adapter(tmp_path / "mine", "mine", ADAPTER, hyperfleet_api={"endpoint": await api.url()}),
                environ={**broker, **tracing},
            ) as adapter,
        ):
            await adapter.until_event("broker.connected")
            async with SentinelProcess(
                tmp_path,
                {
                    "resource_type": "clusters",
                    "poll_interval": "100ms",
                    "hyperfleet_api": {"endpoint": await api.url(), "timeout": "5s"},
                    "message_data": {"id": ".id"},
                },
                environ={**broker, **tracing},
            ) as pulse:
                created = await fleet.create("one")

                spans = await collector.until(lambda spans: bool(paths_to_a_cycle(spans)))
                for process in (pulse, adapter, api):
                    assert await process.stop() == 0

    path = paths_to_a_cycle(spans)[0]
    assert [(collector.service_of(span), span.name) for span in path] == [
        ("hyperfleet-api", "sentinel.report"),
        ("hyperfleet-api", "PUT /api/hyperfleet/v1/clusters/{id}/statuses"),
        ("hyperfleet-adapter", "sentinel.evaluation"),
        ("hyperfleet-sentinel", "sentinel.cycle"),
    ]
    assert len({span.trace_id for span in path}) == 1
    assert attributes_of(path[0])["resource_id"] == created["id"]
