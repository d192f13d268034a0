"""The contract of `ports.secret_store.SecretStore`.

A driver's test class inherits `SecretStoreContract` and defines a fixture `stores`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from sentinel.core.hub.states import State
from sentinel.core.hub.versions import VersionName
from sentinel.ports.hub_store import HubEventType
from sentinel.ports.secret_store import SecretRecord, SecretStore, SecretTransaction
from tests.support.databases.backends import Backend
from tests.support.fleet.store_records import HOUR, MOMENT, SECOND, Stores, StoreSuite
from tests.support.hub.store_records import config, instance, removing, saving, version

VALUE = b"-----BEGIN \xff\x00 PRIVATE KEY-----"


def putting(
    name: str, value: bytes = VALUE, *, seconds: int = 0, offered_to: str | None = None
) -> Callable[[SecretTransaction], None]:
    """A transaction that stores a secret."""

    def work(transaction: SecretTransaction) -> None:
        transaction.secret(name)
        record = SecretRecord(name=name, updated_time=MOMENT + seconds * SECOND, offered_to=offered_to)
        transaction.save_secret(record, value)

    return work


def pushing(config_id: str, *secrets: tuple[str, ...]) -> Callable[[SecretTransaction], None]:
    """A transaction that stores a configuration, with a version for each of these tuples of references."""

    def work(transaction: SecretTransaction) -> None:
        transaction.add_config(config(config_id, len(secrets)))
        for number, references in enumerate(secrets, 1):
            added = version(config_id, number)
            transaction.add_version(msgspec.structs.replace(added, secrets=references))

    return work


class SecretStoreContract(StoreSuite):
    """Values go in and come out by name, and who names them is known."""

    @pytest.fixture
    def secrets(self, backend: Backend) -> SecretStore:
        return backend.secrets

    async def test_a_secret_outlives_a_restart(self, stores: Stores) -> None:
        backend = await stores.empty()
        await backend.secrets.transact(putting("api-cert", offered_to="edge-1"))
        backend = await stores.reopened(backend)

        found = await backend.secrets.secrets_by_name(["api-cert", "other"])
        values = await backend.secrets.values(["api-cert", "other"])

        await backend.database.close()
        assert found == {"api-cert": SecretRecord(name="api-cert", updated_time=MOMENT, offered_to="edge-1")}
        assert values == {"api-cert": VALUE}

    async def test_a_second_value_replaces_the_first(self, secrets: SecretStore) -> None:
        await secrets.transact(putting("api-cert", b"one"))
        await secrets.transact(putting("api-cert", b"two", seconds=5))

        assert await secrets.values(["api-cert"]) == {"api-cert": b"two"}
        assert (await secrets.secrets_by_name(["api-cert"]))["api-cert"].updated_time == MOMENT + 5 * SECOND
        assert await secrets.count_secrets() == 1

    async def test_a_removed_secret_is_gone_and_its_name_is_free(self, secrets: SecretStore) -> None:
        await secrets.transact(putting("api-cert"))

        def remove(transaction: SecretTransaction) -> None:
            assert transaction.secret("api-cert") is not None
            transaction.remove_secret("api-cert")

        await secrets.transact(remove)

        assert await secrets.values(["api-cert"]) == {}
        assert await secrets.count_secrets() == 0
        await secrets.transact(putting("api-cert", b"again"))
        assert await secrets.values(["api-cert"]) == {"api-cert": b"again"}

    async def test_secrets_are_listed_by_name(self, secrets: SecretStore) -> None:
        for name in ("b", "a", "C", "d"):
            await secrets.transact(putting(name))

        first = await secrets.secrets(after="", limit=2)
        rest = await secrets.secrets(after=first[-1].name, limit=10)

        assert [each.name for each in first] == ["C", "a"]
        assert [each.name for each in rest] == ["b", "d"]
        assert await secrets.count_secrets() == 4

    async def test_a_failed_transaction_stores_nothing(self, secrets: SecretStore) -> None:
        def fail(transaction: SecretTransaction) -> None:
            putting("api-cert")(transaction)
            raise ValueError

        with pytest.raises(ValueError):
            await secrets.transact(fail)

        assert await secrets.count_secrets() == 0

    async def test_a_secret_has_to_be_read_before_it_changes(self, secrets: SecretStore) -> None:
        record = SecretRecord(name="api-cert", updated_time=MOMENT)

        for change in (
            lambda transaction: transaction.save_secret(record, VALUE),
            lambda transaction: transaction.note_offered("api-cert", None),
            lambda transaction: transaction.remove_secret("api-cert"),
        ):
            with pytest.raises(RuntimeError, match="api-cert was not read in this transaction"):
                await secrets.transact(change)

    async def test_no_values_are_read_of_no_names(self, secrets: SecretStore) -> None:
        assert await secrets.values([]) == {}
        assert await secrets.secrets_by_name([]) == {}
        assert await secrets.used_by([]) == {}

    async def test_values_with_the_current_key_are_not_encrypted_again(self, secrets: SecretStore) -> None:
        await secrets.transact(putting("api-cert"))

        assert secrets.has_key
        assert await secrets.load() == 0

    async def test_the_latest_version_uses_what_it_names(self, secrets: SecretStore) -> None:
        await secrets.transact(pushing("edge", ("secret:a", "env:A"), ("secret:b", "secret:c", "vault:x#y")))
        await secrets.transact(pushing("api", ("secret:b",)))

        used = await secrets.used_by(["a", "b", "c", "A", "unknown"])

        assert used == {"b": [VersionName("api", 1), VersionName("edge", 2)], "c": [VersionName("edge", 2)]}

    async def test_an_assigned_version_uses_what_it_names(self, secrets: SecretStore) -> None:
        await secrets.transact(pushing("edge", ("secret:a",), ("secret:a",), ()))
        await secrets.transact(
            saving(
                instance("edge-1", assigned=VersionName("edge", 1)),
                instance("edge-2", assigned=VersionName("edge", 3)),
            )
        )

        before = await secrets.used_by(["a"])
        await secrets.transact(saving(instance("edge-1", State.REMOVED, assigned=VersionName("edge", 1))))

        assert before == {"a": [VersionName("edge", 1)]}
        assert await secrets.used_by(["a"]) == {}

    async def test_a_deleted_configuration_uses_nothing(self, secrets: SecretStore) -> None:
        await secrets.transact(pushing("edge", ("secret:a",)))

        await secrets.transact(removing("edge"))

        assert await secrets.used_by(["a"]) == {}
        await secrets.transact(pushing("edge", ("secret:a",)))
        assert await secrets.used_by(["a"]) == {"a": [VersionName("edge", 1)]}

    async def test_users_are_the_instances_that_need_it(self, secrets: SecretStore) -> None:
        await secrets.transact(pushing("edge", ("secret:a",), ("secret:b",)))
        await secrets.transact(
            saving(
                instance("edge-3", assigned=VersionName("edge", 1)),
                instance("edge-1", State.OFFLINE, assigned=VersionName("edge", 1)),
                instance("edge-2", assigned=VersionName("edge", 2)),
                instance("edge-4", State.REMOVED, assigned=VersionName("edge", 1)),
                instance("edge-5", assigned=VersionName("edge", 1)),
                instance("edge-6"),
            )
        )

        first = await secrets.users("a", after="", limit=2)

        assert first == ["edge-1", "edge-3"]
        assert await secrets.users("a", after=first[-1], limit=2) == ["edge-5"]
        assert await secrets.users("unknown", after="", limit=2) == []

    async def test_an_unfinished_offer_is_found_until_it_ends(self, secrets: SecretStore) -> None:
        for name in ("b", "a", "done"):
            await secrets.transact(putting(name, offered_to=None if name == "done" else ""))

        found = [each.name for each in await secrets.unfinished_offers(limit=10)]
        for offered_to in ("edge-7", None):

            def note(transaction: SecretTransaction, offered_to: str | None = offered_to) -> None:
                transaction.secret("a")
                transaction.note_offered("a", offered_to)

            await secrets.transact(note)
            record = (await secrets.secrets_by_name(["a"]))["a"]
            assert record == SecretRecord(name="a", updated_time=MOMENT, offered_to=offered_to)

        assert found == ["a", "b"]
        assert [each.name for each in await secrets.unfinished_offers(limit=10)] == ["b"]
        assert await secrets.values(["a"]) == {"a": VALUE}

    async def test_its_events_wake_readers_of_the_log(self, backend: Backend) -> None:
        def work(transaction: SecretTransaction) -> None:
            putting("a")(transaction)
            transaction.append_event(HubEventType.INSTANCE_CHANGED, "edge-1", b"", MOMENT + HOUR)

        async with backend.hub.wakeups() as woken:
            woken.clear()
            await backend.secrets.transact(work)
            await woken.wait()

        assert [each.subject for each in await backend.hub.events(0, limit=10)] == ["edge-1"]
