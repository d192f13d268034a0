"""The health of OpenBao servers, over real TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sentinel.drivers.openbao import request_health
from sentinel.runtime import certificates
from sentinel.runtime.certificates import CertificateFiles


def issue() -> CertificateFiles:
    return certificates.issue(["127.0.0.1"], subject="bao", now=datetime.now(UTC), previous=None)


@asynccontextmanager
async def serving(files: CertificateFiles, status: int, directory: Path) -> AsyncIterator[str]:
    """Serve one status at every path."""
    chain = directory / "server.pem"
    chain.write_bytes(files.certificate + files.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chain)

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        assert request.startswith(b"GET /v1/sys/health HTTP/1.1\r\n")
        writer.write(f"HTTP/1.1 {status} x\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("status", [200, 429, 472, 473, 501, 503])
async def test_the_status_is_the_answer(tmp_path: Path, status: int) -> None:
    files = issue()

    async with serving(files, status, tmp_path) as url:
        found = await request_health(url, files.ca_certificate.decode(), user_agent="test")

    assert found == (status, "")


async def test_a_server_of_another_authority_is_not_trusted(tmp_path: Path) -> None:
    async with serving(issue(), 200, tmp_path) as url:
        status, error = await request_health(url, issue().ca_certificate.decode(), user_agent="test")

    assert status == 0
    assert "certificate" in error.lower()


async def test_a_server_that_is_down_is_an_error_and_no_exception() -> None:
    status, error = await request_health("https://127.0.0.1:9", issue().ca_certificate.decode(), user_agent="test")

    assert status == 0
    assert error


async def test_the_same_failure_has_the_same_text_each_time() -> None:
    texts = {
        (await request_health("https://127.0.0.1:9", issue().ca_certificate.decode(), user_agent="test"))[1]
        for _ in range(2)
    }

    (text,) = texts
    assert "Cannot connect to host 127.0.0.1:9 [" in text
    assert "0x" not in text


async def test_an_authority_that_is_none_is_an_error_and_no_exception() -> None:
    status, error = await request_health("https://127.0.0.1:9", "garbage", user_agent="test")

    assert (status, error) == (0, "ca_data: expected certificates in PEM, got something else")
