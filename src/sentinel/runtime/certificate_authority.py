"""A certificate authority: its certificate, and the certificates that it signs.

Keys are ECDSA on P-256: every TLS library accepts them, and they are made in less than a millisecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from ipaddress import ip_address
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

MAX_NAME_LENGTH: Final = 64
"""The longest common name and organization that a certificate may have (RFC 5280)."""

_BACKDATED: Final = timedelta(minutes=5)
"""For servers whose clock is slow."""


class Purpose(Enum):
    """What a certificate may be used for. Without the purpose of a server, it cannot impersonate one."""

    SERVER = ExtendedKeyUsageOID.SERVER_AUTH
    CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH


class Subject(msgspec.Struct, frozen=True):
    """Whom a certificate names. An empty text is left out."""

    common_name: str
    organization: str = ""
    unit: str = ""

    def name(self) -> x509.Name:
        """Return the X.509 name. Raises `ValueError` if a text is longer than `MAX_NAME_LENGTH`."""
        texts = {
            NameOID.ORGANIZATION_NAME: self.organization,
            NameOID.ORGANIZATIONAL_UNIT_NAME: self.unit,
            NameOID.COMMON_NAME: self.common_name,
        }
        return x509.Name([x509.NameAttribute(oid, text) for oid, text in texts.items() if text])


class KeyPair(msgspec.Struct, frozen=True):
    """A certificate with its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def serial(self) -> int:
        return self.certificate.serial_number

    @property
    def expires_time(self) -> datetime:
        return self.certificate.not_valid_after_utc

    @property
    def organization(self) -> str:
        """The organization of the certificate, or an empty text."""
        found = self.certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        return str(found[0].value) if found else ""

    def hosts(self) -> tuple[str, ...]:
        """Return the host names and IP addresses of the certificate."""
        try:
            names = self.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return ()
        hosts = names.get_values_for_type(x509.DNSName)
        return (*hosts, *map(str, names.get_values_for_type(x509.IPAddress)))


def make_authority(subject: Subject, *, now: datetime, lifetime: timedelta) -> KeyPair:
    """Make an authority, which signs its own certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(subject, key, now, now + lifetime)
        .issuer_name(subject.name())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(certificate, key)


def sign(
    authority: KeyPair,
    subject: Subject,
    *,
    hosts: Sequence[str] = (),
    purposes: Sequence[Purpose],
    now: datetime,
    lifetime: timedelta,
) -> KeyPair:
    """Make a key, and sign its certificate, which does not outlive the authority's.

    Raises `ValueError` if a host is neither a name in ASCII nor an IP address.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(subject, key, now, min(now + lifetime, authority.expires_time))
        .issuer_name(authority.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose.value for purpose in purposes]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False
        )
    )
    if hosts:
        names = x509.SubjectAlternativeName([general_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return KeyPair(builder.sign(authority.key, hashes.SHA256()), key)


def read(certificate: bytes, key: bytes) -> KeyPair | None:
    """Return a certificate with its key, or None if they are unreadable or do not belong together."""
    try:
        found = x509.load_pem_x509_certificate(certificate)
        private = serialization.load_pem_private_key(key, password=None)
        if not isinstance(private, ec.EllipticCurvePrivateKey) or found.public_key() != private.public_key():
            return None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return KeyPair(found, private)


def serial_of(certificate: bytes) -> int | None:
    """Return the serial of a certificate in PEM, or None if it is unreadable."""
    try:
        return x509.load_pem_x509_certificate(certificate).serial_number
    except ValueError:
        return None


def authority_problem(authority: KeyPair, now: datetime, *, needed: timedelta = timedelta(0)) -> str | None:
    """Return why the authority cannot sign certificates that are valid for the time needed, or None."""
    certificate = authority.certificate
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        certificate.verify_directly_issued_by(certificate)
    except (x509.ExtensionNotFound, InvalidSignature, ValueError, TypeError):
        return "the authority is not a self-signed CA certificate"
    if not constraints.ca:
        return "the authority is not a self-signed CA certificate"
    return age_problem("the authority", certificate, now, needed)


def age_problem(what: str, certificate: x509.Certificate, now: datetime, needed: timedelta) -> str | None:
    """Return why a certificate is not valid from now for the time needed, or None."""
    if now < certificate.not_valid_before_utc:
        return f"{what} is not valid yet"
    if certificate.not_valid_after_utc - now < needed:
        return f"{what} expires at {certificate.not_valid_after_utc:%Y-%m-%d}"
    return None


def general_name(host: str) -> x509.GeneralName:
    """Return a host as certificates name it."""
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: Subject, key: ec.EllipticCurvePrivateKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject.name())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now.astimezone(UTC) - _BACKDATED)
        .not_valid_after(end.astimezone(UTC))
        .public_key(key.public_key())
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )
