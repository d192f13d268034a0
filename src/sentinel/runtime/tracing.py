"""OpenTelemetry tracing, which costs nothing when it is off.

Tracing is on if `OTEL_EXPORTER_OTLP_ENDPOINT` is set. OpenTelemetry's other variables have their usual meaning. A
thread of the SDK sends spans in batches: if the collector is slow or down, spans are lost and a warning is logged,
but no work is delayed. The SDK is loaded only if tracing is on.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TypeAlias
from urllib.parse import unquote

from sentinel.runtime.log import Log
from sentinel.runtime.log_format import describe

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span as OtelSpan

Attribute: TypeAlias = "str | bool | int | float"

SERVICE_NAME = "hyperfleet-sentinel"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
_FLUSH_TIMEOUT = timedelta(seconds=2)


class Span(Protocol):
    """A unit of work in progress."""

    @property
    def traceparent(self) -> str:
        """The W3C Trace Context header, or an empty text if tracing is off."""

    def set(self, **attributes: Attribute) -> None:
        """Add attributes."""


class Tracer(Protocol):
    """Creates spans. A span opened inside another is its child."""

    def span(self, name: str, /, **attributes: Attribute) -> AbstractContextManager[Span]:
        """Return a span for the work in its context. An exception marks the span as failed."""

    async def close(self) -> None:
        """Send the remaining spans, within a timeout."""


class _NoSpan:
    """A span, its context and a tracer in one, so that disabled tracing allocates nothing."""

    traceparent = ""

    def span(self, name: str, /, **attributes: Attribute) -> AbstractContextManager[Span]:
        return self

    async def close(self) -> None:
        pass

    def set(self, **attributes: Attribute) -> None:
        pass

    def __enter__(self) -> Span:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


NO_TRACING: Tracer = _NoSpan()


def from_environment(environ: Mapping[str, str], *, log: Log, redact: Callable[[str], str] = str) -> Tracer:
    """Return the tracer that the environment configures, or `NO_TRACING` if there is none or it fails."""
    if not _is_enabled(environ):
        return NO_TRACING
    try:
        return OpenTelemetryTracer(endpoint=_endpoint(environ), headers=_headers(environ), redact=redact)
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
        flush_timeout: timedelta = _FLUSH_TIMEOUT,
    ) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME as NAME
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        resource = Resource.create()
        if str(resource.attributes.get(NAME, "")).startswith("unknown_service"):
            resource = resource.merge(Resource({NAME: SERVICE_NAME}))
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
    def span(self, name: str, /, **attributes: Attribute) -> Iterator[Span]:
        from opentelemetry.trace import Status, StatusCode

        # The SDK would record an exception's text and traceback without redaction.
        with self._tracer.start_as_current_span(
            name, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield _OpenTelemetrySpan(span)
            except Exception as error:
                span.set_status(Status(StatusCode.ERROR, self._redact(describe(error))))
                raise

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
    def __init__(self, span: OtelSpan) -> None:
        self._span = span
        context = span.get_span_context()
        self.traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def set(self, **attributes: Attribute) -> None:
        self._span.set_attributes(attributes)


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
