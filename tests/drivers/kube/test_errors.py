"""How errors of the API server become those of the port."""

from __future__ import annotations

import traceback
from datetime import timedelta

import pytest

from sentinel.drivers.kube.client import KubeClient
from sentinel.ports import kube
from sentinel.ports.kube import Cause, KubeError, KubeUnavailable
from tests.drivers.kube.api_server import ApiServer, Exchange, reply, reply_error
from tests.drivers.kube.conftest import MakeClient
from tests.drivers.kube.kinds import CONFIG, NAMESPACE
from tools.services.server import free_port

TOKEN = "very-secret-token-1"


async def failure(client: KubeClient) -> KubeError | KubeUnavailable:
    """Make a call that fails."""
    with pytest.raises((KubeError, KubeUnavailable)) as caught:
        await client.get(CONFIG, "east", namespace="blue")
    error = caught.value
    assert isinstance(error, KubeError | KubeUnavailable)
    return error


class TestRejections:
    @pytest.mark.parametrize(
        ("status", "reason", "expected"),
        [
            (400, "BadRequest", kube.InvalidObject),
            (401, "Unauthorized", kube.Unauthorized),
            (403, "Forbidden", kube.Forbidden),
            (404, "NotFound", kube.ObjectNotFound),
            (405, "MethodNotAllowed", KubeError),
            (409, "AlreadyExists", kube.AlreadyExists),
            (409, "Conflict", kube.Conflict),
            (410, "Expired", kube.ResourceExpired),
            (413, "RequestEntityTooLarge", KubeError),
            (422, "Invalid", kube.InvalidObject),
        ],
    )
    async def test_a_status_becomes_the_error_of_its_code(
        self, server: ApiServer, client: KubeClient, status: int, reason: str, expected: type[KubeError]
    ) -> None:
        server.script = reply_error(status, reason, 'configs "east":\n it\'s  so')

        error = await failure(client)

        assert type(error) is expected
        assert isinstance(error, KubeError)
        assert (str(error), error.status, error.reason) == ('configs "east": it\'s so', status, reason)
        assert len(server.calls) == 1

    async def test_causes_name_the_fields(self, server: ApiServer, client: KubeClient) -> None:
        causes = [
            {"reason": "FieldValueInvalid", "message": "expected a duration", "field": "spec.pollInterval"},
            {"message": "and this"},
        ]
        server.script = reply_error(422, "Invalid", "is invalid", causes=causes)

        error = await failure(client)

        assert isinstance(error, kube.InvalidObject)
        assert error.causes == (
            Cause("spec.pollInterval", "expected a duration", "FieldValueInvalid"),
            Cause("", "and this"),
        )

    async def test_an_applied_object_of_a_wrong_type_is_invalid(
        self, server: ApiServer, client: KubeClient
    ) -> None:
        message = "failed to create typed patch object (default/a; v1, Kind=ConfigMap): .data.x: expected string"
        server.script = reply_error(500, "", message)

        error = await failure(client)

        assert isinstance(error, kube.InvalidObject)
        assert "expected string" in str(error)

    @pytest.mark.parametrize("details", ["text", {"causes": "text"}, {"causes": [{"field": 5}]}, None])
    async def test_details_of_another_shape_do_not_hide_the_reason(
        self, server: ApiServer, client: KubeClient, details: object
    ) -> None:
        body = {"kind": "Status", "code": 409, "reason": "AlreadyExists", "message": "taken", "details": details}
        server.script = reply(body, status=409)

        error = await failure(client)

        assert isinstance(error, kube.AlreadyExists)
        assert (str(error), error.causes) == ("taken", ())

    async def test_a_kind_that_is_not_installed_is_not_found(self, server: ApiServer, client: KubeClient) -> None:
        server.script = reply(body=b"404 page not found\n", status=404, content_type="text/plain")

        error = await failure(client)

        assert isinstance(error, kube.ObjectNotFound)
        assert (str(error), error.status, error.reason) == ("404 Not Found: 404 page not found", 404, "")

    async def test_a_status_without_a_message_shows_its_reason(
        self, server: ApiServer, client: KubeClient
    ) -> None:
        server.script = reply_error(403, "Forbidden")

        assert str(await failure(client)) == "403 Forbidden"

    async def test_a_long_message_is_shortened(self, server: ApiServer, client: KubeClient) -> None:
        server.script = reply_error(422, "Invalid", "x" * 100_000)

        assert str(await failure(client)) == "x" * 1000 + "…"


