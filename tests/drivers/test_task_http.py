"""The HTTP client of tasks: the contract of driver and fake, and the retries of the driver."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec
import pytest

from sentinel.core.json import Json
from sentinel.drivers.task_http import MAX_BODY, RETRIES, TaskHttp
from sentinel.ports.task_http import HttpFailure
from sentinel.runtime.backoff import Backoff
from sentinel.testing.task_http import FakeHttp
from tests.contract.task_http import HttpContract, HttpHarness
from tests.support.http.scripted_server import ReceivedRequest, ScriptedResponse, ScriptedServer
from tests.support.loop_time import LoopTime
from tools.services.server import free_port

AT_ONCE = msgspec.structs.replace(RETRIES, backoff=Backoff(initial=timedelta(0), maximum=timedelta(0)))
SECRET = "hunter22"


class FakeHarness(HttpHarness):
    url = "http://dns.internal"
    dead_url = "http://unreachable.internal"

    def __init__(self) -> None:
        self.http: FakeHttp = FakeHttp()

    def respond(self, method: str, path: str, *, status: int, body: bytes = b"", header: str = "") -> None:
        self.http.answer(method, f"{self.url}{path}", status=status, body=body, headers={"X-Response": header})

    def sent(self) -> list[tuple[str, Json, str]]:
        return [
            (each.method, each.json() if each.body else None, each.headers.get("X-Request", ""))
            for each in self.http.requests
        ]


class TestFakeHttp(HttpContract):
    @pytest.fixture
    def harness(self) -> FakeHarness:
        return FakeHarness()


class ServerHarness(HttpHarness):
    def __init__(self) -> None:
        self._responses: dict[tuple[str, str], list[ScriptedResponse]] = {}
        self.server = ScriptedServer(self._script)
        self.http: TaskHttp = TaskHttp(user_agent="test", retries=AT_ONCE)
        self.dead_url = f"http://127.0.0.1:{free_port()}"

    def respond(self, method: str, path: str, *, status: int, body: bytes = b"", header: str = "") -> None:
        self._responses.setdefault((method, path), []).append(
            ScriptedResponse(status, body, {"X-Response": header})
        )

    def sent(self) -> list[tuple[str, Json, str]]:
        return [
            (
                each.method,
                msgspec.json.decode(each.body) if each.body else None,
                each.headers.get("X-Request", ""),
            )
            for each in self.server.requests
        ]

    def _script(self, asked: ReceivedRequest) -> ScriptedResponse:
        responses = self._responses[asked.method, asked.path]
        return responses.pop(0) if len(responses) > 1 else responses[0]


class TestTaskHttp(HttpContract):
    @pytest.fixture
    async def harness(self) -> AsyncIterator[ServerHarness]:
        harness = ServerHarness()
        async with harness.server:
            harness.url = harness.server.url
            yield harness
            await harness.http.close()

    @pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
    @pytest.mark.parametrize("status", [429, 502, 503, 504])
    async def test_an_overloaded_server_is_retried(self, harness: ServerHarness, method: str, status: int) -> None:
        harness.respond(method, "/zone", status=status)
        harness.respond(method, "/zone", status=status)
        harness.respond(method, "/zone", status=200)

        assert (await harness.http.request(method, f"{harness.url}/zone")).status == 200

    async def test_the_last_overload_response_is_returned(self, harness: ServerHarness) -> None:
        harness.respond("GET", "/zone", status=503)

        assert (await harness.http.get(f"{harness.url}/zone")).status == 503
        assert len(harness.server.requests) == 3

    @pytest.mark.parametrize("method", ["POST", "PATCH"])
    async def test_a_request_that_is_not_repeatable_is_sent_once(
        self, harness: ServerHarness, method: str
    ) -> None:
        harness.respond(method, "/zone", status=503)

        assert (await harness.http.request(method, f"{harness.url}/zone")).status == 503
        assert len(harness.server.requests) == 1

    async def test_json_has_its_content_type_unless_another_is_given(self, harness: ServerHarness) -> None:
        harness.respond("POST", "/zone", status=200)

        await harness.http.post(f"{harness.url}/zone", json={})
        await harness.http.post(f"{harness.url}/zone", json={}, headers={"content-type": "application/x"})
        await harness.http.post(f"{harness.url}/zone", data=b"{}")

        types = [
            each.headers.get("Content-Type") or each.headers.get("content-type")
            for each in harness.server.requests
        ]
        assert types == ["application/json", "application/x", "application/octet-stream"]

    async def test_a_query_is_encoded(self, harness: ServerHarness) -> None:
        harness.respond("GET", "/zone?name=a+b%26c", status=200)

        assert (await harness.http.get(f"{harness.url}/zone", params={"name": "a b&c"})).status == 200

    async def test_a_body_that_is_too_large_is_a_failure(self, harness: ServerHarness) -> None:
        harness.respond("GET", "/zone", status=200, body=bytes(MAX_BODY + 1))

        with pytest.raises(HttpFailure, match="got more"):
            await harness.http.get(f"{harness.url}/zone")

    @pytest.mark.parametrize("url", ["nonsense", "http://", "ftp://host/"])
    async def test_an_invalid_url_is_a_failure(self, harness: ServerHarness, url: str) -> None:
        with pytest.raises(HttpFailure, match=f"GET {url}"):
            await harness.http.get(url)

    @pytest.mark.parametrize("url", ["http://127.0.0.1:1/zone", "ftp://host/zone", "http://[::1/zone"])
    async def test_no_failure_shows_a_query(self, harness: ServerHarness, url: str) -> None:
        with pytest.raises(HttpFailure) as caught:
            await harness.http.get(f"{url}?api_key={SECRET}#{SECRET}")

        assert SECRET not in "".join(traceback.format_exception(caught.value))

    @pytest.mark.parametrize("url", ["http://{}@127.0.0.1:1/zone", "ftp://me:{}@host/zone", "http://{}@[::1/zone"])
    async def test_no_failure_shows_a_user(self, harness: ServerHarness, url: str) -> None:
        with pytest.raises(HttpFailure, match="/zone: ") as caught:
            await harness.http.get(url.format(SECRET))

        assert SECRET not in "".join(traceback.format_exception(caught.value))

    async def test_a_closed_client_can_be_closed_again_and_reused(self, harness: ServerHarness) -> None:
        harness.respond("GET", "/zone", status=200)
        await harness.http.get(f"{harness.url}/zone")

        await harness.http.close()
        await harness.http.close()

        assert (await harness.http.get(f"{harness.url}/zone")).status == 200


@pytest.mark.parametrize(("method", "attempts"), [("GET", 3), ("POST", 1)])
async def test_a_timeout_is_retried_if_repeating_is_safe(method: str, attempts: int) -> None:
    released = asyncio.Event()
    arrivals = asyncio.Queue[ReceivedRequest]()

    async def wait(asked: ReceivedRequest) -> ScriptedResponse:
        arrivals.put_nowait(asked)
        await released.wait()
        return ScriptedResponse()

    loop_time, timeout = LoopTime(), timedelta(minutes=10)
    async with ScriptedServer(wait) as server:
        http = TaskHttp(user_agent="test", retries=AT_ONCE)
        requesting = asyncio.create_task(http.request(method, server.url, timeout=timeout))
        for attempt in range(attempts):
            await arrivals.get()
            assert len(server.requests) == attempt + 1
            loop_time.advance(timeout)
        with pytest.raises(HttpFailure, match="no complete response within 600 s"):
            await requesting
        released.set()
        await http.close()

        assert len(server.requests) == attempts
