"""Certificates that an operator issues itself: an authority of its own, and a server's certificate signed by it.

Keys are ECDSA on P-256: every TLS library accepts them, and they are made in less than a millisecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFETIME: Final = timedelta(days=3650)
LIFETIME: Final = timedelta(days=90)
RENEW_BEFORE: Final = timedelta(days=30)
"""A certificate that expires earlier is replaced, so that an operator that is down for some days does no harm."""
_BACKDATED: Final = timedelta(minutes=5)
"""For servers whose clock is slow."""


class CertificateFiles(msgspec.Struct, frozen=True):
    """An authority and a certificate, in PEM."""

    ca_certificate: bytes
    ca_key: bytes
    certificate: bytes
    key: bytes


class _Pair(msgspec.Struct, frozen=True):
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


def problem(files: CertificateFiles, names: Sequence[str], now: datetime) -> str | None:
    """Return why the certificate has to be replaced, or None. `names` are those that clients use."""
    authority = _read(files.ca_certificate, files.ca_key)
    if authority is None:
        return "the authority is unreadable, or its key does not fit"
    pair = _read(files.certificate, files.key)
    if pair is None:
        return "the certificate is unreadable, or its key does not fit"
    return _authority_problem(authority, now) or _certificate_problem(pair.certificate, authority, names, now)


def issue(
    names: Sequence[str], *, subject: str, now: datetime, previous: CertificateFiles | None
) -> CertificateFiles:
    """Issue a certificate. The previous authority signs it if it can, so that clients go on trusting it."""
    authority = None if previous is None else _read(previous.ca_certificate, previous.ca_key)
    if authority is None or _authority_problem(authority, now) is not None:
        authority = _make_authority(f"{subject} CA", now)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(subject, now, min(now + LIFETIME, authority.certificate.not_valid_after_utc))
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            critical=False,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False
        )
        .sign(authority.key, hashes.SHA256())
    )
    pair = _Pair(certificate, key)
    return CertificateFiles(authority.certificate_pem, authority.key_pem, pair.certificate_pem, pair.key_pem)


def _make_authority(name: str, now: datetime) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(name, now, now + AUTHORITY_LIFETIME)
        .issuer_name(_name(name))
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _Pair(certificate, key)


def _builder(name: str, now: datetime, end: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .serial_number(x509.random_serial_number())
        .not_valid_before(now.astimezone(UTC) - _BACKDATED)
        .not_valid_after(end.astimezone(UTC))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


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


def _read(certificate: bytes, key: bytes) -> _Pair | None:
    """Return a certificate with its key, or None if they are unreadable or do not fit."""
    try:
        read = x509.load_pem_x509_certificate(certificate)
        private = serialization.load_pem_private_key(key, password=None)
        if not isinstance(private, ec.EllipticCurvePrivateKey) or read.public_key() != private.public_key():
            return None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return _Pair(read, private)


def _authority_problem(authority: _Pair, now: datetime) -> str | None:
    certificate = authority.certificate
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        certificate.verify_directly_issued_by(certificate)
    except (x509.ExtensionNotFound, InvalidSignature, ValueError, TypeError):
        return "the authority is not a self-signed CA certificate"
    if not constraints.ca:
        return "the authority is not a self-signed CA certificate"
    # Certificates must not outlive the authority.
    return _age_problem("the authority", certificate, now, LIFETIME)


def _certificate_problem(
    certificate: x509.Certificate, authority: _Pair, names: Sequence[str], now: datetime
) -> str | None:
    try:
        certificate.verify_directly_issued_by(authority.certificate)
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, InvalidSignature, ValueError, TypeError):
        return "the certificate is not from the authority, or has no names"
    missing = [name for name in names if _general_name(name) not in alternatives]
    if missing:
        return f"the certificate lacks the name {missing[0]}"
    return _age_problem("the certificate", certificate, now, RENEW_BEFORE)


def _age_problem(what: str, certificate: x509.Certificate, now: datetime, needed: timedelta) -> str | None:
    if now < certificate.not_valid_before_utc:
        return f"{what} is not valid yet"
    if certificate.not_valid_after_utc - now < needed:
        return f"{what} expires at {certificate.not_valid_after_utc:%Y-%m-%d}"
    return None
