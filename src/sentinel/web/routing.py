"""Routes as a table, and what handlers receive and return.

The application and its OpenAPI document are both built from the table, so they cannot differ.

A handler does not depend on the framework that calls it. It receives a `Request` whose caller is authorized and
whose query is decoded into the struct that the route declares. It returns a `Response` or a `Stream`, or raises a
`Problem` or one of `web.errors`. Every route has to name the permission it needs: there is no default to forget.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from enum import Enum, StrEnum
from types import UnionType
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from sentinel.core.access import Action, Identity
from sentinel.runtime.log import Log, get_logger
from sentinel.web import body, decoding, forms
from sentinel.web.asgi import Receive
from sentinel.web.body import JSON, AnyBody, Body, BytesBody, FormBody, TextBody
from sentinel.web.credential import NO_TOKEN, Credential

T = TypeVar("T")

_TEMPLATE_NAME = re.compile(r"\{([a-z_]+)\}")


class Method(StrEnum):
    """The method of a route.

    There is no HEAD, because a GET route also serves it.
    """

    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


class Open(Enum):
    """In place of an action: the route needs no token."""

    OPEN = "open"


OPEN: Final = Open.OPEN


class Caller(msgspec.Struct, frozen=True):
    """The sender of a request, and the request's id."""

    identity: Identity
    address: str
    """The peer's address; empty if unknown."""
    request_id: str


class Response(msgspec.Struct, frozen=True):
    """A response whose body is complete."""

    status: int = 200
    body: bytes | tuple[bytes, ...] = b""
    """One piece, or several that are sent without being copied into one."""
    headers: Mapping[str, str] = {}
    content_type: str = JSON
    """Only sent with a body."""


class Stream(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A response whose body is produced while it is sent, such as a feed of events.

    Its status and headers are sent when the handler returns. From then on, neither the request timeout nor the
    limit on concurrent requests applies to it.
    """

    content: AsyncIterator[bytes]
    """The chunks of the body, usually an async generator. Each is sent at once. The next is requested when the
    client has room for it. The iterator is closed when the stream ends for any reason."""
    content_type: str
    status: int = 200
    headers: Mapping[str, str] = {}
    on_stalled: Callable[[], None] | None = None
    """Called if it is cut off because its client has read nothing for too long."""


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A path parameter or a header that a route reads.

    Query parameters are fields of the route's struct.
    """

    name: str
    description: str
    type: Any = str
    """Only for the OpenAPI document: handlers get text. May be `Annotated[str, msgspec.Meta(pattern=...)]`."""
    is_required: bool = False
    """Only for headers. Path parameters are always required."""


class ResponseSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A successful response of a route, for the OpenAPI document.

    With `is_partial`, the client can select members, so any member may be missing at any depth.
    """

    status: int
    description: str
    type: Any = None
    """The type of its body; None without a body."""
    is_partial: bool = False
    content_type: str = JSON
    stream_type: str = ""
    """The content type of the stream that it is instead if the client asks for one; empty if it never is."""
    headers: Mapping[str, str] = {}
    """Headers that it may have, and their descriptions."""
    example: msgspec.Raw | None = None


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of a server."""

    method: Method
    path: str
    """With path parameters in braces: `/api/v1/things/{id}`. A literal segment takes precedence over a
    parameter."""
    action: Action | Open
    """The permission that a caller needs, or `OPEN`."""
    handler: Handler
    summary: str
    tag: str
    responses: tuple[ResponseSpec, ...]
    problems: tuple[int, ...] = ()
    """The statuses of its own problems (404, 409, 412, ...). Leave out 500, 503 and those that follow from
    declaring a query, a body or an action (400, 401, 403, 413, 415)."""
    error_type: type[msgspec.Struct] | None = None
    """The type of `errors` entries in its 422 problems, if they are not `FieldError`s."""
    description: str = ""
    path_parameters: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    query: type[msgspec.Struct] | None = None
    """A frozen struct with a field for each query parameter. Text is converted (`"10"` to an int), anything else
    is strict. `Annotated[..., msgspec.Meta(description=...)]` describes a field. Without a struct, query
    parameters are rejected."""
    body: AnyBody | None = None
    is_documented: bool = True
    is_lenient: bool = False
    """Ignore all query parameters, for pages that monitoring tools call with their own."""
    is_quiet: bool = False
    """Log requests at debug level, for probes."""

    @property
    def template_names(self) -> tuple[str, ...]:
        """The names of the path parameters, in the order of the path."""
        return tuple(_TEMPLATE_NAME.findall(self.path))


class Request:
    """A request as a handler receives it."""

    __slots__ = ("_headers", "_log", "_query", "_receive", "caller", "credential", "path", "route")

    def __init__(
        self,
        *,
        route: Route,
        caller: Caller,
        path: Mapping[str, str],
        headers: Mapping[str, str],
        query: msgspec.Struct | None = None,
        receive: Receive | None = None,
        log: Log | None = None,
        credential: Credential = NO_TOKEN,
    ) -> None:
        """`headers` has lower-case names. `receive` is ASGI's, for the body."""
        self.route = route
        self.caller = caller
        self.credential = credential
        """The caller's token. A stream calls `is_valid` about every second and ends when it returns False."""
        self.path = path
        """The path parameters, percent-decoded: `request.path["id"]`."""
        self._headers = headers
        self._query = query
        self._receive = receive
        self._log = log or get_logger("web")

    @property
    def log(self) -> Log:
        """A log whose lines carry the request id."""
        return self._log.bind(request_id=self.caller.request_id)

    def header(self, name: str) -> str | None:
        """Return a header or None. Repeated headers are joined by commas. Declare it to have it documented."""
        return self._headers.get(name.lower())

    def query(self, struct: type[T]) -> T:
        """Return the query as the struct that the route declares."""
        if not isinstance(self._query, struct):
            raise TypeError(f"{self.route.method} {self.route.path} declares {self.route.query} as its query")
        return self._query

    async def body(self) -> bytes:
        """Return the body as it was sent. If the route declares JSON, it is one strict JSON value.

        Raises `Problem`, as do the methods below.
        """
        return await self._read(Body | TextBody | BytesBody | FormBody)

    async def decode(self, struct: type[T]) -> T:
        """Decode a JSON body. Problems name the field."""
        return decoding.decode(await self._read(Body), struct)

    async def text(self) -> str:
        """Return a text body. Problems give line and column of bytes that are not UTF-8, or of a NUL."""
        return decoding.decode_plain_text(await self._read(TextBody))

    async def form(self) -> forms.Form:
        """Parse a form."""
        return forms.parse(await self._read(FormBody))

    async def _read(self, expected: type[AnyBody] | UnionType) -> bytes:
        declared = self.route.body
        if declared is None or self._receive is None:
            raise TypeError(f"{self.route.method} {self.route.path} declares no body")
        if not isinstance(declared, expected):
            raise TypeError(f"{self.route.method} {self.route.path} declares a {type(declared).__name__}")
        return await body.read(self._receive, self._headers, declared)


Handler: TypeAlias = Callable[[Request], Awaitable[Response | Stream]]
"""Serves one operation. It rejects a request by raising `web.problem.Problem` or one of `web.errors`."""
