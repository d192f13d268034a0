"""Traces the requests of a server.

It wraps the application only if tracing is on, so that requests cost nothing more if it is off. A span has the
path template as its name. It contains no path, query or body, and of the headers only the request id, because
clients may put secrets there.
"""

from __future__ import annotations

from collections.abc import Collection

from sentinel.runtime.tracing import Attribute, SpanKind, Tracer
from sentinel.web.asgi import App, Receive, Scope, Send
from sentinel.web.middleware import OTHER, RequestContext

_UNKNOWN_METHOD = "HTTP"
_FIRST_SERVER_ERROR = 500


class RequestSpans:
    """Wraps `middleware.Middleware`; a request's span continues the trace that its `traceparent` names."""

    def __init__(self, app: App, *, tracer: Tracer, untraced: Collection[str] = ()) -> None:
        """Requests to the paths in `untraced`, such as probes, have no span."""
        self._app = app
        self._tracer = tracer
        self._untraced = frozenset(untraced)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._untraced:
            await self._app(scope, receive, send)
            return
        with self._tracer.span(
            _UNKNOWN_METHOD, span_kind=SpanKind.SERVER, continues=(_traceparent(scope),)
        ) as span:
            try:
                await self._app(scope, receive, send)
            finally:
                record = RequestContext.of(scope).record
                if record is not None:
                    method = _UNKNOWN_METHOD if record.method == OTHER else record.method
                    span.rename(method if record.route == OTHER else f"{method} {record.route}")
                    attributes: dict[str, Attribute] = {
                        "http.request.method": method,
                        "http.route": record.route,
                        "http.response.status_code": record.status,
                        "http.response.body.size": record.size,
                        "request_id": record.request_id,
                    }
                    span.set(**attributes)
                    if record.status >= _FIRST_SERVER_ERROR:
                        span.fail(f"status {record.status}")


def _traceparent(scope: Scope) -> str:
    """Return the header; empty if there is none, or more than one, which is invalid."""
    found = [value for name, value in scope["headers"] if name == b"traceparent"]
    return str(found[0], "latin-1") if len(found) == 1 else ""
