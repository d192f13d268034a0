"""An OTLP collector on loopback that stores the spans it receives."""

from __future__ import annotations

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.http.loopback import LoopbackServer


class TraceCollector(LoopbackServer):
    """Receives OTLP over HTTP while its context is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        """The headers of each request, with lower-case names."""

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def make_runner(self) -> web.AppRunner:
        application = web.Application()
        application.router.add_post("/v1/traces", self._receive)
        return web.AppRunner(application, access_log=None)

    async def _receive(self, request: web.Request) -> web.Response:
        self.requests.append(ExportTraceServiceRequest.FromString(await request.read()))
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        return web.Response(content_type="application/x-protobuf")
