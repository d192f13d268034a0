"""The REST client against servers on loopback."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from sentinel.drivers.rest.client import RestClient
from sentinel.drivers.rest.errors import ErrorResponse, RequestRejected, TooLarge, Unreachable, UnreachableReason
from sentinel.drivers.rest.problem import ReceivedFieldError, ReceivedProblem
from sentinel.drivers.rest.retries import Retries
from sentinel.drivers.rest.token import BearerToken
from sentinel.drivers.rest.url import CredentialsInUrl, InvalidSegment, InvalidUrl, parse_base_url, query, segment
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.runtime.backoff import Backoff
from tests.runtime.trace_collector import collected_traces, traceparent_of
from tests.support.closing import CloseLater
from tests.support.http import scripted_server
from tests.support.http.scripted_server import ScriptedResponse, ScriptedServer, document, problem
from tools.services.server import free_port

TOKEN = "snt_very-secret"
SECOND = timedelta(seconds=1)
AT_ONCE = Backoff(initial=timedelta(0), maximum=timedelta(0))
THRICE = Retries(attempts=3, backoff=AT_ONCE, max_retry_after=timedelta(0))

MakeClient = Callable[..., RestClient]


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer(lambda request: document({})) as running:
        yield running


@pytest.fixture
def make_client(server: ScriptedServer, close_later: CloseLater) -> MakeClient:
    def make(**changes: Any) -> RestClient:
        return close_later(RestClient(**{"base_url": server.url, "user_agent": "test/1", **changes}))

    return make


@pytest.fixture
async def stalled(server: ScriptedServer) -> AsyncIterator[ScriptedServer]:
    """The server, which does not respond before the end of the test."""
    released = asyncio.Event()

    async def wait(request: scripted_server.ReceivedRequest) -> ScriptedResponse:
        await released.wait()
        return ScriptedResponse()

    server.script = wait
    yield server
    released.set()


async def rejection(client: RestClient, *, method: str = "GET") -> RequestRejected:
    """Send a request that is rejected."""
    with pytest.raises(RequestRejected) as caught:
        await client.request(method, "/x", timeout=5 * SECOND)
    return caught.value


def rejecting(response: ScriptedResponse, *, times: int) -> scripted_server.Script:
    """A script that sends this response a number of times before it accepts a request."""
    left = iter([response] * times)
    return lambda request: next(left, document({}))


class TestRequest:
    async def test_user_agent_and_accepted_encodings_are_sent(
        self, server: ScriptedServer, make_client: MakeClient
    ) -> None:
        await make_client().request("GET", "/a%2Fb?x=1", timeout=5 * SECOND)
        await make_client(gzip=True).request("GET", "/", timeout=5 * SECOND)

        [first, second] = server.requests
        assert first.path == "/a%2Fb?x=1"
        assert first.headers["User-Agent"] == "test/1"
        assert first.headers["Accept"] == "application/json"
        assert (first.headers["Accept-Encoding"], second.headers["Accept-Encoding"]) == ("identity", "gzip")
        assert "Authorization" not in first.headers

    async def test_body_headers_and_token_are_sent(self, server: ScriptedServer, make_client: MakeClient) -> None:
        client = make_client(token=BearerToken(TOKEN))

        await client.request(
            "PUT", "/x", timeout=5 * SECOND, body=b"{}", headers={"Content-Type": "application/x"}
        )

        [request] = server.requests
        assert (request.method, request.body) == ("PUT", b"{}")
        assert request.headers["Content-Type"] == "application/x"
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"

    @pytest.mark.parametrize("status", [200, 201, 204, 304])
    async def test_a_successful_status_is_a_response(
        self, server: ScriptedServer, make_client: MakeClient, status: int
    ) -> None:
        server.script = lambda request: ScriptedResponse(status, headers={"ETag": '"7"'})

        response = await make_client().request("GET", "/x", timeout=5 * SECOND)

        assert (response.status, response.etag, response.headers["etag"]) == (status, '"7"', '"7"')
        assert response.line.startswith(f"{status} ")

    async def test_a_body_is_bounded_after_decompression(
        self, server: ScriptedServer, make_client: MakeClient
    ) -> None:
        server.script = lambda request: ScriptedResponse(
            200, gzip.compress(bytes(10_000)), {"Content-Encoding": "gzip"}
        )
        client = make_client(gzip=True)

        response = await client.request("GET", "/x", timeout=5 * SECOND, limit=10_000)
        with pytest.raises(TooLarge, match="at most 9999 bytes"):
            await client.request("GET", "/x", timeout=5 * SECOND, limit=9_999)

        assert len(response.body) == 10_000

    async def test_a_closed_client_opens_again(self, server: ScriptedServer, make_client: MakeClient) -> None:
        client = make_client()
        await client.request("GET", "/x", timeout=5 * SECOND)

        await client.close()
        await client.close()

        assert (await client.request("GET", "/x", timeout=5 * SECOND)).status == 200


class TestRejections:
    async def test_a_problem_is_read_with_its_errors(
        self, server: ScriptedServer, make_client: MakeClient
    ) -> None:
        errors = [
            {"field": "spec.a", "message": "expected a number"},
            {"field": "", "message": "odd", "line": 3, "column": 5, "level": 2},
        ]
        server.script = lambda request: problem(422, "HYPERFLEET-VAL-002", "will not do", errors=errors)

        rejected = await rejection(make_client())

        assert rejected.response.problem == ReceivedProblem(
            code="HYPERFLEET-VAL-002",
            detail="will not do",
            field_errors=(
                ReceivedFieldError("spec.a", "expected a number"),
                ReceivedFieldError("", "odd", 3, 5, level=2),
            ),
        )
        assert (rejected.status, rejected.code) == (422, "HYPERFLEET-VAL-002")
        assert str(rejected) == (
            f"422 {HTTPStatus(422).phrase}: will not do: spec.a: expected a number; odd (line 3, column 5)"
        )

    @pytest.mark.parametrize(
        ("body", "text"),
        [
            ({"detail": "a: bad", "errors": [{"field": "a", "message": "bad"}]}, "a: bad"),
            ({"title": "Bad", "errors": None}, "Bad"),
            ({"errors": [{"message": "bad"}]}, "bad"),
            ({"errors": ["size must be at most 100"]}, "size must be at most 100"),
            ({"errors": [5]}, '{"errors":[5]}'),
        ],
    )
    async def test_errors_of_any_server_are_shown_once(
        self, server: ScriptedServer, make_client: MakeClient, body: object, text: str
    ) -> None:
        server.script = lambda request: document(body, status=400)

        assert str(await rejection(make_client())) == f"400 Bad Request: {text}"

    @pytest.mark.parametrize(
        ("status", "is_temporary", "needs_operator"),
        [
            (302, False, True),
            (400, False, True),
            (401, False, True),
            (404, False, True),
            (407, False, True),
            (408, True, False),
            (425, True, False),
            (429, True, False),
            (500, True, False),
            (503, True, False),
        ],
    )
    async def test_a_status_decides_whether_to_retry_or_ask_an_operator(
        self,
        server: ScriptedServer,
        make_client: MakeClient,
        status: int,
        is_temporary: bool,
        needs_operator: bool,
    ) -> None:
        server.script = lambda request: ScriptedResponse(status)

        rejected = await rejection(make_client())

        assert (rejected.is_retryable, rejected.response.needs_operator) == (is_temporary, needs_operator)
        assert rejected.code == ""

    @pytest.mark.parametrize(("status", "seconds"), [(503, 7), (429, 7), (404, 0)])
    async def test_retry_after_is_read(
        self, server: ScriptedServer, make_client: MakeClient, status: int, seconds: int
    ) -> None:
        server.script = lambda request: ScriptedResponse(status, headers={"Retry-After": "7"})

        assert (await rejection(make_client())).response.retry_after == seconds * SECOND

    async def test_a_redirect_is_not_followed_and_shows_only_its_origin(
        self, server: ScriptedServer, make_client: MakeClient
    ) -> None:
        server.script = lambda request: ScriptedResponse(
            302, headers={"Location": f"{server.url}/login?key={TOKEN}"}
        )

        rejected = await rejection(make_client())

        assert str(rejected) == f"302 Found to {server.url}; redirects are not followed"
        assert len(server.requests) == 1

    async def test_a_token_echoed_by_the_server_is_redacted(
        self, server: ScriptedServer, make_client: MakeClient
    ) -> None:
        server.script = lambda request: ScriptedResponse(400, request.headers["Authorization"].encode())

        rejected = await rejection(make_client(token=BearerToken(TOKEN)))

        assert str(rejected) == "400 Bad Request: Bearer ***"
        assert rejected.response == ErrorResponse(400, "Bad Request", "Bearer ***")

    async def test_a_rejection_is_shown_as_one_short_line(
        self, server: ScriptedServer, make_client: MakeClient
    ) -> None:
        server.script = lambda request: ScriptedResponse(400, b"several\n\x1blines" + b"x" * 100_000)

        text = str(await rejection(make_client()))

        assert text.startswith("400 Bad Request: several linesxxx")
        assert len(text) < 400


class TestToken:
    async def test_a_token_that_was_replaced_meanwhile_needs_no_operator(
        self, server: ScriptedServer, make_client: MakeClient, tmp_path: Path
    ) -> None:
        file = tmp_path / "token"
        file.write_text("first")

        def rotate_and_reject(request: scripted_server.ReceivedRequest) -> ScriptedResponse:
            file.write_text("second")
            return problem(401)

        server.script = rotate_and_reject

        rejected = await rejection(make_client(token=BearerToken(file=file)))

        assert rejected.response.has_new_token
        assert not rejected.response.needs_operator

    def test_on_token_is_called_once_for_every_new_token(self, tmp_path: Path) -> None:
        file = tmp_path / "token"
        tokens: list[str] = []
        token = BearerToken(file=file, on_token=tokens.append)

        for content in ("one\n", "one", " two\n"):
            file.write_text(content)
            token.read()

        assert tokens == ["one", "two"]

    @pytest.mark.parametrize("text", ["two words", "ü", "a\nb"])
    def test_a_token_invalid_in_a_header_is_refused_without_showing_it(self, text: str) -> None:
        with pytest.raises(Misconfigured, match=r"^SENTINEL_TOKEN: expected only visible ASCII characters$"):
            BearerToken(text, name="SENTINEL_TOKEN").read()

    async def test_an_unreadable_token_file_raises_before_anything_is_sent(
        self, server: ScriptedServer, make_client: MakeClient, tmp_path: Path
    ) -> None:
        client = make_client(token=BearerToken(file=tmp_path / "missing"))

        with pytest.raises(Misconfigured, match=r"token_file .*: No such file"):
            await client.request("GET", "/x", timeout=5 * SECOND)

        assert server.requests == []


class TestUnreachable:
    async def test_a_refused_connection_is_unavailable(self, make_client: MakeClient) -> None:
        client = make_client(base_url=f"http://127.0.0.1:{free_port()}")

        with pytest.raises(Unavailable) as caught:
            await client.request("GET", "/x", timeout=5 * SECOND)

        assert isinstance(caught.value, Unreachable)
        assert caught.value.reason is UnreachableReason.CONNECTION
        assert caught.value.detail.startswith("connect")
        assert (caught.value.was_sent, caught.value.needs_operator) == (False, False)

    async def test_after_a_timeout_the_server_may_have_the_request(
        self, stalled: ScriptedServer, make_client: MakeClient
    ) -> None:
        with pytest.raises(Unreachable, match=r"no complete response within 0\.05 s") as caught:
            await make_client().request("GET", "/x", timeout=SECOND / 20)

        assert (caught.value.reason, caught.value.was_sent) == (UnreachableReason.TIMEOUT, True)


class TestRetries:
    async def test_without_a_policy_a_request_is_sent_once(
        self, server: ScriptedServer, make_client: MakeClient
    ) -> None:
        server.script = rejecting(ScriptedResponse(503), times=1)

        assert (await rejection(make_client())).status == 503
        assert len(server.requests) == 1

    @pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
    async def test_a_policy_retries_temporary_errors(
        self, server: ScriptedServer, make_client: MakeClient, method: str
    ) -> None:
        server.script = rejecting(ScriptedResponse(503), times=2)

        response = await make_client(retries=THRICE).request(method, "/x", timeout=5 * SECOND)

        assert response.status == 200
        assert len(server.requests) == 3

    async def test_the_last_rejection_is_raised(self, server: ScriptedServer, make_client: MakeClient) -> None:
        server.script = lambda request: ScriptedResponse(500 + len(server.requests))

        assert (await rejection(make_client(retries=THRICE))).status == 503

    @pytest.mark.parametrize(("method", "status"), [("POST", 503), ("PATCH", 503), ("GET", 404)])
    async def test_unsafe_methods_and_permanent_errors_are_not_retried(
        self, server: ScriptedServer, make_client: MakeClient, method: str, status: int
    ) -> None:
        server.script = lambda request: ScriptedResponse(status)

        await rejection(make_client(retries=THRICE), method=method)

        assert len(server.requests) == 1

    @pytest.mark.parametrize(("method", "attempts"), [("GET", 3), ("POST", 1)])
    async def test_after_a_timeout_only_idempotent_methods_are_retried(
        self, stalled: ScriptedServer, make_client: MakeClient, method: str, attempts: int
    ) -> None:
        with pytest.raises(Unreachable):
            await make_client(retries=THRICE).request(method, "/x", timeout=SECOND / 20)

        assert len(stalled.requests) == attempts

    async def test_a_request_that_was_never_sent_is_retried_with_any_method(self, make_client: MakeClient) -> None:
        failures: list[float] = []

        def jitter() -> float:
            failures.append(0.5)
            return 0.5

        client = make_client(base_url=f"http://127.0.0.1:{free_port()}", retries=THRICE, jitter=jitter)

        with pytest.raises(Unreachable):
            await client.request("POST", "/x", timeout=5 * SECOND)

        assert len(failures) == 3

    def test_a_policy_honours_retry_after_up_to_a_maximum(self) -> None:
        policy = Retries(attempts=3, backoff=AT_ONCE, max_retry_after=5 * SECOND)

        assert policy.delay(0, random=0.5) == timedelta(0)
        assert policy.delay(1, random=0.5, retry_after=2 * SECOND) == 2 * SECOND
        assert policy.delay(1, random=0.5, retry_after=3600 * SECOND) == 5 * SECOND
        assert policy.delay(2, random=0.5, retry_after=2 * SECOND) is None


class TestUrls:
    @pytest.mark.parametrize(
        "text", ["ftp://host", "host:8080", "", "http://", "http://host?x=1", "http://host/#x", "http://a:b"]
    )
    def test_an_invalid_base_url_is_refused(self, text: str) -> None:
        with pytest.raises(InvalidUrl):
            parse_base_url(text)

    def test_credentials_are_refused_without_showing_them(self) -> None:
        with pytest.raises(CredentialsInUrl) as caught:
            parse_base_url(f"http://me:{TOKEN}@host")

        assert TOKEN not in str(caught.value)

    @pytest.mark.parametrize(
        ("given", "base"),
        [
            ("http://host", "http://host"),
            ("https://host:8443/a/", "https://host:8443/a"),
            ("http://[::1]", "http://[::1]"),
        ],
    )
    def test_the_base_url_has_no_trailing_slash(self, make_client: MakeClient, given: str, base: str) -> None:
        assert make_client(base_url=given).base_url == base

    def test_a_query_omits_parameters_without_a_value(self) -> None:
        assert (
            query({"labels": "a=b,c in (d)", "order": "", "x": "é&"}) == "?labels=a=b,c%20in%20%28d%29&x=%C3%A9%26"
        )
        assert query({"order": ""}) == query({}) == ""

    def test_a_segment_is_encoded_or_refused(self) -> None:
        assert segment("a b?c#d") == "a%20b%3Fc%23d"
        with pytest.raises(InvalidSegment):
            segment("a/b")


async def test_a_request_carries_the_current_traceparent(server: ScriptedServer, make_client: MakeClient) -> None:
    async with collected_traces() as traces:
        client = make_client(tracer=traces.tracer)
        await client.request("GET", "/", timeout=SECOND)
        with traces.tracer.span("evaluation"):
            await client.request("GET", "/", timeout=SECOND)
        (span,) = await traces.finish()

    assert [request.headers.get("traceparent") for request in server.requests] == [None, traceparent_of(span)]
