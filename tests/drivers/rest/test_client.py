"""The client against servers on loopback: what it sends, and what it makes of whatever comes back."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sentinel.drivers.rest.client import RestClient
from sentinel.drivers.rest.errors import ErrorResponse, RequestRejected, TooLarge, Unreachable, UnreachableReason
from sentinel.drivers.rest.problem import ReceivedFieldError, ReceivedProblem
from sentinel.drivers.rest.retries import Retries
from sentinel.drivers.rest.token import BearerToken
from sentinel.drivers.rest.url import CredentialsInUrl, InvalidSegment, InvalidUrl, base_url, query, segment
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.runtime.backoff import Backoff
from tests.support.http.scripted_server import Asked, Said, ScriptedServer, document, problem
from tools.services import free_port

TOKEN = "snt_very-secret"
SECOND = timedelta(seconds=1)
AT_ONCE = Backoff(initial=timedelta(0), maximum=timedelta(0))
THRICE = Retries(attempts=3, backoff=AT_ONCE, max_retry_after=timedelta(0))

MakeClient = Callable[..., RestClient]


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer(lambda asked: document({})) as running:
        yield running


@pytest.fixture
async def make_client(server: ScriptedServer) -> AsyncIterator[MakeClient]:
    made: list[RestClient] = []

    def make(**changes: Any) -> RestClient:
        made.append(RestClient(**{"base_url": server.url, "user_agent": "test/1", **changes}))
        return made[-1]

    yield make
    for client in made:
        await client.close()


async def refusal(client: RestClient, *, method: str = "GET") -> RequestRejected:
    with pytest.raises(RequestRejected) as caught:
        await client.request(method, "/x", timeout=5 * SECOND)
    return caught.value


def refusing(said: Said, *, times: int) -> Callable[[Asked], Said]:
    """A script that refuses so many requests before it takes one."""
    left = iter([said] * times)
    return lambda asked: next(left, document({}))


class TestRequest:
    async def test_it_says_who_asks_and_what_it_takes(
        self, server: ScriptedServer, make_client: MakeClient
    ) -> None:
        await make_client().request("GET", "/a%2Fb?x=1", timeout=5 * SECOND)
        await make_client(gzip=True).request("GET", "/", timeout=5 * SECOND)

        [first, second] = server.asked
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

        [asked] = server.asked
        assert (asked.method, asked.body) == ("PUT", b"{}")
        assert asked.headers["Content-Type"] == "application/x"
        assert asked.headers["Authorization"] == f"Bearer {TOKEN}"

    @pytest.mark.parametrize("status", [200, 201, 204, 304])
    async def test_what_refuses_nothing_is_a_response(
        self, server: ScriptedServer, make_client: MakeClient, status: int
    ) -> None:
        server.script = lambda asked: Said(status, headers={"ETag": '"7"'})

        response = await make_client().request("GET", "/x", timeout=5 * SECOND)

        assert (response.status, response.etag, response.headers["etag"]) == (status, '"7"', '"7"')
        assert response.line.startswith(f"{status} ")

    async def test_a_body_is_bounded_after_it_is_unpacked(
        self, server: ScriptedServer, make_client: MakeClient
    ) -> None:
        server.script = lambda asked: Said(200, gzip.compress(bytes(10_000)), {"Content-Encoding": "gzip"})
        client = make_client(gzip=True)

        response = await client.request("GET", "/x", timeout=5 * SECOND, limit=10_000)
        with pytest.raises(TooLarge, match="at most 9999 bytes"):
            await client.request("GET", "/x", timeout=5 * SECOND, limit=9_999)

        assert len(response.body) == 10_000

    async def test_a_client_that_was_closed_opens_again(
        self, server: ScriptedServer, make_client: MakeClient
    ) -> None:
        client = make_client()
        await client.request("GET", "/x", timeout=5 * SECOND)

        await client.close()
        await client.close()

        assert (await client.request("GET", "/x", timeout=5 * SECOND)).status == 200


class TestRefusals:
    async def test_a_problem_is_read_with_its_errors(
        self, server: ScriptedServer, make_client: MakeClient
    ) -> None:
        errors = [
            {"field": "spec.a", "message": "expected a number"},
            {"field": "", "message": "odd", "line": 3, "column": 5, "level": 2},
        ]
        server.script = lambda asked: problem(422, "HYPERFLEET-VAL-002", "will not do", errors=errors)

        refused = await refusal(make_client())

        assert refused.response.problem == ReceivedProblem(
            code="HYPERFLEET-VAL-002",
            detail="will not do",
            field_errors=(
                ReceivedFieldError("spec.a", "expected a number"),
                ReceivedFieldError("", "odd", 3, 5, level=2),
            ),
        )
        assert (refused.status, refused.code) == (422, "HYPERFLEET-VAL-002")
        assert str(refused) == (
            "422 Unprocessable Entity: will not do: spec.a: expected a number; odd (line 3, column 5)"
        )

    @pytest.mark.parametrize(
        ("body", "said"),
        [
            ({"detail": "a: bad", "errors": [{"field": "a", "message": "bad"}]}, "a: bad"),
            ({"title": "Bad", "errors": None}, "Bad"),
            ({"errors": [{"message": "bad"}]}, "bad"),
            ({"errors": ["of another kind"]}, '{"errors":["of another kind"]}'),
        ],
    )
    async def test_errors_are_said_once_and_of_any_server(
        self, server: ScriptedServer, make_client: MakeClient, body: object, said: str
    ) -> None:
        server.script = lambda asked: document(body, status=400)

        assert str(await refusal(make_client())) == f"400 Bad Request: {said}"

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
    async def test_a_status_says_whether_time_or_a_person_helps(
        self,
        server: ScriptedServer,
        make_client: MakeClient,
        status: int,
        is_temporary: bool,
        needs_operator: bool,
    ) -> None:
        server.script = lambda asked: Said(status)

        refused = await refusal(make_client())

        assert (refused.is_retryable, refused.response.needs_operator) == (is_temporary, needs_operator)
        assert refused.code == ""

    @pytest.mark.parametrize(("status", "wait"), [(503, 7), (429, 7), (404, 0)])
    async def test_the_wait_that_a_server_asks_for_is_read(
        self, server: ScriptedServer, make_client: MakeClient, status: int, wait: int
    ) -> None:
        server.script = lambda asked: Said(status, headers={"Retry-After": "7"})

        assert (await refusal(make_client())).response.retry_after == wait * SECOND

    async def test_a_redirect_is_not_followed_and_shows_its_origin_alone(
        self, server: ScriptedServer, make_client: MakeClient
    ) -> None:
        server.script = lambda asked: Said(302, headers={"Location": f"{server.url}/login?key={TOKEN}"})

        refused = await refusal(make_client())

        assert str(refused) == f"302 Found to {server.url}; redirects are not followed"
        assert len(server.asked) == 1

    async def test_a_server_that_echoes_the_token_does_not_make_us_show_it(
        self, server: ScriptedServer, make_client: MakeClient
    ) -> None:
        server.script = lambda asked: Said(400, asked.headers["Authorization"].encode())

        refused = await refusal(make_client(token=BearerToken(TOKEN)))

        assert str(refused) == "400 Bad Request: Bearer ***"
        assert refused.response == ErrorResponse(400, "Bad Request", "Bearer ***")

    async def test_a_refusal_is_shown_as_one_short_line(
        self, server: ScriptedServer, make_client: MakeClient
    ) -> None:
        server.script = lambda asked: Said(400, b"several\n\x1blines" + b"x" * 100_000)

        text = str(await refusal(make_client()))

        assert text.startswith("400 Bad Request: several linesxxx")
        assert len(text) < 400


class TestToken:
    async def test_a_token_that_was_replaced_meanwhile_needs_no_person(
        self, server: ScriptedServer, make_client: MakeClient, tmp_path: Path
    ) -> None:
        file = tmp_path / "token"
        file.write_text("first")

        def refuse(asked: Asked) -> Said:
            file.write_text("second")
            return problem(401)

        server.script = refuse

        refused = await refusal(make_client(token=BearerToken(file=file)))

        assert refused.response.has_new_token
        assert not refused.response.needs_operator

    def test_every_new_token_is_told_once(self, tmp_path: Path) -> None:
        file = tmp_path / "token"
        heard: list[str] = []
        token = BearerToken(file=file, on_token=heard.append)

        for content in ("one\n", "one", " two\n"):
            file.write_text(content)
            token.read()

        assert heard == ["one", "two"]

    @pytest.mark.parametrize("text", ["two words", "ü", "a\nb"])
    def test_a_token_that_no_header_can_carry_is_refused_unseen(self, text: str) -> None:
        with pytest.raises(Misconfigured, match=r"^SENTINEL_TOKEN: expected visible ASCII characters alone$"):
            BearerToken(text, name="SENTINEL_TOKEN").read()

    async def test_a_token_that_cannot_be_read_is_told_before_anything_is_sent(
        self, server: ScriptedServer, make_client: MakeClient, tmp_path: Path
    ) -> None:
        client = make_client(token=BearerToken(file=tmp_path / "missing"))

        with pytest.raises(Misconfigured, match=r"token_file .*: No such file"):
            await client.request("GET", "/x", timeout=5 * SECOND)

        assert server.asked == []


class TestUnreachable:
    async def test_a_server_that_is_not_there_is_unavailable(self, make_client: MakeClient) -> None:
        client = make_client(base_url=f"http://127.0.0.1:{free_port()}")

        with pytest.raises(Unavailable) as caught:
            await client.request("GET", "/x", timeout=5 * SECOND)

        assert isinstance(caught.value, Unreachable)
        assert caught.value.reason is UnreachableReason.CONNECTION
        assert caught.value.detail.startswith("connect")
        assert (caught.value.was_sent, caught.value.needs_operator) == (False, False)

    async def test_a_server_that_does_not_answer_in_time_may_have_the_request(
        self, server: ScriptedServer, make_client: MakeClient
    ) -> None:
        released = asyncio.Event()

        async def wait(asked: Asked) -> Said:
            await released.wait()
            return Said()

        server.script = wait

        with pytest.raises(Unreachable, match=r"no complete answer within 0\.05 s") as caught:
            await make_client().request("GET", "/x", timeout=SECOND / 20)
        released.set()

        assert (caught.value.reason, caught.value.was_sent) == (UnreachableReason.TIMEOUT, True)


class TestRetries:
    async def test_a_request_is_sent_once_unless_a_policy_says_otherwise(
        self, server: ScriptedServer, make_client: MakeClient
    ) -> None:
        server.script = refusing(Said(503), times=1)

        assert (await refusal(make_client())).status == 503
        assert len(server.asked) == 1

    @pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
    async def test_a_policy_repeats_what_may_pass(
        self, server: ScriptedServer, make_client: MakeClient, method: str
    ) -> None:
        server.script = refusing(Said(503), times=2)

        response = await make_client(retries=THRICE).request(method, "/x", timeout=5 * SECOND)

        assert response.status == 200
        assert len(server.asked) == 3

    async def test_the_last_refusal_is_the_one_that_is_raised(
        self, server: ScriptedServer, make_client: MakeClient
    ) -> None:
        server.script = lambda asked: Said(500 + len(server.asked))

        assert (await refusal(make_client(retries=THRICE))).status == 503

    @pytest.mark.parametrize(("method", "status"), [("POST", 503), ("PATCH", 503), ("GET", 404)])
    async def test_what_must_not_be_repeated_is_sent_once(
        self, server: ScriptedServer, make_client: MakeClient, method: str, status: int
    ) -> None:
        server.script = lambda asked: Said(status)

        await refusal(make_client(retries=THRICE), method=method)

        assert len(server.asked) == 1

    @pytest.mark.parametrize(("method", "attempts"), [("GET", 3), ("POST", 1)])
    async def test_what_may_have_arrived_is_repeated_where_that_does_no_harm(
        self, server: ScriptedServer, make_client: MakeClient, method: str, attempts: int
    ) -> None:
        released = asyncio.Event()

        async def wait(asked: Asked) -> Said:
            await released.wait()
            return Said()

        server.script = wait

        with pytest.raises(Unreachable):
            await make_client(retries=THRICE).request(method, "/x", timeout=SECOND / 20)
        released.set()

        assert len(server.asked) == attempts

    async def test_what_was_never_sent_is_repeated_whatever_its_method(self, make_client: MakeClient) -> None:
        failures: list[float] = []

        def random() -> float:
            failures.append(0.5)
            return 0.5

        client = make_client(base_url=f"http://127.0.0.1:{free_port()}", retries=THRICE, random=random)

        with pytest.raises(Unreachable):
            await client.request("POST", "/x", timeout=5 * SECOND)

        assert len(failures) == 3

    def test_a_policy_waits_as_the_server_asks_within_reason(self) -> None:
        policy = Retries(attempts=3, backoff=AT_ONCE, max_retry_after=5 * SECOND)

        assert policy.wait(0, random=0.5) == timedelta(0)
        assert policy.wait(1, random=0.5, asked=2 * SECOND) == 2 * SECOND
        assert policy.wait(1, random=0.5, asked=3600 * SECOND) == 5 * SECOND
        assert policy.wait(2, random=0.5, asked=2 * SECOND) is None


class TestUrls:
    @pytest.mark.parametrize(
        "text", ["ftp://host", "host:8080", "", "http://", "http://host?x=1", "http://host/#x", "http://a:b"]
    )
    def test_what_is_no_base_is_refused(self, text: str) -> None:
        with pytest.raises(InvalidUrl):
            base_url(text)

    def test_credentials_are_refused_unseen(self) -> None:
        with pytest.raises(CredentialsInUrl) as caught:
            base_url(f"http://me:{TOKEN}@host")

        assert TOKEN not in str(caught.value)

    @pytest.mark.parametrize(
        ("given", "base"),
        [
            ("http://host", "http://host"),
            ("https://host:8443/a/", "https://host:8443/a"),
            ("http://[::1]", "http://[::1]"),
        ],
    )
    def test_a_base_has_no_slash_at_its_end(self, make_client: MakeClient, given: str, base: str) -> None:
        assert make_client(base_url=given).base_url == base

    def test_a_query_has_what_has_a_value(self) -> None:
        assert (
            query({"labels": "a=b,c in (d)", "order": "", "x": "é&"}) == "?labels=a=b,c%20in%20%28d%29&x=%C3%A9%26"
        )
        assert query({"order": ""}) == query({}) == ""

    def test_a_segment_is_encoded_or_refused(self) -> None:
        assert segment("a b?c#d") == "a%20b%3Fc%23d"
        with pytest.raises(InvalidSegment):
            segment("a/b")
