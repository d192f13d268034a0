"""What a session token says, and whether it is still good.

A token names one session of one incarnation of an instance. Register begins a session and ends the one before,
so a stolen token is worthless after the next Register. A heartbeat renews a token early. The old one stays valid
until its own end, because the response with the new one may be lost.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from sentinel.core.hub.instance import Instance
from sentinel.core.hub.states import State

CLOCK_SKEW: Final = timedelta(minutes=1)
"""How far another hub's clock may be ahead of ours when it issues a token."""


class SessionClaims(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a session token. Times are whole seconds."""

    instance_id: str
    incarnation: int
    session: int
    issued: datetime
    expires: datetime


class TokenStatus(StrEnum):
    """Whether a call with a token is allowed."""

    VALID = "valid"
    EXPIRED = "expired"
    NOT_YET_VALID = "not yet valid"
    ENDED = "ended"
    """Another Register has ended the session, or the instance does not exist."""
    OTHER_INSTANCE = "other instance"
    """The session is valid, but the call is about another instance."""
    REMOVED = "removed"
    """The instance was removed during the session."""


def issue(instance_id: str, instance: Instance, now: datetime, ttl: timedelta) -> SessionClaims:
    """Return the claims for the current session of an instance, from now on."""
    return SessionClaims(
        instance_id=instance_id,
        incarnation=instance.incarnation,
        session=instance.session,
        issued=now.replace(microsecond=0),
        expires=(now + ttl).replace(microsecond=0),
    )


def judge(claims: SessionClaims, instance: Instance, *, called_id: str, now: datetime) -> TokenStatus:
    """Say whether a call about `called_id` is allowed.

    `instance` is the one that the token names; `Instance()` if there is none.
    """
    if not is_current(claims, now):
        return TokenStatus.EXPIRED if now >= claims.expires else TokenStatus.NOT_YET_VALID
    if (claims.incarnation, claims.session) != (instance.incarnation, instance.session):
        return TokenStatus.ENDED
    if called_id != claims.instance_id:
        return TokenStatus.OTHER_INSTANCE
    return TokenStatus.REMOVED if instance.state is State.REMOVED else TokenStatus.VALID


def is_current(claims: SessionClaims, now: datetime) -> bool:
    """Whether the time of a token has come and is not over. Only its beginning allows for clocks that differ."""
    return claims.issued <= now + CLOCK_SKEW and now < claims.expires


def is_due_for_renewal(claims: SessionClaims, now: datetime) -> bool:
    """Whether less than half of the session's life is left."""
    return claims.expires - now < (claims.expires - claims.issued) / 2
