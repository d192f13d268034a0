"""What the use cases of users, tokens and sign-ins share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NotRequired, TypedDict, Unpack

from sentinel.ports.clock import Clock
from sentinel.ports.identity_store import IdentityStore
from sentinel.web.audit import Auditor


class UseCaseOptions(TypedDict):
    """Where accounts are stored, and what happens when they change."""

    store: IdentityStore
    clock: Clock
    auditor: Auditor
    on_change: NotRequired[Callable[[], None]]
    """Called after sign-ins have ended or a token was revoked, so that this process notices at once."""


class UseCases:
    """The base of use cases of accounts."""

    def __init__(self, **options: Unpack[UseCaseOptions]) -> None:
        self._store = options["store"]
        self._clock = options["clock"]
        self._auditor = options["auditor"]
        self._on_change = options.get("on_change", lambda: None)
