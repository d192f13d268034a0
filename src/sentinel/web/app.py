"""From the components on one listener to an application.

An application is a list of components, each with its routes, and one OpenAPI document for all of them. Starlette's
router finds the endpoint by path; each request is matched once. Routes that do not fit together, in a component or
across components, are refused when the application is built, not when the first client finds out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta

import msgspec
from starlette.routing import Match, Router
from starlette.routing import Route as StarletteRoute

from sentinel.core import access
from sentinel.core.access import Action, Permissions
from sentinel.runtime.log import Log
from sentinel.web import openapi, problem
from sentinel.web.asgi import App, Receive, Scope, Send
from sentinel.web.endpoint import Endpoint, Operation, problem_answer, send_answer
from sentinel.web.identity import Guard
from sentinel.web.middleware import DEADLINE, MOST_AT_ONCE, Middleware, RequestContext, RequestObserver
from sentinel.web.openapi import Info
from sentinel.web.routing import Method, Open, Route
from sentinel.web.streams import MOST_STREAMS

_SEGMENT = re.compile(r"[A-Za-z0-9._~-]+|\{[a-z_]+\}")
_PARAMETER = re.compile(r"\{([a-z_]+)\}")
_MISS: tuple[Match, Scope] = (Match.NONE, {})
_BODY_METHODS = frozenset((Method.POST, Method.PUT, Method.PATCH))


class BadRoutes(ValueError):
    """A table of routes that does not fit together; a bug in the component that declares it."""


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """What a component contributes to an application, which it may share with others."""

    routes: Sequence[Route]
    permissions: Permissions = Permissions()
    """Which roles may do what its routes need permission for."""
    tags: Mapping[str, str] = {}
    """Descriptions of the tags of its routes, for the OpenAPI document, in the order in which to show them."""
    observers: Sequence[RequestObserver] = ()
    """Told about the requests to its routes alone, such as metrics under a prefix of its own."""


def build_app(
    routes: Sequence[Route] = (),
    *,
    components: Sequence[Component] = (),
    info: Info | None = None,
    guard: Guard,
    log: Log,
    observers: Sequence[RequestObserver] = (),
    deadline: timedelta = DEADLINE,
    most_at_once: int = MOST_AT_ONCE,
    most_streams: int = MOST_STREAMS,
) -> App:
    """Build the application that serves these components, for `server.Server` or a test client.

    `routes` are the application's own, such as probes and metrics. With `info`, it also serves an OpenAPI document
    of all components. `observers` are told about every request. `deadline` and `most_at_once` hold for all but
    streams, of which `most_streams` may be open.
    """
    permissions = access.combine(guard.permissions, *(component.permissions for component in components))
    guard = guard.permitting(permissions)
    own = [*routes, *(openapi.openapi_routes(describe(components, info)) if info is not None else ())]
    offered = [Operation(route) for route in own]
    offered += [
        Operation(route, tuple(component.observers)) for component in components for route in component.routes
    ]
    check_routes((operation.route for operation in offered), permissions=permissions)
    by_path: dict[str, list[Operation]] = {}
    for operation in offered:
        by_path.setdefault(operation.route.path, []).append(operation)
    return Middleware(
        _router([Endpoint(operations, guard=guard, log=log) for operations in by_path.values()]),
        log=log,
        observers=observers,
        deadline=deadline,
        most_at_once=most_at_once,
        most_streams=most_streams,
        always=[operation.route.path for operation in offered if operation.route.is_quiet],
    )


def describe(components: Sequence[Component], info: Info) -> bytes:
    """The OpenAPI document of an application that serves these components."""
    tags = dict(info.tags)
    for component in components:
        tags |= component.tags
    return openapi.document(
        [route for component in components for route in component.routes],
        msgspec.structs.replace(info, tags=tags),
        permissions=access.combine(*(component.permissions for component in components)),
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


def _router(endpoints: Iterable[Endpoint]) -> App:
    """The router, in front of which superfluous slashes are dropped."""
    ordered = sorted(endpoints, key=_precedence)
    router = Router(
        [_ExactRoute(endpoint.path, endpoint) for endpoint in ordered],
        redirect_slashes=False,  # a redirect would lose the body of a POST with many clients
        default=_no_route,
    )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if "//" in path or path[-1:] == "/" or path[:1] != "/":
            scope = {**scope, "path": "/" + "/".join(filter(None, path.split("/")))}
        await router(scope, receive, send)

    return app


def _precedence(endpoint: Endpoint) -> tuple[bool, Sequence[bool]]:
    """Sort order of endpoints, because the first that matches wins.

    A literal segment precedes a parameter. Paths without a parameter come first of all: lists are most requests.
    """
    are_parameters = [segment.startswith("{") for segment in endpoint.path.split("/")]
    return any(are_parameters), are_parameters


class _ExactRoute(StarletteRoute):
    """Matches the whole path: Starlette's own match also takes a path with a newline behind it.

    Parameters are text and nothing is mounted, so there is nothing to convert or to cut off either, which makes a
    miss cost half as much. A request misses dozens of routes before it meets its own.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        found = self.path_regex.fullmatch(scope["path"])
        return _MISS if found is None else (Match.FULL, {"path_params": found.groupdict()})


async def _no_route(scope: Scope, receive: Receive, send: Send) -> None:
    await send_answer(problem_answer(problem.no_route(RequestContext.of(scope).path)), send)
