"""Idempotency keys: reading them, and repeated requests."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import pytest

from sentinel.core.access import Identity, Role
from sentinel.ports.database import AlreadyExists
from sentinel.ports.idempotency import KeyTaken
from sentinel.testing import transaction as transactions
from sentinel.testing.database import MemoryDatabase
from sentinel.testing.transaction import MemoryTransaction
from sentinel.web import idempotency
from sentinel.web.idempotency import IdempotencyKey
from sentinel.web.problem import Problem
from sentinel.web.routing import Caller, Method, Request, Response
from tests.web.asgi_client import returning, route

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
KEY = IdempotencyKey("ops", "k", "f1")


def request(**headers: str) -> Request:
    caller = Caller(Identity("ops", Role.OPERATOR), "", "")
    named = {name.replace("_", "-").lower(): value for name, value in headers.items()}
    return Request(route=route(returning(Response()), method=Method.POST), caller=caller, path={}, headers=named)


async def opened() -> MemoryDatabase:
    database = MemoryDatabase()
    await database.open()
    return database


@pytest.mark.parametrize("headers", [{}, {"Idempotency_Key": ""}])
def test_a_request_without_a_key_has_none(headers: dict[str, str]) -> None:
    assert idempotency.read(request(**headers), "things") is None


def test_a_key_belongs_to_a_caller_and_a_request() -> None:
    key = idempotency.read(request(Idempotency_Key="k"), "things", None, {"name": "a"})

    # Spelled out: keys that earlier versions have stored must still match.
    meaning = hashlib.sha256(b'["things",null,{"name":"a"}]').hexdigest()
    assert key == IdempotencyKey("ops", "k", meaning)


@pytest.mark.parametrize("key", ["x" * 256, "a\x07b"])
def test_a_key_that_is_too_long_or_not_printable_is_rejected(key: str) -> None:
    with pytest.raises(Problem, match="expected at most 255 printable characters") as caught:
        idempotency.read(request(Idempotency_Key=key), "things")

    assert caught.value.status == 400


async def test_a_response_is_recalled_only_for_the_same_request() -> None:
    database = await opened()

    def work(transaction: MemoryTransaction) -> None:
        idempotency.remember(transaction, KEY, version=3, body=b"{}", now=NOW)
        earlier = idempotency.recall(transaction, KEY)
        assert earlier is not None
        assert (earlier.version, earlier.body) == (3, b"{}")
        assert idempotency.recall(transaction, IdempotencyKey("dns", "k", "f1")) is None
        with pytest.raises(Problem, match="was used for another request") as caught:
            idempotency.recall(transaction, IdempotencyKey("ops", "k", "f2"))
        assert caught.value.status == 422

    await transactions.transact(database, lambda: MemoryTransaction(database), work)


async def test_without_a_key_nothing_is_remembered_or_recalled() -> None:
    database = await opened()

    def work(transaction: MemoryTransaction) -> None:
        idempotency.remember(transaction, None, version=0, body=b"", now=NOW)
        assert idempotency.recall(transaction, None) is None

    await transactions.transact(database, lambda: MemoryTransaction(database), work)


class ContendedWrite:
    """A write whose first attempts fail with `AlreadyExists`."""

    def __init__(self, *, failures: int, taken: type[AlreadyExists] = KeyTaken) -> None:
        self.attempts = 0
        self._errors = iter([taken] * failures)

    async def __call__(self) -> str:
        self.attempts += 1
        for error in self._errors:
            raise error
        return "done"


@pytest.mark.parametrize("taken", [KeyTaken, AlreadyExists])
async def test_a_request_with_a_key_is_retried_after_a_lost_race(taken: type[AlreadyExists]) -> None:
    write = ContendedWrite(failures=2, taken=taken)

    assert await idempotency.attempt(KEY, write) == "done"
    assert write.attempts == 3


@pytest.mark.parametrize(("key", "attempts"), [(KEY, 3), (None, 1)])
async def test_the_last_conflict_is_raised(key: IdempotencyKey | None, attempts: int) -> None:
    write = ContendedWrite(failures=9)

    with pytest.raises(KeyTaken):
        await idempotency.attempt(key, write)

    assert write.attempts == attempts
