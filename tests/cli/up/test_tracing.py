"""`sentinel up` with tracing: one trace goes from a cycle to the report that it causes."""

from __future__ import annotations

from pathlib import Path

from tests.runtime.trace_collector import TraceCollector, attributes_of, paths_to_a_cycle
from tests.support.fleet.http_client import FleetHttp
from tests.support.processes.up import UpProcess

CLUSTERS = "/api/hyperfleet/v1/clusters"


async def test_one_trace_goes_from_a_cycle_to_the_report_it_causes(tmp_path: Path) -> None:
    async with TraceCollector() as collector:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        async with UpProcess(tmp_path, environ=environ) as process, FleetHttp(await process.url()) as fleet:
            await fleet.call("POST", "clusters", {"name": "c1", "spec": {}})

            spans = await collector.until(lambda spans: bool(paths_to_a_cycle(spans)))
            assert await process.stop() == 0

    report, request, evaluation, cycle = paths_to_a_cycle(spans)[0]
    assert [span.name for span in (request, evaluation, cycle)] == [
        f"PUT {CLUSTERS}/{{id}}/statuses",
        "sentinel.evaluation",
        "sentinel.cycle",
    ]
    assert len({span.trace_id for span in (report, request, evaluation, cycle)}) == 1
    assert attributes_of(request)["http.response.status_code"] in (201, 204)
    assert attributes_of(report)["resource_id"] == attributes_of(evaluation)["resource_id"]
    lists = [span for span in spans if span.name == f"GET {CLUSTERS}" and span.trace_id == cycle.trace_id]
    assert lists[0].parent_span_id == cycle.span_id, "the cycle's own requests belong to it"
