"""A certificate authority of `sentinel hub ca`, for tests of mutual TLS."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
from cryptography import x509

from sentinel.cli.hub.ca_folder import CaFolder
from sentinel.drivers.hub_tls import TlsPaths
from sentinel.runtime import certificate_authority
from sentinel.runtime.certificate_authority import KeyPair, Purpose, Subject

YEAR = timedelta(days=365)


class Authority:
    """An authority in a folder, with the files of the hub."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ca = CaFolder(folder)
        self._ca.create(
            hosts=["localhost", "127.0.0.1"],
            organization="Acme",
            now=datetime.now(UTC),
            ca_lifetime=YEAR,
            hub_lifetime=YEAR,
        )
        self.paths = TlsPaths(
            certificate=folder / "hub.crt",
            key=folder / "hub.key",
            client_ca=folder / "ca.crt",
            revoked=folder / "revoked",
        )

    @property
    def certificate(self) -> bytes:
        return (self.folder / "ca.crt").read_bytes()

    @property
    def hub(self) -> KeyPair:
        return self._read("hub")

    def issue(self, instance: str = "edge-1") -> KeyPair:
        return self._ca.issue(instance, now=datetime.now(UTC), lifetime=YEAR).files.pair

    def revoke(self, instance: str) -> None:
        self._ca.revoke(instance)

    def renew_hub(self) -> None:
        self._ca.renew_hub(hosts=(), now=datetime.now(UTC), lifetime=YEAR)

    def credentials(self, pair: KeyPair) -> grpc.ChannelCredentials:
        """Of an agent that has this certificate, and trusts the hub by that of the authority."""
        return grpc.ssl_channel_credentials(self.certificate, pair.key_pem, pair.certificate_pem)

    def sign(
        self, subject: Subject, *, purpose: Purpose = Purpose.CLIENT, age: timedelta = timedelta(0)
    ) -> KeyPair:
        """A certificate that `sentinel hub ca` would not issue."""
        return certificate_authority.sign(
            self._read("ca"), subject, purposes=(purpose,), now=datetime.now(UTC) - age, lifetime=timedelta(days=9)
        )

    def _read(self, name: str) -> KeyPair:
        certificate, key = (self.folder / f"{name}.{suffix}" for suffix in ("crt", "key"))
        found = certificate_authority.read(certificate.read_bytes(), key.read_bytes())
        assert found is not None
        return found


async def served_serial(port: int, ca: bytes) -> int:
    """Return the serial of the certificate that a hub on loopback shows on a new connection."""
    context = ssl.create_default_context(cadata=ca.decode())
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return x509.load_der_x509_certificate(certificate).serial_number
