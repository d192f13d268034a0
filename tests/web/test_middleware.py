"""The middleware: request ids, headers, records, timeouts and limits."""

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
from tests.web.asgi_client import (
    FORCE_DELETE,
    LOG,
    OK,
    OPEN_GUARD,
    PERMISSIONS,
    TIMEOUT,
    BlockingHandler,
    RequestRecorder,
    call,
    make_app,
    raising,
    returning,
    route,
    scope,
)


@pytest.mark.parametrize("given", ["abc-123", "a" * 128, "00-4bf92f3577b34da6-01", "{x}"])
async def test_a_safe_request_id_is_kept(given: str) -> None:
    response = await call(make_app(route(OK)), "GET", "/things", headers={"X-Request-Id": given})

    assert response.headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "a" * 129, "a b", "caf\u00e9", "a\tb"])
async def test_any_other_request_id_is_replaced(given: str) -> None:
    response = await call(make_app(route(OK)), "GET", "/things", headers={"X-Request-Id": given})

    assert response.headers["x-request-id"] != given
    assert len(response.headers["x-request-id"]) == 32


async def test_each_request_has_its_own_id() -> None:
    app = make_app(route(OK))

    one, other = await call(app, "GET", "/things"), await call(app, "GET", "/nowhere")

    assert one.headers["x-request-id"] != other.headers["x-request-id"]


async def test_every_response_has_security_headers() -> None:
    app = make_app(route(OK))

    for response in (await call(app, "GET", "/things"), await call(app, "GET", "/nowhere")):
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in response.headers["content-security-policy"]


async def test_a_response_may_set_its_own_security_headers() -> None:
    app = make_app(route(returning(Response(headers={"Cache-Control": "max-age=60"}))))

    assert (await call(app, "GET", "/things")).headers["cache-control"] == "max-age=60"


async def test_a_record_has_the_route_and_not_the_path() -> None:
    recorder = RequestRecorder()
    app = make_app(route(OK, path="/things/{id}"), observers=[recorder])

    await call(app, "GET", "/things/secret-name", headers={"X-Request-Id": "r1"})

    (record,) = recorder.records
    assert (record.method, record.route, record.status, record.size) == ("GET", "/things/{id}", 200, 2)
    assert (record.actor, record.address, record.request_id) == ("anonymous", "127.0.0.1", "r1")
    assert recorder.started == 1


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::1", "::1"),
        ("2001:db8::1", "2001:db8::1"),
    ],
)
def test_a_client_has_one_address_on_any_listener(peer: str, address: str) -> None:
    assert client_address({"client": (peer, 4711)}) == address


@pytest.mark.parametrize(
    ("method", "path", "seen"),
    [("GET", "/nowhere", ("GET", "other", 404)), ("BREW", "/things", ("other", "other", 405))],
)
async def test_a_request_without_a_route_is_other(method: str, path: str, seen: tuple[str, str, int]) -> None:
    recorder = RequestRecorder()

    await call(make_app(route(OK), observers=[recorder]), method, path)

    (record,) = recorder.records
    assert (record.method, record.route, record.status) == seen


@pytest.mark.parametrize(
    ("make", "status"), [(lambda: problem.conflict("taken"), 409), (lambda: RuntimeError("oh"), 500)]
)
async def test_problems_and_errors_are_recorded_under_their_route(make: type[Exception], status: int) -> None:
    recorder = RequestRecorder()

    await call(make_app(route(raising(make)), observers=[recorder]), "GET", "/things")

    (record,) = recorder.records
    assert (record.route, record.status) == ("/things", status)


async def test_a_disconnected_client_is_recorded_as_499() -> None:
    recorder = RequestRecorder()

    async def disconnected(request: Request) -> Response:
        from sentinel.web.asgi import ClientDisconnected

        raise ClientDisconnected

    await call(make_app(route(disconnected), observers=[recorder]), "GET", "/things")

    assert recorder.records[0].status == 499


