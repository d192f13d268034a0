"""The application: how a request reaches its handler, and every error on the way."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

import msgspec
import pytest

from sentinel.core.access import Action, Identity, Permissions, Role
from sentinel.runtime.probes.health import Health
from sentinel.runtime.probes.metrics import Metrics
from sentinel.runtime.probes.pages import metrics_pages, probe_pages
from sentinel.web import problem
from sentinel.web.app import BadRoutes, check_routes, page_routes
from sentinel.web.asgi import App, Message
from sentinel.web.body import MERGE_PATCH, Body
from sentinel.web.identity import Guard
from sentinel.web.routing import OPEN, Method, Parameter, Request, Response, Route
from tests.web.asgi_client import OK, PERMISSIONS, WRITE, call, make_app, raising, returning, route, scope

JSON = {"content-type": "application/json"}


class Thing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str


class Query(msgspec.Struct, frozen=True):
    size: int = 5


class RecordingHandler:
    """A handler that keeps its requests."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def __call__(self, request: Request) -> Response:
        self.requests.append(request)
        return Response(body=b"{}")


async def echo(request: Request) -> Response:
    return Response(201, msgspec.json.encode(await request.decode(Thing)))


def echo_app(body: Body, *, method: Method = Method.POST) -> App:
    return make_app(route(echo, method=method, body=body))


async def test_a_handler_gets_path_query_headers_and_caller() -> None:
    handler = RecordingHandler()
    app = make_app(route(handler, path="/things/{id}", query=Query))

    await call(app, "GET", "/things/a b", query="size=7", headers={"If-Match": '"1"', "X-Request-Id": "r1"})

    (request,) = handler.requests
    assert request.path == {"id": "a b"}
    assert request.query(Query).size == 7
    assert request.header("if-match") == '"1"'
    assert request.header("Absent") is None
    assert request.caller.identity.name == "anonymous"
    assert (request.caller.address, request.caller.request_id) == ("127.0.0.1", "r1")


async def test_a_response_is_sent_unchanged() -> None:
    app = make_app(route(returning(Response(202, b"[1]", {"ETag": '"7"'}, "application/x+json"))))

    response = await call(app, "GET", "/things")

    assert (response.status, response.body) == (202, b"[1]")
    assert response.headers["etag"] == '"7"'
    assert response.headers["content-type"] == "application/x+json"
    assert response.headers["content-length"] == "3"


@pytest.mark.parametrize("status", [204, 304])
async def test_a_response_without_a_body_has_no_content_headers(status: int) -> None:
    response = await call(make_app(route(returning(Response(status, b"ignored")))), "GET", "/things")

    assert (response.status, response.body) == (status, b"")
    assert not {"content-type", "content-length"} & set(response.headers)


async def test_a_literal_segment_precedes_a_parameter() -> None:
    app = make_app(
        route(returning(Response(body=b"1")), path="/things/{id}"),
        route(returning(Response(body=b"2")), path="/things/special"),
    )

    assert (await call(app, "GET", "/things/special")).body == b"2"
    assert (await call(app, "GET", "/things/other")).body == b"1"


async def named(request: Request) -> Response:
    """Return the matched route and its parameters."""
    return Response(body=msgspec.json.encode([request.route.path, dict(request.path)]))


def paths(*templates: str) -> App:
    """Return an application with a route for each template. Parameters are `id` and `part`."""
    return make_app(
        *(
            route(
                named,
                path=template,
                path_parameters=tuple(
                    Parameter(name=name, description="") for name in ("id", "part") if f"{{{name}}}" in template
                ),
            )
            for template in templates
        )
    )


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/things", ["/things", {}]),
        ("/things/", ["/things", {}]),
        ("//things//", ["/things", {}]),
        ("/things/a/", ["/things/{id}", {"id": "a"}]),
        ("/things//a", ["/things/{id}", {"id": "a"}]),
        ("/", ["/", {}]),
        ("", ["/", {}]),
        ("/things/a\n", ["/things/{id}", {"id": "a\n"}]),
        ("/things/special\n", ["/things/{id}", {"id": "special\n"}]),
        ("/things/\N{EURO SIGN}", ["/things/{id}", {"id": "\N{EURO SIGN}"}]),
        ("/things/..", ["/things/{id}", {"id": ".."}]),
        ("/things/SPECIAL", ["/things/{id}", {"id": "SPECIAL"}]),
        ("/things/special/parts/b", ["/things/{id}/parts/{part}", {"id": "special", "part": "b"}]),
        ("/things/special/b", ["/things/special/{part}", {"part": "b"}]),
        ("/things/a/last", ["/things/{id}/last", {"id": "a"}]),
        ("/things/special/last", ["/things/special/{part}", {"part": "last"}]),
    ],
)
async def test_extra_slashes_are_ignored_and_all_else_is_matched_exactly(path: str, found: list[object]) -> None:
    app = paths(
        "/things/{id}/parts/{part}",
        "/things/{id}/last",
        "/things/{id}",
        "/things/special/{part}",
        "/things/special",
        "/things",
        "/",
    )

    assert (await call(app, "GET", path)).json == found


