"""The part of the contract of `ports.hub_store.HubStore` that is about configurations and their versions."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from sentinel.core.hub.states import State
from sentinel.core.hub.versions import VersionName
from sentinel.ports.hub_store import ConfigTaken, HubStore, HubTransaction, VersionTaken
from tests.support.databases.backends import Backend
from tests.support.fleet.store_records import HOUR, MOMENT, Stores, together
from tests.support.hub.store_records import (
    HubSuite,
    adding,
    all_events,
    appending,
    config,
    instance,
    removing,
    saving,
    version,
)

API_1 = VersionName("api", 1)


def without_content(*numbers: int) -> list[object]:
    return [msgspec.structs.replace(version("api", number), content="") for number in numbers]


class ConfigContract(HubSuite):
    """Configurations are listed and changed; versions never change."""

    async def test_configurations_are_read_as_they_were_added(self, stores: Stores, backend: Backend) -> None:
        await backend.hub.transact(adding(config("web", 3), config("api")))

        reopened = await stores.reopened(backend)

        hub = reopened.hub
        assert await hub.config("web") == config("web", 3)
        assert await hub.config("Web") is None
        assert list(await hub.configs(after="", limit=9)) == [config("api"), config("web", 3)]
        assert list(await hub.configs(after="api", limit=9)) == [config("web", 3)]
        assert list(await hub.configs(after="", limit=1)) == [config("api")]
        assert await hub.count_configs() == 2
        await reopened.database.close()

    async def test_an_id_is_taken_once(self, hub: HubStore) -> None:
        await hub.transact(adding(config("api")))

        def work(transaction: HubTransaction) -> None:
            appending("api@1")(transaction)
            adding(config("web"), config("api", 7))(transaction)

        with pytest.raises(ConfigTaken):
            await hub.transact(work)
        assert await hub.config("api") == config("api")
        assert await hub.config("web") is None
        assert await all_events(hub) == []

    async def test_a_taken_id_ends_the_transaction(self, hub: HubStore) -> None:
        await hub.transact(adding(config("api")))

        def work(transaction: HubTransaction) -> None:
            with pytest.raises(ConfigTaken):
                transaction.add_config(config("api"))
            with pytest.raises(RuntimeError, match="the transaction is over"):
                transaction.config("api")

        with pytest.raises(ConfigTaken):
            await hub.transact(work)

    async def test_a_configuration_is_saved_after_it_was_read(self, hub: HubStore) -> None:
        await hub.transact(adding(config("api"), config("web")))
        changed = msgspec.structs.replace(config("api", 2), updated_time=MOMENT + HOUR)

        def work(transaction: HubTransaction) -> object:
            found = transaction.config("api")
            transaction.save_config(changed)
            return found

        assert await hub.transact(work) == config("api")
        assert await hub.config("api") == changed
        assert await hub.config("web") == config("web")
        with pytest.raises(RuntimeError, match="api was not read in this transaction"):
            await hub.transact(lambda transaction: transaction.save_config(changed))

    async def test_versions_are_read_as_they_were_added(self, hub: HubStore) -> None:
        await hub.transact(adding(config("api", 3), *(version("api", number) for number in (1, 2, 3))))

        def work(transaction: HubTransaction) -> object:
            return transaction.version(VersionName("api", 3)), transaction.version(VersionName("api", 4))

        assert await hub.version(VersionName("api", 2)) == version("api", 2)
        assert await hub.transact(work) == (version("api", 3), None)
        assert await hub.version(VersionName("api", 0)) is None
        assert await hub.version(VersionName("web", 1)) is None

    async def test_versions_are_listed_newest_first_without_content(self, hub: HubStore) -> None:
        await hub.transact(adding(version("web", 1), *(version("api", number) for number in (1, 2, 3))))

        assert list(await hub.versions("api", before=None, limit=9)) == without_content(3, 2, 1)
        assert list(await hub.versions("api", before=None, limit=2)) == without_content(3, 2)
        assert list(await hub.versions("api", before=2, limit=9)) == without_content(1)
        assert list(await hub.versions("absent", before=None, limit=9)) == []

    async def test_large_and_odd_contents_are_kept(self, hub: HubStore) -> None:
        text = "line \N{SNOWMAN}\r\n\t\\'\"\x01\x7f" * 100_000
        odd = msgspec.structs.replace(version("api", 1), content=text)

        await hub.transact(adding(odd))

        assert await hub.version(API_1) == odd

    async def test_a_number_is_taken_once(self, hub: HubStore) -> None:
        await hub.transact(adding(config("api"), version("api", 1)))
        other = msgspec.structs.replace(version("api", 1), content="other")

        with pytest.raises(VersionTaken):
            await hub.transact(adding(version("api", 2), other))
        assert await hub.version(API_1) == version("api", 1)
        assert await hub.version(VersionName("api", 2)) is None

    async def test_concurrent_saves_get_numbers_without_gaps(self, hub: HubStore) -> None:
        await hub.transact(adding(config("api", 0)))

        def save(transaction: HubTransaction) -> int:
            found = transaction.config("api")
            assert found is not None
            number = found.latest_version + 1
            transaction.add_version(version("api", number))
            transaction.save_config(msgspec.structs.replace(found, latest_version=number))
            return number

        numbers = await together(*(hub.transact(save) for _ in range(10)))

        assert sorted(map(str, numbers)) == sorted(map(str, range(1, 11)))
        assert len(await hub.versions("api", before=None, limit=99)) == 10

    async def test_assigned_instances_are_counted(self, hub: HubStore) -> None:
        await hub.transact(
            saving(
                instance("a", assigned=API_1),
                instance("b", State.OFFLINE, assigned=VersionName("api", 2)),
                instance("c", State.REMOVED, assigned=API_1),
                instance("d", assigned=VersionName("web", 1)),
                instance("e"),
            )
        )

        counted = await hub.transact(
            lambda transaction: [transaction.count_assigned(each) for each in ("api", "web", "absent")]
        )

        assert counted == [2, 1, 0]
        assert await hub.assigned_counts(["api", "web", "absent"]) == {"api": 2, "web": 1}
        assert await hub.assigned_counts(["web", "web", "a\0"]) == {"web": 1}
        assert await hub.assigned_counts([]) == {}

    async def test_many_configurations_are_counted_at_once(self, hub: HubStore) -> None:
        names = [f"config-{number}" for number in range(120)]
        await hub.transact(saving(*(instance(each, assigned=VersionName(each, 1)) for each in names)))

        assert await hub.assigned_counts(names) == dict.fromkeys(names, 1)

    async def test_a_removed_configuration_leaves_nothing(self, hub: HubStore) -> None:
        def add(transaction: HubTransaction) -> None:
            adding(config("api"), version("api", 1), config("web"), version("web", 1))(transaction)
            transaction.note_assigned("edge-1", 1, API_1)
            transaction.note_assigned("edge-1", 1, VersionName("web", 1))

        await hub.transact(add)
        await hub.transact(removing("api"))

        assert await hub.config("api") is None
        assert await hub.version(API_1) is None
        assert not await hub.was_assigned("edge-1", 1, API_1)
        assert await hub.version(VersionName("web", 1)) == version("web", 1)
        assert await hub.was_assigned("edge-1", 1, VersionName("web", 1))
        await hub.transact(adding(config("api"), version("api", 1)))

    async def test_no_version_is_assigned_while_it_is_removed(self, hub: HubStore) -> None:
        await hub.transact(adding(config("api"), version("api", 1)))
        await hub.transact(saving(*(instance(f"edge-{number}") for number in range(5))))

        def assign(instance_id: str) -> Callable[[HubTransaction], bool]:
            def work(transaction: HubTransaction) -> bool:
                transaction.instance(instance_id)
                if transaction.config("api") is None:
                    return False
                transaction.save_instance(instance(instance_id, assigned=API_1))
                return True

            return work

        def remove(transaction: HubTransaction) -> bool:
            if transaction.config("api") is None or transaction.count_assigned("api"):
                return False
            transaction.remove_config("api")
            return True

        works = [assign(f"edge-{number}") for number in range(5)]
        results = await together(*(hub.transact(work) for work in [*works[:2], remove, *works[2:]]))

        is_removed = results[2]
        assert is_removed is (await hub.config("api") is None)
        assert (await hub.assigned_counts(["api"]) == {}) is is_removed
