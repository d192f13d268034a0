"""The REST client through a real proxy."""

from __future__ import annotations

import base64
import ssl
import traceback
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import trustme
from aiohttp import web

from sentinel.cli.client.connection import ServerConnection
from sentinel.cli.client.get import get
from sentinel.cli.pulse.explain import explain
from sentinel.cli.wiring.hyperfleet_api import build_api_client
from sentinel.cli.wiring.pulse import build_fleet
from sentinel.drivers.rest.client import RestClient
from sentinel.drivers.rest.errors import RequestRejected, ServerError, Unreachable, UnreachableReason
from sentinel.drivers.rest.proxies import Proxies
from sentinel.drivers.rest.token import BearerToken
from sentinel.pulse.definition import PulseApiSettings
from sentinel.pulse.settings import PulseSettings
from sentinel.runtime.settings.hyperfleet_api import ApiSettings
from tests.cli.client.serving import run
from tests.cli.pulse.inspection_commands import code_of, invoke
from tests.drivers.rest.http_proxy import HttpProxy
from tests.support.closing import CloseLater
from tests.support.http.loopback import listen
from tests.support.http.scripted_server import ScriptedResponse, ScriptedServer, document
from tools.services.server import free_port

TOKEN = "snt_very-secret"
PASSWORD = "hunter:22"
CREDENTIALS = base64.b64encode(f"me:{PASSWORD}".encode()).decode()
WITH_CREDENTIALS = "me:hunter%3A22@"
NAME = "fleet.example"
"""A name that does not resolve, so that only the proxy can reach it."""
SECOND = timedelta(seconds=1)

MakeClient = Callable[..., RestClient]


@pytest.fixture
def make_client(close_later: CloseLater) -> MakeClient:
    def make(
        url: str, environ: Mapping[str, str], *, token: str = TOKEN, ca_file: Path | None = None
    ) -> RestClient:
        return close_later(
            RestClient(
                base_url=url,
                user_agent="test",
                token=BearerToken(token),
                ca_file=ca_file,
                proxies=Proxies(environ),
            )
        )

    return make


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer(lambda request: ScriptedResponse(200, b"{}")) as running:
        yield running


@pytest.fixture
async def proxy(server: ScriptedServer) -> AsyncIterator[HttpProxy]:
    async with HttpProxy({f"{NAME}:80": server.url}) as running:
        yield running


@asynccontextmanager
async def tls_server(tmp_path: Path, seen: list[dict[str, str]]) -> AsyncIterator[tuple[str, Path]]:
    """A TLS server with a certificate for the name; yields its URL and the CA file."""

    async def respond(request: web.BaseRequest) -> web.Response:
        seen.append(dict(request.headers))
        return web.Response(text="{}")

    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(NAME).configure_cert(tls)
    runner = web.ServerRunner(web.Server(respond), shutdown_timeout=0.1)
    url = await listen(runner, tls=tls)
    try:
        yield url, tmp_path / "ca.pem"
    finally:
        await runner.cleanup()


def full_text(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error)


async def test_a_request_goes_through_the_proxy(
    make_client: MakeClient, server: ScriptedServer, proxy: HttpProxy
) -> None:
    client = make_client(f"http://{NAME}/prefix", {"HTTP_PROXY": f"http://{proxy.address}"})

    response = await client.request("GET", "/clusters?size=1", timeout=5 * SECOND)

    assert response.status == 200
    assert [(each.method, each.target) for each in proxy.proxied] == [
        ("GET", f"http://{NAME}/prefix/clusters?size=1")
    ]
    assert server.paths == ["GET /prefix/clusters?size=1"]
    assert server.requests[0].headers["Authorization"] == f"Bearer {TOKEN}"


async def test_a_loopback_address_is_never_requested_from_the_proxy(
    make_client: MakeClient, server: ScriptedServer, proxy: HttpProxy
) -> None:
    client = make_client(server.url, {"HTTP_PROXY": f"http://{proxy.address}", "NO_PROXY": ""})

    await client.request("GET", "/x", timeout=5 * SECOND)

    assert server.paths == ["GET /x"]
    assert proxy.proxied == []


