"""Certificates that an operator issues itself: an authority of its own, and a server's certificate from it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from sentinel.runtime.certificate_authority import (
    MAX_NAME_LENGTH,
    KeyPair,
    Purpose,
    Subject,
    age_problem,
    authority_problem,
    general_name,
    make_authority,
    read,
    sign,
)

AUTHORITY_LIFETIME: Final = timedelta(days=3650)
LIFETIME: Final = timedelta(days=90)
RENEW_BEFORE: Final = timedelta(days=30)
"""A certificate that expires earlier is replaced, so that an operator that is down for some days does no harm."""


class CertificateFiles(msgspec.Struct, frozen=True):
    """An authority and a certificate, in PEM."""

    ca_certificate: bytes
    ca_key: bytes
    certificate: bytes
    key: bytes


def problem(files: CertificateFiles, names: Sequence[str], now: datetime) -> str | None:
    """Return why the certificate has to be replaced, or None. `names` are those that clients use."""
    authority = read(files.ca_certificate, files.ca_key)
    if authority is None:
        return "the authority is unreadable, or its key does not fit"
    pair = read(files.certificate, files.key)
    if pair is None:
        return "the certificate is unreadable, or its key does not fit"
    # Certificates must not outlive the authority.
    return authority_problem(authority, now, needed=LIFETIME) or _certificate_problem(
        pair.certificate, authority, names, now
    )


def issue(
    names: Sequence[str], *, subject: str, now: datetime, previous: CertificateFiles | None
) -> CertificateFiles:
    """Issue a certificate. The previous authority signs it if it can, so that clients go on trusting it."""
    authority = None if previous is None else read(previous.ca_certificate, previous.ca_key)
    if authority is None or authority_problem(authority, now, needed=LIFETIME) is not None:
        authority = make_authority(_subject(f"{subject} CA"), now=now, lifetime=AUTHORITY_LIFETIME)
    pair = sign(
        authority,
        _subject(subject),
        hosts=names,
        purposes=(Purpose.SERVER, Purpose.CLIENT),
        now=now,
        lifetime=LIFETIME,
    )
    return CertificateFiles(authority.certificate_pem, authority.key_pem, pair.certificate_pem, pair.key_pem)


def _subject(name: str) -> Subject:
    return Subject(name[:MAX_NAME_LENGTH])


def _certificate_problem(
    certificate: x509.Certificate, authority: KeyPair, names: Sequence[str], now: datetime
) -> str | None:
    try:
        certificate.verify_directly_issued_by(authority.certificate)
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, InvalidSignature, ValueError, TypeError):
        return "the certificate is not from the authority, or has no names"
    missing = [name for name in names if general_name(name) not in alternatives]
    if missing:
        return f"the certificate lacks the name {missing[0]}"
    return age_problem("the certificate", certificate, now, RENEW_BEFORE)
