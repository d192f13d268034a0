"""Mutual TLS of the hub, with a real gRPC server, clients on loopback, and certificates of `sentinel hub ca`."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import grpc
import grpc.aio
import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sentinel.core.identity_names import AGENT_UNIT
from sentinel.drivers.hub_tls import HubTls, TlsPaths, WithoutTls
from sentinel.ports.errors import Misconfigured
from sentinel.ports.peer_certificates import PeerCertificate, PeerCertificates
from sentinel.runtime import atomic_file, certificate_authority
from sentinel.runtime.certificate_authority import KeyPair, Purpose, Subject
from tests.support.clocks import MonotonicSeconds
from tests.support.hub.authority import YEAR, Authority, served_serial

TIMEOUT = 60.0
"""Only a failing test waits this long."""

_LOCAL = [("grpc.use_local_subchannel_pool", 1)]  # every channel has a connection of its own


class Hub:
    """A gRPC server that admits agents as a hub has to: it asks for the certificate at every call."""

    def __init__(self, certificates: PeerCertificates) -> None:
        self._certificates = certificates
        self._look = asyncio.Event()
        self.port = 0

    @asynccontextmanager
    async def serving(self, credentials: Any) -> AsyncIterator[Hub]:
        server = grpc.aio.server()
        handlers: dict[str, Any] = {
            "Name": grpc.unary_unary_rpc_method_handler(self._name),
            "Follow": grpc.unary_stream_rpc_method_handler(self._follow),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Hub", handlers),))
        self.port = server.add_secure_port("127.0.0.1:0", credentials)
        await server.start()
        try:
            yield self
        finally:
            await server.stop(0)

    def check_streams(self) -> None:
        self._look.set()

    async def _name(self, request: bytes, context: Any) -> bytes:
        return (await self._admit(context)).encode()

    async def _follow(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        await self._admit(context)
        yield b"open"
        await self._look.wait()
        await self._admit(context)

    async def _admit(self, context: Any) -> str:
        peer = self._certificates.peer(context.auth_context())
        if peer is None:
            return await _refuse(context, grpc.StatusCode.UNAUTHENTICATED)
        if self._certificates.is_revoked(peer.serial):
            return await _refuse(context, grpc.StatusCode.UNAUTHENTICATED)
        if not peer.is_agent:
            return await _refuse(context, grpc.StatusCode.PERMISSION_DENIED)
        return peer.common_name


async def _refuse(context: Any, code: grpc.StatusCode) -> NoReturn:
    await context.abort(code, "refused")
    raise AssertionError("abort raises")


class Agent:
    """A client, with or without a certificate."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    async def name(self) -> str:
        """Return whom the hub sees, or the status with which it refuses."""
        try:
            reply: bytes = await self._channel.unary_unary("/test.Hub/Name")(b"", timeout=TIMEOUT)
        except grpc.aio.AioRpcError as error:
            return str(error.code().name)
        return reply.decode()

    def follow(self) -> Any:
        return self._channel.unary_stream("/test.Hub/Follow")(b"", timeout=TIMEOUT)


@asynccontextmanager
async def agent_of(hub: Hub, ca: bytes, pair: KeyPair | None) -> AsyncIterator[Agent]:
    own = (None, None) if pair is None else (pair.key_pem, pair.certificate_pem)
    credentials = grpc.ssl_channel_credentials(ca, *own)
    async with grpc.aio.secure_channel(f"127.0.0.1:{hub.port}", credentials, options=_LOCAL) as channel:
        yield Agent(channel)


async def seen_by(hub: Hub, ca: bytes, pair: KeyPair | None) -> str:
    """Return whom the hub sees on a new connection with this certificate."""
    async with agent_of(hub, ca, pair) as agent:
        return await agent.name()


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def other_ca(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "other")


@pytest.fixture
def clock() -> MonotonicSeconds:
    return MonotonicSeconds()


@pytest.fixture
def tls(ca: Authority, clock: MonotonicSeconds) -> HubTls:
    return HubTls(ca.paths, monotonic=clock)


@pytest.fixture
async def hub(tls: HubTls) -> AsyncIterator[Hub]:
    async with Hub(tls).serving(tls.server_credentials()) as serving:
        yield serving


def problems(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [f"{record.getMessage()}: {record.fields['problem']}" for record in caplog.records]  # type: ignore[attr-defined]


# --- who is admitted ---------------------------------------------------------------------------------------------


async def test_an_agent_is_known_by_the_common_name_of_its_certificate(hub: Hub, ca: Authority) -> None:
    assert await seen_by(hub, ca.certificate, ca.issue("edge-1")) == "edge-1"
    assert await seen_by(hub, ca.certificate, ca.issue("edge-2")) == "edge-2"


async def test_a_client_without_a_certificate_cannot_connect(hub: Hub, ca: Authority) -> None:
    assert await seen_by(hub, ca.certificate, None) == "UNAVAILABLE"


async def test_a_certificate_of_another_authority_is_refused(hub: Hub, ca: Authority, other_ca: Authority) -> None:
    assert await seen_by(hub, ca.certificate, other_ca.issue("edge-1")) == "UNAVAILABLE"


async def test_an_expired_certificate_is_refused(hub: Hub, ca: Authority) -> None:
    expired = ca.sign(Subject("edge-1", "Acme", AGENT_UNIT), age=timedelta(days=10))

    assert await seen_by(hub, ca.certificate, expired) == "UNAVAILABLE"


async def test_the_hubs_own_certificate_is_no_clients(hub: Hub, ca: Authority) -> None:
    assert await seen_by(hub, ca.certificate, ca.hub) == "UNAVAILABLE"


@pytest.mark.parametrize("unit", ["", "people", "sentinel-hub", "Sentinel-Agent", "sentinel-agent2"])
async def test_a_certificate_of_another_unit_is_no_agents(hub: Hub, ca: Authority, unit: str) -> None:
    other = ca.sign(Subject("edge-1", "Acme", unit))

    assert await seen_by(hub, ca.certificate, other) == "PERMISSION_DENIED"


async def test_a_client_refuses_a_hub_with_the_certificate_of_an_agent(ca: Authority, tmp_path: Path) -> None:
    impostor, victim = ca.issue("edge-1"), ca.issue("edge-2")
    (tmp_path / "fake.crt").write_bytes(impostor.certificate_pem)
    (tmp_path / "fake.key").write_bytes(impostor.key_pem)
    tls = HubTls(TlsPaths(certificate=tmp_path / "fake.crt", key=tmp_path / "fake.key"))

    async with Hub(tls).serving(tls.server_credentials()) as fake:
        assert await seen_by(fake, ca.certificate, victim) == "UNAVAILABLE"


async def test_without_a_client_ca_no_client_is_asked_for_a_certificate(ca: Authority) -> None:
    tls = HubTls(TlsPaths(certificate=ca.paths.certificate, key=ca.paths.key))

    async with Hub(tls).serving(tls.server_credentials()) as hub:
        assert await seen_by(hub, ca.certificate, None) == "UNAUTHENTICATED"
        assert await seen_by(hub, ca.certificate, ca.issue()) == "UNAUTHENTICATED"


# --- revocation --------------------------------------------------------------------------------------------------


async def test_a_certificate_is_revoked_while_its_connection_is_open(
    hub: Hub, ca: Authority, clock: MonotonicSeconds
) -> None:
    async with agent_of(hub, ca.certificate, ca.issue("edge-1")) as agent:
        before = await agent.name()
        stream = agent.follow()
        opened = await stream.read()

        ca.revoke("edge-1")
        clock.now += 1
        hub.check_streams()

        assert (before, opened) == ("edge-1", b"open")
        assert await agent.name() == "UNAUTHENTICATED"
        assert await stream.code() is grpc.StatusCode.UNAUTHENTICATED
    assert await seen_by(hub, ca.certificate, ca.issue("edge-2")) == "edge-2"


async def test_a_new_certificate_after_a_revocation_is_accepted(
    hub: Hub, ca: Authority, clock: MonotonicSeconds
) -> None:
    stolen = ca.issue("edge-1")
    ca.revoke("edge-1")
    renewed = ca.issue("edge-1")
    clock.now += 1

    assert await seen_by(hub, ca.certificate, stolen) == "UNAUTHENTICATED"
    assert await seen_by(hub, ca.certificate, renewed) == "edge-1"


def test_the_list_is_looked_at_once_a_second(ca: Authority, tls: HubTls, clock: MonotonicSeconds) -> None:
    serials = [ca.issue(name).serial for name in ("edge-1", "edge-2")]
    first = tls.revoked()
    ca.revoke("edge-1")
    within = tls.revoked()
    clock.now += 1
    second = tls.revoked()
    ca.revoke("edge-2")

    assert within is first
    assert second == {serials[0]}
    assert tls.revoked() is second
    assert [tls.is_revoked(serial) for serial in serials] == [True, False]


@pytest.mark.parametrize("damage", ["nonsense", "deleted", "a folder"])
def test_a_list_that_cannot_be_read_leaves_the_old_one_in_force(
    ca: Authority, clock: MonotonicSeconds, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    serials = [ca.issue(name).serial for name in ("edge-1", "edge-2")]
    ca.revoke("edge-1")
    tls, path = HubTls(ca.paths, monotonic=clock), ca.folder / "revoked"
    path.unlink()
    if damage == "nonsense":
        path.write_text("edge-2\n")
    if damage == "a folder":
        path.mkdir()

    with caplog.at_level(logging.WARNING, "sentinel.hub"):
        for _ in range(3):
            clock.now += 1
            assert [tls.is_revoked(serial) for serial in serials] == [True, False]
    if damage == "a folder":
        path.rmdir()
    path.write_text(f"{serials[1]:x}\n")
    clock.now += 1

    assert [tls.is_revoked(serial) for serial in serials] == [False, True]
    [problem] = problems(caplog)
    assert problem.startswith(f"revoked.unusable: {path}")


def test_a_list_that_could_not_be_opened_is_read_without_a_change(
    ca: Authority, clock: MonotonicSeconds, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = HubTls(ca.paths, monotonic=clock)
    serial = ca.issue("edge-1").serial
    ca.revoke("edge-1")

    def too_many(*_: object, **__: object) -> NoReturn:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, "sentinel.hub"):
        patched.setattr(Path, "open", too_many)
        for _ in range(3):
            clock.now += 1
            tls.is_revoked(serial)
    clock.now += 1

    assert tls.is_revoked(serial)
    assert problems(caplog) == [f"revoked.unusable: {ca.folder}/revoked: cannot be read: too many open files"]


# --- rotation ----------------------------------------------------------------------------------------------------


async def test_new_connections_get_the_hubs_new_certificate(
    hub: Hub, ca: Authority, clock: MonotonicSeconds
) -> None:
    old = ca.hub.serial
    async with agent_of(hub, ca.certificate, ca.issue()) as agent:
        await agent.name()
        before = await served_serial(hub.port, ca.certificate)

        ca.renew_hub()
        clock.now += 1

        assert before == old
        assert await served_serial(hub.port, ca.certificate) == ca.hub.serial != old
        assert await agent.name() == "edge-1"
    assert await seen_by(hub, ca.certificate, ca.issue("edge-2")) == "edge-2"


async def test_every_port_gets_the_new_certificate(tls: HubTls, ca: Authority, clock: MonotonicSeconds) -> None:
    async with (
        Hub(tls).serving(tls.server_credentials()) as one,
        Hub(tls).serving(tls.server_credentials()) as two,
    ):
        ca.renew_hub()
        clock.now += 1

        assert [await served_serial(hub.port, ca.certificate) for hub in (one, two)] == [ca.hub.serial] * 2


async def test_a_new_client_ca_takes_effect_for_new_connections(
    hub: Hub, ca: Authority, other_ca: Authority, clock: MonotonicSeconds
) -> None:
    old, new, hub_ca = ca.issue("old"), other_ca.issue("new"), ca.certificate
    both = hub_ca + other_ca.certificate

    (ca.folder / "ca.crt").write_bytes(both)
    clock.now += 1
    with_both = [await seen_by(hub, hub_ca, pair) for pair in (old, new)]
    (ca.folder / "ca.crt").write_bytes(other_ca.certificate)
    clock.now += 1

    assert with_both == ["old", "new"]
    assert [await seen_by(hub, hub_ca, pair) for pair in (old, new)] == ["UNAVAILABLE", "new"]


@pytest.mark.parametrize("file", ["hub.crt", "hub.key", "ca.crt"])
@pytest.mark.parametrize("content", [b"", b"nonsense", None], ids=["empty", "nonsense", "deleted"])
async def test_a_file_that_cannot_be_used_leaves_the_old_ones_in_force(
    hub: Hub,
    ca: Authority,
    clock: MonotonicSeconds,
    caplog: pytest.LogCaptureFixture,
    file: str,
    content: bytes | None,
) -> None:
    agent, authority, serial = ca.issue(), ca.certificate, ca.hub.serial
    path, good = ca.folder / file, (ca.folder / file).read_bytes()
    path.unlink()
    if content is not None:
        path.write_bytes(content)

    with caplog.at_level(logging.WARNING, "sentinel.hub"):
        for _ in range(2):
            clock.now += 1
            assert await served_serial(hub.port, authority) == serial
            assert await seen_by(hub, authority, agent) == "edge-1"
    [problem] = problems(caplog)
    path.write_bytes(good)
    ca.renew_hub()
    clock.now += 1

    assert problem.startswith(f"tls.unusable: {path}")
    assert await served_serial(hub.port, authority) == ca.hub.serial != serial


async def test_a_certificate_without_its_new_key_waits_for_it(
    hub: Hub, ca: Authority, clock: MonotonicSeconds, caplog: pytest.LogCaptureFixture
) -> None:
    old, files = ca.hub, [ca.folder / "hub.crt", ca.folder / "hub.key"]
    ca.renew_hub()
    certificate, key = (file.read_bytes() for file in files)
    atomic_file.write(files[1], old.key_pem, mode=0o600)

    clock.now += 1
    with caplog.at_level(logging.WARNING, "sentinel.hub"):
        half = await served_serial(hub.port, ca.certificate)
    atomic_file.write(files[1], key, mode=0o600)
    clock.now += 1

    assert half == old.serial
    assert problems(caplog) == [f"tls.unusable: {files[1]} is not the key of the certificate in {files[0]}"]
    assert (
        await served_serial(hub.port, ca.certificate) == x509.load_pem_x509_certificate(certificate).serial_number
    )


# --- at the start ------------------------------------------------------------------------------------------------


def encrypted(pair: KeyPair) -> bytes:
    return pair.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"hunter2"),
    )


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("hub.crt", None, "hub.crt: cannot be read: no such file or directory"),
        ("hub.key", None, "hub.key: cannot be read: no such file or directory"),
        ("ca.crt", None, "ca.crt: cannot be read: no such file or directory"),
        ("revoked", None, "revoked: cannot be read: no such file or directory"),
        ("hub.crt", "hub.key", "hub.crt contains private key and no certificate"),
        ("hub.key", "hub.crt", "hub.key contains certificate and no private key"),
        ("hub.key", "ca.key", "hub.key is not the key of the certificate in"),
        ("ca.crt", "ca.key", "ca.crt contains private key and no certificate"),
        ("revoked", "ca.crt", "revoked:1: expected the serial"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error(
    ca: Authority, file: str, content: str | None, problem: str
) -> None:
    if content is None:
        (ca.folder / file).unlink()
    else:
        (ca.folder / file).write_bytes((ca.folder / content).read_bytes())

    with pytest.raises(Misconfigured) as caught:
        HubTls(ca.paths)

    assert problem in str(caught.value)
    assert str(caught.value).startswith(str(ca.folder))


def test_an_encrypted_key_is_an_error(ca: Authority) -> None:
    (ca.folder / "hub.key").write_bytes(encrypted(ca.hub))

    with pytest.raises(Misconfigured, match=r"hub\.key is encrypted"):
        HubTls(ca.paths)


# --- what a certificate says -------------------------------------------------------------------------------------


def named(*attributes: tuple[x509.ObjectIdentifier, str]) -> bytes:
    """A certificate with any names, as other authorities may issue it."""
    name = x509.Name([x509.NameAttribute(kind, text) for kind, text in attributes])
    key = ec.generate_private_key(ec.SECP256R1())
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(0x3FA0)
        .not_valid_before(datetime(2026, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2027, 1, 1, tzinfo=UTC))
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )


COMMON_NAME, UNIT = NameOID.COMMON_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME


@pytest.mark.parametrize(
    ("attributes", "common_name", "units", "is_agent"),
    [
        ([(COMMON_NAME, "edge-1"), (UNIT, AGENT_UNIT)], "edge-1", (AGENT_UNIT,), True),
        ([(UNIT, "ops"), (UNIT, AGENT_UNIT), (COMMON_NAME, "edge-1")], "edge-1", ("ops", AGENT_UNIT), True),
        ([(UNIT, AGENT_UNIT)], "", (AGENT_UNIT,), False),
        ([(COMMON_NAME, "edge-1"), (COMMON_NAME, "edge-2"), (UNIT, AGENT_UNIT)], "", (AGENT_UNIT,), False),
        ([(COMMON_NAME, "edge-1")], "edge-1", (), False),
        ([], "", (), False),
    ],
)
def test_an_agents_certificate_has_one_common_name_and_the_unit(
    tls: HubTls,
    attributes: list[tuple[x509.ObjectIdentifier, str]],
    common_name: str,
    units: tuple[str, ...],
    is_agent: bool,
) -> None:
    peer = tls.peer({"x509_pem_cert": [named(*attributes)], "x509_common_name": [b"root"]})

    assert peer == PeerCertificate(common_name, units, 0x3FA0)
    assert peer.is_agent == is_agent