async def test_a_host_in_no_proxy_is_never_requested_from_the_proxy(
    make_client: MakeClient, proxy: HttpProxy
) -> None:
    environ = {"HTTP_PROXY": f"http://{proxy.address}", "NO_PROXY": "192.0.2.0/24"}

    with pytest.raises(Unreachable):  # a reserved address
        await make_client("http://192.0.2.1:9", environ).request("GET", "/x", timeout=SECOND / 20)

    assert proxy.proxied == []


async def test_tls_is_tunnelled_and_hides_the_token_from_the_proxy(
    make_client: MakeClient, tmp_path: Path
) -> None:
    seen: list[dict[str, str]] = []
    async with tls_server(tmp_path, seen) as (url, ca_file), HttpProxy({f"{NAME}:443": url}) as proxy:
        environ = {"HTTPS_PROXY": f"http://{WITH_CREDENTIALS}{proxy.address}"}
        client = make_client(f"https://{NAME}", environ, ca_file=ca_file)

        for _ in range(2):
            assert (await client.request("GET", "/x", timeout=5 * SECOND)).status == 200

    [tunnel] = proxy.proxied
    assert (tunnel.method, tunnel.target) == ("CONNECT", f"{NAME}:443")
    assert tunnel.headers["proxy-authorization"] == f"Basic {CREDENTIALS}"
    assert TOKEN not in repr(tunnel)
    assert [each["Authorization"] for each in seen] == [f"Bearer {TOKEN}"] * 2
    assert all("Proxy-Authorization" not in each for each in seen)


async def test_certificates_are_verified_through_the_tunnel(make_client: MakeClient, tmp_path: Path) -> None:
    async with tls_server(tmp_path, []) as (url, _), HttpProxy({f"{NAME}:443": url}) as proxy:
        client = make_client(f"https://{NAME}", {"HTTPS_PROXY": f"http://{proxy.address}"})

        with pytest.raises(Unreachable) as caught:
            await client.request("GET", "/x", timeout=5 * SECOND)

    assert caught.value.reason is UnreachableReason.CERTIFICATE


async def test_credentials_are_sent_to_the_proxy_with_every_request(
    make_client: MakeClient, server: ScriptedServer, proxy: HttpProxy
) -> None:
    client = make_client(f"http://{NAME}", {"HTTP_PROXY": f"http://{WITH_CREDENTIALS}{proxy.address}"})

    await client.request("GET", "/x", timeout=5 * SECOND)

    assert proxy.proxied[0].headers["proxy-authorization"] == f"Basic {CREDENTIALS}"
    assert len(server.requests) == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_rejecting_proxy_is_named_without_credentials(make_client: MakeClient, scheme: str) -> None:
    echo = f"you are me:{PASSWORD}, by Basic {CREDENTIALS}, {TOKEN}"
    rejection = f"HTTP/1.1 407 {echo}\r\nContent-Type: text/plain\r\nContent-Length: {len(echo)}\r\n\r\n{echo}"
    async with HttpProxy(rejection=rejection.encode()) as proxy:
        environ = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), f"http://{WITH_CREDENTIALS}{proxy.address}")
        with pytest.raises(ServerError) as caught:
            await make_client(f"{scheme}://{NAME}", environ).request("GET", "/x", timeout=5 * SECOND)

    error = caught.value
    assert "407" in str(error)
    text = full_text(error) + (error.response.explanation if isinstance(error, RequestRejected) else "")
    assert not any(secret in text for secret in (PASSWORD, "hunter%3A22", CREDENTIALS, TOKEN))
    if isinstance(error, Unreachable):
        assert str(error).startswith(f"the proxy http://{proxy.address} (HTTPS_PROXY) refuses: 407 you are me:***")
        assert (error.reason, error.needs_operator) == (UnreachableReason.PROXY, True)
    else:
        assert isinstance(error, RequestRejected)
        assert error.response.needs_operator


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_an_unreachable_proxy_is_named_without_credentials(make_client: MakeClient, scheme: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    environ = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), f"http://{WITH_CREDENTIALS}{address}")

    with pytest.raises(Unreachable) as caught:
        await make_client(f"{scheme}://{NAME}", environ).request("GET", "/x", timeout=5 * SECOND)

    assert str(caught.value).startswith(f"cannot reach the proxy http://{address} ({scheme.upper()}_PROXY): ")
    assert caught.value.reason is UnreachableReason.PROXY
    assert "hunter" not in full_text(caught.value)