class TestUnavailable:
    @pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
    async def test_a_temporary_status_is_unavailable(
        self, server: ApiServer, client: KubeClient, status: int
    ) -> None:
        server.script = reply_error(status, "Timeout", "Too large resource version: 9, current: 5")

        error = await failure(client)

        assert isinstance(error, KubeUnavailable)
        assert str(error) == "Too large resource version: 9, current: 5"
        assert error.retry_after == timedelta(0)
        assert len(server.calls) == 1

    @pytest.mark.parametrize(
        ("header", "detail", "seconds"),
        [("7", None, 7), ("7", 3, 7), ("3", 7, 7), ("", 7, 7), ("", 10**12, 86_400), ("soon", None, 0)],
    )
    async def test_the_longer_of_two_requested_delays_counts(
        self, server: ApiServer, client: KubeClient, header: str, detail: int | None, seconds: int
    ) -> None:
        details = {} if detail is None else {"retryAfterSeconds": detail}
        body = {"kind": "Status", "code": 429, "message": "storage is (re)initializing", "details": details}
        server.script = reply(body, status=429, retry_after=header)

        error = await failure(client)

        assert isinstance(error, KubeUnavailable)
        assert error.retry_after == timedelta(seconds=seconds)

    async def test_a_gateway_without_a_status_is_unavailable(self, server: ApiServer, client: KubeClient) -> None:
        server.script = reply(body=b"no backend", status=503, retry_after="2")

        error = await failure(client)

        assert isinstance(error, KubeUnavailable)
        assert (str(error), error.retry_after.seconds) == ("503 Service Unavailable: no backend", 2)

    async def test_a_redirect_to_a_login_page_is_unavailable(self, server: ApiServer, client: KubeClient) -> None:
        server.script = reply(body=b"", status=302, location="https://login.example/x?key=secret")

        error = await failure(client)

        assert isinstance(error, KubeUnavailable)
        assert str(error) == "302 Found to https://login.example; redirects are not followed"

    async def test_a_refused_connection_names_the_server(self, server: ApiServer, make_client: MakeClient) -> None:
        server.url = f"http://127.0.0.1:{free_port()}"

        error = await failure(make_client())

        assert isinstance(error, KubeUnavailable)
        assert str(error).startswith(f"cannot reach {server.url}: connect")

    async def test_a_server_that_does_not_respond_is_unavailable(
        self, server: ApiServer, make_client: MakeClient
    ) -> None:
        server.script = server.hang

        error = await failure(make_client(timeout=timedelta(milliseconds=50)))

        assert str(error) == f"{server.url}: no complete response within 0.05 s"

    async def test_a_lost_connection_is_unavailable(self, server: ApiServer, client: KubeClient) -> None:
        async def script(exchange: Exchange) -> None:
            await exchange.begin_stream()
            await exchange.send_chunk(b'{"kind"')
            exchange.cut()

        server.script = script

        error = await failure(client)

        assert isinstance(error, KubeUnavailable)
        assert str(error).startswith(f"{server.url}: Response payload is not completed")


class TestSecrets:
    @pytest.mark.parametrize("status", [400, 409, 429, 500])
    async def test_an_echoed_token_shows_nowhere(
        self, server: ApiServer, make_client: MakeClient, status: int
    ) -> None:
        causes = [{"field": TOKEN, "message": f"got {TOKEN}", "reason": "FieldValueInvalid"}]
        server.script = reply_error(status, f"R{TOKEN}", f"not allowed for {TOKEN}", causes=causes)

        error = await failure(make_client(token=TOKEN))

        assert str(error) == "not allowed for ***"
        assert TOKEN not in "".join(traceback.format_exception(error))
        assert TOKEN not in repr(vars(error))

    async def test_an_echoed_token_shows_in_no_malformed_response(
        self, server: ApiServer, make_client: MakeClient
    ) -> None:
        server.script = reply(f"Bearer {TOKEN}", status=403)

        error = await failure(make_client(token=TOKEN))

        assert TOKEN not in "".join(traceback.format_exception(error)) + repr(vars(error))


async def test_a_name_is_not_sent_to_another_place(server: ApiServer, client: KubeClient) -> None:
    await client.get(NAMESPACE, "east?watch=true#x")

    assert server.lines == ["GET /api/v1/namespaces/east%3Fwatch%3Dtrue%23x"]