@pytest.mark.parametrize(
    "path", ["/things\n", "/things/a/last\n", "/Things", "/things/a/b", "/things/\0/b", "/a.b/"]
)
async def test_the_404_of_an_unknown_path_names_it_as_received(path: str) -> None:
    response = await call(paths("/things", "/things/{id}/last", "/a-b"), "GET", path)

    assert response.status == 404
    assert response.json["detail"] == f"there is no endpoint {json.dumps(path)}"


async def test_a_literal_segment_matches_every_method_of_its_path() -> None:
    app = make_app(route(OK, path="/things/special"), route(OK, path="/things/{id}", method=Method.DELETE))

    assert (await call(app, "DELETE", "/things/special")).status == 405
    assert (await call(app, "DELETE", "/things/other")).status == 200


async def test_an_unknown_path_has_another_code_than_a_missing_resource() -> None:
    app = make_app(route(raising(lambda: problem.not_found("no such thing")), path="/things/{id}"))

    wrong, missing = await call(app, "GET", "/thinks"), await call(app, "GET", "/things/1")

    assert (wrong.status, wrong.json["code"]) == (404, "HYPERFLEET-NTF-000")
    assert (missing.status, missing.json["code"]) == (404, "HYPERFLEET-NTF-001")
    assert wrong.headers["content-type"] == missing.headers["content-type"] == "application/problem+json"


async def test_another_method_is_a_405_with_the_allowed_ones() -> None:
    app = make_app(route(OK), route(echo, method=Method.POST, body=Body(type=Thing)))

    response = await call(app, "DELETE", "/things")

    assert response.status == 405
    assert response.headers["allow"] == "GET, HEAD, OPTIONS, POST"
    assert response.headers["content-type"] == "application/problem+json"


async def test_options_lists_the_allowed_methods() -> None:
    app = make_app(route(OK), route(echo, method=Method.POST, body=Body(type=Thing)))

    response = await call(app, "OPTIONS", "/things")

    assert (response.status, response.headers["allow"]) == (204, "GET, HEAD, OPTIONS, POST")


async def test_head_is_handled_like_get() -> None:
    assert (await call(make_app(route(OK)), "HEAD", "/things")).headers["content-length"] == "2"


async def test_a_problem_has_the_shape_of_rfc_9457() -> None:
    app = make_app(route(OK, query=Query))

    response = await call(app, "GET", "/things", query="size=x&foo=1")

    assert response.json == {
        "type": "about:blank",
        "title": "Bad Request",
        "status": 400,
        "detail": 'foo: unknown parameter; expected one of size; size: expected an integer, got "x"',
        "code": "HYPERFLEET-VAL-000",
        "errors": [
            {"field": "foo", "message": "unknown parameter; expected one of size"},
            {"field": "size", "message": 'expected an integer, got "x"'},
        ],
    }


async def test_a_nul_in_a_path_is_a_400_that_names_the_parameter() -> None:
    response = await call(make_app(route(OK, path="/things/{id}")), "GET", "/things/a\0b")

    assert (response.status, response.json["errors"][0]["field"]) == (400, "id")


async def test_an_unexpected_error_is_a_500_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = make_app(route(raising(lambda: RuntimeError("the password is hunter2"))))

    with caplog.at_level(logging.ERROR):
        response = await call(app, "GET", "/things", headers={"X-Request-Id": "r1"})

    assert response.status == 500
    assert "hunter2" not in response.body.decode()
    assert response.json["request_id"] == "r1"
    (record,) = caplog.records
    assert record.getMessage() == "http.failed"
    assert record.__dict__["fields"]["request_id"] == "r1"


async def test_no_environment_variable_makes_a_500_reveal_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEBUG", "1")
    monkeypatch.setenv("STARLETTE_DEBUG", "1")
    app = make_app(route(raising(lambda: RuntimeError("the password is hunter2"))))

    response = await call(app, "GET", "/things")

    assert response.headers["content-type"] == "application/problem+json"
    assert "hunter2" not in response.body.decode()


