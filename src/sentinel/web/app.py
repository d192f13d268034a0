"""From a table of routes to an application.

Litestar finds the route; everything else about a request is ours, because handlers read raw bytes and answer
with raw bytes. What is found by its path alone, such as a list, does not pass the framework at all: its layers
would cost as much as a hundred resources. A table that does not fit together is refused when the application is
built, and not when the first client finds out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeAlias, cast

import litestar
import msgspec
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse

from sentinel.core.access import Action, Permissions
from sentinel.runtime.telemetry import Log
from sentinel.web import body, decoding, problem
from sentinel.web.asgi import App, Receive, Scope, Send, client_address
from sentinel.web.identity import Guard
from sentinel.web.middleware import DEADLINE, MOST_AT_ONCE, Middleware, Observer, Passage
from sentinel.web.problem import Problem
from sentinel.web.routing import Answer, Body, Caller, Method, Open, Request, Route

_Connection: TypeAlias = "litestar.Request[Any, Any, Any]"

_SEGMENT = re.compile(r"[A-Za-z0-9._~-]+|\{[a-z_]+\}")
_PARAMETER = re.compile(r"\{([a-z_]+)\}")
_BODILESS = frozenset((204, 304))
_BODY_METHODS = frozenset((Method.POST, Method.PUT, Method.PATCH))


class BadRoutes(ValueError):
    """A table of routes that does not fit together; a fault of whoever wrote it."""


def build_app(
    routes: Sequence[Route],
    *,
    guard: Guard,
    log: Log,
    observers: Sequence[Observer] = (),
    deadline: timedelta = DEADLINE,
    most_at_once: int = MOST_AT_ONCE,
) -> App:
    """The application that serves these routes, for `server.Server` or a test client."""
    check_routes(routes, permissions=guard.permissions)
    by_path: dict[str, list[Route]] = {}
    for route in routes:
        by_path.setdefault(route.path, []).append(route)
    endpoints = [_Endpoint(offered, guard=guard, log=log) for offered in by_path.values()]
    app = litestar.Litestar(
        route_handlers=[endpoint.register() for endpoint in endpoints],
        exception_handlers={Exception: lambda connection, error: _framework_problem(connection, error, log)},
        openapi_config=None,
        logging_config=None,
        # Said outright, or variables of the environment decide: tracebacks in answers, and a debugger.
        debug=False,
        pdb_on_exception=False,
    )
    return Middleware(
        _past(cast("App", app), endpoints),
        log=log,
        observers=observers,
        deadline=deadline,
        most_at_once=most_at_once,
        always=[route.path for route in routes if route.is_quiet],
    )


def check_routes(routes: Iterable[Route], *, permissions: Permissions) -> None:
    """Raises `BadRoutes` with everything that is wrong."""
    permitted = permissions.actions
    faults: list[str] = []
    paths: dict[str, str] = {}
    calls: set[tuple[Method, str]] = set()
    for route in routes:
        shape = _PARAMETER.sub("{}", route.path)
        own = list(_faults(route, permitted))
        if (route.method, shape) in calls:
            own.append("declared twice")
        if paths.setdefault(shape, route.path) != route.path:
            own.append(f"expected the parameter names of {paths[shape]}")
        calls.add((route.method, shape))
        faults += [f"{route.method} {route.path}: {fault}" for fault in own]
    if faults:
        raise BadRoutes("; ".join(faults))


def _faults(route: Route, permitted: Collection[Action]) -> Iterator[str]:
    # A misspelt action would lock everyone out, except from an insecure server.
    if not isinstance(route.action, Open) and route.action not in permitted:
        yield f"expected an action, or OPEN, got {route.action!r}, which no role is permitted"
    segments = route.path.removeprefix("/").split("/")
    is_rooted = route.path.startswith("/")
    if not is_rooted or (route.path != "/" and not all(map(_SEGMENT.fullmatch, segments))):
        yield "expected a path of safe segments such as /api/v1/things/{id}"
    declared = sorted(parameter.name for parameter in route.path_parameters)
    if declared != sorted(route.template_names):
        yield f"expected the path parameters {sorted(route.template_names)}, got {declared}"
    if not route.responses:
        yield "expected at least one response"
    if route.body is not None and route.method not in _BODY_METHODS:
        yield f"expected no body with {route.method}"
    if route.query is not None and not issubclass(route.query, msgspec.Struct):
        yield f"expected a struct as its query, got {route.query!r}"


def _past(framework: App, endpoints: Iterable[_Endpoint]) -> App:
    """The framework, except for what can be answered without it."""
    direct = {endpoint.path: endpoint for endpoint in endpoints if not _PARAMETER.search(endpoint.path)}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = direct.get(scope["path"])
        if endpoint is None or not endpoint.offers(scope["method"]):
            await framework(scope, receive, send)
            return
        scope["path_params"] = {}
        response = await endpoint.respond(scope, receive)
        await response(scope, receive, send)

    return app


class _Endpoint:
    """All routes of one path."""

    def __init__(self, routes: Sequence[Route], *, guard: Guard, log: Log) -> None:
        self.path = routes[0].path
        self._routes = {route.method.value: route for route in routes}
        if (get := self._routes.get(Method.GET)) is not None:
            self._routes["HEAD"] = get  # the server leaves the body out
        self._allow = ", ".join(sorted((*self._routes, "OPTIONS")))
        self._guard = guard
        self._log = log

    def register(self) -> HTTPRouteHandler:
        """As the framework wants it."""

        async def answer(request: _Connection) -> _Response:
            return await self.respond(cast("Scope", request.scope), cast("Receive", request.receive))

        path = _PARAMETER.sub(r"{\1:str}", self.path)
        methods: Any = [*self._routes, "OPTIONS"]
        return HTTPRouteHandler(path, http_method=methods, status_code=200)(answer)

    def offers(self, method: str) -> bool:
        return method in self._routes or method == "OPTIONS"

    async def respond(self, scope: Scope, receive: Receive) -> _Response:
        """The answer, whatever happens; only a client that is gone gets none."""
        try:
            return _Response(await self._answer(scope, receive))
        except Problem as error:
            refusal = error
        except body.Disconnected:
            raise
        except Exception as error:  # the server's edge: a fault of ours is an answer, too
            refusal = _unexpected(scope, error, self._log)
        return _Response(Answer(refusal.status.value, refusal.encode(), refusal.headers, problem.CONTENT_TYPE))

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        route = self._routes.get(scope["method"])
        if route is None:
            return Answer(204, headers={"Allow": self._allow})
        passage = Passage.of(scope)
        passage.route = route
        headers = _headers(scope)
        identity = await self._guard.identify(route.action, headers)
        if not isinstance(route.action, Open):
            passage.actor = identity.name
        self._guard.authorize(identity, route.action)
        parameters: Mapping[str, str] = scope["path_params"]
        for name, value in parameters.items():
            if "\0" in value:
                raise problem.bad_field(name, "expected text, got a NUL character")
        query = None if route.is_lenient else decoding.decode_query(scope["query_string"], route.query)

        async def read(declared: Body) -> bytes:
            return await body.read(
                receive,
                headers,
                content_types=declared.content_types,
                limit=declared.limit,
                is_required=declared.is_required,
            )

        return await route.handler(
            Request(
                route=route,
                caller=Caller(identity, client_address(scope), passage.request_id),
                path=parameters,
                headers=headers,
                query=query,
                read=read,
                log=self._log,
            )
        )


def _headers(scope: Scope) -> Mapping[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


class _Response(ASGIResponse):
    """An answer as it is, without the framework's ideas of what else it should say."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        answer = self._answer
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in answer.headers.items()]
        body = b"" if answer.status in _BODILESS else answer.body
        pieces = body if isinstance(body, tuple) else (body,)
        if length := sum(map(len, pieces)):
            headers.append((b"content-type", answer.content_type.encode()))
        if answer.status not in _BODILESS:
            headers.append((b"content-length", str(length).encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        last = len(pieces) - 1
        for number, piece in enumerate(pieces):
            await send({"type": "http.response.body", "body": piece, "more_body": number < last})


def _framework_problem(connection: _Connection, error: Exception, log: Log) -> litestar.Response[bytes]:
    """What the framework refuses by itself, and what nobody expected."""
    scope = cast("Scope", connection.scope)
    match error:
        case NotFoundException():
            refusal = problem.no_route(scope["path"])
        case MethodNotAllowedException():
            allowed = (error.headers or {}).get("allow", "")
            refusal = problem.method_not_allowed(scope["method"], allowed.split(", "))
        case HTTPException() if error.status_code < 500:
            refusal = problem.bad_request(error.detail)
        case body.Disconnected():
            raise error
        case _:
            refusal = _unexpected(scope, error, log)
    return litestar.Response(
        refusal.encode(),
        status_code=refusal.status.value,
        media_type=problem.CONTENT_TYPE,
        headers=refusal.headers,
    )


def _unexpected(scope: Scope, error: Exception, log: Log) -> Problem:
    request_id = Passage.of(scope).request_id
    log.unexpected("http.failed", error=error, path=scope["path"], request_id=request_id)
    return problem.internal(request_id)
