"""`Idempotency-Key`: lets a client repeat a request that must be carried out only once.

A handler reads the key of its request. In its transaction, a use case first recalls the response to an earlier
request with this key, and finally remembers its own:

    key = idempotency.read(request, "deployments", draft)

    def work(transaction):
        if (earlier := idempotency.recall(transaction, key)) is not None:
            return earlier.body
        …
        idempotency.remember(transaction, key, version=0, body=body, now=now)

    return await idempotency.attempt(key, partial(store.transact, work))
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import Final, TypeVar

import msgspec

from sentinel.ports.database import AlreadyExists
from sentinel.ports.idempotency import StoredResponse, StoredResponses
from sentinel.web import problem
from sentinel.web.routing import Parameter, Request

T = TypeVar("T")

HEADER: Final = "Idempotency-Key"
PARAMETER: Final = Parameter(name=HEADER, description="Makes the request safe to repeat.")
REPLAYED: Final = "Idempotent-Replayed"
"""The header of a replayed response."""

_MAX_LENGTH = 255
_MAX_ATTEMPTS = 3

_encode = msgspec.json.Encoder().encode


class IdempotencyKey(msgspec.Struct, frozen=True):
    """The key of a request, its owner, and a fingerprint of the request."""

    actor: str
    key: str
    fingerprint: str


def read(request: Request, *meaning: object) -> IdempotencyKey | None:
    """Return the key of a request, or None. A key that is too long or not printable is a 400.

    `meaning` is the operation and its arguments, as values that msgspec encodes. The bytes of the body cannot be
    used: a client that repeats a request may order members differently.
    """
    key = request.header(HEADER) or ""
    if len(key) > _MAX_LENGTH or not key.isprintable():
        raise problem.bad_field(HEADER, f"expected at most {_MAX_LENGTH} printable characters")
    if not key:
        return None
    return IdempotencyKey(request.caller.identity.name, key, hashlib.sha256(_encode(meaning)).hexdigest())


def recall(transaction: StoredResponses, key: IdempotencyKey | None) -> StoredResponse | None:
    """Return the response to an earlier request with this key. A different request with the same key is a 422."""
    stored = transaction.recall(key.actor, key.key) if key is not None else None
    if stored is not None and key is not None and stored.fingerprint != key.fingerprint:
        raise problem.unprocessable("this Idempotency-Key was used for another request")
    return stored


def remember(
    transaction: StoredResponses, key: IdempotencyKey | None, *, version: int, body: bytes, now: datetime
) -> None:
    """Store the response for repeated requests. Raises `KeyTaken`."""
    if key is not None:
        transaction.remember(
            StoredResponse(
                actor=key.actor, key=key.key, fingerprint=key.fingerprint, time=now, version=version, body=body
            )
        )


async def attempt(key: IdempotencyKey | None, write: Callable[[], Awaitable[T]]) -> T:
    """Carry out a request. With a key, retry after `AlreadyExists` and raise the last one.

    The request that this one repeats may have just finished and caused it. The next attempt then recalls its
    response.
    """
    for _ in range(_MAX_ATTEMPTS - 1 if key is not None else 0):
        with suppress(AlreadyExists):
            return await write()
    return await write()