async def test_a_body_is_decoded() -> None:
    response = await call(echo_app(Body(type=Thing)), "POST", "/things", headers=JSON, body=b'{"name": "a"}')

    assert (response.status, response.json) == (201, {"name": "a"})


async def test_a_body_may_arrive_in_chunks() -> None:
    pieces = [b'{"na', b'me": ', b'"a"}']

    assert (await call(echo_app(Body(type=Thing)), "POST", "/things", headers=JSON, body=pieces)).status == 201


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 201),
        ("Application/JSON; charset=UTF-8", 201),
        ('application/json;charset="utf-8"', 201),
        ("application/json; charset=latin-1", 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/merge-patch+json", 415),
        ("application/json, application/json", 415),
    ],
)
async def test_only_the_declared_content_type_is_accepted(content_type: str, status: int) -> None:
    app = echo_app(Body(type=Thing))

    response = await call(app, "POST", "/things", headers={"content-type": content_type}, body=b'{"name": "a"}')

    assert response.status == status
    assert status == 201 or response.headers["accept"] == "application/json"


async def test_a_merge_patch_is_accepted_if_declared() -> None:
    app = echo_app(Body(type=Thing, content_types=("application/json", MERGE_PATCH)), method=Method.PATCH)

    response = await call(app, "PATCH", "/things", headers={"content-type": MERGE_PATCH}, body=b'{"name": "a"}')

    assert response.status == 201


@pytest.mark.parametrize("headers", [{}, {**JSON, "content-encoding": "gzip"}])
async def test_a_body_without_a_type_or_compressed_is_a_415(headers: dict[str, str]) -> None:
    assert (await call(echo_app(Body(type=Thing)), "POST", "/things", headers=headers, body=b"{}")).status == 415


async def test_a_body_with_a_large_content_length_is_rejected_unread() -> None:
    app = echo_app(Body(type=Thing, limit=100))
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("expected the body not to be read")

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope("POST", "/things", headers={**JSON, "content-length": "101"}), receive, send)

    assert sent[0]["status"] == 413


async def test_a_body_is_rejected_as_soon_as_it_exceeds_the_limit() -> None:
    app = echo_app(Body(type=Thing, limit=100))
    asked = 0

    async def receive() -> Message:
        nonlocal asked
        asked += 1
        return {"type": "http.request", "body": b" " * 60, "more_body": True}

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope("POST", "/things", headers={**JSON, "transfer-encoding": "chunked"}), receive, send)

    assert (sent[0]["status"], asked) == (413, 2)


async def test_a_body_of_exactly_the_limit_is_accepted() -> None:
    body = b'{"name": "a"}'.ljust(100)
    headers = {**JSON, "content-length": "100"}

    response = await call(echo_app(Body(type=Thing, limit=100)), "POST", "/things", headers=headers, body=body)

    assert response.status == 201


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[" * 10_000, b'"\xff"', b'{"name": 99999999999999999999999}', b'{"name":"a","name":"b"}']
)
async def test_a_malicious_body_is_a_400_with_its_errors(body: bytes) -> None:
    response = await call(echo_app(Body(type=Thing)), "POST", "/things", headers=JSON, body=body)

    assert response.status == 400
    assert response.json["errors"]


async def test_an_absent_optional_body_is_read_as_an_empty_object() -> None:
    async def handler(request: Request) -> Response:
        return Response(body=await request.body())

    app = make_app(route(handler, method=Method.POST, body=Body(type=dict, is_required=False)))

    assert (await call(app, "POST", "/things")).body == b"{}"


async def test_a_client_that_disconnects_early_gets_no_response() -> None:
    headers = {**JSON, "content-length": "50"}

    response = await call(echo_app(Body(type=Thing)), "POST", "/things", headers=headers, body=[])

    assert response.status == 0


class RoleTokens:
    """Knows a token for each role: its name."""

    async def identify(self, token: str) -> Identity | None:
        return Identity(token, Role(token)) if token in list(Role) else None


@pytest.mark.parametrize(
    ("token", "status"), [(None, 401), ("nobody", 401), ("viewer", 403), ("agent", 403), ("operator", 200)]
)
async def test_a_route_needs_the_permission_that_it_declares(token: str | None, status: int) -> None:
    handler = RecordingHandler()
    app = make_app(route(handler, action=WRITE), guard=Guard(identities=[RoleTokens()], permissions=PERMISSIONS))

    response = await call(app, "GET", "/things", headers={"authorization": f"Bearer {token}"} if token else {})

    assert response.status == status
    assert len(handler.requests) == (status == 200)
    assert ("www-authenticate" in response.headers) == (status == 401)


