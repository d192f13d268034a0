"""`Idempotency-Key`: a request that a client may repeat, and that is carried out once.

A handler reads the key of its request. Within its transaction, a use case first recalls what it answered before,
and in the end remembers its answer:

    key = idempotency.read(request, "deployments", draft)

    def work(transaction):
        if (earlier := idempotency.recall(transaction, key)) is not None:
            return earlier.body
        …
        idempotency.remember(transaction, key, version=0, body=body, now=now)

    return await idempotency.attempt(key, lambda: store.transact(work))
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
PARAMETER: Final = Parameter(name=HEADER, description="Makes a creation safe to repeat: it happens once.")
REPLAYED: Final = "Idempotent-Replayed"
"""The header of a response that was given before."""

_LONGEST = 255
_ATTEMPTS = 3

_encode = msgspec.json.Encoder().encode


class IdempotencyKey(msgspec.Struct, frozen=True):
    """The key of a request, whose it is, and what the request asks for."""

    actor: str
    key: str
    fingerprint: str


def read(request: Request, *meaning: object) -> IdempotencyKey | None:
    """The key of a request, None where it has none. A key that is too long or not printable is a 400.

    `meaning` is what the request asks for, the operation included, as values that msgspec encodes. It is not the
    bytes of the request: a client that repeats itself may write members in another order.
    """
    key = request.header(HEADER) or ""
    if len(key) > _LONGEST or not key.isprintable():
        raise problem.bad_field(HEADER, f"expected at most {_LONGEST} printable characters")
    if not key:
        return None
    return IdempotencyKey(request.caller.identity.name, key, hashlib.sha256(_encode(meaning)).hexdigest())


def recall(transaction: StoredResponses, key: IdempotencyKey | None) -> StoredResponse | None:
    """The response to an earlier request with this key. Another request under the same key is a 422."""
    stored = transaction.recall(key.actor, key.key) if key is not None else None
    if stored is not None and key is not None and stored.fingerprint != key.fingerprint:
        raise problem.unprocessable("this Idempotency-Key was used for another request")
    return stored


def remember(
    transaction: StoredResponses, key: IdempotencyKey | None, *, version: int, body: bytes, now: datetime
) -> None:
    """Stores the response for those who repeat the request. Raises `KeyTaken`."""
    if key is not None:
        transaction.remember(
            StoredResponse(
                actor=key.actor, key=key.key, fingerprint=key.fingerprint, time=now, version=version, body=body
            )
        )


async def attempt(key: IdempotencyKey | None, write: Callable[[], Awaitable[T]]) -> T:
    """Carries a request out. With a key it tries again after a `AlreadyExists`; raises the last one.

    With a key, the value may have been taken by the request that this one repeats, if that has only just ended.
    The next attempt then recalls its response.
    """
    for _ in range(_ATTEMPTS - 1 if key is not None else 0):
        with suppress(AlreadyExists):
            return await write()
    return await write()
