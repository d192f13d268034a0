"""Traces of what the service does, for who collects them; nothing at all for who does not.

Tracing is on when `OTEL_EXPORTER_OTLP_ENDPOINT` says where to, as everywhere in OpenTelemetry, and its other
variables mean what they always mean. Spans leave in batches by a thread of the SDK: a collector that is slow,
wrong or gone costs spans and a warning, never a cycle. The SDK is loaded only when tracing is on.
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
_FLUSH = timedelta(seconds=2)
"""How long shutdown waits for the last spans to leave."""


class Span(Protocol):
    """A piece of work under way."""

    @property
    def traceparent(self) -> str:
        """Its identity as W3C Trace Context writes it, or nothing where tracing is off."""

    def set(self, **attributes: Attribute) -> None:
        """Adds what became known during the work."""


class Tracer(Protocol):
    """Where spans come from. A span opened within another is its child."""

    def span(self, name: str, /, **attributes: Attribute) -> AbstractContextManager[Span]:
        """Covers the work done in its context; an exception that leaves it marks the span as failed."""

    async def close(self) -> None:
        """Sends what is still here, within a limit."""


class _NoSpan:
    """A span, its own context and a tracer in one, so that tracing that is off allocates nothing."""

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
    """The tracer that the environment asks for; `NO_TRACING` where it asks for none, or it cannot be had."""
    if not _is_wanted(environ):
        return NO_TRACING
    try:
        return OpenTelemetryTracer(endpoint=_endpoint(environ), headers=_headers(environ), redact=redact)
    except ModuleNotFoundError as error:
        log.warning("tracing.unavailable", missing=error.name, remedy="install fleet-sentinel[otel]")
    except Exception as error:  # whatever the SDK makes of its variables, the service runs without traces
        log.warning("tracing.unavailable", error=error)
    return NO_TRACING


def exporter_secrets(environ: Mapping[str, str]) -> list[str]:
    """What must be masked: the values of the exporter's headers, as written and as sent."""
    values = [value for name in _HEADERS for value in _parse_headers(environ.get(name, "")).values()]
    # A value such as `Bearer x` is a secret in its last word, which errors may quote by itself.
    return [form for value in values if value for form in (value, value.split()[-1])]


class OpenTelemetryTracer:
    """Sends spans as OTLP over HTTP."""

    def __init__(
        self,
        *,
        endpoint: str,
        headers: Mapping[str, str],
        redact: Callable[[str], str] = str,
        flush: timedelta = _FLUSH,
    ) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME as NAME
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        resource = Resource.create()
        if str(resource.attributes.get(NAME, "")).startswith("unknown_service"):
            resource = resource.merge(Resource({NAME: SERVICE_NAME}))
        # Not the global provider: nothing but what is handed this tracer shall trace.
        self._provider: TracerProvider = TracerProvider(resource=resource, shutdown_on_exit=False)

        class Exporter(OTLPSpanExporter):
            def shutdown(self) -> None:  # by `close`, when the collector keeps it waiting, and then by the SDK
                if not self._shutdown:
                    super().shutdown()  # type: ignore[no-untyped-call]  # the SDK has not typed it

        self._exporter = Exporter(endpoint=endpoint, headers=dict(headers))
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("sentinel")
        self._redact = redact
        self._flush = flush

    @contextmanager
    def span(self, name: str, /, **attributes: Attribute) -> Iterator[Span]:
        from opentelemetry.trace import Status, StatusCode

        # The SDK's own record of an exception holds its text and traceback as they are, secrets included.
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
            with suppress(RuntimeError):  # the loop is closed: nobody waited that long
                loop.call_soon_threadsafe(done.set)

        # A daemon, because the SDK may wait for its collector far longer than we would.
        threading.Thread(target=shut_down, name="tracing-shutdown", daemon=True).start()
        try:
            async with asyncio.timeout(self._flush.total_seconds()):
                await done.wait()
        except TimeoutError:
            self._exporter.shutdown()  # or it would try again and again in a thread of its own


class _OpenTelemetrySpan:
    def __init__(self, span: OtelSpan) -> None:
        self._span = span
        context = span.get_span_context()
        self.traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def set(self, **attributes: Attribute) -> None:
        self._span.set_attributes(attributes)


def _is_wanted(environ: Mapping[str, str]) -> bool:
    is_disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    is_elsewhere = environ.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower() not in ("", "otlp")
    return any(environ.get(name) for name in _ENDPOINTS) and not is_disabled and not is_elsewhere


def _endpoint(environ: Mapping[str, str]) -> str:
    whole = environ.get(_ENDPOINTS[0])
    return whole or environ[_ENDPOINTS[1]].rstrip("/") + "/v1/traces"


def _headers(environ: Mapping[str, str]) -> dict[str, str]:
    return _parse_headers(environ.get(_HEADERS[0]) or environ.get(_HEADERS[1], ""))


def _parse_headers(text: str) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in text.split(","))
    return {unquote(name).strip().lower(): unquote(value).strip() for name, equals, value in pairs if equals}