async def test_permissions_are_checked_before_the_request_is_read() -> None:
    app = make_app(
        route(echo, method=Method.POST, action=WRITE, body=Body(type=Thing), query=Query),
        guard=Guard(identities=[RoleTokens()], permissions=PERMISSIONS),
    )

    response = await call(app, "POST", "/things", query="nonsense=1", body=b"{")

    assert response.status == 401


async def test_probes_and_metrics_need_no_token() -> None:
    pages = page_routes(probe_pages(Health()) | metrics_pages(Metrics(component="test")))
    app = make_app(*pages, guard=Guard(identities=[RoleTokens()], permissions=PERMISSIONS))

    ready, metrics = await call(app, "GET", "/readyz", query="verbose"), await call(app, "GET", "/metrics")

    assert (ready.status, ready.json) == (200, {"status": "ok", "checks": {}})
    assert metrics.status == 200
    assert b"hyperfleet_sentinel_build_info" in metrics.body


async def test_a_failing_probe_is_a_503() -> None:
    health = Health()
    health.add(readiness={"database": lambda: "unreachable"})

    response = await call(make_app(*page_routes(probe_pages(health))), "GET", "/readyz")

    assert response.status == 503
    assert json.loads(response.body)["checks"]["database"]["message"] == "unreachable"


async def test_a_page_is_prepared_before_it_is_rendered() -> None:
    health = Health()

    async def look() -> None:
        health.add(readiness={"database": lambda: "unreachable"})

    app = make_app(*page_routes(probe_pages(health), before={"/readyz": look}))

    assert (await call(app, "GET", "/healthz")).status == 200
    assert (await call(app, "GET", "/readyz")).status == 503


ID = Parameter(name="id", description="")


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        ([route(OK, action=None)], "expected an action, or OPEN, got None"),
        ([route(OK, action="things.raed")], "expected an action, or OPEN, got 'things.raed'"),
        ([route(OK, action="fleet.read")], "which no role is permitted"),
        ([route(OK, path="things")], "expected a path"),
        ([route(OK, path="/things/")], "expected a path"),
        ([route(OK, path="/th ings")], "expected a path"),
        ([route(OK, path="/a/{id}", path_parameters=())], "expected the path parameters"),
        ([route(OK, path="/a", path_parameters=(ID,))], "expected the path parameters"),
        ([route(OK, responses=())], "expected at least one response"),
        ([route(OK, body=Body(type=Thing))], "expected no body with GET"),
        ([route(OK, query=dict)], "expected a struct as its query"),
        ([route(OK), route(OK)], "declared twice"),
        (
            [
                route(OK, path="/a/{id}"),
                route(OK, path="/a/{x}", path_parameters=(Parameter(name="x", description=""),)),
            ],
            "declared twice; GET /a/{x}: expected the parameter names of /a/{id}",
        ),
    ],
)
def test_conflicting_routes_are_rejected_when_the_app_is_built(routes: Sequence[Route], message: str) -> None:
    with pytest.raises(BadRoutes) as rejected:
        check_routes(routes, permissions=PERMISSIONS)

    assert message in str(rejected.value)


def test_a_route_needs_an_action() -> None:
    with pytest.raises(TypeError, match="action"):
        Route(method=Method.GET, path="/", handler=OK, summary="", tag="", responses=())  # type: ignore[call-arg]


def test_a_route_may_be_open() -> None:
    check_routes([route(OK, action=OPEN, path="/")], permissions=Permissions())


@pytest.mark.parametrize("is_insecure", [True, False])
def test_an_action_without_a_permitted_role_is_rejected(is_insecure: bool) -> None:
    guard = Guard(identities=[RoleTokens()], permissions=PERMISSIONS, is_insecure=is_insecure)

    with pytest.raises(BadRoutes, match=r"GET /things: expected an action"):
        make_app(route(OK, action=Action("things.raed")), guard=guard)


async def test_reading_another_query_than_declared_is_an_error() -> None:
    handler = RecordingHandler()
    await call(make_app(route(handler)), "GET", "/things")

    with pytest.raises(TypeError, match="declares None as its query"):
        handler.requests[0].query(Query)
    with pytest.raises(TypeError, match="declares no body"):
        await handler.requests[0].body()
