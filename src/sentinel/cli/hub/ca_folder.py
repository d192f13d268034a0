"""The folder of a hub's certificate authority.

    ca.crt ca.key     the authority; agents trust ca.crt, and the hub gets it as its client CA
    hub.crt hub.key   the hub's certificate, which has its host names and IP addresses
    agents/ID.crt     an agent's certificate, whose common name is the id of its instance, and …
    agents/ID.key     … its key
    revoked           the serials of revoked certificates, which the hub reads
    issued            the serial, the end and the id of every certificate of an agent

A certificate is recorded before it is written, so that there is none that cannot be revoked. Keys can be read by
their owner only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from sentinel.core.identity_names import AGENT_UNIT, is_instance_id
from sentinel.core.times import timestamp
from sentinel.ports.errors import Misconfigured
from sentinel.runtime import atomic_file, certificate_authority, revoked_serials
from sentinel.runtime.certificate_authority import KeyPair, Purpose, Subject
from sentinel.runtime.settings.report import quoted

_CA_NAME: Final = "Sentinel Hub CA"
_HUB_UNIT: Final = "sentinel-hub"
_PRIVATE_FOLDER, _PRIVATE, _PUBLIC = 0o700, 0o600, 0o644


class UnusableCa(Exception):
    """The folder cannot be used for this. The message says why, and names the file."""


class CertificateState(StrEnum):
    """Whether a certificate can be used."""

    VALID = "valid"
    EXPIRED = "expired"
    REVOKED = "revoked"


class Record(msgspec.Struct, frozen=True):
    """An issued certificate, as the folder remembers it."""

    serial: int
    expires_time: datetime
    id: str

    def line(self) -> str:
        return f"{revoked_serials.hexadecimal(self.serial)} {timestamp(self.expires_time)} {self.id}\n"


class PairFiles(msgspec.Struct, frozen=True):
    """A certificate and its key, and their files."""

    certificate: Path
    key: Path
    pair: KeyPair


class NewCa(msgspec.Struct, frozen=True):
    """What `create` has made."""

    ca: PairFiles
    hub: PairFiles


class IssuedCertificate(msgspec.Struct, frozen=True):
    """A new certificate of an agent, and earlier ones of the same id that can still be used."""

    files: PairFiles
    earlier: tuple[Record, ...]


class Revocation(msgspec.Struct, frozen=True):
    """The serials that were revoked, and those that had been before."""

    revoked: tuple[int, ...]
    before: tuple[int, ...]


class CaFolder:
    """A certificate authority in a folder. Every method raises `UnusableCa`; one process changes it at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._revoked, self._issued = folder / "revoked", folder / "issued"

    def create(
        self,
        *,
        hosts: Sequence[str],
        organization: str,
        now: datetime,
        ca_lifetime: timedelta,
        hub_lifetime: timedelta,
    ) -> NewCa:
        """Make an authority, and a certificate for the hub. Nothing that exists is overwritten."""
        with _os_errors_named(self._folder):
            self._folder.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        with self._locked():
            for path in (*self._paths("ca"), *self._paths("hub")):
                if path.exists():
                    raise UnusableCa(f"{path} exists; expected a folder without an authority")
            ca = certificate_authority.make_authority(
                Subject(_CA_NAME, organization), now=now, lifetime=ca_lifetime
            )
            hub = _sign_hub(ca, hosts, now, hub_lifetime)
            for path in (self._revoked, self._issued):
                if not path.exists():
                    atomic_file.write(path, b"", mode=_PUBLIC)
            return NewCa(ca=self._write("ca", ca), hub=self._write("hub", hub))

    def renew_hub(self, *, hosts: Sequence[str], now: datetime, lifetime: timedelta) -> PairFiles:
        """Issue another certificate for the hub. Without hosts, those of its present one stay."""
        with self._locked():
            ca = self._authority(now)
            hosts = hosts or self._read("hub").hosts()
            if not hosts:
                raise UnusableCa(f"{self._folder / 'hub.crt'} names no host; say which with --host")
            return self._write("hub", _sign_hub(ca, hosts, now, lifetime))

    def issue(self, instance: str, *, now: datetime, lifetime: timedelta) -> IssuedCertificate:
        """Issue a certificate for an agent. Earlier ones of the same id stay valid."""
        _require_id(instance)
        with self._locked():
            ca = self._authority(now)
            records = self._records()
            revoked = self._revoked_serials()
            earlier = [
                each
                for each in records
                if each.id == instance and _state(each, revoked, now) is CertificateState.VALID
            ]
            pair = certificate_authority.sign(
                ca,
                Subject(instance, ca.organization, AGENT_UNIT),
                purposes=(Purpose.CLIENT,),
                now=now,
                lifetime=lifetime,
            )
            self._record([*records, Record(pair.serial, pair.expires_time, instance)])
            (self._folder / "agents").mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
            return IssuedCertificate(self._write(f"agents/{instance}", pair), tuple(earlier))

    def revoke(self, instance: str) -> Revocation:
        """Revoke every certificate of this id that is known: those in the record, and the one in its file."""
        _require_id(instance)
        with self._locked():
            serials = [each.serial for each in self._records() if each.id == instance]
            certificate, _ = self._paths(f"agents/{instance}")
            # What is recorded is revoked even if the file is damaged.
            present = certificate_authority.serial_of(certificate.read_bytes()) if certificate.exists() else None
            if present is not None:
                serials.append(present)
            if not serials:
                raise UnusableCa(f"{self._folder}: no certificate was issued for {instance}")
            known = self._revoked_serials()
            new = tuple(dict.fromkeys(serial for serial in serials if serial not in known))
            if new:
                atomic_file.write(self._revoked, revoked_serials.extended(self._revoked, new), mode=_PUBLIC)
            return Revocation(new, tuple(dict.fromkeys(serial for serial in serials if serial in known)))

    def certificates(self, now: datetime) -> list[tuple[Record, CertificateState]]:
        """Return the issued certificates of agents, the oldest first."""
        with self._locked():
            revoked = self._revoked_serials()
            return [(each, _state(each, revoked, now)) for each in self._records()]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock, and turn every expected error into `UnusableCa`."""
        with _os_errors_named(self._folder), atomic_file.locked_folder(self._folder):
            try:
                yield
            except Misconfigured as error:
                raise UnusableCa(str(error)) from error

    def _authority(self, now: datetime) -> KeyPair:
        try:
            ca = self._read("ca")
        except FileNotFoundError as error:
            raise UnusableCa(f"{error.filename} does not exist; run `sentinel hub ca init` first") from error
        problem = certificate_authority.authority_problem(ca, now)
        if problem is not None:
            raise UnusableCa(f"{self._folder / 'ca.crt'}: {problem}")
        return ca

    def _paths(self, name: str) -> tuple[Path, Path]:
        return self._folder / f"{name}.crt", self._folder / f"{name}.key"

    def _read(self, name: str) -> KeyPair:
        certificate, key = self._paths(name)
        pair = certificate_authority.read(certificate.read_bytes(), key.read_bytes())
        if pair is None:
            raise UnusableCa(f"{certificate} and {key}: expected a certificate and its key on P-256, in PEM")
        return pair

    def _write(self, name: str, pair: KeyPair) -> PairFiles:
        certificate, key = self._paths(name)
        atomic_file.write(key, pair.key_pem, mode=_PRIVATE)
        atomic_file.write(certificate, pair.certificate_pem, mode=_PUBLIC)
        return PairFiles(certificate, key, pair)

    def _revoked_serials(self) -> frozenset[int]:
        return revoked_serials.read(self._revoked) if self._revoked.exists() else frozenset()

    def _records(self) -> list[Record]:
        try:
            lines = self._issued.read_text("utf-8").splitlines()
        except FileNotFoundError:
            return []
        except UnicodeDecodeError as error:
            raise UnusableCa(f"{self._issued}: expected text") from error
        return [self._parse(line, number) for number, line in enumerate(lines, 1)]

    def _parse(self, line: str, number: int) -> Record:
        try:
            serial, expires, instance = line.split(" ")
            return Record(int(serial, 16), msgspec.convert(expires, datetime), instance)
        except ValueError as error:
            raise UnusableCa(f"{self._issued}:{number}: expected a serial, a time and an id") from error

    def _record(self, records: Sequence[Record]) -> None:
        atomic_file.write(self._issued, "".join(each.line() for each in records).encode(), mode=_PUBLIC)


def id_problem(instance: str) -> str | None:
    """Return why an id cannot be in a certificate and in the name of a file, or None."""
    limit = certificate_authority.MAX_NAME_LENGTH
    if len(instance) > limit:
        return f"expected at most {limit} characters, the limit of a common name, got {len(instance)}"
    if not is_instance_id(instance):
        return f"expected letters, digits and ._~- only, and not . or .., got {quoted(instance)}"
    return None


def _require_id(instance: str) -> None:
    problem = id_problem(instance)
    if problem is not None:
        raise ValueError(problem)


def _sign_hub(ca: KeyPair, hosts: Sequence[str], now: datetime, lifetime: timedelta) -> KeyPair:
    subject = Subject(hosts[0][: certificate_authority.MAX_NAME_LENGTH], ca.organization, _HUB_UNIT)
    return certificate_authority.sign(
        ca, subject, hosts=hosts, purposes=(Purpose.SERVER,), now=now, lifetime=lifetime
    )


def _state(record: Record, revoked: frozenset[int], now: datetime) -> CertificateState:
    if record.serial in revoked:
        return CertificateState.REVOKED
    return CertificateState.VALID if now < record.expires_time else CertificateState.EXPIRED


@contextmanager
def _os_errors_named(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = error.filename or folder
        raise UnusableCa(f"{where}: {(error.strerror or str(error)).lower()}") from error
