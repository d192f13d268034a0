"""Listeners: TLS, malformed requests, draining, and the pid file."""

from __future__ import annotations

import asyncio
import os
import ssl
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
import trustme

from sentinel.ports.errors import Misconfigured
from sentinel.proxy.pid_file import PidFile
from tests.proxy.running_proxy import RunningProxy, client, forward_all, running_proxy
from tests.support.http.scripted_server import ReceivedRequest, ScriptedResponse, ScriptedServer
from tests.support.http.stream_server import BytesServer

HEALTH = 'routes { route "h" { matches { path "/" }; builtin-handler "health" } }\n'


class CertificateFiles:
    """A certificate on disk that can be renewed."""

    def __init__(self, directory: Path, authority: trustme.CA) -> None:
        self._authority = authority
        self.certificate, self.key, self.ca = directory / "cert.pem", directory / "key.pem", directory / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        self.renew()

    def renew(self) -> None:
        issued = self._authority.issue_cert("127.0.0.1")
        issued.cert_chain_pems[0].write_to_path(str(self.certificate))
        issued.private_key_pem.write_to_path(str(self.key))

    def listener(self, more: str = "") -> str:
        tls = f'tls {{ cert-file "{self.certificate}"; key-file "{self.key}"; {more} }}'
        return f'listeners {{ listener "web" {{ address "127.0.0.1:0"; protocol "https"; {tls} }} }}\n'


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    return CertificateFiles(tmp_path, trustme.CA())


async def presented(proxy: RunningProxy, context: ssl.SSLContext) -> bytes:
    """Return the certificate that a new connection gets."""
    host, _, port = proxy.address.partition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return found


async def until_refused(proxy: RunningProxy) -> None:
    """Return when the listener accepts no more connections."""
    host, _, port = proxy.address.partition(":")
    async with asyncio.timeout(5):
        while True:
            try:
                _, writer = await asyncio.open_connection(host, int(port))
            except ConnectionRefusedError:
                return
            writer.close()
            await writer.wait_closed()


async def test_a_tls_listener_serves_and_says_https_to_the_target(files: CertificateFiles) -> None:
    context = ssl.create_default_context(cafile=files.ca)
    async with (
        ScriptedServer(lambda request: ScriptedResponse()) as backend,
        running_proxy(forward_all(backend.url), listeners=files.listener()) as proxy,
        client() as http,
    ):
        response = await http.get(f"https://{proxy.address}/", ssl=context)

    assert response.status == 200
    assert backend.requests[0].headers["X-Forwarded-Proto"] == "https"


async def test_a_reload_reads_a_renewed_certificate(files: CertificateFiles) -> None:
    context = ssl.create_default_context(cafile=files.ca)
    async with running_proxy("", listeners=files.listener()) as proxy:
        before = await presented(proxy, context)
        files.renew()
        await proxy.reload("")
        after = await presented(proxy, context)

    assert before != after


async def test_client_certificates_can_be_required(files: CertificateFiles) -> None:
    listener = files.listener(f'ca-file "{files.ca}"; client-auth #true')
    without = ssl.create_default_context(cafile=files.ca)
    having = ssl.create_default_context(cafile=files.ca)
    having.load_cert_chain(files.certificate, files.key)
    async with running_proxy(HEALTH, listeners=listener) as proxy, client() as http:
        accepted = await http.get(f"https://{proxy.address}/", ssl=having)
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await http.get(f"https://{proxy.address}/", ssl=without)

    assert accepted.status == 200


async def test_an_upstream_with_tls_is_verified(files: CertificateFiles) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(files.certificate, files.key)
    trusting, careless = f'tls {{ ca-cert "{files.ca}" }}', "tls { insecure-skip-verify #true }"
    statuses = []
    async with (
        BytesServer(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", tls=tls) as backend,
        running_proxy(HEALTH) as proxy,
        client() as http,
    ):
        for upstream in (trusting, careless, "tls"):
            await proxy.reload(forward_all(backend.address, more=upstream))
            statuses.append((await http.get(proxy.url)).status)

    assert statuses == [204, 204, 502]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"400"),
        (b"CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\nConnection: close\r\n\r\n", b"405"),
        (b"GET http://x/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"200"),
    ],
)
async def test_unusual_requests_get_a_status_and_do_no_harm(sent: bytes, status: bytes) -> None:
    text = 'routes { route "h" { matches { path-prefix "/" }; builtin-handler "health" }; route "all" }\n'
    async with running_proxy(text) as proxy, client() as http:
        host, _, port = proxy.address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        response = await reader.read()
        writer.close()

        assert response.split(b" ", 2)[1] == status
        assert (await http.get(proxy.url)).status == 200


async def test_draining_ends_requests_in_progress_and_refuses_new_ones() -> None:
    arrived, released = asyncio.Event(), asyncio.Event()

    async def slow(request: ReceivedRequest) -> ScriptedResponse:
        arrived.set()
        await released.wait()
        return ScriptedResponse(200, b"done")

    async with (
        ScriptedServer(slow) as backend,
        running_proxy(forward_all(backend.url)) as proxy,
        client() as http,
    ):
        in_progress = asyncio.create_task(http.get(proxy.url))
        await arrived.wait()

        proxy.stopping.request()
        await until_refused(proxy)
        released.set()
        response = await in_progress
        body = await response.read()

    assert (response.status, body) == (200, b"done")


async def test_a_client_that_goes_away_takes_its_request_with_it() -> None:
    arrived = asyncio.Event()
    forever = asyncio.Event()

    async def slow(request: ReceivedRequest) -> ScriptedResponse:
        arrived.set()
        await forever.wait()
        return ScriptedResponse()

    async with ScriptedServer(slow) as backend, running_proxy(forward_all(backend.url)) as proxy:
        host, _, port = proxy.address.partition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await arrived.wait()
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()
        async with asyncio.timeout(5):
            while not proxy.metric("zentinel_requests_total", status="499"):  # noqa: ASYNC110  # it has no event
                await asyncio.sleep(0)
        active = proxy.metric("zentinel_active_requests")
        forever.set()

    assert active == 0


def test_the_pid_file_names_this_process_until_another_replaces_it(tmp_path: Path) -> None:
    path = tmp_path / "proxy.pid"
    pid_file = PidFile(path)

    pid_file.write()
    written = path.read_text()
    path.write_text("1\n")
    pid_file.remove()

    assert written == f"{os.getpid()}\n"
    assert path.read_text() == "1\n"
    pid_file.write()
    pid_file.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_pid_file_that_cannot_be_written_is_a_misconfiguration(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"pid-file .*: No such file or directory"):
        PidFile(tmp_path / "none" / "proxy.pid").write()
