"""Spans of requests: they continue the caller's trace, and contain nothing that a client may mean to be secret."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from sentinel.runtime.tracing import NO_TRACING
from sentinel.web.middleware import Middleware
from sentinel.web.routing import Method, Request, Response
from tests.runtime.trace_collector import CollectedTraces, attributes_of, collected_traces, traceparent_of
from tests.web.asgi_client import OK, call, make_app, raising, route

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


@pytest.fixture
async def traces() -> AsyncIterator[CollectedTraces]:
    async with collected_traces() as traces:
        yield traces


async def test_a_request_continues_the_trace_of_its_caller(traces: CollectedTraces) -> None:
    async def handle(request: Request) -> Response:
        with traces.tracer.span("work"):
            return Response(201, b"{}")

    app = make_app(route(handle, method=Method.POST, path="/things/{id}"), tracer=traces.tracer)
    headers = {"Traceparent": f"00-{TRACE}-{SPAN}-01", "X-Request-Id": "abc"}

    await call(app, "POST", "/things/t1", headers=headers)

    request, work = await traces.finish()
    assert request.name == "POST /things/{id}"
    assert request.kind == Span.SPAN_KIND_SERVER
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == (TRACE, SPAN)
    assert work.parent_span_id == request.span_id
    assert attributes_of(request) == {
        "http.request.method": "POST",
        "http.route": "/things/{id}",
        "http.response.status_code": 201,
        "http.response.body.size": 2,
        "request_id": "abc",
    }
    assert request.status.code == Status.STATUS_CODE_UNSET


async def test_paths_queries_and_headers_are_not_in_a_span(traces: CollectedTraces) -> None:
    app = make_app(route(OK, path="/things/{id}", is_lenient=True), tracer=traces.tracer)
    headers = {"Authorization": "Bearer pl4nted", "Cookie": "pl4nted", "Tracestate": "a=pl4nted"}

    await call(app, "GET", "/things/pl4nted", query="token=pl4nted", headers=headers)
    await call(app, "GET", "/pl4nted")
    await call(app, "PL4NTED", "/things/pl4nted")

    spans = await traces.finish()
    assert [span.name for span in spans] == ["GET /things/{id}", "GET", "HTTP"]
    assert not [span for span in spans if b"pl4nted" in span.SerializeToString().lower()]


@pytest.mark.parametrize("header", ["", "nonsense", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE}-{SPAN}-01\u00b5"])
async def test_an_invalid_traceparent_starts_a_new_trace(traces: CollectedTraces, header: str) -> None:
    response = await call(
        make_app(route(OK), tracer=traces.tracer), "GET", "/things", headers={"Traceparent": header}
    )

    (span,) = await traces.finish()
    assert response.status == 200
    assert span.parent_span_id == b""


async def test_two_traceparents_start_a_new_trace(traces: CollectedTraces) -> None:
    header = f"00-{TRACE}-{SPAN}-01"

    await call(
        make_app(route(OK), tracer=traces.tracer),
        "GET",
        "/things",
        headers={"traceparent": header, "Traceparent": header},
    )

    (span,) = await traces.finish()
    assert span.parent_span_id == b""


async def test_a_server_error_marks_the_span_as_failed(traces: CollectedTraces) -> None:
    app = make_app(route(raising(lambda: LookupError("pl4nted"))), tracer=traces.tracer)

    await call(app, "GET", "/things")

    (span,) = await traces.finish()
    assert (span.status.code, span.status.message) == (Status.STATUS_CODE_ERROR, "status 500")


async def test_probes_are_not_traced(traces: CollectedTraces) -> None:
    app = make_app(route(OK, path="/healthz", is_quiet=True), route(OK), tracer=traces.tracer)

    await call(app, "GET", "/healthz")
    await call(app, "GET", "/things")

    assert [span.name for span in await traces.finish()] == ["GET /things"]


async def test_a_request_has_no_span_outside_its_own_context(traces: CollectedTraces) -> None:
    app = make_app(route(OK), tracer=traces.tracer)
    with traces.tracer.span("caller"):
        await call(app, "GET", "/things", headers={"Traceparent": traces.tracer.traceparent()})
        current = traces.tracer.traceparent()

    caller, request = await traces.finish()
    assert request.parent_span_id == caller.span_id
    assert current == traceparent_of(caller)


def test_without_tracing_the_application_is_not_wrapped() -> None:
    assert isinstance(make_app(route(OK), tracer=NO_TRACING), Middleware)
