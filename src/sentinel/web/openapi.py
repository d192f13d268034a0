"""The OpenAPI 3.1 document of a table of routes.

It is built from the same declarations as the application. msgspec derives the schemas from the structs that bodies
are decoded into. Problems that follow from a declaration, such as a body that is too large, are added here, so
that routes need not declare them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from sentinel.core.access import Action, Permissions
from sentinel.web import openapi_page
from sentinel.web.body import AnyBody, BytesBody
from sentinel.web.problem import CONTENT_TYPE, ProblemDocument, document_type, title
from sentinel.web.routing import (
    OPEN,
    Method,
    Open,
    Parameter,
    Request,
    Response,
    ResponseSpec,
    Route,
)

VERSION: Final = "3.1.0"

_SCHEMAS = "#/components/schemas/"
_PARTIAL = "Partial"
_EVENT: Final[Mapping[str, object]] = {
    "type": "object",
    "description": "Each server-sent event.",
    "properties": {name: {"type": "string"} for name in ("event", "id", "data")},
}
_PROBLEMS: Final[Mapping[int, str]] = {
    400: "A field, parameter or header is invalid; `errors` names each.",
    401: "The bearer token is missing, unknown or no longer valid.",
    403: "The caller's role does not permit this, or an insecure server got a request from another site.",
    404: "The resource does not exist.",
    409: "The state of the resource does not allow this.",
    410: "The stream cannot go on after `Last-Event-ID`: it is unreadable or too old. Begin without it.",
    412: "The resource has changed since the version that `If-Match` names.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The content type, charset or encoding of the body is not supported.",
    421: "The server is insecure, and `Host` names another machine.",
    422: "The fields contradict each other.",
    500: "The server failed; its log has the cause under `request_id`.",
    503: "The server is overloaded, cannot reach its database, or was too slow; try again.",
}
_PROBLEM_HEADERS: Final[Mapping[int, Mapping[str, str]]] = {
    401: {"WWW-Authenticate": "How to authenticate."},
    503: {"Retry-After": "The number of seconds after which to try again."},
}
_REQUEST_ID = "X-Request-Id"


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """The description of the server in the document."""

    title: str
    version: str
    description: str = ""
    tags: Mapping[str, str] = {}
    """Descriptions of the tags, in display order."""
    is_insecure: bool = False
    """No token is needed."""


def document(routes: Sequence[Route], info: Info, *, permissions: Permissions) -> bytes:
    """Return the document as JSON. It names the roles that may call each route."""
    return _Document([route for route in routes if route.is_documented], info, permissions).encode()


def openapi_routes(
    content: bytes, *, path: str = "/openapi.json", page_path: str = "/docs", action: Action | Open = OPEN
) -> tuple[Route, ...]:
    """Return routes that serve the document as JSON and as an HTML page."""
    page = openapi_page.render(msgspec.json.decode(content), document_url=path)

    async def get_document(request: Request) -> Response:
        return Response(body=content)

    async def get_page(request: Request) -> Response:
        headers = {"Content-Security-Policy": page.content_security_policy}
        return Response(body=page.html, headers=headers, content_type="text/html; charset=utf-8")

    return tuple(
        Route(
            method=Method.GET,
            path=at,
            action=action,
            handler=handler,
            summary=summary,
            tag="documentation",
            responses=(ResponseSpec(status=200, description=summary),),
            is_documented=False,
            is_lenient=True,
        )
        for at, handler, summary in (
            (path, get_document, "The OpenAPI document."),
            (page_path, get_page, "The OpenAPI document as HTML."),
        )
    )


class _Document:
    def __init__(self, routes: Sequence[Route], info: Info, permissions: Permissions) -> None:
        self._routes = routes
        self._info = info
        self._permissions = permissions
        types = list(_types(routes))
        schemas, self._components = msgspec.json.schema_components(types, ref_template=_SCHEMAS + "{name}")
        # If two types share a name, msgspec qualifies both, which would rename existing schemas.
        if shared := sorted({name.rpartition(".")[2] for name in self._components if "." in name}):
            raise ValueError(f"expected unique schema names, got several schemas called {', '.join(shared)}")
        self._schemas = dict(zip(map(_key, types), schemas, strict=True))
        self._queries = {
            _key(route.query): self._components.pop(_name(self._schema(route.query)), {"properties": {}})
            for route in {_key(each.query): each for each in routes if each.query is not None}.values()
        }

    def encode(self) -> bytes:
        info = {"title": self._info.title, "version": self._info.version, "description": self._info.description}
        tags = dict(self._info.tags) | {
            route.tag: "" for route in self._routes if route.tag not in self._info.tags
        }
        paths: dict[str, dict[str, object]] = {}
        for route in self._routes:
            paths.setdefault(route.path, {})[route.method.lower()] = self._operation(route)
        return msgspec.json.encode(
            {
                "openapi": VERSION,
                "info": info,
                "tags": [{"name": name, "description": description} for name, description in tags.items()],
                "paths": paths,
                "components": {
                    "schemas": dict(sorted(self._components.items())),
                    "headers": {_REQUEST_ID: _header("The id of the request in logs and in the audit.")},
                    "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
                },
            }
        )

    def _operation(self, route: Route) -> dict[str, object]:
        operation: dict[str, object] = {
            "operationId": _operation_id(route),
            "summary": route.summary,
            "tags": [route.tag],
            "security": self._security(route),
            "parameters": [
                *(self._parameter(parameter, place="path") for parameter in route.path_parameters),
                *self._query_parameters(route),
                *(self._parameter(parameter, place="header") for parameter in route.headers),
            ],
            "responses": {
                str(status): response
                for status, response in sorted(
                    [
                        *((response.status, self._response(response)) for response in route.responses),
                        *((status, self._problem(status, route)) for status in self._problem_statuses(route)),
                    ]
                )
            },
        }
        if route.description:
            operation["description"] = route.description
        if not isinstance(route.action, Open):
            operation["x-roles"] = self._permissions.roles(route.action)
        if route.body is not None:
            operation["requestBody"] = {
                "description": route.body.description,
                "required": route.body.is_required,
                "content": dict.fromkeys(route.body.content_types, self._body_media(route.body)),
            }
        return operation

    def _body_media(self, body: AnyBody) -> dict[str, object]:
        if isinstance(body, BytesBody):
            return {}  # any bytes, in OpenAPI 3.1
        return _media(self._schema(body.type), body.example)

    def _security(self, route: Route) -> list[dict[str, list[str]]]:
        if isinstance(route.action, Open):
            return []
        return [{"bearer": []}, {}] if self._info.is_insecure else [{"bearer": []}]

    def _parameter(self, parameter: Parameter, *, place: str) -> dict[str, object]:
        return {
            "name": parameter.name,
            "in": place,
            "description": parameter.description,
            "required": place == "path" or parameter.is_required,
            "schema": self._schema(parameter.type),
        }

    def _query_parameters(self, route: Route) -> Iterator[dict[str, object]]:
        if route.query is None:
            return
        described = self._queries[_key(route.query)]
        for name, schema in described["properties"].items():
            own = _without_null(schema)
            yield {
                "name": name,
                "in": "query",
                "description": own.pop("description", ""),
                "required": name in described.get("required", ()),
                "schema": own,
            }

    def _response(self, response: ResponseSpec) -> dict[str, object]:
        described: dict[str, Any] = {
            "description": response.description,
            "headers": _headers(response.headers),
        }
        if response.type is not None:
            schema = self._schema(response.type)
            if response.is_partial:
                schema = self._partial(schema)
            described["content"] = {response.content_type: _media(schema, response.example)}
            if response.stream_type:
                described["content"][response.stream_type] = {"schema": _EVENT}
        return described

    def _partial(self, schema: Any) -> Any:
        """Return a copy of the schema, and of those it refers to, in which nothing is required."""
        if isinstance(schema, list):
            return [self._partial(each) for each in schema]
        if not isinstance(schema, dict):
            return schema
        name = _name(schema)
        if not name:
            # Only a list is the keyword: a property may be called `required` too.
            return {
                key: self._partial(value)
                for key, value in schema.items()
                if not (key == "required" and isinstance(value, list))
            }
        copy = f"{_PARTIAL}{name}"
        if copy not in self._components:
            self._components[copy] = {}  # ends the recursion of a schema that refers to itself
            self._components[copy] = self._partial(self._components[name]) | {"title": copy}
        return {"$ref": _SCHEMAS + copy}

    def _problem_statuses(self, route: Route) -> set[int]:
        statuses = {400, 500, 503, *route.problems}
        if not isinstance(route.action, Open):
            statuses |= {401, 403}
        if route.body is not None:
            statuses |= {408, 413, 415}
        if self._info.is_insecure:
            statuses |= {403, 421}
        return statuses

    def _problem(self, status: int, route: Route) -> dict[str, object]:
        own = _own_problem(route) if status == HTTPStatus.UNPROCESSABLE_ENTITY else None
        return {
            "description": _PROBLEMS.get(status, title(HTTPStatus(status))),
            "headers": _headers(_PROBLEM_HEADERS.get(status, {})),
            "content": {CONTENT_TYPE: {"schema": self._schema(own or ProblemDocument)}},
        }

    def _schema(self, declared: Any) -> dict[str, Any]:
        return self._schemas[_key(declared)]


def _types(routes: Iterable[Route]) -> Iterator[Any]:
    """Yield every type that the routes use, each once."""
    seen = set()
    for route in routes:
        for declared in (
            *(parameter.type for parameter in (*route.path_parameters, *route.headers)),
            *(response.type for response in route.responses),
            None if route.body is None or isinstance(route.body, BytesBody) else route.body.type,
            route.query,
            ProblemDocument,
            _own_problem(route),
        ):
            if declared is not None and _key(declared) not in seen:
                seen.add(_key(declared))
                yield declared


def _own_problem(route: Route) -> type[msgspec.Struct] | None:
    """Return the type of its 422 problems if it declares an `error_type`."""
    return None if route.error_type is None else document_type(route.error_type)


def _key(declared: Any) -> str:
    # Not all annotated types are hashable, and equal ones may be distinct objects.
    return f"{getattr(declared, '__module__', '')}:{declared!r}"


def _name(reference: Mapping[str, Any]) -> str:
    return str(reference.get("$ref", "")).removeprefix(_SCHEMAS)


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Remove null from the schema of a query parameter: a query cannot contain null."""
    own = {key: value for key, value in schema.items() if not (key == "default" and value in (None, ""))}
    alternatives = [each for each in own.get("anyOf", ()) if each != {"type": "null"}]
    if len(alternatives) == 1:
        del own["anyOf"]
        own = {**alternatives[0], **own}
    return own


def _media(schema: Mapping[str, Any], example: msgspec.Raw | str | None) -> dict[str, object]:
    return {"schema": schema} if example is None else {"schema": schema, "example": example}


def _headers(described: Mapping[str, str]) -> dict[str, object]:
    own: dict[str, object] = {name: _header(description) for name, description in described.items()}
    return {**own, _REQUEST_ID: {"$ref": f"#/components/headers/{_REQUEST_ID}"}}


def _header(description: str) -> dict[str, object]:
    return {"description": description, "schema": {"type": "string"}}


def _operation_id(route: Route) -> str:
    words = re.sub(r"\{([a-z_]+)\}", r"by_\1", route.path).replace("-", "_").replace(".", "_").split("/")
    return "_".join((route.method.lower(), *filter(None, words)))
