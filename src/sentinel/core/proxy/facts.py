"""What the check of level 3 has to know about the world, as plain values.

`semantics.questions` names what a configuration depends on, a driver finds out what it can, and
`semantics.check_semantics` judges. What nobody found out is not judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec


class Resolve(StrEnum):
    """What it means if the address of a target does not resolve. One that is forbidden is an error in any case."""

    OFF = "off"
    """Nothing. Addresses are not looked up."""
    WARN = "warn"
    ERROR = "error"


class Outcome(StrEnum):
    """How looking up a name ended."""

    USABLE = "usable"
    FORBIDDEN = "forbidden"
    """It leads to an address that no configuration may use: `addresses.are_forbidden`."""
    FAILED = "failed"
    NOT_TRIED = "not tried"
    """There were more names, or they took longer, than the limits allow."""


class Resolution(msgspec.Struct, frozen=True):
    """The answer about a name."""

    outcome: Outcome
    reason: str = ""
    """Why it failed."""


class Certificate(msgspec.Struct, frozen=True):
    """One certificate of a file."""

    not_before: datetime
    not_after: datetime
    public_key: str
    """A digest. That of the private key which belongs to it is the same."""
    names: tuple[str, ...] = ()
    """The host names and IP addresses that it is valid for."""


class PrivateKey(msgspec.Struct, frozen=True):
    """A private key."""

    public_key: str
    """The digest of its public half."""


class Unreadable(msgspec.Struct, frozen=True):
    """Something that is not what it should be."""

    reason: str
    """What is wrong with it, to be read after `it`."""


class Questions(msgspec.Struct, frozen=True):
    """What a configuration depends on. Everything once, in the order in which it is written."""

    hosts: tuple[str, ...] = ()
    """Names to look up."""
    certificates: tuple[str, ...] = ()
    """References to certificates: `secret:api-cert`, `env:…`, `vault:…`, or `file:…` on the proxy's host."""
    keys: tuple[str, ...] = ()
    """References to private keys."""
    secrets: tuple[str, ...] = ()
    """Names of secrets in the hub."""


class Facts(msgspec.Struct, frozen=True):
    """Answers to `Questions`. By default, nothing is known."""

    now: datetime | None = None
    resolve: Resolve = Resolve.OFF
    hosts: Mapping[str, Resolution] = {}
    certificates: Mapping[str, tuple[Certificate, ...] | Unreadable] = {}
    """By reference. The certificate of the server or client itself comes first, then those of its issuers."""
    keys: Mapping[str, PrivateKey | Unreadable] = {}
    """Private keys by reference."""
    secrets: frozenset[str] | None = None
    """The names of all secrets in the hub. None without a hub."""
