"""Errors of a server: one clear line, and never the token."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
import trustme
from aiohttp import web

from sentinel.cli.client import session
from sentinel.cli.client.connection import ServerConnection
from sentinel.cli.client.get import get
from sentinel.drivers.rest.errors import RequestRejected, ServerError, Unreachable
from sentinel.drivers.rest.url import segment
from tests.cli.client.serving import run
from tests.support.http.loopback import listen
from tools.services.server import free_port

TOKEN = "snt_very-secret"

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve with this handler; yields the URL."""
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.1)
    url = await listen(runner, tls=tls)
    try:
        yield url
    finally:
        await runner.cleanup()


def respond(status: int, body: str, content_type: str = "application/json", **headers: str) -> Handler:
    async def handle(request: web.BaseRequest) -> web.Response:
        return web.Response(status=status, text=body, content_type=content_type, headers=headers)

    return handle


async def test_an_unreachable_server_is_named_with_the_options_to_check() -> None:
    url = f"http://127.0.0.1:{free_port()}"

    code, out, err = await run(get, "clusters", "--server", url)

    assert (code, out) == (1, "")
    assert err.startswith(f"cannot reach {url}: ")
    assert "--server, SENTINEL_SERVER" in err
    assert len(err.splitlines()) == 1


async def test_the_token_is_sent_but_never_printed() -> None:
    seen: list[str] = []

    async def echo(request: web.BaseRequest) -> web.Response:
        seen.append(request.headers["Authorization"])
        return web.Response(status=400, text=f"bad header: {request.headers['Authorization']}")

    async with serving(echo) as url:
        code, out, err = await run(get, "clusters", "--server", url, environ={"SENTINEL_TOKEN": TOKEN})

    assert code == 1
    assert seen[0] == f"Bearer {TOKEN}"
    assert TOKEN not in out + err
    assert "***" in err


@pytest.mark.parametrize("status", [400, 500])
async def test_a_secret_in_an_error_response_is_not_printed(status: int) -> None:
    body = '{"detail": "connecting to postgresql://u:swordfish@db failed, password=swordfish"}'

    async with serving(respond(status, body, "application/problem+json")) as url:
        code, out, err = await run(get, "clusters", "--server", url)

    assert code == 1
    assert "connecting to postgresql" in err
    assert "swordfish" not in out + err


def test_a_failure_is_printed_without_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    code = session.fail("cannot reach http://u:swordfish@fleet: rejected {'password': 'swordfish'}")

    assert (code, capsys.readouterr().err) == (
        1,
        "cannot reach http://u:***@fleet: rejected {'password': '***'}\n",
    )


async def test_a_token_invalid_in_a_header_is_refused_and_not_printed() -> None:
    code, _, err = await run(get, "clusters", environ={"SENTINEL_TOKEN": "two\nlines"})

    assert code == 2
    assert "SENTINEL_TOKEN: expected only visible ASCII" in err
    assert "lines" not in err


async def test_redirects_are_not_followed() -> None:
    async with serving(respond(302, "", Location="http://elsewhere.invalid/")) as url:
        code, _, err = await run(get, "clusters", "--server", url)

    assert code == 1
    assert "redirects are not followed" in err


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("<html><body>It works!</body></html>", "text/html"),
        ('{"items": [{"id": 1}], "total": 1, "next": null}', "application/json"),
        ('{"hello": "world"}', "application/json"),
        ("", "application/json"),
    ],
)
async def test_a_response_of_another_kind_of_server_is_refused(body: str, content_type: str) -> None:
    async with serving(respond(200, body, content_type)) as url:
        code, out, err = await run(get, "clusters", "--server", url)

    assert (code, out) == (1, "")
    assert err.startswith("expected a response of a fleet API, got something else: ")


@pytest.mark.parametrize(
    ("status", "body", "content_type", "words"),
    [
        (503, '{"detail": "not now"}', "application/problem+json", "not now"),
        (500, '{"reason": "of its own"}', "application/json", "of its own"),
        (404, "<html>\n<body>404</body>", "text/html", "Not Found"),
        (400, "several\nlines\x1b[2J", "text/plain", "several lines\\x1b[2J"),
        (400, '{"detail": "bad", "errors": [{"field": "a", "message": "b"}]}', "application/json", "bad: a: b"),
        (400, "x" * 5000, "text/plain", "xxx…"),
    ],
)
async def test_any_error_response_is_one_line(status: int, body: str, content_type: str, words: str) -> None:
    async with serving(respond(status, body, content_type)) as url, ServerConnection(server=url) as connection:
        with pytest.raises(RequestRejected) as rejected:
            await connection.request("GET", "/x")

    assert f"({status})" in str(rejected.value)
    assert words in str(rejected.value)
    assert str(rejected.value).isprintable()
    assert rejected.value.is_retryable is (status >= 500)


async def test_a_request_without_a_response_times_out() -> None:
    never = asyncio.Event()

    async def hang(request: web.BaseRequest) -> web.Response:
        await never.wait()
        return web.Response()

    async with (
        serving(hang) as url,
        ServerConnection(server=url, timeout=timedelta(milliseconds=50)) as connection,
    ):
        with pytest.raises(Unreachable, match=r"no complete response within 0\.05s"):
            await connection.request("GET", "/x")


async def test_a_certificate_needs_its_ca_file(tmp_path: Path) -> None:
    authority = trustme.CA()
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)

    async with serving(respond(200, "{}"), tls=tls) as url:
        async with ServerConnection(server=url) as without_ca:
            with pytest.raises(Unreachable, match="--ca-file"):
                await without_ca.request("GET", "/x")
        async with ServerConnection(server=url, ca_file=ca_file) as with_ca:
            response = await with_ca.request("GET", "/x")

    assert response.status == 200


def test_a_ca_file_without_certificates_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("nothing")

    with pytest.raises(ValueError, match="expected certificates in PEM"):
        ServerConnection(server="https://127.0.0.1", ca_file=file)


@pytest.mark.parametrize("text", ["", ".", "..", "a/b", "../../secrets", "a\nb"])
def test_a_segment_that_would_change_the_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected one segment of a URL"):
        segment(text)


async def test_an_id_is_quoted_in_the_path() -> None:
    paths: list[str] = []

    async def record(request: web.BaseRequest) -> web.Response:
        paths.append(request.raw_path)
        return web.Response(status=404)

    async with serving(record) as url:
        code, _, _ = await run(get, "clusters", "..secrets?x=1#y", "--server", url)

    assert code == 1
    assert paths[0] == "/api/hyperfleet/v1/clusters/..secrets%3Fx%3D1%23y"


def test_only_unreachable_servers_are_worth_a_retry() -> None:
    assert not ServerError.is_retryable
    assert Unreachable.is_retryable


def logged_requests(err: str) -> list[dict[str, object]]:
    """Return the requests in the log. The test's own server writes to the same log."""
    lines = (line for line in err.splitlines() if line.startswith("{"))
    records = (msgspec.json.decode(line, type=dict[str, object]) for line in lines)
    return [record for record in records if record["event"] == "request.done"]


async def test_at_debug_every_request_is_logged_without_the_token() -> None:
    async with serving(respond(404, '{"title": "nothing here"}')) as url:
        code, out, err = await run(
            *(get, "clusters", "-l", "a=b", "--server", url, "--log-level", "debug", "--log-format", "json"),
            environ={"SENTINEL_TOKEN": TOKEN},
        )

    (request,) = logged_requests(err)
    assert (code, out) == (1, "")
    assert "refused (404): nothing here" in err.splitlines()
    assert (request["level"], request["method"], request["status"]) == ("debug", "GET", 404)
    assert str(request["url"]).startswith(f"{url}/api/hyperfleet/v1/clusters?size=1000&labels=a=b&")
    assert isinstance(request["seconds"], float)
    assert TOKEN not in err


async def test_a_request_without_a_response_is_logged_without_a_status() -> None:
    url = f"http://127.0.0.1:{free_port()}"

    _, _, err = await run(get, "clusters", "--server", url, environ={"SENTINEL_LOG__LEVEL": "debug"})

    (request,) = logged_requests(err)
    assert request["status"] is None


async def test_requests_are_logged_only_at_debug() -> None:
    async with serving(respond(404, '{"title": "nothing here"}')) as url:
        _, _, err = await run(get, "clusters", "--server", url, "--log-level", "info")

    assert err == "refused (404): nothing here\n"


async def test_an_unknown_log_level_in_the_environment_is_wrong_usage() -> None:
    code, _, err = await run(get, "clusters", environ={"SENTINEL_LOG__LEVEL": "loud"})

    assert code == 2
    assert "log.level: expected" in err
    assert "SENTINEL_LOG__LEVEL" in err
