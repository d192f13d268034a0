"""The application behind the proxies of `sentinel up`: a release that works, and the next one, which does not.

Whether a release works shows only when it gets requests: the next one accepts connections, so that no check of a
configuration and no health check of its port finds anything.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from sentinel.cli.up.instances.ports import LOOPBACK, Ports
from sentinel.runtime.lifecycle.part import Part
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.listening import Address
from sentinel.runtime.log import Log
from sentinel.web.asgi import App, Receive, Scope, Send
from sentinel.web.server import Server

FAILING_SHARE: Final = 2
"""The next release fails one of this many requests."""


def application_part(ports: Ports, *, log: Log) -> Part:
    """Build the servers of both releases."""
    servers = [
        Server(app, address=Address(LOOPBACK, port), log=log)
        for app, port in ((_working, ports.upstream), (_broken(), ports.next_upstream))
    ]

    async def start() -> None:
        for server in servers:
            await server.open()

    async def close() -> None:
        for server in servers:
            await server.close()

    # It serves until it is closed, after the proxies.
    return Part(name="application", loops=(Stopping.wait,), start=start, close=close)


async def _working(scope: Scope, receive: Receive, send: Send) -> None:
    await _respond(send, HTTPStatus.OK, _greeting(scope) + b" from the application\n")


def _broken() -> App:
    requests = 0

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal requests
        requests += 1
        if requests % FAILING_SHARE:
            await _respond(send, HTTPStatus.OK, _greeting(scope) + b" from the next release\n")
        else:
            await _respond(send, HTTPStatus.INTERNAL_SERVER_ERROR, b"the next release has a bug\n")

    return handle


def _greeting(scope: Scope) -> bytes:
    """Return the greeting that a proxy has added to the request."""
    return bytes(dict(scope["headers"]).get(b"x-greeting", b"nothing added"))


async def _respond(send: Send, status: HTTPStatus, body: bytes) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": body})
