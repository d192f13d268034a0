"""Certificates and private keys in PEM, as facts. What cannot be used is described, so that people can fix it."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes, PublicKeyTypes

from sentinel.core.proxy.facts import Certificate, PrivateKey, Unreadable

MAX_BYTES: Final = 256 * 1024
MAX_CERTIFICATES: Final = 20

_BEGIN: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,40})-----")
_CERTIFICATES: Final = ("CERTIFICATE", "X509 CERTIFICATE")
_BINARY: Final = (b"\x30\x81", b"\x30\x82")
"""How certificates and keys start in DER."""


def read_certificates(content: bytes) -> tuple[Certificate, ...] | Unreadable:
    """Read all certificates of a file."""
    labels = _labels(content)
    if isinstance(labels, Unreadable):
        return labels
    count = sum(label in _CERTIFICATES for label in labels)
    if not count:
        return Unreadable(f"contains {_listed(labels)} and no certificate")
    if count > MAX_CERTIFICATES:
        return Unreadable(f"contains {count} certificates, and at most {MAX_CERTIFICATES} are allowed")
    try:
        return tuple(_certificate(found) for found in x509.load_pem_x509_certificates(content))
    except UnsupportedAlgorithm:
        return Unreadable("contains a certificate with a key of an unknown kind")
    except (ValueError, x509.InvalidVersion):
        return Unreadable("contains a certificate that is damaged")


def read_key(content: bytes) -> PrivateKey | Unreadable:
    """Read the first private key of a file, which may contain other things, too."""
    labels = _labels(content)
    if isinstance(labels, Unreadable):
        return labels
    label = next((label for label in labels if label.endswith("PRIVATE KEY")), None)
    if label is None:
        return Unreadable(f"contains {_listed(labels)} and no private key")
    # What else the file contains, such as the parameters of a curve, would confuse the library.
    begin, end = (f"-----{word} {label}-----".encode() for word in ("BEGIN", "END"))
    block = content[content.find(begin) :].partition(end)[0] + end + b"\n"
    try:
        key = serialization.load_pem_private_key(block, password=None)
    except TypeError:  # what the library raises where a password is missing
        return Unreadable("is encrypted, and its passphrase cannot be asked for")
    except UnsupportedAlgorithm:
        return Unreadable("contains a key of an unknown kind")
    except ValueError:
        return Unreadable("contains a private key that is damaged")
    return PrivateKey(_digest(key.public_key()))


def _labels(content: bytes) -> list[str] | Unreadable:
    """Return what a file says it contains."""
    if len(content) > MAX_BYTES:
        return Unreadable(f"has {len(content)} bytes, and at most {MAX_BYTES} are allowed")
    if not content.strip():
        return Unreadable("is empty")
    labels = [found[1].decode() for found in _BEGIN.finditer(content)]
    if labels:
        return labels
    if content.startswith(_BINARY):
        return Unreadable("is binary; convert it to PEM with openssl")
    return Unreadable("has no line -----BEGIN …-----")


def _listed(labels: list[str]) -> str:
    return ", ".join(dict.fromkeys(label.lower() for label in labels[:3]))


def _certificate(found: x509.Certificate) -> Certificate:
    return Certificate(
        not_before=found.not_valid_before_utc,
        not_after=found.not_valid_after_utc,
        public_key=_digest(found.public_key()),
        names=_names(found),
    )


def _names(found: x509.Certificate) -> tuple[str, ...]:
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        return ()
    hosts = names.get_values_for_type(x509.DNSName)
    return (*hosts, *map(str, names.get_values_for_type(x509.IPAddress)))


def _digest(key: PublicKeyTypes | CertificatePublicKeyTypes) -> str:
    encoded = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(encoded).hexdigest()
