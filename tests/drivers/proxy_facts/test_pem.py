"""Certificates and keys in PEM."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache

import hypothesis
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import strategies as st

from sentinel.core.proxy.facts import PrivateKey, Unreadable
from sentinel.drivers.proxy_facts import Limits, SystemProxyFacts
from sentinel.drivers.proxy_facts.pem import MAX_BYTES, MAX_CERTIFICATES, read_certificates, read_key
from sentinel.runtime.certificates import CertificateFiles, issue
from tests.support.examples import examples
from tests.support.loop_time import HOUR, LoopTime

NOW = datetime(2026, 5, 1, tzinfo=UTC)
WAIT = 60
"""Seconds until a test that waits for a thread fails."""
PEM = serialization.Encoding.PEM
PARAMETERS = b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"


@cache
def files() -> CertificateFiles:
    return issue(["a.example", "10.0.0.1"], subject="tests", now=NOW, previous=None)


def reason(found: object) -> str:
    assert isinstance(found, Unreadable)
    return found.reason


def encoded(
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey,
    *,
    layout: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8,
    password: bytes = b"",
) -> bytes:
    hiding = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(PEM, layout, hiding)


def test_a_chain_is_read_in_its_order_with_names_and_dates() -> None:
    chain = read_certificates(files().certificate + files().ca_certificate)

    assert isinstance(chain, tuple)
    assert [each.names for each in chain] == [("a.example", "10.0.0.1"), ()]
    assert chain[0].public_key != chain[1].public_key
    assert all(each.not_before <= NOW < each.not_after for each in chain)


def test_a_certificate_and_a_key_may_be_in_one_file() -> None:
    both = b"# both\n" + files().key + files().certificate

    chain = read_certificates(both)

    assert isinstance(chain, tuple)
    assert read_key(both) == PrivateKey(chain[0].public_key)


@pytest.mark.parametrize(
    "layout", [serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL]
)
@pytest.mark.parametrize("kind", ["ec", "rsa", "ed25519"])
def test_keys_of_every_usual_kind_are_read(kind: str, layout: serialization.PrivateFormat) -> None:
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey
    match kind:
        case "ec":
            key = ec.generate_private_key(ec.SECP256R1())
        case "rsa":
            key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        case _:
            key, layout = ed25519.Ed25519PrivateKey.generate(), serialization.PrivateFormat.PKCS8

    plain = read_key(encoded(key, layout=layout))

    assert isinstance(plain, PrivateKey)
    assert read_key(PARAMETERS + encoded(key, layout=layout)) == plain


@pytest.mark.parametrize(
    "layout", [serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL]
)
def test_an_encrypted_key_is_of_no_use(layout: serialization.PrivateFormat) -> None:
    key = encoded(ec.generate_private_key(ec.SECP256R1()), layout=layout, password=b"x" * 12)

    assert reason(read_key(key)) == "is encrypted, and its passphrase cannot be asked for"


def test_mistaken_files_are_described() -> None:
    der = x509.load_pem_x509_certificate(files().certificate).public_bytes(serialization.Encoding.DER)

    assert reason(read_certificates(files().key)) == "contains private key and no certificate"
    assert reason(read_key(files().certificate * 2)) == "contains certificate and no private key"
    assert reason(read_certificates(b" \n")) == "is empty"
    assert reason(read_key(b"/etc/api.key")) == "has no line -----BEGIN …-----"
    assert reason(read_certificates(der)) == "is binary; convert it to PEM with openssl"
    assert reason(read_certificates(b"x" * (MAX_BYTES + 1))).startswith("has 262145 bytes")
    many = files().certificate * (MAX_CERTIFICATES + 1)
    assert reason(read_certificates(many)) == "contains 21 certificates, and at most 20 are allowed"


def test_damaged_files_are_described() -> None:
    assert reason(read_certificates(files().certificate[:200])) == "contains a certificate that is damaged"
    assert reason(read_key(files().key[:80])) == "contains a private key that is damaged"


@hypothesis.given(at=st.integers(0, 2000), piece=st.binary(max_size=3), is_key=st.booleans())
@hypothesis.settings(max_examples=examples(300))
def test_any_content_has_an_answer(at: int, piece: bytes, is_key: bool) -> None:
    content = files().key if is_key else files().certificate
    changed = content[:at] + piece + content[at + len(piece) :]

    assert isinstance(read_certificates(changed), tuple | Unreadable)
    assert isinstance(read_key(changed), PrivateKey | Unreadable)


async def test_files_beyond_the_limit_are_not_read() -> None:
    facts = SystemProxyFacts(limits=Limits(files=1))

    found = await facts.read_certificates({"a": files().certificate, "b": files().certificate})

    assert list(found) == ["a"]


class SlowFiles(Mapping[str, bytes]):
    """Contents of which all but the first take until `is_open`."""

    def __init__(self, *references: str) -> None:
        self.is_open = threading.Event()
        self.is_waiting = threading.Event()
        self.taken: list[str] = []
        self._references = references

    def __getitem__(self, reference: str) -> bytes:
        if reference != self._references[0]:
            self.is_waiting.set()
            assert self.is_open.wait(WAIT)
        self.taken.append(reference)
        return files().key

    def __iter__(self) -> Iterator[str]:
        return iter(self._references)

    def __len__(self) -> int:
        return len(self._references)


async def test_reading_ends_in_time_with_what_was_read() -> None:
    facts, loop_time = SystemProxyFacts(limits=Limits(time=HOUR)), LoopTime()
    contents = SlowFiles("a", "b", "c")

    reading = asyncio.create_task(facts.read_keys(contents))
    await asyncio.to_thread(contents.is_waiting.wait, WAIT)
    loop_time.advance(HOUR)
    found = await reading
    contents.is_open.set()
    for thread in threading.enumerate():
        if thread.name.endswith(" certificates"):
            await asyncio.to_thread(thread.join, WAIT)

    assert list(found) == ["a"]
    assert contents.taken == ["a", "b"]
