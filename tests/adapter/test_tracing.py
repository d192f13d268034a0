"""An evaluation continues the trace of the event that caused it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from sentinel.adapter import Adapter, Context, Outcome, Resource
from sentinel.runtime.tracing import Tracer
from sentinel.testing import loop
from tests.runtime.trace_collector import attributes_of, collected_traces, traceparent_of
from tests.support.adapter_harness import AdapterHarness, ScriptedTask

TRACES = [f"{number:032x}" for number in (1, 2, 3)]
PARENT = "00f067aa0ba902b7"
CAUSES = [f"00-{trace}-{PARENT}-01" for trace in TRACES]


async def spans_of(evaluate: Callable[[Tracer], Coroutine[Any, Any, None]]) -> list[Span]:
    """Run evaluations on virtual time and return their spans. The collector needs a loop with I/O."""
    async with collected_traces() as traces:
        await asyncio.to_thread(loop.run, evaluate(traces.tracer))
        return await traces.finish()


async def test_an_evaluation_continues_the_trace_of_its_event() -> None:
    calls: list[tuple[str, str]] = []

    async def evaluate(tracer: Tracer) -> None:
        async with AdapterHarness(ScriptedTask().adapter, tracer=tracer) as harness:
            harness.api.put("c1")
            # Called for every request.
            harness.api.fail(lambda operation, resource_id: calls.append((resource_id, tracer.traceparent())))
            await harness.pulse(traceparent=CAUSES[0])
            await harness.until_settled()

    evaluation, task = await spans_of(evaluate)

    assert (evaluation.name, task.name) == ("sentinel.evaluation", "sentinel.task")
    assert evaluation.kind == Span.SPAN_KIND_CONSUMER
    assert (evaluation.trace_id.hex(), evaluation.parent_span_id.hex()) == (TRACES[0], PARENT)
    assert task.parent_span_id == evaluation.span_id
    assert attributes_of(evaluation) == {
        "adapter": "dns",
        "resource_id": "c1",
        "events": 1,
        "kind": "Cluster",
        "generation": 1,
        "outcome": "done",
        "reason": "Completed",
        "report": "stored",
    }
    assert [call for call in calls if call[0]] == [("c1", traceparent_of(evaluation))] * 2


async def test_an_evaluation_of_several_events_links_the_older_ones() -> None:
    async def evaluate(tracer: Tracer) -> None:
        scripted = ScriptedTask(is_blocked=True)
        async with AdapterHarness(scripted.adapter, tracer=tracer) as harness:
            await harness.put_and_pulse("c1")
            await harness.until(lambda: len(scripted.contexts) == 1)
            for cause in (*CAUSES, "not a traceparent"):
                await harness.pulse(traceparent=cause)
            scripted.release()
            await harness.until_settled()

    first, _, second, _ = await spans_of(evaluate)

    assert first.parent_span_id == b""
    assert attributes_of(second)["events"] == 4
    assert second.trace_id.hex() == TRACES[2]
    assert [link.trace_id.hex() for link in second.links] == [TRACES[1], TRACES[0]]


async def test_a_skipped_event_and_a_broken_task_show_in_their_spans() -> None:
    adapter = Adapter("dns")

    @adapter.task(kinds=["Cluster"])
    async def fail(resource: Resource, context: Context) -> Outcome:
        raise LookupError("s3cret")

    async def evaluate(tracer: Tracer) -> None:
        async with AdapterHarness(
            adapter, tracer=tracer, redact=lambda text: text.replace("s3cret", "***")
        ) as harness:
            await harness.pulse("gone")
            await harness.until_settled()
            await harness.put_and_pulse("c1")
            await harness.until_settled()

    skipped, broken, task = await spans_of(evaluate)

    assert attributes_of(skipped)["skipped"] == "gone"
    assert attributes_of(broken)["outcome"] == "broken"
    assert (task.status.code, task.status.message) == (Status.STATUS_CODE_ERROR, "LookupError: ***")
