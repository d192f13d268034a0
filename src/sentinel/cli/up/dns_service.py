"""A fake DNS service for the sample adapter `dns`.

The first PUT of a zone, or of new content, is accepted (202); the next one finds it created (200). The service has
its own loopback port, because it stands for an external service and is not part of the API. Adapters in this
process reach it as `dns.internal`, as if that were in a hosts file. The demo can take it down for some zones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from http import HTTPStatus
from typing import Any, Final, Unpack

import msgspec

from sentinel.adapter.samples import DNS_URL
from sentinel.core.json import Json
from sentinel.ports.task_http import HttpClient, HttpResponse, RequestOptions
from sentinel.runtime.lifecycle.part import Part
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.listening import Address
from sentinel.runtime.log import Log
from sentinel.web import problem
from sentinel.web.app import build_app
from sentinel.web.body import Body
from sentinel.web.identity import Guard
from sentinel.web.routing import (
    OPEN,
    Handler,
    Method,
    Parameter,
    Request,
    Response,
    ResponseSpec,
    Route,
    Stream,
)
from sentinel.web.server import Server

_ZONE: Final = "/zones/{id}"


class Zone(msgspec.Struct, frozen=True):
    """A zone, and whether it has been created."""

    id: str
    content: Json
    is_there: bool = False


class DnsService:
    """The server and its zones, which last as long as the process."""

    def __init__(self, *, log: Log) -> None:
        self.out_of_service: Collection[str] = ()
        """Requests for these zones get a 503."""
        self._log = log
        self._zones: dict[str, Zone] = {}
        self._address = Address("127.0.0.1", 0)

    @property
    def url(self) -> str:
        """The URL, once it listens."""
        return f"http://{self._address}"

    def part(self) -> Part:
        """Build the server; after the first time it listens on the same port again."""
        app = build_app(self._routes(), guard=Guard(identities=(), is_insecure=True), log=self._log)
        server = Server(app, address=self._address, log=self._log)

        async def start() -> None:
            await server.open()
            self._address = server.address

        # It serves until it is closed, after the adapters have drained: their tasks may need it.
        return Part(name="dns service", loops=(Stopping.wait,), start=start, close=server.close)

    async def _put(self, request: Request) -> Response:
        created = Zone(request.path["id"], msgspec.json.decode(await request.body()), is_there=True)
        before, self._zones[created.id] = self._zones.get(created.id), created
        if before == created:
            return Response(HTTPStatus.OK, msgspec.json.encode(created))
        pending = msgspec.structs.replace(created, is_there=False)
        return Response(HTTPStatus.ACCEPTED, msgspec.json.encode(pending))

    async def _get(self, request: Request) -> Response:
        zone = self._zones.get(request.path["id"])
        if zone is None:
            raise problem.not_found(f"there is no zone {request.path['id']}")
        return Response(body=msgspec.json.encode(zone))

    async def _delete(self, request: Request) -> Response:
        if self._zones.pop(request.path["id"], None) is None:
            raise problem.not_found(f"there is no zone {request.path['id']}")
        return Response(HTTPStatus.NO_CONTENT)

    def _routes(self) -> list[Route]:
        def route(method: Method, handler: Handler, summary: str, **more: Any) -> Route:
            return Route(
                method=method,
                path=_ZONE,
                action=OPEN,
                handler=self._unless_out_of_service(handler),
                summary=summary,
                tag="zones",
                path_parameters=(Parameter(name="id", description="The id of the zone."),),
                responses=(ResponseSpec(status=200, description=summary),),
                is_documented=False,
                **more,
            )

        return [
            route(Method.GET, self._get, "Get a zone."),
            route(Method.PUT, self._put, "Create a zone.", body=Body(type=Any)),
            route(Method.DELETE, self._delete, "Remove a zone."),
        ]

    def _unless_out_of_service(self, handler: Handler) -> Handler:
        async def handle(request: Request) -> Response | Stream:
            if request.path["id"] in self.out_of_service:
                raise problem.unavailable("the DNS service is out of service")
            return await handler(request)

        return handle


class DnsReroutingClient(HttpClient):
    """An HTTP client that sends requests for `dns.internal` to the service's real URL."""

    def __init__(self, client: HttpClient, service_url: Callable[[], str]) -> None:
        self._client = client
        self._service_url = service_url

    async def request(self, method: str, url: str, **options: Unpack[RequestOptions]) -> HttpResponse:
        if url.startswith(f"{DNS_URL}/"):
            url = self._service_url() + url.removeprefix(DNS_URL)
        return await self._client.request(method, url, **options)
