"""Who may do what: one model of identity for people and machines, and for every server of the product."""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

import msgspec


class Role(StrEnum):
    """What an identity is for."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    PULSE = "pulse"
    ADAPTER = "adapter"
    AGENT = "agent"


class Action(StrEnum):
    """What a request wants, as far as permission is concerned."""

    READ = "read"
    """Resources and statuses."""
    WRITE = "write"
    """Create, patch, delete, pulse, pause and resume resources."""
    FORCE_DELETE = "force-delete"
    REPORT = "report"
    """As the adapter that the report names."""
    AUDIT = "audit"


class Identity(msgspec.Struct, frozen=True):
    """Whoever makes a request."""

    name: str
    role: Role
    adapter: str = ""
    """The one that an adapter may report as."""
    is_anonymous: bool = False
    """Nobody in particular, where the server runs without protection: may do everything."""


ANONYMOUS = Identity("anonymous", Role.ADMIN, is_anonymous=True)


def permits(identity: Identity, action: Action) -> bool:
    """Whether this identity may do such a thing at all; which adapter it reports as is asked by `speaks_for`."""
    if identity.is_anonymous:
        return True
    match action:
        case Action.READ:
            return identity.role is not Role.AGENT
        case Action.WRITE:
            return identity.role in (Role.OPERATOR, Role.ADMIN)
        case Action.FORCE_DELETE | Action.AUDIT:
            return identity.role is Role.ADMIN
        case Action.REPORT:
            return identity.role is Role.ADAPTER
        case _:
            assert_never(action)


def speaks_for(identity: Identity, adapter: str) -> bool:
    """Whether this identity may report as this adapter."""
    return identity.is_anonymous or (identity.role is Role.ADAPTER and identity.adapter == adapter)
