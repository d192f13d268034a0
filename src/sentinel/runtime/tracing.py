"""OpenTelemetry tracing, which costs nothing when it is off.

Tracing is on if `OTEL_EXPORTER_OTLP_ENDPOINT` is set. OpenTelemetry's other variables have their usual meaning. A
thread of the SDK sends spans in batches: if the collector is slow or down, spans are lost and a warning is logged,
but no work is delayed. The SDK is loaded only if tracing is on.

One trace goes through all services: a cycle's events carry its `traceparent`, an adapter's evaluation continues
the trace of its event, and its requests carry the `traceparent` that the API's request spans continue.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TypeAlias
from urllib.parse import unquote

from sentinel.core import traceparent
from sentinel.core.traceparent import TraceParent
from sentinel.runtime.log import Log
from sentinel.runtime.log_format import describe

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Link, SpanContext
    from opentelemetry.trace import Span as OtelSpan

Attribute: TypeAlias = "str | bool | int | float"

SERVICE_NAME = "hyperfleet-sentinel"
"""The `service.name` of traces if the environment names none."""
VARIABLES: Mapping[str, str] = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "The URL of a collector that takes OTLP over HTTP, such as"
    " `http://collector:4318`; spans go to `/v1/traces` below it. Tracing is off without it.",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "The whole URL for spans. It overrides the one above.",
    "OTEL_EXPORTER_OTLP_HEADERS": "Headers for the collector, such as `authorization=Bearer%20…`: pairs separated"
    " by commas, percent-encoded. Their values are secrets and never shown. `OTEL_EXPORTER_OTLP_TRACES_HEADERS`"
    " overrides it.",
    "OTEL_SERVICE_NAME": "The `service.name` of the spans. Default: `hyperfleet-sentinel` for `run` and `up`,"
    " `hyperfleet-api` for `api`, `hyperfleet-adapter` for `adapter`.",
    "OTEL_RESOURCE_ATTRIBUTES": "More attributes of the service, such as `deployment.environment=production`.",
    "OTEL_TRACES_SAMPLER": "Which traces to record. The default, `parentbased_always_on`, records all, except"
    " those whose `traceparent` says that they are not sampled. `parentbased_traceidratio` with"
    " `OTEL_TRACES_SAMPLER_ARG=0.1` records a tenth of the traces that start here.",
    "OTEL_TRACES_EXPORTER": "`otlp`, the default. Any other value, such as `none`, turns tracing off.",
    "OTEL_SDK_DISABLED": "`true` turns tracing off.",
}
"""What the environment configures, for the reference. The SDK reads more, such as `OTEL_BSP_SCHEDULE_DELAY`."""

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
_FLUSH_TIMEOUT = timedelta(seconds=2)


class SpanKind(StrEnum):
    """What a span does in its trace. A server or a consumer is the first span of its process in a trace."""

    INTERNAL = "internal"
    SERVER = "server"
    CONSUMER = "consumer"


class Span(Protocol):
    """A unit of work in progress."""

    @property
    def traceparent(self) -> str:
        """The W3C Trace Context header, or an empty text if tracing is off."""

    def set(self, **attributes: Attribute) -> None:
        """Add attributes."""

    def rename(self, name: str) -> None:
        """Replace the name, for work that is not known when the span starts."""

    def fail(self, reason: str) -> None:
        """Mark the span as failed, for a failure that is not an exception."""


class Tracer(Protocol):
    """Creates spans. A span opened inside another is its child."""

    def span(
        self,
        name: str,
        /,
        *,
        span_kind: SpanKind = SpanKind.INTERNAL,
        continues: Iterable[str] = (),
        **attributes: Attribute,
    ) -> AbstractContextManager[Span]:
        """Return a span for the work in its context. An exception marks the span as failed.

        `continues` are the `traceparent` of what caused the work, the most important first: the span is a child of
        the first valid one, and linked to the others. A server or consumer span never is the child of a span in
        this process.
        """

    def traceparent(self) -> str:
        """Return the W3C Trace Context header of the current span, or an empty text if there is none."""

    async def close(self) -> None:
        """Send the remaining spans, within a timeout."""


class _NoSpan:
    """A span and its context in one, so that disabled tracing allocates nothing."""

    traceparent = ""

    def set(self, **attributes: Attribute) -> None:
        pass

    def rename(self, name: str) -> None:
        pass

    def fail(self, reason: str) -> None:
        pass

    def __enter__(self) -> Span:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class _NoTracer:
    _span = _NoSpan()

    def span(
        self,
        name: str,
        /,
        *,
        span_kind: SpanKind = SpanKind.INTERNAL,
        continues: Iterable[str] = (),
        **attributes: Attribute,
    ) -> AbstractContextManager[Span]:
        return self._span

    def traceparent(self) -> str:
        return ""

    async def close(self) -> None:
        pass


NO_TRACING: Tracer = _NoTracer()


def from_environment(
    environ: Mapping[str, str],
    *,
    log: Log,
    redact: Callable[[str], str] = str,
    service_name: str = SERVICE_NAME,
) -> Tracer:
    """Return the tracer that the environment configures, or `NO_TRACING` if there is none or it fails.

    The environment may override `service_name`. `redact` removes secrets from attributes and errors.
    """
    if not _is_enabled(environ):
        return NO_TRACING
    try:
        return OpenTelemetryTracer(
            endpoint=_endpoint(environ), headers=_headers(environ), redact=redact, service_name=service_name
        )
    except ModuleNotFoundError as error:
        log.warning("tracing.unavailable", missing=error.name, remedy="install fleet-sentinel[otel]")
    except Exception as error:  # the SDK rejects its variables; the service runs without traces
        log.warning("tracing.unavailable", error=error)
    return NO_TRACING


def exporter_secrets(environ: Mapping[str, str]) -> list[str]:
    """Return the secrets in the values of the exporter's headers."""
    values = [value for name in _HEADERS for value in _parse_headers(environ.get(name, "")).values()]
    # In a value such as `Bearer x` the last word is the secret, and errors may quote it alone.
    return [form for value in values if value for form in (value, value.split()[-1])]


