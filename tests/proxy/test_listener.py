"""Listeners: TLS, malformed requests, draining, and the pid file."""

from __future__ import annotations

import asyncio
import os
import ssl
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import aiohttp
import pytest

from sentinel.ports.errors import Misconfigured
from sentinel.proxy.pid_file import PidFile
from tests.proxy.certificate_files import CertificateFiles
from tests.proxy.running_proxy import RunningProxy, client, forward_all, running_proxy
from tests.support.http.scripted_server import ReceivedRequest, ScriptedResponse, ScriptedServer
from tests.support.http.stream_server import BytesServer

HEALTH = 'routes { route "h" { matches { path "/" }; builtin-handler "health" } }\n'


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    return CertificateFiles(tmp_path)


async def presented(proxy: RunningProxy, context: ssl.SSLContext) -> bytes:
    """Return the certificate that a new connection gets."""
    host, _, port = proxy.address.partition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return found


Connection: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def close(*connections: Connection) -> None:
    for _, writer in connections:
        writer.close()


async def until_open(proxy: RunningProxy, count: int) -> None:
    """Return when the proxy has accepted so many connections."""
    async with asyncio.timeout(20):
        while proxy.proxy.listeners[0].open_connections < count:  # noqa: ASYNC110  # it has no event
            await asyncio.sleep(0)


async def until_refused(proxy: RunningProxy) -> None:
    """Return when the listener accepts no more connections."""
    host, _, port = proxy.address.partition(":")
    async with asyncio.timeout(60):
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


async def test_a_listener_whose_certificate_we_cannot_obtain_is_not_opened(
    caplog: pytest.LogCaptureFixture,
) -> None:
    acme = 'protocol "https"; tls { acme { email "a@b.test"; domains "b.test" } }'
    both = f'listener "acme" {{ address "127.0.0.1:0"; {acme} }}\nlistener "web" {{ address "127.0.0.1:0" }}'
    listeners = f"listeners {{ {both} }}\n"
    async with running_proxy(HEALTH, listeners=listeners) as proxy, client() as http:
        response = await http.get(proxy.url)
        found = [each.listener.id for each in proxy.proxy.listeners]
        await proxy.reload(HEALTH)

    assert (response.status, found) == (200, ["web"])
    (warning,) = [record for record in caplog.records if record.message == "proxy.listener_skipped"]
    assert getattr(warning, "fields")["listener"] == "acme"  # noqa: B009  # mypy does not know it


async def test_without_keep_alive_a_response_says_that_the_connection_ends() -> None:
    listeners = 'listeners { listener "web" { address "127.0.0.1:0"; keepalive-timeout-secs 0 } }\n'
    async with running_proxy(HEALTH, listeners=listeners) as proxy:
        connection = await opened(proxy)
        head = await request(connection)
        rest = await connection[0].read()

    assert b"Connection: close" in head
    assert rest.startswith(b"{")
    close(connection)


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


LONG_DRAIN = "system { graceful-shutdown-timeout-secs 3600 }\n"
"""Longer than any test may take: what waits for the end of it fails."""


async def opened(proxy: RunningProxy, *, tls: ssl.SSLContext | None = None) -> Connection:
    """Open a connection and say nothing."""
    host, _, port = proxy.address.partition(":")
    return await asyncio.open_connection(host, int(port), ssl=tls)


async def request(connection: Connection, sent: bytes = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") -> bytes:
    """Send a request and return the head of the response. Its body stays unread."""
    reader, writer = connection
    writer.write(sent)
    return await reader.readuntil(b"\r\n\r\n")


async def until_draining(proxy: RunningProxy) -> None:
    proxy.stopping.request()
    await until_refused(proxy)


async def test_draining_closes_idle_connections_at_once() -> None:
    async with running_proxy(LONG_DRAIN + HEALTH) as proxy:
        used, silent = await opened(proxy), await opened(proxy)
        head = await request(used)
        await until_open(proxy, 2)

        await until_draining(proxy)
        rest = [await reader.read() for reader, _ in (used, silent)]

    assert b"Connection: close" not in head
    assert (rest[0][:1], rest[1]) == (b"{", b"")
    close(used, silent)


async def test_draining_waits_for_no_goodbye_of_an_idle_tls_client(files: CertificateFiles) -> None:
    context = ssl.create_default_context(cafile=files.ca)
    async with running_proxy(LONG_DRAIN + HEALTH, listeners=files.listener()) as proxy:
        idle = await opened(proxy, tls=context)
        await request(idle)
        idle[1].transport.pause_reading()  # type: ignore[attr-defined]  # every transport of a socket has it

        await until_draining(proxy)

    idle[1].transport.abort()


async def test_draining_lets_a_request_that_has_begun_arrive() -> None:
    async with running_proxy(LONG_DRAIN + HEALTH) as proxy:
        begun, other = await opened(proxy), await opened(proxy)
        begun[1].write(b"GET / HTTP/1.1\r\n")
        await request(other)  # what was sent before it has arrived

        await until_draining(proxy)
        begun[1].write(b"Host: x\r\n\r\n")
        response = await begun[0].read()

    assert response.startswith(b"HTTP/1.1 200 OK")
    assert b"Connection: close" in response
    close(begun, other)


async def test_draining_lets_the_body_of_a_request_arrive() -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"
    arrived = asyncio.Event()

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"ab")
        arrived.set()
        await reader.readexactly(2)
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    backend = await asyncio.start_server(read, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{backend.sockets[0].getsockname()[1]}"
    async with backend, running_proxy(LONG_DRAIN + forward_all(url)) as proxy:
        upload = await opened(proxy)
        upload[1].write(head + b"ab")
        await arrived.wait()

        await until_draining(proxy)
        upload[1].write(b"cd")
        response = await upload[0].read()

    assert response.startswith(b"HTTP/1.1 204")
    assert b"Connection: close" in response
    close(upload)


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
        async with asyncio.timeout(60):
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