class OneToken:
    async def identify(self, token: str) -> Identity | None:
        return Identity("ops", Role.OPERATOR) if token == "s3cret-token" else None


async def test_the_access_log_contains_no_secrets(caplog: pytest.LogCaptureFixture) -> None:
    app = make_app(
        route(OK, path="/things/{id}", is_lenient=True),
        guard=Guard(identities=[OneToken()], permissions=PERMISSIONS),
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


async def test_a_forbidden_caller_is_recorded() -> None:
    recorder = RequestRecorder()
    app = make_app(
        route(OK, action=FORCE_DELETE),
        guard=Guard(identities=[OneToken()], permissions=PERMISSIONS),
        observers=[recorder],
    )

    await call(app, "GET", "/things", headers={"authorization": "Bearer s3cret-token"})

    (record,) = recorder.records
    assert (record.status, record.actor) == (403, "ops")


async def test_quiet_routes_are_logged_at_debug_level(caplog: pytest.LogCaptureFixture) -> None:
    app = make_app(route(OK, is_quiet=True), observers=[AccessLog(LOG)])

    with caplog.at_level(logging.INFO):
        await call(app, "GET", "/things")

    assert not caplog.records


async def test_a_request_that_times_out_is_cancelled_with_a_503() -> None:
    was_cancelled = False

    async def endless(request: Request) -> Response:
        nonlocal was_cancelled
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled = True
            raise
        raise AssertionError

    response = await call(make_app(route(endless), request_timeout=timedelta(milliseconds=10)), "GET", "/things")

    assert (response.status, response.json["code"]) == (503, "HYPERFLEET-SVC-002")
    assert response.headers["retry-after"] == "1"
    assert was_cancelled


async def test_excess_requests_are_rejected_except_probes() -> None:
    handler = BlockingHandler()
    app = make_app(
        route(handler), route(OK, path="/healthz", action=OPEN, is_quiet=True), max_concurrent_requests=1
    )
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(call(app, "GET", "/things"))
        async with asyncio.timeout(TIMEOUT):
            await handler.has_started.wait()

        second, probe = await call(app, "GET", "/things"), await call(app, "GET", "/healthz")
        handler.may_end.set()

    assert (second.status, second.json["code"]) == (503, "HYPERFLEET-SVC-003")
    assert second.headers["retry-after"] == "1"
    assert probe.status == 200
    assert first.result().status == 200
    assert (await call(app, "GET", "/things")).status == 200


async def test_a_timeout_error_of_the_handler_is_a_500() -> None:
    response = await call(make_app(route(raising(TimeoutError))), "GET", "/things")

    assert response.status == 500


async def test_a_cancellation_is_propagated() -> None:
    handler = BlockingHandler()
    app = make_app(route(handler))
    task = asyncio.create_task(call(app, "GET", "/things"))
    async with asyncio.timeout(TIMEOUT):
        await handler.has_started.wait()

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_only_http_is_supported() -> None:
    async def app(scope: object, receive: object, send: object) -> None:
        raise AssertionError

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        raise AssertionError

    with pytest.raises(TypeError, match="websocket"):
        await Middleware(app, log=LOG)({**scope("GET", "/"), "type": "websocket"}, receive, send)


def counting() -> tuple[App, CollectorRegistry]:
    registry = CollectorRegistry()
    metrics = RequestMetrics(registry=registry, prefix="hyperfleet_api_")
    app = build_app([route(OK, path="/things/{id}")], guard=OPEN_GUARD, log=LOG, observers=[metrics])
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


async def test_unknown_paths_and_methods_do_not_become_labels() -> None:
    app, registry = counting()

    for number in range(20):
        await call(app, f"M{number}", f"/nowhere/{number}")

    exposed = generate_latest(registry).decode()
    assert "nowhere" not in exposed
    assert exposed.count("http_requests_total{") == 1
