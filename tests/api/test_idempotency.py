"""`Idempotency-Key`: repeated creations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, cast

import pytest

from sentinel.core.access import Identity, Role
from sentinel.ports.fleet_store import FleetTransaction
from sentinel.ports.idempotency import KeyTaken, StoredResponse
from sentinel.testing.database import Fault, MemoryDatabase
from sentinel.testing.fleet_store import MemoryFleetStore
from tests.support.databases import backends
from tests.support.fleet.api_client import ApiClient, ApiReply
from tests.support.fleet.http_client import ROOT, Body

T = TypeVar("T")


class LateRecall(MemoryFleetStore):
    """A store whose second transaction does not recall the response that the first has committed."""

    def __init__(self, database: MemoryDatabase) -> None:
        super().__init__(database)
        self._transactions = 0

    async def transact(self, work: Callable[[FleetTransaction], T]) -> T:
        self._transactions += 1
        if self._transactions != 2:
            return await super().transact(work)

        def work_without_recall(transaction: FleetTransaction) -> T:
            return work(cast("FleetTransaction", _RecallsNothing(transaction)))

        return await super().transact(work_without_recall)


class _RecallsNothing:
    """A transaction that recalls nothing."""

    def __init__(self, transaction: FleetTransaction) -> None:
        self._transaction = transaction

    def recall(self, actor: str, key: str) -> StoredResponse | None:
        return None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)


class _LosesEveryRace:
    """A transaction whose key another one always stores first."""

    def __init__(self, transaction: FleetTransaction) -> None:
        self._transaction = transaction

    def remember(self, response: StoredResponse) -> None:
        raise KeyTaken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)


class ContestedStore(MemoryFleetStore):
    """A store where every race for a key is lost."""

    async def transact(self, work: Callable[[FleetTransaction], T]) -> T:
        return await super().transact(
            lambda transaction: work(cast("FleetTransaction", _LosesEveryRace(transaction)))
        )


async def create(
    fleet: ApiClient, body: Body, *, key: str = "k", path: str = "clusters", token: str = ""
) -> ApiReply:
    return await fleet.call("POST", path, body, headers={"Idempotency-Key": key}, token=token)


async def test_a_repeated_creation_happens_once(fleet: ApiClient) -> None:
    first = await create(fleet, {"name": "a"})
    await fleet.later(60)

    second = await create(fleet, {"name": "a"})

    assert (second.status, second.content) == (201, first.content)
    assert (second.etag, second.headers["location"]) == (first.etag, first.headers["location"])
    assert "idempotent-replayed" not in first.headers
    assert second.headers["idempotent-replayed"] == "true"
    assert (await fleet.get("clusters"))["total"] == 1
    assert len((await fleet.get("/api/v1/audit"))["items"]) == 1


async def test_without_a_key_a_repeated_request_is_a_conflict(fleet: ApiClient) -> None:
    await fleet.create("clusters", "a")

    (await fleet.call("POST", "clusters", {"name": "a"})).assert_problem(409)


async def test_the_first_response_is_replayed_after_later_changes(fleet: ApiClient) -> None:
    first = await create(fleet, {"name": "a", "id": "a"})
    await fleet.call("PATCH", "clusters/a", {"spec": {"x": 1}})

    second = await create(fleet, {"name": "a", "id": "a"})

    assert (second.status, second.content, second.etag) == (201, first.content, first.etag)


async def test_the_response_is_replayed_after_the_resource_is_removed(fleet: ApiClient) -> None:
    first = await create(fleet, {"name": "a", "id": "a"}, path="manifests")
    await fleet.call("DELETE", "manifests/a")

    second = await create(fleet, {"name": "a", "id": "a"}, path="manifests")

    assert second.content == first.content
    assert (await fleet.get("manifests"))["total"] == 0


async def test_another_key_is_another_creation(fleet: ApiClient) -> None:
    await create(fleet, {"name": "a"}, key="k1")

    assert (await create(fleet, {"name": "b"}, key="k2")).status == 201


@pytest.mark.parametrize(
    ("path", "body"),
    [("clusters", {"name": "b"}), ("clusters", {"name": "a", "spec": {"x": 1}}), ("manifests", {"name": "a"})],
)
async def test_a_key_of_another_request_is_rejected(fleet: ApiClient, path: str, body: Body) -> None:
    await create(fleet, {"name": "a"})

    (await create(fleet, body, path=path)).assert_problem(422)
    assert (await fleet.get("manifests"))["total"] == 0


async def test_another_parent_makes_it_another_request(fleet: ApiClient) -> None:
    for parent in "pq":
        await fleet.create("clusters", parent, id=parent)
    await create(fleet, {"name": "a"}, path="clusters/p/nodepools")

    (await create(fleet, {"name": "a"}, path="clusters/q/nodepools")).assert_problem(422)


async def test_a_rejected_creation_does_not_use_its_key(fleet: ApiClient) -> None:
    (await create(fleet, {"name": " bad"})).assert_problem(400, "name")
    taken = await fleet.create("manifests", "a", id="a")
    (await create(fleet, {"name": "a"}, path="manifests")).assert_problem(409)
    await fleet.call("DELETE", f"manifests/{taken['id']}")

    assert (await create(fleet, {"name": "a"}, path="manifests")).status == 201


async def test_keys_belong_to_their_actor() -> None:
    async with ApiClient(identities=[Identity("one", Role.OPERATOR), Identity("two", Role.OPERATOR)]) as fleet:
        await create(fleet, {"name": "a"}, token="one")

        (await create(fleet, {"name": "a"}, token="two")).assert_problem(409)
        assert (await create(fleet, {"name": "b"}, token="two")).status == 201


async def test_a_key_is_limited_and_printable(fleet: ApiClient) -> None:
    assert (await create(fleet, {"name": "a"}, key="x" * 255)).status == 201
    for key in ("x" * 256, "a\x07b"):
        (await create(fleet, {"name": "b"}, key=key)).assert_problem(400, "Idempotency-Key")


async def test_concurrent_repetitions_create_one_resource(fleet: ApiClient) -> None:
    replies = await asyncio.gather(*(create(fleet, {"name": "a"}) for _ in range(10)))

    assert {reply.status for reply in replies} == {201}
    assert len({reply.content for reply in replies}) == 1
    assert sum("idempotent-replayed" not in reply.headers for reply in replies) == 1


@pytest.mark.parametrize("given", [{}, {"id": "a"}])
async def test_a_repetition_that_lost_the_race_gets_the_same_response(given: Body) -> None:
    # With concurrent transactions, the loser finds name, id and key taken at once.
    async with ApiClient(backend=backends.memory(fleet=LateRecall)) as fleet:
        first, second = (
            await create(fleet, {"name": "a", **given}),
            await create(fleet, {"name": "a", **given}),
        )

    assert (first.status, second.status) == (201, 201)
    assert second.content == first.content
    assert second.headers["idempotent-replayed"] == "true"


async def test_a_key_that_stays_taken_is_a_conflict() -> None:
    async with ApiClient(backend=backends.memory(fleet=ContestedStore)) as fleet:
        (await create(fleet, {"name": "a"})).assert_problem(409, code="HYPERFLEET-CNF-001")

        assert (await fleet.get("clusters"))["total"] == 0


async def test_a_request_can_be_repeated_after_a_lost_response() -> None:
    faults = iter([Fault.AFTER_COMMIT])
    backend = backends.memory(faults=lambda call: next(faults, None) if call == "transact" else None)
    async with ApiClient(backend=backend) as fleet:
        lost = await create(fleet, {"name": "a"})
        again = await create(fleet, {"name": "a"})

        assert "retry-after" in lost.headers
        lost.assert_problem(503, code="HYPERFLEET-SVC-001")
        assert (again.status, again.headers["idempotent-replayed"]) == (201, "true")
        assert (await fleet.get("clusters"))["total"] == 1


async def test_a_transaction_run_twice_leaves_one_resource() -> None:
    faults = iter([Fault.LOST_RACE])
    backend = backends.memory(faults=lambda call: next(faults, None) if call == "transact" else None)
    async with ApiClient(backend=backend) as fleet:
        assert (await create(fleet, {"name": "a"})).status == 201

        assert (await fleet.get("clusters"))["total"] == 1
        assert len((await fleet.get("/api/v1/audit"))["items"]) == 1


async def test_a_differently_encoded_request_is_a_repetition(fleet: ApiClient) -> None:
    headers = {"Idempotency-Key": "k", "content-type": "application/json"}
    path = f"{ROOT}/clusters"

    first = await fleet.send(
        "POST", path, b'{"name":"one","labels":{"a":"1","b":"2"},"spec":{"x":1,"y":2}}', headers=headers
    )
    again = await fleet.send(
        "POST", path, b'{ "spec": {"y": 2, "x": 1}, "labels": {"b":"2","a":"1"}, "name": "one" }', headers=headers
    )

    assert (first.status, again.status) == (201, 201)
    assert again.json["id"] == first.json["id"]
