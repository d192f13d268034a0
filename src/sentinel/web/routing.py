"""How a server says what it offers: one table of routes, from which the application and its OpenAPI document are
both built, so that the two cannot differ.

A handler does not depend on the framework that calls it. It gets a `Request` whose query is decoded into the
struct that the route declares and whose caller is authorized. It returns a `Response` or a `Stream`, or raises a
`Problem` or one of `web.errors`. The permission that it needs is part of the route. There is no default, so that
nobody can forget it.
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
from sentinel.web import decoding, forms, utf8

T = TypeVar("T")

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
TEXT: Final = "text/plain"
BYTES: Final = "application/octet-stream"
BODY_LIMIT: Final = 1024 * 1024
"""In bytes, where a route says nothing else."""
FORM_LIMIT: Final = 64 * 1024
"""Of a form, where a route says nothing else."""

_TEMPLATE_NAME = re.compile(r"\{([a-z_]+)\}")


class Method(StrEnum):
    """What a route is called with; HEAD comes with every GET."""

    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


class Open(Enum):
    """Stands where a route's action would: everybody may call it, without a token."""

    OPEN = "open"


OPEN: Final = Open.OPEN


class Caller(msgspec.Struct, frozen=True):
    """Who makes a request, from where, and which request it is."""

    identity: Identity
    address: str
    """Of the peer; empty where it is not known."""
    request_id: str


class Response(msgspec.Struct, frozen=True):
    """What a handler answers: bytes, as they go out."""

    status: int = 200
    body: bytes | tuple[bytes, ...] = b""
    """In one, or in pieces that go out as they are, so that a page is not copied for the sake of its head."""
    headers: Mapping[str, str] = {}
    content_type: str = JSON
    """Of a body; an answer without one has no content type."""


