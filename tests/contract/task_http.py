"""The contract of every `ports.task_http.HttpClient`."""

from __future__ import annotations

from abc import ABC, abstractmethod

import pytest

from sentinel.core.json import Json
from sentinel.ports.task_http import HttpClient, HttpFailure


class HttpHarness(ABC):
    """A server under the control of the test."""

    http: HttpClient
    url: str
    dead_url: str
    """An address without a listener."""

    @abstractmethod
    def respond(self, method: str, path: str, *, status: int, body: bytes = b"", header: str = "") -> None:
        """Set the next response for this path; several calls are used in turn. `header` is `X-Response`."""

    @abstractmethod
    def sent(self) -> list[tuple[str, Json, str]]:
        """Return method, JSON body and `X-Request` header of each request."""


class HttpContract:
    """For every implementation."""

    @pytest.mark.parametrize("method", ["GET", "PUT", "POST", "PATCH", "DELETE"])
    async def test_each_method_is_sent_as_such(self, harness: HttpHarness, method: str) -> None:
        harness.respond(method, "/zone", status=200, body=b"fine")

        response = await getattr(harness.http, method.lower())(f"{harness.url}/zone")

        assert response.status == 200
        assert response.is_success
        assert response.text() == "fine"
        assert [each[0] for each in harness.sent()] == [method]

    async def test_json_goes_out_and_comes_back(self, harness: HttpHarness) -> None:
        harness.respond("PUT", "/zone", status=202, body=b'{"zone": "z1"}')

        response = await harness.http.put(f"{harness.url}/zone", json={"region": "us-east"})

        assert response.status == 202
        assert response.json() == {"zone": "z1"}
        assert harness.sent()[0][1] == {"region": "us-east"}

    async def test_headers_go_out_and_come_back_in_lower_case(self, harness: HttpHarness) -> None:
        harness.respond("GET", "/zone", status=200, header="yes")

        response = await harness.http.get(f"{harness.url}/zone", headers={"X-Request": "no"})

        assert response.headers["x-response"] == "yes"
        assert harness.sent()[0][2] == "no"

    @pytest.mark.parametrize("status", [302, 400, 404, 409, 500])
    async def test_a_response_of_any_status_is_returned(self, harness: HttpHarness, status: int) -> None:
        harness.respond("PUT", "/zone", status=status, body=b"an error")

        response = await harness.http.put(f"{harness.url}/zone")

        assert response.status == status
        assert not response.is_success
        if status >= 400:
            with pytest.raises(HttpFailure, match=f"{status}: an error"):
                response.raise_for_status()

    async def test_an_invalid_json_body_raises_a_value_error(self, harness: HttpHarness) -> None:
        harness.respond("GET", "/zone", status=200, body=b"<html>")
        response = await harness.http.get(f"{harness.url}/zone")

        assert response.raise_for_status() is response
        with pytest.raises(ValueError, match="JSON"):
            response.json()

    async def test_an_error_shows_the_url_without_its_query(self, harness: HttpHarness) -> None:
        harness.respond("GET", "/zone?api_key=hunter22", status=403, body=b"no")
        response = await harness.http.get(f"{harness.url}/zone?api_key=hunter22")

        with pytest.raises(HttpFailure, match=r"/zone\?…: 403: no") as caught:
            response.raise_for_status()

        assert "hunter22" not in str(caught.value)

    async def test_an_unreachable_server_is_a_failure(self, harness: HttpHarness) -> None:
        with pytest.raises(HttpFailure, match=f"GET {harness.dead_url}"):
            await harness.http.get(harness.dead_url)
