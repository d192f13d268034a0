"""The contract of `ports.signing_keys.SigningKeys`.

A driver's test class inherits `SigningKeysContract` and defines a fixture `stores`.
"""

from __future__ import annotations

from sentinel.ports.signing_keys import SigningKey
from tests.support.databases.backends import Backend
from tests.support.fleet.store_records import HOUR, MOMENT, Stores, StoreSuite, together


class SigningKeysContract(StoreSuite):
    """A database has one key, which the first hub makes."""

    async def test_the_first_hub_makes_the_key_and_others_get_it(self, backend: Backend) -> None:
        first = await backend.signing_keys.load(MOMENT)
        second = await backend.signing_keys.load(MOMENT + HOUR)

        assert len(first.secret) == 32
        assert second == first

    async def test_hubs_that_start_at_once_get_the_same_key(self, backend: Backend) -> None:
        loaded = await together(*(backend.signing_keys.load(MOMENT) for _ in range(20)))

        assert all(isinstance(each, SigningKey) for each in loaded), loaded
        assert len(set(loaded)) == 1

    async def test_the_key_outlives_a_restart(self, stores: Stores) -> None:
        backend = await stores.empty()
        before = await backend.signing_keys.load(MOMENT)
        backend = await stores.reopened(backend)

        after = await backend.signing_keys.load(MOMENT + HOUR)

        await backend.database.close()
        assert after == before

    async def test_the_key_is_not_shown(self, backend: Backend) -> None:
        key = await backend.signing_keys.load(MOMENT)

        assert repr(key) == str(key) == "SigningKey()"