async def test_credentials_from_netrc_are_never_sent(
    make_client: MakeClient,
    server: ScriptedServer,
    proxy: HttpProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login me password {PASSWORD}\nmachine {NAME} login me password x\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    environ = {"HTTP_PROXY": f"http://{proxy.address}"}

    await make_client(server.url, environ, token="").request("GET", "/direct", timeout=5 * SECOND)
    await make_client(f"http://{NAME}", environ, token="").request("GET", "/proxied", timeout=5 * SECOND)

    assert server.paths == ["GET /direct", "GET /proxied"]
    assert all("Authorization" not in each.headers for each in server.requests)
    assert "proxy-authorization" not in proxy.proxied[0].headers


async def test_a_command_uses_the_proxy_of_its_environment(server: ScriptedServer, proxy: HttpProxy) -> None:
    environ = {"HTTP_PROXY": f"http://{WITH_CREDENTIALS}{proxy.address}", "SENTINEL_TOKEN": TOKEN}

    await run(get, "clusters", "--server", f"http://{NAME}", environ=environ)
    code, _, err = await run(get, "clusters", "--server", server.url, environ=environ)

    assert [each.target.partition("?")[0] for each in proxy.proxied] == [
        f"http://{NAME}/api/hyperfleet/v1/clusters"
    ]
    assert len(server.requests) == 2
    assert (code, "hunter" in err) == (1, False)


async def test_a_command_names_the_unreachable_proxy() -> None:
    address = f"127.0.0.1:{free_port()}"

    code, _, err = await run(
        get, "clusters", "--server", f"http://{NAME}", environ={"HTTP_PROXY": f"http://me:hunter22@{address}"}
    )

    assert code == 1
    assert err.startswith(f"http://{NAME}: cannot reach the proxy http://{address} (HTTP_PROXY): ")
    assert "hunter22" not in err


async def test_a_pulse_uses_the_proxy_of_its_environment(
    server: ScriptedServer, proxy: HttpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.address}")
    server.script = lambda request: document({"page": 1, "size": 0, "total": 0, "items": []})
    settings = PulseSettings(resource_type="clusters", hyperfleet_api=PulseApiSettings(endpoint=f"http://{NAME}"))
    fleet = build_fleet(settings.definition)

    pages = [page async for page in fleet.walk()]
    await fleet.close()

    assert [page.resources for page in pages] == [[]]
    assert proxy.proxied[0].target.startswith(f"http://{NAME}/api/hyperfleet/v1/clusters?")


async def test_an_environment_may_be_passed_instead_of_the_process_s(
    proxy: HttpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.address}")
    api = ApiSettings(endpoint="http://192.0.2.1:9")  # a reserved address

    client = build_api_client(api, user_agent="test", keep_alive=SECOND, on_token=lambda token: None, environ={})
    with pytest.raises(Unreachable):
        await client.request("GET", "/x", timeout=SECOND / 20)
    await client.close()
    async with ServerConnection(server=api.endpoint, environ={}, timeout=SECOND / 20) as connection:
        with pytest.raises(Unreachable):
            await connection.request("GET", "/x")

    assert proxy.proxied == []


async def test_a_command_refuses_an_invalid_proxy() -> None:
    environ = {"HTTP_PROXY": "socks5://me:hunter22@proxy:1080"}

    code, _, err = await run(get, "clusters", "--server", f"http://{NAME}", environ=environ)

    assert (code, err) == (2, "HTTP_PROXY: expected a proxy such as http://proxy.example:3128")


async def test_explain_refuses_an_invalid_proxy(tmp_path: Path) -> None:
    config = tmp_path / "sentinel.yaml"
    config.write_text(f"resource_type: clusters\nhyperfleet_api: {{endpoint: 'https://{NAME}'}}\n")

    result = await invoke(explain, "--config", config, environ={"HTTPS_PROXY": "socks5://me:hunter22@proxy:1080"})

    assert code_of(result) == 2
    assert result.stderr == "HTTPS_PROXY: expected a proxy such as http://proxy.example:3128\n"
