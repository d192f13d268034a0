"""Tokens in the database: how few queries they cost, and how soon a revocation is seen."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from sentinel.core.access import Identity, Role
from sentinel.drivers.identity.stored_tokens import CHECK_INTERVAL, StoredTokens
from sentinel.ports.errors import Unavailable
from sentinel.ports.identity_store import IdentityTransaction, IssuedToken, TokenOwner
from sentinel.runtime.bearer_tokens import digest_of, new_token
from sentinel.testing.clock import START, ManualClock
from sentinel.testing.database import Fault, MemoryDatabase
from sentinel.testing.identity_store import MemoryIdentityStore

CI = Identity("ci", Role.OPERATOR)


class GatedStore(MemoryIdentityStore):
    """Holds results back until the test lets them return."""

    def __init__(self, database: MemoryDatabase) -> None:
        super().__init__(database)
        self.has_read = asyncio.Event()
        self.may_return = asyncio.Event()
        self.may_return.set()

    async def owner(self, digest: bytes) -> TokenOwner | None:
        found = await super().owner(digest)
        if not self.may_return.is_set():
            self.has_read.set()
        await self.may_return.wait()
        return found


class Stored:
    """Tokens in memory with a counter of queries and a clock."""

    def __init__(self) -> None:
        self.queries: Counter[str] = Counter()
        self.is_down = False
        self.seconds = 0.0
        self.clock = ManualClock()
        self.database = MemoryDatabase(faults=self._fault)
        self.store = GatedStore(self.database)
        self.tokens = StoredTokens(self.store, clock=self.clock, monotonic=lambda: self.seconds, max_remembered=10)

    def _fault(self, call: str) -> Fault | None:
        self.queries[call] += 1
        return Fault.BEFORE_COMMIT if self.is_down else None

    async def issue(self, *, lifetime: timedelta | None = None) -> str:
        text = new_token()
        token = IssuedToken(
            id=text[:20],
            name="ci",
            role=Role.OPERATOR,
            digest=digest_of(text),
            created_time=START,
            created_by="root",
            expires_time=None if lifetime is None else self.clock.now() + lifetime,
        )
        await self.store.transact(lambda transaction: transaction.add_token(token))
        self.queries.clear()
        return text

    async def revoke(self, text: str) -> None:
        def work(transaction: IdentityTransaction) -> None:
            transaction.lock()
            transaction.remove_token(text[:20])

        await self.store.transact(work)

    def let_check(self) -> None:
        self.seconds += CHECK_INTERVAL.total_seconds()


@pytest.fixture
async def stored() -> Stored:
    stored = Stored()
    await stored.database.open()
    return stored


async def test_a_token_is_looked_up_once(stored: Stored) -> None:
    text = await stored.issue()

    found = await asyncio.gather(*(stored.tokens.identify(text) for _ in range(100)))
    for _ in range(100):
        found.append(await stored.tokens.identify(text))

    assert found == [CI] * 200
    assert stored.queries["revision"] == 1
    assert stored.queries["owner"] <= 100  # those that came at the same time as the first
    before = stored.queries["owner"]
    stored.let_check()
    assert await stored.tokens.identify(text) == CI
    assert stored.queries == {"revision": 2, "owner": before}


async def test_an_unknown_token_is_looked_up_once(stored: Stored) -> None:
    text = new_token()

    for _ in range(100):
        assert await stored.tokens.identify(text) is None

    assert stored.queries == {"revision": 1, "owner": 1}


@pytest.mark.parametrize(
    "text",
    ["", "snt_", "a.b.c", new_token()[:-1], f"{new_token()}A", new_token().upper()],
    ids=["empty", "prefix", "JWT", "too short", "too long", "upper case"],
)
async def test_text_that_was_never_issued_costs_no_query(stored: Stored, text: str) -> None:
    assert await stored.tokens.identify(text) is None
    assert not stored.queries


async def test_a_revocation_elsewhere_is_seen_at_the_next_check(stored: Stored) -> None:
    one, two = await stored.issue(), await stored.issue()
    assert await stored.tokens.identify(one) == await stored.tokens.identify(two) == CI

    await stored.revoke(one)
    within = await stored.tokens.identify(one)
    stored.let_check()

    assert within == CI
    assert await stored.tokens.identify(one) is None
    assert await stored.tokens.identify(two) == CI
    assert timedelta(seconds=1) >= CHECK_INTERVAL


async def test_a_revocation_in_this_process_is_seen_at_once(stored: Stored) -> None:
    text = await stored.issue()
    assert await stored.tokens.identify(text) == CI
    stored.seconds += 0.1

    await stored.revoke(text)
    stored.tokens.forget()

    assert await stored.tokens.identify(text) is None


async def test_a_lookup_that_a_revocation_overtakes_is_not_remembered(stored: Stored) -> None:
    text, other = await stored.issue(), await stored.issue()
    assert await stored.tokens.identify(other) == CI

    stored.store.may_return.clear()
    looking_up = asyncio.create_task(stored.tokens.identify(text))
    await stored.store.has_read.wait()
    await stored.revoke(text)
    stored.let_check()
    stored.store.has_read.clear()
    checking = asyncio.create_task(stored.tokens.identify(other))  # sees the new revision, then waits as well
    await stored.store.has_read.wait()
    stored.store.may_return.set()
    await asyncio.gather(looking_up, checking)

    assert await stored.tokens.identify(text) is None


async def test_an_expired_token_is_unknown_without_a_query(stored: Stored) -> None:
    text = await stored.issue(lifetime=timedelta(seconds=5))
    assert await stored.tokens.identify(text) == CI

    await stored.clock.advance(timedelta(seconds=5))

    assert await stored.tokens.identify(text) is None
    assert stored.queries["owner"] == 1


async def test_guesses_do_not_push_out_tokens_in_use(stored: Stored) -> None:
    text = await stored.issue()
    assert await stored.tokens.identify(text) == CI
    for _ in range(50):
        assert await stored.tokens.identify(new_token()) is None

    before = stored.queries["owner"]

    assert await stored.tokens.identify(text) == CI
    assert stored.queries["owner"] == before


async def test_more_tokens_than_are_remembered_stay_valid(stored: Stored) -> None:
    texts = [await stored.issue() for _ in range(25)]

    for _ in range(2):
        assert [await stored.tokens.identify(text) for text in texts] == [CI] * 25


async def test_an_outage_is_unavailable_and_not_unknown(stored: Stored) -> None:
    text = await stored.issue()
    assert await stored.tokens.identify(text) == CI
    stored.is_down = True
    stored.let_check()

    for _ in range(10):
        with pytest.raises(Unavailable):
            await stored.tokens.identify(text)
    asked = stored.queries["revision"]
    stored.is_down = False
    stored.let_check()

    assert asked == 2  # requests in between did not wait for the database
    assert await stored.tokens.identify(text) == CI


async def test_a_known_token_expires_during_an_outage(stored: Stored) -> None:
    text = await stored.issue(lifetime=timedelta(minutes=1))
    assert await stored.tokens.identify(text) == CI
    stored.is_down = True
    stored.let_check()

    await stored.clock.advance(timedelta(minutes=1))

    assert await stored.tokens.identify(text) is None
