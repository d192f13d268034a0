"""TLS of a client: which servers it trusts, and the certificate it presents.

`TlsSettings` is the configuration as a value. `Tls` is what a client asks for a context before each request. Files
are read again after they changed, because certificates are renewed while a service runs, and after a certificate
was refused.
"""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

import msgspec

from sentinel.ports.errors import Misconfigured
from sentinel.runtime.secrets import Secret

_NO_SECRET = Secret("")


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to verify the server, and which certificate to present. Data is PEM and wins over a file."""

    ca_file: Path | None = None
    """Replaces the system's certificate authorities, as does `ca_data`."""
    ca_data: str = ""
    certificate_file: Path | None = None
    """The client's certificate, with its chain."""
    certificate_data: str = ""
    key_file: Path | None = None
    key_data: Secret = _NO_SECRET
    server_name: str = ""
    """The name to verify and to send as SNI instead of the host of the URL."""
    is_insecure: bool = False
    """Whether to accept any server."""
    is_strict: bool = True
    """Whether to require all that RFC 5280 does, as Python does from 3.13 on. The authorities that clusters create
    for themselves often lack key identifiers."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that a context is made of."""
        candidates = (
            (self.ca_file, self.ca_data),
            (self.certificate_file, self.certificate_data),
            (self.key_file, self.key_data),
        )
        return tuple(file for file, data in candidates if file is not None and not data)

    def build_context(self) -> ssl.SSLContext | bool:
        """Return the context; True stands for the default one of aiohttp. Raises `Misconfigured`."""
        has_certificate = self.certificate_file is not None or bool(self.certificate_data)
        if self.ca_file is None and not (self.ca_data or has_certificate or self.is_insecure):
            return True
        context = self._verifying_context()
        if not self.is_strict:
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.is_insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if has_certificate:
            self._load_certificate(context)
        return context

    def _verifying_context(self) -> ssl.SSLContext:
        if self.ca_data:
            try:
                return ssl.create_default_context(cadata=self.ca_data)
            except (ssl.SSLError, ValueError) as error:  # ValueError: not ASCII
                raise Misconfigured("ca_data: expected certificates in PEM, got something else") from error
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:  # includes ssl.SSLError
            raise Misconfigured(f"ca_file {self.ca_file}: {error.strerror or error}") from error

    def _load_certificate(self, context: ssl.SSLContext) -> None:
        if self.certificate_data or self.key_data:
            pem = f"{self._certificate()}\n{self._key()}\n".encode()
            try:
                # OpenSSL reads certificates from files only. This one has mode 0600.
                with tempfile.NamedTemporaryFile(prefix="sentinel-", suffix=".pem") as file:
                    file.write(pem)
                    file.flush()
                    self._load_chain(context, Path(file.name), None)
            except OSError as error:
                text = f"client certificate: expected a folder for temporary files: {error.strerror or error}"
                raise Misconfigured(text) from error
        elif self.certificate_file is not None:
            self._load_chain(context, self.certificate_file, self.key_file)

    def _load_chain(self, context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
        where = "client certificate"
        if not self.certificate_data and self.certificate_file is not None:
            where = f"{where} {self.certificate_file}"
        try:
            # Without a password, OpenSSL would ask for one on the terminal.
            context.load_cert_chain(certificate, key, password="")
        except ssl.SSLError as error:
            # The text of these errors is the name of an OpenSSL function.
            text = "expected a certificate and its unencrypted key in PEM, got something else"
            if error.reason == "KEY_VALUES_MISMATCH":
                text = "expected the key of the certificate, got another key"
            raise Misconfigured(f"{where}: {text}") from error
        except OSError as error:
            both = certificate if key is None else f"{certificate} and {key}"
            raise Misconfigured(f"client certificate {both}: {error.strerror or error}") from error

    def _certificate(self) -> str:
        return self.certificate_data or _read(self.certificate_file, "client certificate")

    def _key(self) -> str:
        return self.key_data.reveal() or _read(self.key_file, "client key")


class Tls:
    """The current TLS context of a client."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._files = settings.files
        self._context: ssl.SSLContext | bool | None = None
        self._built_from: list[object] = []

    @property
    def server_name(self) -> str | None:
        """The name to verify instead of the host, or None."""
        return self._settings.server_name or None

    def context(self) -> ssl.SSLContext | bool:
        """Return the context for the next connection. Raises `Misconfigured`.

        If changed files are invalid, the previous context stays in use: a certificate and its key are rarely
        replaced in the same moment.
        """
        if self._context is not None and not self._files:
            return self._context
        versions = [_version(file) for file in self._files]
        if self._context is None or versions != self._built_from:
            try:
                self._context = self._settings.build_context()
            except Misconfigured:
                if self._context is None:
                    raise
            else:
                self._built_from = versions
        return self._context

    def discard(self) -> None:
        """Build a new context for the next connection, because a certificate was refused."""
        self._context = None

    def use(self, settings: TlsSettings) -> None:
        """Use other settings for new connections. Open ones go on."""
        if settings != self._settings:
            self._settings = settings
            self._files = settings.files
            self._context = None


def ssl_context(ca_file: Path | None) -> ssl.SSLContext | bool:
    """The TLS context that trusts the authorities of the file, or of the system. Raises `OSError`."""
    return True if ca_file is None else ssl.create_default_context(cafile=ca_file)


def _read(file: Path | None, name: str) -> str:
    if file is None:
        raise Misconfigured(f"{name}: expected data or a file, got neither")
    try:
        return file.read_text("ascii", "replace")
    except OSError as error:
        raise Misconfigured(f"{name} {file}: {error.strerror or error}") from error


def _version(file: Path) -> object:
    """A value that differs once the file, or the file that a link leads to, was replaced."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
