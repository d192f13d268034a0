"""A reload reads all certificates, keys and authorities again, or none of them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import trustme

from sentinel.core.proxy.target_health import TargetHealth
from sentinel.ports.errors import Misconfigured
from tests.proxy.certificate_files import CertificateFiles
from tests.proxy.running_proxy import RunningProxy, client, forward_all, running_proxy

HEALTH = 'routes { route "h" { matches { path "/" }; builtin-handler "health" } }\n'


class TlsTarget:
    """A target that keeps connections alive, and counts them and the certificates that clients presented."""

    def __init__(self, files: CertificateFiles, *, clients: Path | None = None) -> None:
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.load_cert_chain(files.certificate, files.key)
        if clients is not None:
            self.context.load_verify_locations(clients)
            self.context.verify_mode = ssl.CERT_REQUIRED
        self.connections = 0
        self.presented: set[bytes | None] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.context)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.presented.add(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def status(proxy: RunningProxy) -> int:
    async with client() as http:
        return (await http.get(proxy.url)).status


async def test_a_renewed_client_certificate_is_presented_after_a_reload(tmp_path: Path) -> None:
    authority = trustme.CA()
    files = CertificateFiles(tmp_path / "client", authority)
    target = TlsTarget(files, clients=files.ca)
    tls = f'tls {{ ca-cert "{files.ca}"; client-cert "{files.certificate}"; client-key "{files.key}" }}'
    async with target.listening() as url, running_proxy(forward_all(url, more=tls)) as proxy:
        statuses = [await status(proxy), await status(proxy)]
        before = set(target.presented)
        files.renew()
        await proxy.reload(forward_all(url, more=tls))
        statuses.append(await status(proxy))

    assert statuses == [204, 204, 204]
    assert len(before) == 1
    assert len(target.presented) == 2


async def test_an_authority_that_is_no_longer_trusted_is_not_after_a_reload(tmp_path: Path) -> None:
    files, other = CertificateFiles(tmp_path / "target"), CertificateFiles(tmp_path / "other")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(files.ca.read_bytes())
    target = TlsTarget(files)
    text = f'tls {{ ca-cert "{trusted}" }}'
    statuses = []
    async with target.listening() as url, running_proxy(forward_all(url, more=text)) as proxy:
        for authority in (files, other, files):
            trusted.write_bytes(authority.ca.read_bytes())
            await proxy.reload(forward_all(url, more=text))
            statuses.append(await status(proxy))

    assert statuses == [204, 502, 204]


async def test_an_upstream_whose_files_did_not_change_keeps_its_connections(tmp_path: Path) -> None:
    files = CertificateFiles(tmp_path)
    target = TlsTarget(files)
    text = f'tls {{ ca-cert "{files.ca}" }}'
    async with target.listening() as url, running_proxy(forward_all(url, more=text)) as proxy:
        await status(proxy)
        await proxy.reload(forward_all(url, more=text, route='priority "high"'))
        await status(proxy)

    assert target.connections == 1


async def test_what_is_known_of_targets_outlives_a_renewed_certificate(tmp_path: Path) -> None:
    files = CertificateFiles(tmp_path)
    text = forward_all("http://127.0.0.1:1", more=f'tls {{ ca-cert "{files.ca}" }}')
    async with running_proxy(text) as proxy:
        before = proxy.proxy.pools["u"]
        before.targets[0].health, before.targets[0].is_checked = TargetHealth(is_healthy=False), True
        files.renew(trustme.CA())
        await proxy.reload(text)
        after = proxy.proxy.pools["u"]

    assert after is not before
    assert after.targets[0].status.status == "unhealthy"


async def test_a_reload_reads_the_authority_of_clients_again(tmp_path: Path) -> None:
    server, old, new = (CertificateFiles(tmp_path / name) for name in ("server", "old", "new"))
    trusted = tmp_path / "clients.pem"
    trusted.write_bytes(old.ca.read_bytes())
    listeners = server.listener(f'ca-file "{trusted}"; client-auth #true')

    async def accepts(proxy: RunningProxy, files: CertificateFiles) -> bool:
        context = ssl.create_default_context(cafile=server.ca)
        context.load_cert_chain(files.certificate, files.key)
        try:
            async with client() as http:
                return (await http.get(f"https://{proxy.address}/", ssl=context)).status == 200
        except (aiohttp.ClientError, ssl.SSLError):
            return False

    async with running_proxy(HEALTH, listeners=listeners) as proxy:
        before = [await accepts(proxy, files) for files in (old, new)]
        trusted.write_bytes(new.ca.read_bytes())
        await proxy.reload(HEALTH)
        after = [await accepts(proxy, files) for files in (old, new)]

    assert (before, after) == ([True, False], [False, True])


@pytest.mark.parametrize("broken", ["certificate", "key"])
async def test_a_certificate_that_cannot_be_used_changes_nothing(tmp_path: Path, broken: str) -> None:
    files = CertificateFiles(tmp_path)
    context = ssl.create_default_context(cafile=files.ca)
    async with running_proxy(HEALTH, listeners=files.listener()) as proxy, client() as http:
        getattr(files, broken).write_text("not PEM")
        with pytest.raises(
            Misconfigured, match=r'^listener "web": cert-file and key-file: expected a certificate'
        ):
            await proxy.reload("")
        response = await http.get(f"https://{proxy.address}/", ssl=context)

    assert response.status == 200
