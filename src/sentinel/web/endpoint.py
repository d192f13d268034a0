"""One path of an application: calls the handler for a request, and sends the handler's response.

The router calls an endpoint with the matched path parameters. The endpoint picks the route by method, authorizes
the caller, decodes the query and calls the handler. Bodies stay raw bytes, so the framework does no work between
the match and the response.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from sentinel.runtime.log import Log
from sentinel.web import decoding, errors, problem
from sentinel.web.asgi import ClientDisconnected, Receive, Scope, Send, client_address, encode_headers
from sentinel.web.identity import Guard
from sentinel.web.middleware import RequestContext, RequestObserver
from sentinel.web.problem import Problem
from sentinel.web.routing import Caller, Method, Open, Request, Response, Route, Stream

_BODILESS = frozenset((204, 304))


class Operation(msgspec.Struct, frozen=True):
    """A route, and the observers of its requests in addition to those of the application."""

    route: Route
    observers: tuple[RequestObserver, ...] = ()


class Endpoint:
    """All operations of one path, as an ASGI application."""

    def __init__(self, operations: Sequence[Operation], *, guard: Guard, log: Log) -> None:
        self.path = operations[0].route.path
        self._operations = {operation.route.method.value: operation for operation in operations}
        if (get := self._operations.get(Method.GET)) is not None:
            self._operations["HEAD"] = get  # the server leaves the body out
        self._allowed = sorted((*self._operations, "OPTIONS"))
        self._guard = guard
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._respond(scope, receive)
        if isinstance(response, Stream):
            RequestContext.of(scope).stream = response  # sent by the middleware, which owns timeout and limits
        else:
            await send_response(response, send)

    async def _respond(self, scope: Scope, receive: Receive) -> Response | Stream:
        """Turn every failure into a response, unless the client has disconnected and cannot read it."""
        try:
            return await self._handle(scope, receive)
        except ClientDisconnected:
            raise
        except Exception as error:  # a bug is logged and becomes a 500
            return problem_response(errors.as_problem(error) or self._unexpected(scope, error))

    def _unexpected(self, scope: Scope, error: Exception) -> Problem:
        context = RequestContext.of(scope)
        self._log.exception("http.failed", error=error, path=context.path, request_id=context.request_id)
        return problem.internal(context.request_id)

    async def _handle(self, scope: Scope, receive: Receive) -> Response | Stream:
        method = scope["method"]
        operation = self._operations.get(method)
        if operation is None:
            if method == "OPTIONS":
                return Response(204, headers={"Allow": ", ".join(self._allowed)})
            raise problem.method_not_allowed(method, self._allowed)
        route = operation.route
        context = RequestContext.of(scope)
        context.found(route, operation.observers)
        headers = _headers(scope)
        identity = await self._guard.identify(route.action, headers)
        if not isinstance(route.action, Open):
            context.actor = identity.name
        self._guard.authorize(identity, route.action)
        parameters: Mapping[str, str] = scope["path_params"]
        for name, value in parameters.items():
            if "\0" in value:
                raise problem.bad_field(name, "expected text, got a NUL character")
        query = None if route.is_lenient else decoding.decode_query(scope["query_string"], route.query)
        return await route.handler(
            Request(
                route=route,
                caller=Caller(identity, client_address(scope), context.request_id),
                path=parameters,
                headers=headers,
                query=query,
                receive=receive,
                log=self._log,
                credential=self._guard.credential(identity, headers),
            )
        )


def problem_response(rejection: Problem) -> Response:
    """Render a problem."""
    return Response(rejection.status.value, rejection.encode(), rejection.headers, problem.CONTENT_TYPE)


async def send_response(response: Response, send: Send) -> None:
    """Send a response. A body in pieces is sent in pieces, without being copied."""
    headers = encode_headers(response.headers)
    content = b"" if response.status in _BODILESS else response.body
    pieces = content if isinstance(content, tuple) else (content,)
    if length := sum(map(len, pieces)):
        headers.append((b"content-type", response.content_type.encode()))
    if response.status not in _BODILESS:
        headers.append((b"content-length", str(length).encode()))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    last = len(pieces) - 1
    for number, piece in enumerate(pieces):
        await send({"type": "http.response.body", "body": piece, "more_body": number < last})


def _headers(scope: Scope) -> Mapping[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
