"""How the client proves who it is: its certificate and the hub's authority, read again when their files change.

gRPC takes the content of the files when a channel is made and keeps it. So the client asks here before each call,
and makes a new channel when there is something new. Files that do not fit each other, such as a certificate that
was replaced a moment before its key, change nothing: what was loaded before stays in force.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import grpc
import msgspec

from sentinel.drivers.identity.file_watch import WatchedFiles
from sentinel.drivers.rest.tls import TlsSettings
from sentinel.ports.errors import Misconfigured
from sentinel.runtime import bounded_file
from sentinel.runtime.log import Log
from sentinel.runtime.secrets import Secret

_MAX_BYTES: Final = 1024 * 1024


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a client. Without `ca`, the authorities of the system are trusted."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @property
    def paths(self) -> Sequence[Path]:
        return [path for path in (self.ca, self.certificate, self.key) if path is not None]


class LoadedTls(msgspec.Struct, frozen=True):
    """The content of the files. They fit each other."""

    ca: bytes | None
    certificate: bytes | None
    key: bytes | None

    def __repr__(self) -> str:
        return "LoadedTls()"

    def channel_credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(self.ca, self.key, self.certificate)


class WatchedTls:
    """The current content of the files."""

    def __init__(self, files: TlsFiles, *, log: Log, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Load the files. Raises `Misconfigured` if they cannot be used."""
        self._watched = WatchedFiles(
            files.paths, lambda: _load(files), log=log, event="tls.unusable", monotonic=monotonic
        )

    def get(self) -> LoadedTls:
        """Return what to use now. The same object as long as the files are the same."""
        return self._watched.get()


def _load(files: TlsFiles) -> LoadedTls:
    if (files.certificate is None) != (files.key is None):
        raise Misconfigured("hub.tls: expected both cert and key, or neither")
    ca, certificate, key = _read("ca", files.ca), _read("cert", files.certificate), _read("key", files.key)
    # For a bad file, gRPC would only say that the handshake failed.
    try:
        TlsSettings(
            ca_data=_text(ca), certificate_data=_text(certificate), key_data=Secret(_text(key))
        ).build_context()
    except Misconfigured as error:
        raise Misconfigured(f"hub.tls ({', '.join(map(str, files.paths))}): {error}") from error
    return LoadedTls(ca, certificate, key)


def _read(name: str, path: Path | None) -> bytes | None:
    try:
        return None if path is None else bounded_file.read(path, max_bytes=_MAX_BYTES)
    except Misconfigured as error:
        raise Misconfigured(f"hub.tls.{name}: {error}") from error


def _text(content: bytes | None) -> str:
    return "" if content is None else content.decode("ascii", "replace")
