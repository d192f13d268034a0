"""Certificates that an operator issues: valid for clients, renewed in time, replaced if something is wrong."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from cryptography import x509

from sentinel.runtime import certificates
from sentinel.runtime.certificates import CertificateFiles

NOW = datetime.now(UTC)
NAMES = ["bao", "*.bao.prod.svc", "localhost", "127.0.0.1"]


def issue(*, now: datetime = NOW, previous: CertificateFiles | None = None) -> CertificateFiles:
    return certificates.issue(NAMES, subject="bao", now=now, previous=previous)


def test_what_was_issued_needs_no_replacement() -> None:
    assert certificates.problem(issue(), NAMES, NOW) is None


async def test_a_client_that_trusts_the_authority_accepts_the_server(tmp_path: Path) -> None:
    files = issue()
    chain = tmp_path / "server.pem"
    chain.write_bytes(files.certificate + files.key)
    server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_context.load_cert_chain(chain)
    client_context = ssl.create_default_context(cadata=files.ca_certificate.decode())
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=server_context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context)
        received = await reader.read()
        writer.close()

    assert received == b"hello"


@pytest.mark.parametrize(
    ("age", "expected"),
    [(timedelta(days=59), None), (timedelta(days=61), "expires"), (timedelta(days=-1), "not valid yet")],
)
def test_a_certificate_is_replaced_a_month_before_it_expires(age: timedelta, expected: str | None) -> None:
    found = certificates.problem(issue(), NAMES, NOW + age)

    assert (found is None) == (expected is None)
    assert expected is None or expected in str(found)


def test_a_renewed_certificate_keeps_the_authority() -> None:
    first = issue()

    second = issue(now=NOW + timedelta(days=61), previous=first)

    assert second.ca_certificate == first.ca_certificate
    assert second.certificate != first.certificate
    assert certificates.problem(second, NAMES, NOW + timedelta(days=61)) is None


def test_an_old_authority_is_replaced() -> None:
    first, later = issue(), NOW + certificates.AUTHORITY_LIFETIME - timedelta(days=80)

    second = issue(now=later, previous=first)

    assert second.ca_certificate != first.ca_certificate
    assert certificates.problem(second, NAMES, later) is None


def test_a_new_name_needs_a_new_certificate() -> None:
    found = certificates.problem(issue(), [*NAMES, "other"], NOW)

    assert found == "the certificate lacks the name other"


@pytest.mark.parametrize("field", ["ca_certificate", "ca_key", "certificate", "key"])
@pytest.mark.parametrize("content", [b"", b"garbage", None], ids=["empty", "garbage", "of another"])
def test_files_that_do_not_fit_are_replaced(field: str, content: bytes | None) -> None:
    files, other = issue(), issue()
    broken = msgspec.structs.replace(files, **{field: getattr(other, field) if content is None else content})

    assert certificates.problem(broken, NAMES, NOW) is not None
    assert certificates.problem(issue(previous=broken), NAMES, NOW) is None


def test_a_certificate_of_another_authority_is_replaced() -> None:
    files, other = issue(), issue()
    mixed = CertificateFiles(other.ca_certificate, other.ca_key, files.certificate, files.key)

    assert "not from the authority" in str(certificates.problem(mixed, NAMES, NOW))


def test_a_servers_certificate_is_no_authority() -> None:
    files = issue()
    mixed = CertificateFiles(files.certificate, files.key, files.certificate, files.key)

    assert certificates.problem(mixed, NAMES, NOW) == "the authority is not a self-signed CA certificate"


def test_the_names_are_in_the_certificate() -> None:
    certificate = x509.load_pem_x509_certificate(issue().certificate)

    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert names.get_values_for_type(x509.DNSName) == NAMES[:3]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
