"""A collector on loopback that keeps the spans it is sent."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.http.loopback import listen


class TraceCollector:
    """Takes OTLP over HTTP between `async with` and its end."""

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[Span] = []
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_post("/v1/traces", self._take)
        self._runner = web.AppRunner(application, access_log=None)
        self.url = await listen(self._runner)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        sent = ExportTraceServiceRequest.FromString(await request.read())
        for resource in sent.resource_spans:
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)
        return web.Response()
