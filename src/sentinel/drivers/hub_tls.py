"""TLS of the hub's gRPC server: its certificate, the certificates of agents, and which of them are revoked.

Certificate, key, client CA and the list of revoked serials are files that change while the hub runs. A changed
file takes effect within a second, for new connections; a revoked serial for open ones, too, because callers ask at
every call. A file that cannot be read or parsed leaves what was loaded before in force, and is logged once.

gRPC itself cannot refuse a revoked certificate during the handshake, so the client connects, and is refused by
every call.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from cryptography import x509
from cryptography.x509.oid import NameOID

from sentinel.core.proxy.facts import Unreadable
from sentinel.drivers.identity.file_watch import WatchedFile, WatchedFiles
from sentinel.drivers.proxy_facts.pem import MAX_BYTES, read_certificates, read_key
from sentinel.ports.errors import Misconfigured
from sentinel.ports.peer_certificates import AuthContext, PeerCertificate
from sentinel.runtime import bounded_file, revoked_serials
from sentinel.runtime.log import Log, get_logger

if TYPE_CHECKING:  # heavy, and only a hub needs it
    import grpc

_MAX_REMEMBERED: Final = 16_384
"""Certificates of peers. Parsing one costs as much as a tenth of a call."""


_NOBODY: Final = PeerCertificate("", (), 0)


class TlsPaths(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a server."""

    certificate: Path
    """The server's, followed by intermediate ones if there are any."""
    key: Path
    client_ca: Path | None = None
    """The authorities of clients. With it, every client needs a certificate; without it, none is asked for one."""
    revoked: Path | None = None
    """A serial in hexadecimal on each line."""


class _ServerFiles(msgspec.Struct, frozen=True):
    """The content of the files that a handshake needs. They fit each other."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None

    def __repr__(self) -> str:
        return "_ServerFiles()"

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        import grpc

        return grpc.ssl_server_certificate_configuration([(self.key, self.certificate)], self.client_ca)


class HubTls:
    """`ports.peer_certificates.PeerCertificates` for a server with these files, and its credentials."""

    def __init__(
        self, paths: TlsPaths, *, log: Log | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Load the files. Raises `Misconfigured` if one cannot be used."""
        log = log or get_logger("hub")
        self._requires_certificate = paths.client_ca is not None
        self._files = WatchedFiles(
            [path for path in (paths.certificate, paths.key, paths.client_ca) if path is not None],
            lambda: _load(paths),
            log=log,
            event="tls.unusable",
            monotonic=monotonic,
        )
        self._revoked = (
            None
            if paths.revoked is None
            else WatchedFile(
                paths.revoked, revoked_serials.read, log=log, event="revoked.unusable", monotonic=monotonic
            )
        )
        self._read_peer = lru_cache(_MAX_REMEMBERED)(_read_peer)

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return credentials for one port. New connections to it use the files as they are then.

        A second port needs its own: each takes a change from its credentials once.
        """
        import grpc

        given = self._files.get()

        def fetch() -> Any:  # or None, which gRPC documents but its types leave out
            """Called by a thread of gRPC for every handshake. None changes nothing, and costs nothing."""
            nonlocal given
            files = self._files.get()
            if files is given:
                return None
            given = files
            return files.configuration()

        return grpc.dynamic_ssl_server_credentials(
            given.configuration(), fetch, require_client_authentication=self._requires_certificate
        )

    def peer(self, auth_context: AuthContext) -> PeerCertificate | None:
        # Not `peer_identities()`: it returns the alternative names of a certificate that has some.
        for pem in auth_context.get("x509_pem_cert", ()):
            return self._read_peer(pem)
        return None

    def is_revoked(self, serial: int) -> bool:
        return serial in self.revoked()

    def revoked(self) -> frozenset[int]:
        return frozenset() if self._revoked is None else self._revoked.get()


class WithoutTls:
    """`ports.peer_certificates.PeerCertificates` for a server without TLS, where no client has a certificate."""

    def peer(self, auth_context: AuthContext) -> PeerCertificate | None:
        return None

    def is_revoked(self, serial: int) -> bool:
        return False

    def revoked(self) -> frozenset[int]:
        return frozenset()


def _read_peer(pem: bytes) -> PeerCertificate:
    try:
        found = x509.load_pem_x509_certificate(pem)
        names = _texts(found.subject, NameOID.COMMON_NAME)
        units = _texts(found.subject, NameOID.ORGANIZATIONAL_UNIT_NAME)
    except ValueError:  # gRPC accepted it, but its serial or its names are not known
        return _NOBODY
    return PeerCertificate(names[0] if len(names) == 1 else "", units, found.serial_number)


def _texts(name: x509.Name, kind: x509.ObjectIdentifier) -> tuple[str, ...]:
    return tuple(str(each.value) for each in name.get_attributes_for_oid(kind))


def _load(paths: TlsPaths) -> _ServerFiles:
    certificate, key = _content(paths.certificate), _content(paths.key)
    certificates, private = read_certificates(certificate), read_key(key)
    if isinstance(certificates, Unreadable):
        raise Misconfigured(f"{paths.certificate} {certificates.reason}")
    if isinstance(private, Unreadable):
        raise Misconfigured(f"{paths.key} {private.reason}")
    if certificates[0].public_key != private.public_key:
        raise Misconfigured(f"{paths.key} is not the key of the certificate in {paths.certificate}")
    if paths.client_ca is None:
        return _ServerFiles(certificate, key, None)
    client_ca = _content(paths.client_ca)
    authorities = read_certificates(client_ca)
    if isinstance(authorities, Unreadable):
        raise Misconfigured(f"{paths.client_ca} {authorities.reason}")
    return _ServerFiles(certificate, key, client_ca)


def _content(path: Path) -> bytes:
    return bounded_file.read(path, max_bytes=MAX_BYTES)
