"""Certificates on disk that can be renewed."""

from __future__ import annotations

from pathlib import Path

import trustme


class CertificateFiles:
    """A certificate for 127.0.0.1, its key and its authority."""

    def __init__(self, directory: Path, authority: trustme.CA | None = None) -> None:
        directory.mkdir(exist_ok=True)
        self.certificate, self.key, self.ca = directory / "cert.pem", directory / "key.pem", directory / "ca.pem"
        self.renew(authority or trustme.CA())

    def renew(self, authority: trustme.CA | None = None) -> None:
        """Write another certificate, of the same authority or of another one."""
        if authority is not None:
            self._authority = authority
            authority.cert_pem.write_to_path(str(self.ca))
        issued = self._authority.issue_cert("127.0.0.1")
        issued.cert_chain_pems[0].write_to_path(str(self.certificate))
        issued.private_key_pem.write_to_path(str(self.key))

    def listener(self, more: str = "") -> str:
        """Return a listener that presents the certificate."""
        tls = f'tls {{ cert-file "{self.certificate}"; key-file "{self.key}"; {more} }}'
        return f'listeners {{ listener "web" {{ address "127.0.0.1:0"; protocol "https"; {tls} }} }}\n'
