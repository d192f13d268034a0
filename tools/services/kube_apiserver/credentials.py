"""Throw-away keys and certificates for one API server."""

from __future__ import annotations

from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tools.services.server import LOOPBACK


class Credentials:
    """PEM files: an authority, certificates of the server and the administrator, and the key that signs tokens."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.ca_file = directory / "ca.crt"
        self.server_certificate_file = directory / "server.crt"
        self.server_key_file = directory / "server.key"
        self.admin_certificate_file = directory / "admin.crt"
        self.admin_key_file = directory / "admin.key"
        self.service_account_key_file = directory / "service-accounts.key"

    def create(self) -> None:
        """Write all files."""
        self._directory.mkdir(exist_ok=True)
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.ca_file))
        server = authority.issue_cert(LOOPBACK, "localhost")
        _write(server, self.server_certificate_file, self.server_key_file)
        # RBAC's built-in cluster-admin role is bound to this group.
        admin = authority.issue_cert("admin", common_name="admin", organization_name="system:masters")
        _write(admin, self.admin_certificate_file, self.admin_key_file)
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.service_account_key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )


def _write(issued: trustme.LeafCert, certificate_file: Path, key_file: Path) -> None:
    certificate_file.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(str(key_file))