class OpenTelemetryTracer:
    """Sends spans as OTLP over HTTP."""

    def __init__(
        self,
        *,
        endpoint: str,
        headers: Mapping[str, str],
        redact: Callable[[str], str] = str,
        service_name: str = SERVICE_NAME,
        flush_timeout: timedelta = _FLUSH_TIMEOUT,
    ) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME as NAME
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        resource = Resource.create()
        if str(resource.attributes.get(NAME, "")).startswith("unknown_service"):
            resource = resource.merge(Resource({NAME: service_name}))
        # Not the global provider: only code that gets this tracer should trace.
        self._provider: TracerProvider = TracerProvider(resource=resource, shutdown_on_exit=False)

        class Exporter(OTLPSpanExporter):
            def shutdown(self) -> None:  # called by `close` after a timeout, and then by the SDK
                if not self._shutdown:
                    super().shutdown()  # type: ignore[no-untyped-call]  # the SDK does not type it

        self._exporter = Exporter(endpoint=endpoint, headers=dict(headers))
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("sentinel")
        self._redact = redact
        self._flush_timeout = flush_timeout

    @contextmanager
    def span(
        self,
        name: str,
        /,
        *,
        span_kind: SpanKind = SpanKind.INTERNAL,
        continues: Iterable[str] = (),
        **attributes: Attribute,
    ) -> Iterator[Span]:
        from opentelemetry import trace

        parents = _distinct(continues)
        # The SDK would record an exception's text and traceback without redaction.
        with self._tracer.start_as_current_span(
            name,
            context=_context(parents[0] if parents else None, span_kind),
            kind=trace.SpanKind[span_kind.name],
            links=[_link(other) for other in parents[1:]],
            attributes=_redacted(attributes, self._redact),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            wrapped = _OpenTelemetrySpan(span, self._redact)
            try:
                yield wrapped
            except Exception as error:
                wrapped.fail(describe(error))
                raise

    def traceparent(self) -> str:
        from opentelemetry import trace

        context = trace.get_current_span().get_span_context()
        return _header(context) if context.is_valid else ""

    async def close(self) -> None:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            with suppress(RuntimeError):  # the loop is closed: the wait has timed out
                loop.call_soon_threadsafe(done.set)

        # A daemon, because the SDK may wait far longer for its collector.
        threading.Thread(target=shut_down, name="tracing-shutdown", daemon=True).start()
        try:
            async with asyncio.timeout(self._flush_timeout.total_seconds()):
                await done.wait()
        except TimeoutError:
            self._exporter.shutdown()  # ends the retries in its thread


class _OpenTelemetrySpan:
    def __init__(self, span: OtelSpan, redact: Callable[[str], str]) -> None:
        self._span = span
        self._redact = redact
        self.traceparent = _header(span.get_span_context())

    def set(self, **attributes: Attribute) -> None:
        self._span.set_attributes(_redacted(attributes, self._redact))

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def fail(self, reason: str) -> None:
        from opentelemetry.trace import Status, StatusCode

        self._span.set_status(Status(StatusCode.ERROR, self._redact(reason)))


def _distinct(headers: Iterable[str]) -> list[TraceParent]:
    """Return the valid ones in order, each once: all events of a cycle have the same."""
    parsed = (traceparent.parse(header) for header in headers)
    return list(dict.fromkeys(parent for parent in parsed if parent is not None))


def _context(parent: TraceParent | None, span_kind: SpanKind) -> Context | None:
    """Return the context of a new span, or None for the current one."""
    from opentelemetry import trace
    from opentelemetry.context import Context

    if parent is not None:
        return trace.set_span_in_context(trace.NonRecordingSpan(_span_context(parent)), Context())
    return None if span_kind is SpanKind.INTERNAL else Context()


def _link(parent: TraceParent) -> Link:
    from opentelemetry.trace import Link

    return Link(_span_context(parent))


def _span_context(parent: TraceParent) -> SpanContext:
    from opentelemetry.trace import SpanContext, TraceFlags

    flags = TraceFlags(TraceFlags.SAMPLED if parent.is_sampled else TraceFlags.DEFAULT)
    return SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=flags)


def _header(context: SpanContext) -> str:
    return str(TraceParent(context.trace_id, context.span_id, context.trace_flags.sampled))


def _redacted(attributes: Mapping[str, Attribute], redact: Callable[[str], str]) -> dict[str, Attribute]:
    return {name: redact(str(value)) if isinstance(value, str) else value for name, value in attributes.items()}


def _is_enabled(environ: Mapping[str, str]) -> bool:
    is_disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    uses_other_exporter = environ.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower() not in ("", "otlp")
    return any(environ.get(name) for name in _ENDPOINTS) and not is_disabled and not uses_other_exporter


def _endpoint(environ: Mapping[str, str]) -> str:
    traces_endpoint = environ.get(_ENDPOINTS[0])
    return traces_endpoint or environ[_ENDPOINTS[1]].rstrip("/") + "/v1/traces"


def _headers(environ: Mapping[str, str]) -> dict[str, str]:
    return _parse_headers(environ.get(_HEADERS[0]) or environ.get(_HEADERS[1], ""))


def _parse_headers(text: str) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in text.split(","))
    return {unquote(name).strip().lower(): unquote(value).strip() for name, equals, value in pairs if equals}
