"""Spans reach a collector, and a failing collector does not affect the service."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SentSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from sentinel.core import traceparent
from sentinel.runtime import tracing
from sentinel.runtime.log import configure_logging, get_logger
from sentinel.runtime.tracing import NO_TRACING, OpenTelemetryTracer, SpanKind
from tests.runtime.trace_collector import TraceCollector, attributes_of, collected_traces, traceparent_of

LOG = get_logger("test")
HEADERS = "authorization=Bearer%20pl4nted-s3cret,x-tenant=fleet"
FLUSH_TIMEOUT = timedelta(milliseconds=200)
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
OTHER_TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "00f067aa0ba902b7"
CAUSE = f"00-{TRACE}-{SPAN}-01"


def service_name(collector: TraceCollector) -> str:
    attributes = collector.requests[0].resource_spans[0].resource.attributes
    return next(str(each.value.string_value) for each in attributes if each.key == "service.name")


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    """A closed tracer leaves no thread behind that retries."""
    before = set(threading.enumerate())
    yield
    left = set(threading.enumerate()) - before
    for thread in left:
        thread.join(timeout=2)
    assert not [thread.name for thread in left if thread.is_alive()]


@pytest.fixture
async def collector() -> AsyncIterator[TraceCollector]:
    async with TraceCollector() as collector:
        yield collector


@pytest.fixture
def log_text() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    configured = configure_logging(
        "debug", "json", stream=stream, secrets=tracing.exporter_secrets({"OTEL_EXPORTER_OTLP_HEADERS": HEADERS})
    )
    yield stream
    configured.restore()


async def test_spans_reach_the_collector_with_the_ids_that_events_carry(collector: TraceCollector) -> None:
    tracer = tracing.from_environment(
        {"OTEL_EXPORTER_OTLP_ENDPOINT": f"{collector.url}/", "OTEL_EXPORTER_OTLP_HEADERS": HEADERS}, log=LOG
    )

    with tracer.span("sentinel.cycle", resource_type="clusters") as cycle:
        with tracer.span("sentinel.fetch"):
            await asyncio.sleep(0)
        with tracer.span("sentinel.publish") as publish:
            publish.set(events=3, confirmed=True)
    await tracer.close()

    spans = {span.name: span for span in collector.spans}
    root, fetch, sent = (spans[name] for name in ("sentinel.cycle", "sentinel.fetch", "sentinel.publish"))
    for span, wire in ((cycle, root), (publish, sent)):
        identity, _, flags = span.traceparent.rpartition("-")
        assert identity == f"00-{root.trace_id.hex()}-{wire.span_id.hex()}"
        assert len(flags) == 2
        assert int(flags, 16) & 1, "sampled"
    assert root.parent_span_id == b""
    assert fetch.parent_span_id == sent.parent_span_id == root.span_id
    assert [(attribute.key, attribute.value.string_value) for attribute in root.attributes] == [
        ("resource_type", "clusters")
    ]
    assert {attribute.key for attribute in sent.attributes} == {"events", "confirmed"}
    assert service_name(collector) == "hyperfleet-sentinel"
    assert collector.headers[0]["authorization"] == "Bearer pl4nted-s3cret"
    assert collector.headers[0]["x-tenant"] == "fleet"


async def test_the_service_name_is_configurable(
    collector: TraceCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "sentinel-us-east")
    tracer = tracing.from_environment(
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{collector.url}/v1/traces"}, log=LOG
    )

    with tracer.span("sentinel.cycle"):
        pass
    await tracer.close()

    assert service_name(collector) == "sentinel-us-east"


async def test_an_exception_marks_its_span_and_is_redacted(collector: TraceCollector) -> None:
    tracer = tracing.from_environment(
        {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url},
        log=LOG,
        redact=lambda text: text.replace("pl4nted", "***"),
    )

    with pytest.raises(LookupError), tracer.span("sentinel.cycle"):
        raise LookupError("pl4nted is lost")
    await tracer.close()

    (span,) = collector.spans
    assert span.status.code == Status.STATUS_CODE_ERROR
    assert span.status.message == "LookupError: *** is lost"
    assert b"pl4nted" not in span.SerializeToString()


@pytest.mark.parametrize("span_kind", list(SpanKind))
async def test_a_span_continues_the_trace_that_caused_it(span_kind: SpanKind) -> None:
    async with collected_traces() as traces:
        with traces.tracer.span("evaluation", span_kind=span_kind, continues=["invalid", CAUSE]):
            pass
        (span,) = await traces.finish()

    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, SPAN)
    assert SentSpan.SpanKind.Name(span.kind) == f"SPAN_KIND_{span_kind.name}"
    assert not span.links


async def test_further_causes_are_links_and_each_counts_once() -> None:
    other = f"00-{OTHER_TRACE}-{SPAN}-00"
    async with collected_traces() as traces:
        with traces.tracer.span("evaluation", continues=[CAUSE, other, CAUSE, "", other]):
            pass
        (span,) = await traces.finish()

    assert span.trace_id.hex() == TRACE
    assert [(link.trace_id.hex(), link.span_id.hex()) for link in span.links] == [(OTHER_TRACE, SPAN)]


async def test_a_trace_that_is_not_sampled_stays_so() -> None:
    async with collected_traces() as traces:
        with traces.tracer.span("evaluation", continues=[f"00-{TRACE}-{SPAN}-00"]) as span:
            sent = traces.tracer.traceparent()
        assert await traces.finish() == []

    assert sent == span.traceparent
    assert sent.startswith(f"00-{TRACE}-")
    assert sent.endswith("-00")


@pytest.mark.parametrize("continues", [[], ["invalid"]])
async def test_a_server_span_is_no_child_of_a_span_in_its_process(continues: list[str]) -> None:
    async with collected_traces() as traces:
        with (
            traces.tracer.span("cycle"),
            traces.tracer.span("GET", span_kind=SpanKind.SERVER, continues=continues),
        ):
            pass
        cycle, request = await traces.finish()

    assert request.parent_span_id == b""
    assert request.trace_id != cycle.trace_id


async def test_requests_get_the_traceparent_of_the_current_span() -> None:
    async with collected_traces() as traces:
        outside = traces.tracer.traceparent()
        with traces.tracer.span("evaluation"):
            inside = await asyncio.create_task(_current(traces.tracer))
        (span,) = await traces.finish()

    assert outside == ""
    assert inside == traceparent_of(span)


async def _current(tracer: tracing.Tracer) -> str:
    return tracer.traceparent()


async def test_attributes_are_redacted_and_a_name_can_be_replaced() -> None:
    async with collected_traces(redact=lambda text: text.replace("pl4nted", "***")) as traces:
        with traces.tracer.span("HTTP", first="pl4nted") as span:
            span.rename("GET /things")
            span.set(second="is pl4nted", status=500)
            span.fail("pl4nted")
        (sent,) = await traces.finish()

    assert sent.name == "GET /things"
    assert attributes_of(sent) == {"first": "***", "second": "is ***", "status": 500}
    assert (sent.status.code, sent.status.message) == (Status.STATUS_CODE_ERROR, "***")


@given(
    st.from_regex(
        r"(0[01]|ff|f.)-[0-9a-f]{31}[0-9a-fA-F]-(0{16}|[0-9a-f]{16})-[0-9a-f]{2}(-[a-z]*|x)?", fullmatch=True
    )
)
def test_headers_are_read_as_opentelemetry_reads_them(header: str) -> None:
    context = TraceContextTextMapPropagator().extract({"traceparent": header})
    known = trace.get_current_span(context).get_span_context()

    parent = traceparent.parse(header)

    if parent is None:
        assert not known.is_valid
    else:
        assert (parent.trace_id, parent.span_id) == (known.trace_id, known.span_id)
        assert parent.is_sampled == known.trace_flags.sampled


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_SDK_DISABLED": "TRUE"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_tracing_is_off_by_default(environ: dict[str, str]) -> None:
    assert tracing.from_environment(environ, log=LOG) is NO_TRACING


async def test_spans_have_no_id_if_tracing_is_off() -> None:
    with NO_TRACING.span("sentinel.cycle", continues=[CAUSE], resource_type="clusters") as span:
        span.set(fetched=3)
        span.rename("cycle")
        span.fail("broken")
        assert NO_TRACING.traceparent() == ""
    await NO_TRACING.close()

    assert span.traceparent == ""


async def test_an_unreachable_collector_reveals_no_secret(log_text: io.StringIO, unused_tcp_port: int) -> None:
    tracer = OpenTelemetryTracer(
        endpoint=f"http://user:pl4nted-s3cret@127.0.0.1:{unused_tcp_port}/v1/traces",
        headers={"authorization": "Bearer pl4nted-s3cret"},
        flush_timeout=FLUSH_TIMEOUT,
    )

    with tracer.span("sentinel.cycle"):
        pass
    async with asyncio.timeout(10):
        await tracer.close()

    assert "pl4nted-s3cret" not in log_text.getvalue()


async def test_a_collector_that_never_responds_does_not_block_closing() -> None:
    writers: list[asyncio.StreamWriter] = []
    async with asyncio.timeout(10):
        silent = await asyncio.start_server(lambda reader, writer: writers.append(writer), "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        tracer = OpenTelemetryTracer(
            endpoint=f"http://127.0.0.1:{port}/v1/traces", headers={}, flush_timeout=FLUSH_TIMEOUT
        )

        with tracer.span("sentinel.cycle"):
            pass
        await tracer.close()

        silent.close()
        for writer in writers:
            writer.transport.abort()


@pytest.mark.parametrize("endpoint", ["nonsense", "http://", "ftp://127.0.0.1"])
async def test_an_invalid_endpoint_does_not_end_the_service(log_text: io.StringIO, endpoint: str) -> None:
    tracer = tracing.from_environment({"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}, log=LOG)

    with tracer.span("sentinel.cycle"):
        pass
    async with asyncio.timeout(10):
        await tracer.close()


def test_header_values_and_their_last_words_are_secrets() -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_HEADERS": HEADERS,
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "api-key=a%3Db=c, broken,empty=",
    }

    assert set(tracing.exporter_secrets(environ)) == {"Bearer pl4nted-s3cret", "pl4nted-s3cret", "fleet", "a=b=c"}


def run_script(script: str) -> str:
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert result.returncode == 0, result.stderr
    return result.stdout + result.stderr


def test_disabled_tracing_loads_nothing() -> None:
    output = run_script(
        "import sys\n"
        "from sentinel.runtime import tracing\n"
        "from sentinel.runtime.log import configure_logging, get_logger\n"
        "tracing.from_environment({}, log=get_logger('test'))\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry', 'requests', 'google'))])"
    )

    assert output.strip() == "[]"


def test_a_warning_names_the_extra_if_tracing_is_not_installed() -> None:
    output = run_script(
        "import sys\n"
        "sys.modules['opentelemetry'] = None\n"
        "from sentinel.runtime import tracing\n"
        "from sentinel.runtime.log import configure_logging, get_logger\n"
        "configure_logging('info', 'json')\n"
        "environ = {'OTEL_EXPORTER_OTLP_ENDPOINT': 'http://127.0.0.1:4318'}\n"
        "tracer = tracing.from_environment(environ, log=get_logger('test'))\n"
        "assert tracer is tracing.NO_TRACING"
    )

    record = json.loads(output)
    assert record["level"] == "warning"
    assert record["event"] == "tracing.unavailable"
    assert record["remedy"] == "install fleet-sentinel[otel]"
