"""A small DNS service, for the sample `dns` to work against: what it is asked for takes longer than one request.

A zone that is asked for the first time, or with another content than before, is accepted (202); asked for again,
it is there (200). It listens on a loopback port of its own, because it stands for somebody else's service and is
no part of what `sentinel up` offers. Adapters in this process reach it by the name in their code, `dns.internal`,
as if that stood in a hosts file. A demonstration can put it out of service, for zones of its own.
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
    """What was asked for, and whether it is there."""

    id: str
    content: Json
    is_there: bool = False


class DnsService:
    """The zones, and the server that keeps them. They last as long as the process."""

    def __init__(self, *, log: Log) -> None:
        self.out_of_service: Collection[str] = ()
        """Requests about these zones are answered with 503."""
        self._log = log
        self._zones: dict[str, Zone] = {}
        self._address = Address("127.0.0.1", 0)

    @property
    def url(self) -> str:
        """Where it listens, once it does."""
        return f"http://{self._address}"

    def part(self) -> Part:
        """The server as a part; built anew, it listens where it did before."""
        app = build_app(self._routes(), guard=Guard(identities=(), is_insecure=True), log=self._log)
        server = Server(app, address=self._address, log=self._log)

        async def start() -> None:
            await server.open()
            self._address = server.address

        # It serves until it is closed, which is after the adapters have ended: what they have begun may need it.
        return Part(name="dns service", loops=(Stopping.wait,), start=start, close=server.close)

    def put(self, zone_id: str, content: Json) -> Zone:
        """Begins to make a zone, or finds that it is made; says how it was found."""
        known = self._zones.get(zone_id)
        is_the_same = known is not None and known.content == content
        self._zones[zone_id] = Zone(zone_id, content, is_there=True)
        return Zone(zone_id, content, is_there=is_the_same)

    def remove(self, zone_id: str) -> bool:
        """Whether there was one."""
        return self._zones.pop(zone_id, None) is not None

    async def _put(self, request: Request) -> Response:
        zone = self.put(request.path["id"], msgspec.json.decode(await request.body()))
        return Response(HTTPStatus.OK if zone.is_there else HTTPStatus.ACCEPTED, msgspec.json.encode(zone))

    async def _get(self, request: Request) -> Response:
        zone = self._zones.get(request.path["id"])
        if zone is None:
            raise problem.not_found(f"there is no zone {request.path['id']}")
        return Response(body=msgspec.json.encode(zone))

    async def _delete(self, request: Request) -> Response:
        if not self.remove(request.path["id"]):
            raise problem.not_found(f"there is no zone {request.path['id']}")
        return Response(HTTPStatus.NO_CONTENT)

    def _routes(self) -> list[Route]:
        def route(method: Method, handler: Handler, summary: str, **more: Any) -> Route:
            return Route(
                method=method,
                path=_ZONE,
                action=OPEN,
                handler=self._while_in_service(handler),
                summary=summary,
                tag="zones",
                path_parameters=(Parameter(name="id", description="Of the zone."),),
                responses=(ResponseSpec(status=200, description=summary),),
                is_documented=False,
                **more,
            )

        return [
            route(Method.GET, self._get, "A zone."),
            route(Method.PUT, self._put, "Asks for a zone.", body=Body(type=Any)),
            route(Method.DELETE, self._delete, "Removes a zone."),
        ]

    def _while_in_service(self, handler: Handler) -> Handler:
        async def answer(request: Request) -> Response | Stream:
            if request.path["id"] in self.out_of_service:
                raise problem.unavailable("the DNS service is out of service")
            return await handler(request)

        return answer


class Rerouted(HttpClient):
    """A client for which `dns.internal` is where the service really listens."""

    def __init__(self, client: HttpClient, where: Callable[[], str]) -> None:
        self._client = client
        self._where = where

    async def request(self, method: str, url: str, **options: Unpack[RequestOptions]) -> HttpResponse:
        if url.startswith(f"{DNS_URL}/"):
            url = self._where() + url.removeprefix(DNS_URL)
        return await self._client.request(method, url, **options)
