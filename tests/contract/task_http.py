"""What every `ports.task_http.HttpClient` promises."""

from __future__ import annotations

from abc import ABC, abstractmethod

import pytest

from sentinel.core.json import Json
from sentinel.ports.task_http import HttpClient, HttpFailure


class HttpHarness(ABC):
    """The other side."""

    http: HttpClient
    url: str
    """Where it listens."""
    dead_url: str
    """Where nobody does."""

    @abstractmethod
    def answer(self, method: str, path: str, *, status: int, body: bytes = b"", header: str = "") -> None:
        """What requests for this path get; told several times, one after the other. `header` is `X-Said`."""

    @abstractmethod
    def sent(self) -> list[tuple[str, Json, str]]:
        """Method, JSON body and `X-Sent` header of each request so far."""


class HttpContract:
    """For every implementation."""

    @pytest.mark.parametrize("method", ["GET", "PUT", "POST", "PATCH", "DELETE"])
    async def test_each_method_is_sent_as_such(self, harness: HttpHarness, method: str) -> None:
        harness.answer(method, "/zone", status=200, body=b"fine")

        response = await getattr(harness.http, method.lower())(f"{harness.url}/zone")

        assert response.status == 200
        assert response.is_success
        assert response.text() == "fine"
        assert [each[0] for each in harness.sent()] == [method]

    async def test_json_goes_out_and_comes_back(self, harness: HttpHarness) -> None:
        harness.answer("PUT", "/zone", status=202, body=b'{"zone": "z1"}')

        response = await harness.http.put(f"{harness.url}/zone", json={"region": "us-east"})

        assert response.status == 202
        assert response.json() == {"zone": "z1"}
        assert harness.sent()[0][1] == {"region": "us-east"}

    async def test_headers_go_out_and_come_back_in_lower_case(self, harness: HttpHarness) -> None:
        harness.answer("GET", "/zone", status=200, header="yes")

        response = await harness.http.get(f"{harness.url}/zone", headers={"X-Sent": "no"})

        assert response.headers["x-said"] == "yes"
        assert harness.sent()[0][2] == "no"

    @pytest.mark.parametrize("status", [302, 400, 404, 409, 500])
    async def test_an_answer_is_an_answer_whatever_its_status(self, harness: HttpHarness, status: int) -> None:
        harness.answer("PUT", "/zone", status=status, body=b"so it is")

        response = await harness.http.put(f"{harness.url}/zone")

        assert response.status == status
        assert not response.is_success
        if status >= 400:
            with pytest.raises(HttpFailure, match=f"{status}: so it is"):
                response.raise_for_status()

    async def test_a_body_that_is_no_json_is_a_value_error(self, harness: HttpHarness) -> None:
        harness.answer("GET", "/zone", status=200, body=b"<html>")
        response = await harness.http.get(f"{harness.url}/zone")

        assert response.raise_for_status() is response
        with pytest.raises(ValueError, match="JSON"):
            response.json()

    async def test_a_refusal_is_quoted_without_the_query_it_was_asked_with(self, harness: HttpHarness) -> None:
        harness.answer("GET", "/zone?api_key=hunter22", status=403, body=b"no")
        response = await harness.http.get(f"{harness.url}/zone?api_key=hunter22")

        with pytest.raises(HttpFailure, match=r"/zone\?…: 403: no") as caught:
            response.raise_for_status()

        assert "hunter22" not in str(caught.value)

    async def test_where_nobody_answers_it_fails(self, harness: HttpHarness) -> None:
        with pytest.raises(HttpFailure, match=f"GET {harness.dead_url}"):
            await harness.http.get(harness.dead_url)