def test_alternative_names_are_no_identity(tls: HubTls, ca: Authority) -> None:
    pair = certificate_authority.sign(
        ca.hub,
        Subject("edge-1"),
        hosts=["edge-2"],
        purposes=(Purpose.CLIENT,),
        now=datetime.now(UTC),
        lifetime=YEAR,
    )

    peer = tls.peer({"x509_pem_cert": [pair.certificate_pem], "x509_subject_alternative_name": [b"edge-2"]})

    assert peer is not None
    assert peer.common_name == "edge-1"


def test_a_connection_without_a_certificate_has_no_peer(tls: HubTls) -> None:
    assert tls.peer({"transport_security_type": [b"ssl"], "x509_common_name": [b"edge-1"]}) is None
    assert tls.peer({}) is None


def test_without_a_list_nothing_is_revoked(ca: Authority) -> None:
    for each in (HubTls(msgspec.structs.replace(ca.paths, revoked=None)), WithoutTls()):
        assert each.revoked() == frozenset()
        assert not each.is_revoked(ca.hub.serial)


def test_without_tls_no_certificate_counts(ca: Authority) -> None:
    assert WithoutTls().peer({"x509_pem_cert": [ca.issue().certificate_pem]}) is None


def test_a_certificate_that_cannot_be_read_is_nobodys(tls: HubTls) -> None:
    peer = tls.peer({"x509_pem_cert": [b"nonsense"]})

    assert peer is not None
    assert not peer.is_agent


def test_threads_may_ask_while_files_change(ca: Authority, clock: MonotonicSeconds) -> None:
    tls = HubTls(ca.paths, monotonic=clock)
    serials = [ca.issue(f"edge-{number}").serial for number in range(20)]
    seen: list[frozenset[int]] = []
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            clock.now += 1
            seen.append(tls.revoked())

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(20):
        ca.revoke(f"edge-{number}")
    is_over.set()
    for thread in threads:
        thread.join()
    clock.now += 1

    assert tls.revoked() == set(serials)
    assert all(serials[: len(each)] == [serial for serial in serials if serial in each] for each in seen)


def test_grpc_is_imported_only_for_credentials() -> None:
    program = "import sys, sentinel.drivers.hub_tls; print('grpc' in sys.modules)"

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert result.stdout == "False\n"
