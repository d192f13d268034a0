"""What surrounds every request."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from sentinel.core.access import Identity, Role
from sentinel.web import problem
from sentinel.web.app import build_app
from sentinel.web.asgi import App, Message, client_address
from sentinel.web.identity import Guard
from sentinel.web.metrics import RequestMetrics
from sentinel.web.middleware import AccessLog, Middleware
from sentinel.web.routing import OPEN, Request, Response
from tests.web.calling import (
    FORCE_DELETE,
    LOG,
    OPEN_GUARD,
    PERMISSIONS,
    Recorder,
    answering,
    app_of,
    call,
    raising,
    route,
    scope,
)

FINE = answering(Response(body=b"{}"))
WAIT = 10


class Held:
    """A handler that answers when it is let go."""

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()
        self.may_end = asyncio.Event()

    async def __call__(self, request: Request) -> Response:
        self.has_begun.set()
        async with asyncio.timeout(WAIT):
            await self.may_end.wait()
        return Response(body=b"{}")


@pytest.mark.parametrize("given", ["abc-123", "a" * 128, "00-4bf92f3577b34da6-01", "{x}"])
async def test_a_safe_request_id_is_taken_over(given: str) -> None:
    answered = await call(app_of(route(FINE)), "GET", "/things", headers={"X-Request-Id": given})

    assert answered.headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "a" * 129, "a b", "caf\u00e9", "a\tb"])
async def test_any_other_request_id_is_replaced(given: str) -> None:
    answered = await call(app_of(route(FINE)), "GET", "/things", headers={"X-Request-Id": given})

    assert answered.headers["x-request-id"] != given
    assert len(answered.headers["x-request-id"]) == 32


async def test_two_requests_have_two_ids() -> None:
    app = app_of(route(FINE))

    one, other = await call(app, "GET", "/things"), await call(app, "GET", "/nowhere")

    assert one.headers["x-request-id"] != other.headers["x-request-id"]


async def test_every_answer_has_the_headers_that_keep_browsers_in_check() -> None:
    app = app_of(route(FINE))

    for answered in (await call(app, "GET", "/things"), await call(app, "GET", "/nowhere")):
        assert answered.headers["x-content-type-options"] == "nosniff"
        assert answered.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in answered.headers["content-security-policy"]


async def test_an_answer_may_have_its_own() -> None:
    app = app_of(route(answering(Response(headers={"Cache-Control": "max-age=60"}))))

    assert (await call(app, "GET", "/things")).headers["cache-control"] == "max-age=60"


async def test_an_exchange_names_the_route_and_never_the_path() -> None:
    recorder = Recorder()
    app = app_of(route(FINE, path="/things/{id}"), observers=[recorder])

    await call(app, "GET", "/things/secret-name", headers={"X-Request-Id": "r1"})

    (exchange,) = recorder.exchanges
    assert (exchange.method, exchange.route, exchange.status, exchange.size) == ("GET", "/things/{id}", 200, 2)
    assert (exchange.actor, exchange.address, exchange.request_id) == ("anonymous", "127.0.0.1", "r1")
    assert recorder.begun == 1


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::1", "::1"),
        ("2001:db8::1", "2001:db8::1"),
    ],
)
def test_a_client_has_one_address_whichever_way_the_server_listens(peer: str, address: str) -> None:
    assert client_address({"client": (peer, 4711)}) == address


@pytest.mark.parametrize(
    ("method", "path", "seen"),
    [("GET", "/nowhere", ("GET", "other", 404)), ("BREW", "/things", ("other", "other", 405))],
)
async def test_what_matches_no_route_is_other(method: str, path: str, seen: tuple[str, str, int]) -> None:
    recorder = Recorder()

    await call(app_of(route(FINE), observers=[recorder]), method, path)

    (exchange,) = recorder.exchanges
    assert (exchange.method, exchange.route, exchange.status) == seen


@pytest.mark.parametrize(
    ("make", "status"), [(lambda: problem.conflict("taken"), 409), (lambda: RuntimeError("oh"), 500)]
)
async def test_refusals_and_faults_are_exchanges_of_their_route(make: type[Exception], status: int) -> None:
    recorder = Recorder()

    await call(app_of(route(raising(make)), observers=[recorder]), "GET", "/things")

    (exchange,) = recorder.exchanges
    assert (exchange.route, exchange.status) == ("/things", status)


async def test_a_client_that_has_gone_is_499() -> None:
    recorder = Recorder()

    async def gone(request: Request) -> Response:
        from sentinel.web.asgi import ClientDisconnected

        raise ClientDisconnected

    await call(app_of(route(gone), observers=[recorder]), "GET", "/things")

    assert recorder.exchanges[0].status == 499


class Tokens:
    async def identify(self, token: str) -> Identity | None:
        return Identity("ops", Role.OPERATOR) if token == "s3cret-token" else None


async def test_the_access_log_has_who_what_and_when_but_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    app = app_of(
        route(FINE, path="/things/{id}", is_lenient=True),
        guard=Guard(identities=[Tokens()], permissions=PERMISSIONS),
        observers=[AccessLog(LOG)],
    )

    with caplog.at_level(logging.INFO):
        await call(
            app,
            "GET",
            "/things/7",
            query="password=hunter2",
            headers={"authorization": "Bearer s3cret-token", "X-Request-Id": "r1"},
        )

    (record,) = caplog.records
    fields = dict(record.__dict__["fields"])
    assert record.getMessage() == "http.request"
    assert fields.pop("milliseconds") >= 0
    assert fields == {
        "method": "GET",
        "route": "/things/{id}",
        "status": 200,
        "bytes": 2,
        "actor": "ops",
        "address": "127.0.0.1",
        "request_id": "r1",
    }


async def test_whoever_is_refused_is_named() -> None:
    recorder = Recorder()
    app = app_of(
        route(FINE, action=FORCE_DELETE),
        guard=Guard(identities=[Tokens()], permissions=PERMISSIONS),
        observers=[recorder],
    )

    await call(app, "GET", "/things", headers={"authorization": "Bearer s3cret-token"})

    (exchange,) = recorder.exchanges
    assert (exchange.status, exchange.actor) == (403, "ops")


async def test_quiet_routes_are_logged_for_debugging_only(caplog: pytest.LogCaptureFixture) -> None:
    app = app_of(route(FINE, is_quiet=True), observers=[AccessLog(LOG)])

    with caplog.at_level(logging.INFO):
        await call(app, "GET", "/things")

    assert not caplog.records


async def test_a_request_that_takes_too_long_is_a_503_and_its_handler_is_cancelled() -> None:
    was_cancelled = False

    async def endless(request: Request) -> Response:
        nonlocal was_cancelled
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled = True
            raise
        raise AssertionError

    answered = await call(app_of(route(endless), request_timeout=timedelta(milliseconds=10)), "GET", "/things")

    assert (answered.status, answered.json["code"]) == (503, "HYPERFLEET-SVC-002")
    assert answered.headers["retry-after"] == "1"
    assert was_cancelled


async def test_too_many_requests_at_once_are_refused_but_probes_are_answered() -> None:
    held = Held()
    app = app_of(route(held), route(FINE, path="/healthz", action=OPEN, is_quiet=True), max_concurrent_requests=1)
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(call(app, "GET", "/things"))
        async with asyncio.timeout(WAIT):
            await held.has_begun.wait()

        second, probe = await call(app, "GET", "/things"), await call(app, "GET", "/healthz")
        held.may_end.set()

    assert (second.status, second.json["code"]) == (503, "HYPERFLEET-SVC-003")
    assert second.headers["retry-after"] == "1"
    assert probe.status == 200
    assert first.result().status == 200
    assert (await call(app, "GET", "/things")).status == 200


async def test_a_timeout_of_the_handlers_own_is_a_fault_and_not_a_deadline() -> None:
    answered = await call(app_of(route(raising(TimeoutError))), "GET", "/things")

    assert answered.status == 500


async def test_a_cancellation_from_outside_is_passed_on() -> None:
    held = Held()
    app = app_of(route(held))
    task = asyncio.create_task(call(app, "GET", "/things"))
    async with asyncio.timeout(WAIT):
        await held.has_begun.wait()

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_only_http_is_spoken() -> None:
    async def nothing(scope: object, receive: object, send: object) -> None:
        raise AssertionError

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        raise AssertionError

    with pytest.raises(TypeError, match="websocket"):
        await Middleware(nothing, log=LOG)({**scope("GET", "/"), "type": "websocket"}, receive, send)


def counting() -> tuple[App, CollectorRegistry]:
    registry = CollectorRegistry()
    metrics = RequestMetrics(registry=registry, prefix="hyperfleet_api_")
    app = build_app([route(FINE, path="/things/{id}")], guard=OPEN_GUARD, log=LOG, observers=[metrics])
    return app, registry


async def test_requests_are_counted_and_timed_by_route() -> None:
    app, registry = counting()

    for path in ("/things/1", "/things/2", "/nowhere/1", "/nowhere/2"):
        await call(app, "GET", path)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"hyperfleet_api_http_{name}", labels)

    assert value("requests_total", route="/things/{id}", method="GET", status="200") == 2
    assert value("requests_total", route="other", method="GET", status="404") == 2
    assert value("request_duration_seconds_count", route="/things/{id}", method="GET") == 2
    assert value("requests_in_flight") == 0


async def test_no_path_and_no_invented_method_becomes_a_label() -> None:
    app, registry = counting()

    for number in range(20):
        await call(app, f"M{number}", f"/nowhere/{number}")

    exposed = generate_latest(registry).decode()
    assert "nowhere" not in exposed
    assert exposed.count("http_requests_total{") == 1
