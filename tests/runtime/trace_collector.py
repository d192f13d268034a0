"""An OTLP collector on loopback that stores the spans it receives, and a tracer that sends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from sentinel.runtime.tracing import OpenTelemetryTracer
from tests.support.http.loopback import LoopbackServer

TIMEOUT = 30
"""In seconds; only a failing test waits this long."""


class TraceCollector(LoopbackServer):
    """Receives OTLP over HTTP while its context is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        """The headers of each request, with lower-case names."""
        self._received = asyncio.Condition()

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def service_of(self, wanted: Span) -> str:
        """Return the `service.name` of the process that sent this span."""
        for request in self.requests:
            for resource in request.resource_spans:
                if any(wanted.span_id == span.span_id for scope in resource.scope_spans for span in scope.spans):
                    return next(
                        str(each.value.string_value)
                        for each in resource.resource.attributes
                        if each.key == "service.name"
                    )
        raise LookupError(wanted.name)

    async def until(self, is_expected: Callable[[list[Span]], bool]) -> list[Span]:
        """Wait until the spans are as expected, and return them."""
        async with asyncio.timeout(TIMEOUT), self._received:
            await self._received.wait_for(lambda: is_expected(self.spans))
        return self.spans

    def make_runner(self) -> web.AppRunner:
        application = web.Application()
        application.router.add_post("/v1/traces", self._receive)
        return web.AppRunner(application, access_log=None)

    async def _receive(self, request: web.Request) -> web.Response:
        self.requests.append(ExportTraceServiceRequest.FromString(await request.read()))
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        async with self._received:
            self._received.notify_all()
        return web.Response(content_type="application/x-protobuf")


class CollectedTraces:
    """A tracer and the spans that it has sent. `finish` sends the rest."""

    def __init__(self, collector: TraceCollector, redact: Callable[[str], str] = str) -> None:
        self._collector = collector
        self.tracer = OpenTelemetryTracer(endpoint=f"{collector.url}/v1/traces", headers={}, redact=redact)

    async def finish(self) -> list[Span]:
        """Return all spans, in the order in which they started."""
        await self.tracer.close()
        return sorted(self._collector.spans, key=lambda span: span.start_time_unix_nano)


@asynccontextmanager
async def collected_traces(redact: Callable[[str], str] = str) -> AsyncIterator[CollectedTraces]:
    """Provide a tracer with a collector of its own."""
    async with TraceCollector() as collector:
        traces = CollectedTraces(collector, redact)
        yield traces
        await traces.finish()


def attributes_of(span: Span) -> dict[str, object]:
    """Return the attributes of a span by name."""
    return {each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in span.attributes}


def traceparent_of(span: Span, *, flags: str = "01") -> str:
    """Return the header that names this span."""
    return f"00-{span.trace_id.hex()}-{span.span_id.hex()}-{flags}"


def paths_to_a_cycle(spans: list[Span]) -> list[list[Span]]:
    """Return the complete paths from the handling of a report to the cycle that caused it."""
    by_id = {span.span_id: span for span in spans}
    paths = [[span] for span in spans if span.name == "sentinel.report"]
    for path in paths:
        while path[-1].parent_span_id in by_id:
            path.append(by_id[path[-1].parent_span_id])
    return [path for path in paths if path[-1].name == "sentinel.cycle"]
