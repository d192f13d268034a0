"""TLS contexts of listeners and of upstreams."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from sentinel.core.proxy.model import Configuration, Listener, Protocol, Upstream, UpstreamTls
from sentinel.ports.errors import Misconfigured

_MAX_FILE: Final = 2**20
"""More of a file is not compared. A bundle of all public authorities has a quarter of it."""
_ENCRYPTED = frozenset((Protocol.HTTPS, Protocol.H2, Protocol.H3))


def uses_tls(listener: Listener) -> bool:
    """Whether clients of this listener have to use TLS."""
    return listener.protocol in _ENCRYPTED


def can_be_served(listener: Listener) -> bool:
    """Whether a listener has the certificate that it needs. False if it is obtained by ACME."""
    return listener.tls is not None or not uses_tls(listener)


def listener_context(listener: Listener) -> ssl.SSLContext | None:
    """Return the context of a listener that can be served, None for plain HTTP. Raises `Misconfigured`."""
    if listener.tls is None or not uses_tls(listener):
        return None
    where = f'listener "{listener.id}"'
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    _load_pair(context, listener.tls.cert_file, listener.tls.key_file, f"{where}: cert-file and key-file")
    if listener.tls.requires_client_certificate:
        _load_authorities(context, listener.tls.ca_file, f"{where}: ca-file")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def upstream_context(upstream: Upstream) -> ssl.SSLContext | None:
    """Return the context for an upstream, None if it speaks plain HTTP. Raises `Misconfigured`."""
    tls = upstream.tls
    if tls is None:
        return None
    where = f'upstream "{upstream.id}"'
    if tls.ca_cert is None:
        context = ssl.create_default_context()
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _load_authorities(context, tls.ca_cert, f"{where}: ca-cert")
    if tls.is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _load_client_certificate(context, tls, where)
    return context


def fingerprint(upstream: Upstream) -> str:
    """Return a digest of the files of an upstream, which changes when one of them is renewed.

    Take it before the files are used: if one changes meanwhile, the next look finds that.
    """
    tls = upstream.tls or UpstreamTls()
    digest = hashlib.sha256()
    for file in (tls.ca_cert, tls.client_cert, tls.client_key):
        content = b""
        if file is not None:
            with suppress(OSError, ValueError), Path(file).open("rb") as opened:
                content = opened.read(_MAX_FILE)
        digest.update(b"%d:%b" % (len(content), content))
    return digest.hexdigest()


def problems(configuration: Configuration) -> Iterator[str]:
    """Yield what is wrong with the files that the configuration names."""
    for listener in configuration.listeners:
        try:
            listener_context(listener)
        except Misconfigured as error:
            yield str(error)
    for upstream in configuration.upstreams:
        try:
            upstream_context(upstream)
        except Misconfigured as error:
            yield str(error)


def _load_client_certificate(context: ssl.SSLContext, tls: UpstreamTls, where: str) -> None:
    if tls.client_cert is not None and tls.client_key is not None:
        _load_pair(context, tls.client_cert, tls.client_key, f"{where}: client-cert and client-key")


def _load_pair(context: ssl.SSLContext, certificate: str, key: str, where: str) -> None:
    for file in (certificate, key):
        _check_readable(file, where)
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:  # OSError includes ssl.SSLError
        raise Misconfigured(f"{where}: expected a certificate and its key in PEM, got {_reason(error)}") from error


def _load_authorities(context: ssl.SSLContext, file: str | None, where: str) -> None:
    if file is None:
        raise Misconfigured(f"{where}: expected a file of certificates, got none")
    _check_readable(file, where)
    try:
        context.load_verify_locations(file)
    except (OSError, ValueError) as error:
        raise Misconfigured(f"{where}: expected certificates in PEM, got {_reason(error)}") from error


def _check_readable(file: str, where: str) -> None:
    """Name the file that cannot be read: OpenSSL's errors do not."""
    try:
        with Path(file).open("rb"):
            pass
    except OSError as error:
        raise Misconfigured(f"{where}: {file}: {error.strerror or error}") from error
    except ValueError as error:  # a NUL character
        raise Misconfigured(f"{where}: expected the name of a file, got {file!r}") from error


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
