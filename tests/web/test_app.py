"""The application: from a request to a handler and back, with everything that can be wrong in between."""

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
from tests.web.calling import PERMISSIONS, WRITE, answering, app_of, call, raising, route, scope

FINE = answering(Response(body=b"{}"))
JSON = {"content-type": "application/json"}


class Thing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str


class Query(msgspec.Struct, frozen=True):
    size: int = 5


class Heard:
    """A handler that keeps the request it was given."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def __call__(self, request: Request) -> Response:
        self.requests.append(request)
        return Response(body=b"{}")


async def echo(request: Request) -> Response:
    return Response(201, msgspec.json.encode(await request.decode(Thing)))


def taking(body: Body, *, method: Method = Method.POST) -> App:
    return app_of(route(echo, method=method, body=body))


async def test_a_handler_hears_of_path_query_headers_and_caller() -> None:
    heard = Heard()
    app = app_of(route(heard, path="/things/{id}", query=Query))

    await call(app, "GET", "/things/a b", query="size=7", headers={"If-Match": '"1"', "X-Request-Id": "r1"})

    (request,) = heard.requests
    assert request.path == {"id": "a b"}
    assert request.query(Query).size == 7
    assert request.header("if-match") == '"1"'
    assert request.header("Absent") is None
    assert request.caller.identity.name == "anonymous"
    assert (request.caller.address, request.caller.request_id) == ("127.0.0.1", "r1")


async def test_an_answer_goes_out_as_it_is() -> None:
    app = app_of(route(answering(Response(202, b"[1]", {"ETag": '"7"'}, "application/x+json"))))

    answered = await call(app, "GET", "/things")

    assert (answered.status, answered.body) == (202, b"[1]")
    assert answered.headers["etag"] == '"7"'
    assert answered.headers["content-type"] == "application/x+json"
    assert answered.headers["content-length"] == "3"


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_that_has_no_body_says_nothing_of_one(status: int) -> None:
    answered = await call(app_of(route(answering(Response(status, b"ignored")))), "GET", "/things")

    assert (answered.status, answered.body) == (status, b"")
    assert not {"content-type", "content-length"} & set(answered.headers)


async def test_a_literal_segment_goes_before_a_parameter() -> None:
    app = app_of(
        route(answering(Response(body=b"1")), path="/things/{id}"),
        route(answering(Response(body=b"2")), path="/things/special"),
    )

    assert (await call(app, "GET", "/things/special")).body == b"2"
    assert (await call(app, "GET", "/things/other")).body == b"1"


async def named(request: Request) -> Response:
    """Answers with the route that was found and the parameters that were matched."""
    return Response(body=msgspec.json.encode([request.route.path, dict(request.path)]))


def paths(*templates: str) -> App:
    """An application with a route for each, whose parameters are `id` and `part`."""
    return app_of(
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
async def test_a_path_that_no_route_matches_is_named_in_the_404_as_it_came(path: str) -> None:
    answered = await call(paths("/things", "/things/{id}/last", "/a-b"), "GET", path)

    assert answered.status == 404
    assert answered.json["detail"] == f"there is no endpoint {json.dumps(path)}"


async def test_a_literal_segment_takes_every_method_of_its_path() -> None:
    app = app_of(route(FINE, path="/things/special"), route(FINE, path="/things/{id}", method=Method.DELETE))

    assert (await call(app, "DELETE", "/things/special")).status == 405
    assert (await call(app, "DELETE", "/things/other")).status == 200


async def test_an_unknown_path_is_a_404_that_adapters_can_tell_from_a_missing_resource() -> None:
    app = app_of(route(raising(lambda: problem.not_found("no such thing")), path="/things/{id}"))

    wrong, missing = await call(app, "GET", "/thinks"), await call(app, "GET", "/things/1")

    assert (wrong.status, wrong.json["code"]) == (404, "HYPERFLEET-NTF-000")
    assert (missing.status, missing.json["code"]) == (404, "HYPERFLEET-NTF-001")
    assert wrong.headers["content-type"] == missing.headers["content-type"] == "application/problem+json"


async def test_another_method_is_a_405_with_what_is_allowed() -> None:
    app = app_of(route(FINE), route(echo, method=Method.POST, body=Body(type=Thing)))

    answered = await call(app, "DELETE", "/things")

    assert answered.status == 405
    assert answered.headers["allow"] == "GET, HEAD, OPTIONS, POST"
    assert answered.headers["content-type"] == "application/problem+json"


async def test_options_says_what_is_allowed() -> None:
    app = app_of(route(FINE), route(echo, method=Method.POST, body=Body(type=Thing)))

    answered = await call(app, "OPTIONS", "/things")

    assert (answered.status, answered.headers["allow"]) == (204, "GET, HEAD, OPTIONS, POST")


async def test_head_is_answered_like_get() -> None:
    assert (await call(app_of(route(FINE)), "HEAD", "/things")).headers["content-length"] == "2"


async def test_a_problem_has_the_shape_of_rfc_9457() -> None:
    app = app_of(route(FINE, query=Query))

    answered = await call(app, "GET", "/things", query="size=x&foo=1")

    assert answered.json == {
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


async def test_a_nul_in_a_path_is_refused_by_the_parameters_name() -> None:
    answered = await call(app_of(route(FINE, path="/things/{id}")), "GET", "/things/a\0b")

    assert (answered.status, answered.json["errors"][0]["field"]) == (400, "id")


async def test_what_nobody_expected_is_a_500_that_says_nothing_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = app_of(route(raising(lambda: RuntimeError("the password is hunter2"))))

    with caplog.at_level(logging.ERROR):
        answered = await call(app, "GET", "/things", headers={"X-Request-Id": "r1"})

    assert answered.status == 500
    assert "hunter2" not in answered.body.decode()
    assert answered.json["request_id"] == "r1"
    (record,) = caplog.records
    assert record.getMessage() == "http.failed"
    assert record.__dict__["fields"]["request_id"] == "r1"


async def test_no_variable_of_the_environment_makes_a_fault_talkative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEBUG", "1")
    monkeypatch.setenv("STARLETTE_DEBUG", "1")
    app = app_of(route(raising(lambda: RuntimeError("the password is hunter2"))))

    answered = await call(app, "GET", "/things")

    assert answered.headers["content-type"] == "application/problem+json"
    assert "hunter2" not in answered.body.decode()


async def test_a_body_is_decoded() -> None:
    answered = await call(taking(Body(type=Thing)), "POST", "/things", headers=JSON, body=b'{"name": "a"}')

    assert (answered.status, answered.json) == (201, {"name": "a"})


async def test_a_body_may_come_in_pieces() -> None:
    pieces = [b'{"na', b'me": ', b'"a"}']

    assert (await call(taking(Body(type=Thing)), "POST", "/things", headers=JSON, body=pieces)).status == 201


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
async def test_only_the_declared_content_type_is_taken(content_type: str, status: int) -> None:
    app = taking(Body(type=Thing))

    answered = await call(app, "POST", "/things", headers={"content-type": content_type}, body=b'{"name": "a"}')

    assert answered.status == status
    assert status == 201 or answered.headers["accept"] == "application/json"


async def test_a_merge_patch_is_taken_where_it_is_declared() -> None:
    app = taking(Body(type=Thing, content_types=("application/json", MERGE_PATCH)), method=Method.PATCH)

    answered = await call(app, "PATCH", "/things", headers={"content-type": MERGE_PATCH}, body=b'{"name": "a"}')

    assert answered.status == 201


@pytest.mark.parametrize("headers", [{}, {**JSON, "content-encoding": "gzip"}])
async def test_a_body_without_a_type_or_compressed_is_a_415(headers: dict[str, str]) -> None:
    assert (await call(taking(Body(type=Thing)), "POST", "/things", headers=headers, body=b"{}")).status == 415


async def test_a_body_that_says_it_is_too_large_is_refused_unread() -> None:
    app = taking(Body(type=Thing, limit=100))
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("expected that nobody reads it")

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope("POST", "/things", headers={**JSON, "content-length": "101"}), receive, send)

    assert sent[0]["status"] == 413


async def test_a_body_that_grows_too_large_is_refused_as_soon_as_it_does() -> None:
    app = taking(Body(type=Thing, limit=100))
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


async def test_a_body_of_exactly_the_limit_is_taken() -> None:
    body = b'{"name": "a"}'.ljust(100)
    headers = {**JSON, "content-length": "100"}

    answered = await call(taking(Body(type=Thing, limit=100)), "POST", "/things", headers=headers, body=body)

    assert answered.status == 201


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[" * 10_000, b'"\xff"', b'{"name": 99999999999999999999999}', b'{"name":"a","name":"b"}']
)
async def test_a_hostile_body_is_a_400_with_its_errors(body: bytes) -> None:
    answered = await call(taking(Body(type=Thing)), "POST", "/things", headers=JSON, body=body)

    assert answered.status == 400
    assert answered.json["errors"]


async def test_no_body_counts_as_an_empty_object_where_none_is_required() -> None:
    async def handler(request: Request) -> Response:
        return Response(body=await request.body())

    app = app_of(route(handler, method=Method.POST, body=Body(type=dict, is_required=False)))

    assert (await call(app, "POST", "/things")).body == b"{}"


async def test_a_client_that_goes_before_its_body_has_come_gets_no_answer() -> None:
    headers = {**JSON, "content-length": "50"}

    answered = await call(taking(Body(type=Thing)), "POST", "/things", headers=headers, body=[])

    assert answered.status == 0


class Everybody:
    """Knows a token for each role: its name."""

    async def identify(self, token: str) -> Identity | None:
        return Identity(token, Role(token)) if token in list(Role) else None


@pytest.mark.parametrize(
    ("token", "status"), [(None, 401), ("nobody", 401), ("viewer", 403), ("agent", 403), ("operator", 200)]
)
async def test_a_route_asks_for_the_permission_that_it_declares(token: str | None, status: int) -> None:
    heard = Heard()
    app = app_of(route(heard, action=WRITE), guard=Guard(identities=[Everybody()], permissions=PERMISSIONS))

    answered = await call(app, "GET", "/things", headers={"authorization": f"Bearer {token}"} if token else {})

    assert answered.status == status
    assert len(heard.requests) == (status == 200)
    assert ("www-authenticate" in answered.headers) == (status == 401)


async def test_permission_comes_before_everything_that_a_stranger_could_learn_from() -> None:
    app = app_of(
        route(echo, method=Method.POST, action=WRITE, body=Body(type=Thing), query=Query),
        guard=Guard(identities=[Everybody()], permissions=PERMISSIONS),
    )

    answered = await call(app, "POST", "/things", query="nonsense=1", body=b"{")

    assert answered.status == 401


async def test_probes_and_metrics_are_open_whatever_else_is_not() -> None:
    pages = page_routes(probe_pages(Health()) | metrics_pages(Metrics(component="test")))
    app = app_of(*pages, guard=Guard(identities=[Everybody()], permissions=PERMISSIONS))

    ready, metrics = await call(app, "GET", "/readyz", query="verbose"), await call(app, "GET", "/metrics")

    assert (ready.status, ready.json) == (200, {"status": "ok", "checks": {}})
    assert metrics.status == 200
    assert b"hyperfleet_sentinel_build_info" in metrics.body


async def test_a_probe_says_no_with_503() -> None:
    health = Health()
    health.add(readiness={"database": lambda: "unreachable"})

    answered = await call(app_of(*page_routes(probe_pages(health))), "GET", "/readyz")

    assert answered.status == 503
    assert json.loads(answered.body)["checks"]["database"]["message"] == "unreachable"


async def test_what_a_page_shows_is_brought_up_to_date_before() -> None:
    health = Health()

    async def look() -> None:
        health.add(readiness={"database": lambda: "unreachable"})

    app = app_of(*page_routes(probe_pages(health), before={"/readyz": look}))

    assert (await call(app, "GET", "/healthz")).status == 200
    assert (await call(app, "GET", "/readyz")).status == 503


ID = Parameter(name="id", description="")


@pytest.mark.parametrize(
    ("routes", "fault"),
    [
        ([route(FINE, action=None)], "expected an action, or OPEN, got None"),
        ([route(FINE, action="things.raed")], "expected an action, or OPEN, got 'things.raed'"),
        ([route(FINE, action="fleet.read")], "which no role is permitted"),
        ([route(FINE, path="things")], "expected a path"),
        ([route(FINE, path="/things/")], "expected a path"),
        ([route(FINE, path="/th ings")], "expected a path"),
        ([route(FINE, path="/a/{id}", path_parameters=())], "expected the path parameters"),
        ([route(FINE, path="/a", path_parameters=(ID,))], "expected the path parameters"),
        ([route(FINE, responses=())], "expected at least one response"),
        ([route(FINE, body=Body(type=Thing))], "expected no body with GET"),
        ([route(FINE, query=dict)], "expected a struct as its query"),
        ([route(FINE), route(FINE)], "declared twice"),
        (
            [
                route(FINE, path="/a/{id}"),
                route(FINE, path="/a/{x}", path_parameters=(Parameter(name="x", description=""),)),
            ],
            "declared twice; GET /a/{x}: expected the parameter names of /a/{id}",
        ),
    ],
)
def test_a_table_that_does_not_fit_together_is_refused_when_it_is_built(
    routes: Sequence[Route], fault: str
) -> None:
    with pytest.raises(BadRoutes) as refused:
        check_routes(routes, permissions=PERMISSIONS)

    assert fault in str(refused.value)


def test_a_route_without_an_action_cannot_even_be_written() -> None:
    with pytest.raises(TypeError, match="action"):
        Route(method=Method.GET, path="/", handler=FINE, summary="", tag="", responses=())  # type: ignore[call-arg]


def test_a_route_may_be_open_on_purpose() -> None:
    check_routes([route(FINE, action=OPEN, path="/")], permissions=Permissions())


@pytest.mark.parametrize("is_insecure", [True, False])
def test_an_action_that_no_role_is_permitted_is_refused_when_it_is_built(is_insecure: bool) -> None:
    guard = Guard(identities=[Everybody()], permissions=PERMISSIONS, is_insecure=is_insecure)

    with pytest.raises(BadRoutes, match=r"GET /things: expected an action"):
        app_of(route(FINE, action=Action("things.raed")), guard=guard)


async def test_a_handler_that_asks_for_another_query_than_it_declares_is_told() -> None:
    heard = Heard()
    await call(app_of(route(heard)), "GET", "/things")

    with pytest.raises(TypeError, match="declares None as its query"):
        heard.requests[0].query(Query)
    with pytest.raises(TypeError, match="declares no body"):
        await heard.requests[0].body()