class Stream(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An answer whose body is produced while it is sent, such as a feed of events.

    Its status and headers are sent when the handler returns it; from then on neither the deadline of requests nor
    the limit on requests at once concerns it.
    """

    content: AsyncIterator[bytes]
    """The chunks of the body, each sent at once; an async generator, as a rule. It is asked for the next when the
    client has room for it, and closed when the stream ends, whatever the reason."""
    content_type: str
    status: int = 200
    headers: Mapping[str, str] = {}


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A path parameter or a header that a route reads; those of the query are fields of the route's struct."""

    name: str
    description: str
    type: Any = str
    """For the document only: handlers get text. `Annotated[str, msgspec.Meta(pattern=…)]` says more."""
    is_required: bool = False
    """Of a header; a path parameter always is."""


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON body, read with `request.decode(…)` or, not decoded, with `request.body()`."""

    type: Any
    """What it is decoded into; a struct with `forbid_unknown_fields`, as a rule."""
    description: str = ""
    content_types: tuple[str, ...] = (JSON,)
    limit: int = BODY_LIMIT
    """In bytes."""
    is_required: bool = True
    """Where it is not, an absent body counts as `{}`."""
    example: msgspec.Raw | None = None


class TextBody(msgspec.Struct, frozen=True, kw_only=True):
    """A body that is text in UTF-8, read with `request.text()`."""

    description: str = ""
    content_types: tuple[str, ...] = (TEXT,)
    limit: int = BODY_LIMIT
    """In bytes."""
    is_required: bool = True
    """Where it is not, an absent body counts as empty."""
    example: str | None = None

    @property
    def type(self) -> Any:
        return str


class BytesBody(msgspec.Struct, frozen=True, kw_only=True):
    """A body that is taken as it is, read with `request.body()`."""

    description: str = ""
    content_types: tuple[str, ...] = (BYTES,)
    limit: int = BODY_LIMIT
    """In bytes."""
    is_required: bool = True
    """Where it is not, an absent body counts as empty."""


class FormBody(msgspec.Struct, frozen=True, kw_only=True):
    """A form as browsers send it, read with `request.form()`."""

    type: Any
    """For the document only: a struct with a field for each field of the form."""
    description: str = ""
    limit: int = FORM_LIMIT
    """In bytes."""
    is_required: bool = True
    """Where it is not, an absent body counts as a form without fields."""
    example: msgspec.Raw | None = None

    @property
    def content_types(self) -> tuple[str, ...]:
        return (forms.CONTENT_TYPE,)


AnyBody: TypeAlias = Body | TextBody | BytesBody | FormBody


class ResponseSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One of the good answers that a route may give, for the document."""

    status: int
    description: str
    type: Any = None
    """What its body is; None where it has none."""
    is_partial: bool = False
    """Any member of the body may be missing, at any depth, because the client may ask for a selection."""
    content_type: str = JSON
    headers: Mapping[str, str] = {}
    """The headers it may have, each with a description."""
    example: msgspec.Raw | None = None


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of a server."""

    method: Method
    path: str
    """With path parameters in braces: `/api/v1/things/{id}`. A literal segment goes before a parameter."""
    action: Action | Open
    """What a caller needs to be permitted, or `OPEN`."""
    handler: Handler
    summary: str
    tag: str
    responses: tuple[ResponseSpec, ...]
    problems: tuple[int, ...] = ()
    """The statuses of its own problems (404, 409, 412, …). Those that come from declaring a query, a body or an
    action (400, 401, 403, 413, 415), and 500 and 503, need no mention."""
    error_type: type[msgspec.Struct] | None = None
    """Of the entries of `errors` in its 422 problems, where they are not `FieldError`s."""
    description: str = ""
    path_parameters: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    query: type[msgspec.Struct] | None = None
    """A frozen struct with a field for each query parameter, read leniently as to text (`"10"` for an int) and
    strictly otherwise. `Annotated[…, msgspec.Meta(description=…)]` describes a field. Without one, every query
    parameter is refused."""
    body: AnyBody | None = None
    is_documented: bool = True
    is_lenient: bool = False
    """Ignores every query parameter, as a page does that monitors and people call in their own ways."""
    is_quiet: bool = False
    """Its access log lines are for debugging only, as those of a probe."""

    @property
    def template_names(self) -> tuple[str, ...]:
        """The path parameters that the path names, in its order."""
        return tuple(_TEMPLATE_NAME.findall(self.path))


class Request:
    """What a handler is given."""

    __slots__ = ("_headers", "_log", "_query", "_read", "caller", "path", "route")

    def __init__(
        self,
        *,
        route: Route,
        caller: Caller,
        path: Mapping[str, str],
        headers: Mapping[str, str],
        query: msgspec.Struct | None = None,
        read: Callable[[AnyBody], Awaitable[bytes]] | None = None,
        log: Log | None = None,
    ) -> None:
        """`headers` has lower-case names. `read` brings the body within its limits, JSON checked to be strict."""
        self.route = route
        self.caller = caller
        self.path = path
        """The path parameters, percent-decoded: `request.path["id"]`."""
        self._headers = headers
        self._query = query
        self._read = read
        self._log = log or get_logger("web")

    @property
    def log(self) -> Log:
        """Writes lines that carry the request id."""
        return self._log.bind(request_id=self.caller.request_id)

    def header(self, name: str) -> str | None:
        """A header, or None; where it was repeated, joined by commas. Declare it, so that it is documented."""
        return self._headers.get(name.lower())

    def query(self, struct: type[T]) -> T:
        """The query, as the struct that the route declares."""
        if not isinstance(self._query, struct):
            raise TypeError(f"{self.route.method} {self.route.path} declares {self.route.query} as its query")
        return self._query

    async def body(self) -> bytes:
        """The body as it came; one strict JSON value where the route declares JSON (see `web.body`).

        Raises `Problem`, as do the methods below.
        """
        return await self._body(Body | TextBody | BytesBody | FormBody)

    async def decode(self, struct: type[T]) -> T:
        """A JSON body, decoded; whatever does not fit is a `Problem` that names the field."""
        return decoding.decode(await self._body(Body), struct)

    async def text(self) -> str:
        """A text body; what is not UTF-8, or contains a NUL, is a `Problem` with its place."""
        return utf8.decode_plain(await self._body(TextBody))

    async def form(self) -> forms.Form:
        """A form."""
        return forms.parse(await self._body(FormBody))

    async def _body(self, expected: type[AnyBody] | UnionType) -> bytes:
        declared = self.route.body
        if declared is None or self._read is None:
            raise TypeError(f"{self.route.method} {self.route.path} declares no body")
        if not isinstance(declared, expected):
            raise TypeError(f"{self.route.method} {self.route.path} declares a {type(declared).__name__}")
        return await self._read(declared)


Handler: TypeAlias = Callable[[Request], Awaitable[Response | Stream]]
"""Answers one operation; refuses by raising `web.problem.Problem` or one of `web.errors`."""
