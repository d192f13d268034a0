"""Builds an application from the components on one listener.

An application is a list of components, each with its routes, and one OpenAPI document for all of them. Starlette's
router finds the endpoint by path. Conflicting routes, in one component or across components, are an error when the
application is built.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Unpack

import msgspec
from starlette.routing import Match, Router
from starlette.routing import Route as StarletteRoute

from sentinel.core import access
from sentinel.core.access import Action, Permissions
from sentinel.runtime.log import Log
from sentinel.runtime.probes.pages import Page
from sentinel.runtime.tracing import NO_TRACING, Tracer
from sentinel.web import openapi, problem
from sentinel.web.asgi import App, Receive, Scope, Send
from sentinel.web.endpoint import Endpoint, Operation, problem_response, send_response
from sentinel.web.identity import Guard
from sentinel.web.middleware import Middleware, RequestContext, RequestLimits, RequestObserver
from sentinel.web.openapi import Info
from sentinel.web.request_spans import RequestSpans
from sentinel.web.routing import OPEN, Handler, Method, Open, Request, Response, ResponseSpec, Route

_SEGMENT = re.compile(r"[A-Za-z0-9._~-]+|\{[a-z_]+\}")
_PARAMETER = re.compile(r"\{([a-z_]+)\}")
_MISS: tuple[Match, Scope] = (Match.NONE, {})
_BODY_METHODS = frozenset((Method.POST, Method.PUT, Method.PATCH))


class BadRoutes(ValueError):
    """Routes that are invalid or conflict; a bug in the component that declares them."""


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """What a component contributes to an application."""

    routes: Sequence[Route]
    permissions: Permissions = Permissions()
    """The roles that have the permissions its routes need."""
    tags: Mapping[str, str] = {}
    """Descriptions of its routes' tags for the OpenAPI document, in display order."""
    observers: Sequence[RequestObserver] = ()
    """Notified about requests to its routes only, such as metrics with their own prefix."""


def build_app(
    routes: Sequence[Route] = (),
    *,
    components: Sequence[Component] = (),
    info: Info | None = None,
    guard: Guard,
    log: Log,
    observers: Sequence[RequestObserver] = (),
    tracer: Tracer = NO_TRACING,
    **limits: Unpack[RequestLimits],
) -> App:
    """Build the application that serves these components, for `server.Server` or a test client.

    `routes` are the application's own, such as probes and metrics. With `info`, it also serves an OpenAPI document
    of all components. `observers` are notified about every request. Requests are traced, except those to quiet
    routes.
    """
    permissions = access.combine(guard.permissions, *(component.permissions for component in components))
    guard = guard.permitting(permissions)
    own = [*routes, *(openapi.openapi_routes(describe(components, info)) if info is not None else ())]
    all_operations = [Operation(route) for route in own]
    all_operations += [
        Operation(route, tuple(component.observers)) for component in components for route in component.routes
    ]
    check_routes((operation.route for operation in all_operations), permissions=permissions)
    by_path: dict[str, list[Operation]] = {}
    for operation in all_operations:
        by_path.setdefault(operation.route.path, []).append(operation)
    quiet = [operation.route.path for operation in all_operations if operation.route.is_quiet]
    app = Middleware(
        _router([Endpoint(operations, guard=guard, log=log) for operations in by_path.values()]),
        log=log,
        observers=observers,
        **limits,
        always=quiet,
    )
    return app if tracer is NO_TRACING else RequestSpans(app, tracer=tracer, untraced=quiet)


def describe(components: Sequence[Component], info: Info) -> bytes:
    """Return the OpenAPI document of an application that serves these components."""
    tags = dict(info.tags)
    for component in components:
        tags |= component.tags
    return openapi.document(
        [route for component in components for route in component.routes],
        msgspec.structs.replace(info, tags=tags),
        permissions=access.combine(*(component.permissions for component in components)),
    )


def page_routes(
    pages: Mapping[str, Page], *, before: Mapping[str, Callable[[], Awaitable[None]]] | None = None
) -> tuple[Route, ...]:
    """Return open, quiet routes for `probe_pages(health) | metrics_pages(metrics)`.

    `before` has functions that are awaited before the page at a path is rendered, for gauges that are read on
    demand. A service without a REST server uses `runtime.probes.listener` instead.
    """
    prepare = before or {}
    return tuple(
        Route(
            method=Method.GET,
            path=path,
            action=OPEN,
            handler=_page_handler(page, prepare.get(path)),
            summary=path,
            tag="operation",
            responses=(ResponseSpec(status=200, description="The current state."),),
            is_documented=False,
            is_lenient=True,
            is_quiet=True,
        )
        for path, page in pages.items()
    )


def _page_handler(page: Page, prepare: Callable[[], Awaitable[None]] | None) -> Handler:
    async def handle(request: Request) -> Response:
        if prepare is not None:
            await prepare()
        rendered = page(request.header("accept") or "")
        return Response(rendered.status.value, rendered.body, content_type=rendered.content_type)

    return handle


def check_routes(routes: Iterable[Route], *, permissions: Permissions) -> None:
    """Raise `BadRoutes` with every error."""
    permitted = permissions.actions
    errors: list[str] = []
    paths: dict[str, str] = {}
    seen: set[tuple[Method, str]] = set()
    for route in routes:
        shape = _PARAMETER.sub("{}", route.path)
        own = list(_route_errors(route, permitted))
        if (route.method, shape) in seen:
            own.append("declared twice")
        if paths.setdefault(shape, route.path) != route.path:
            own.append(f"expected the parameter names of {paths[shape]}")
        seen.add((route.method, shape))
        errors += [f"{route.method} {route.path}: {error}" for error in own]
    if errors:
        raise BadRoutes("; ".join(errors))


def _route_errors(route: Route, permitted: Collection[Action]) -> Iterator[str]:
    # A misspelled action would lock everyone out, except from an insecure server.
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
    """Return the router, wrapped to ignore extra slashes."""
    ordered = sorted(endpoints, key=_precedence)
    router = Router(
        [_ExactRoute(endpoint.path, endpoint) for endpoint in ordered],
        redirect_slashes=False,  # many clients drop the body of a POST when they follow a redirect
        default=_no_route,
    )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if "//" in path or path[-1:] == "/" or path[:1] != "/":
            scope = {**scope, "path": "/" + "/".join(filter(None, path.split("/")))}
        await router(scope, receive, send)

    return app


def _precedence(endpoint: Endpoint) -> tuple[bool, Sequence[bool]]:
    """Return the sort key of an endpoint. The first endpoint that matches is used.

    A literal segment precedes a parameter. Paths without parameters come first, because most requests are lists.
    """
    are_parameters = [segment.startswith("{") for segment in endpoint.path.split("/")]
    return any(are_parameters), are_parameters


class _ExactRoute(StarletteRoute):
    """Matches the whole path. Starlette's own match also accepts a trailing newline.

    There are no parameter converters and no mounts, which halves the cost of a miss. A request misses dozens of
    routes before it finds its own.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        found = self.path_regex.fullmatch(scope["path"])
        return _MISS if found is None else (Match.FULL, {"path_params": found.groupdict()})


async def _no_route(scope: Scope, receive: Receive, send: Send) -> None:
    await send_response(problem_response(problem.no_route(RequestContext.of(scope).path)), send)
