"""Any history of a fleet store against the plainest account there could be: dictionaries and lists.

What a store answers is compared with what the model answers, after any sequence of transactions, some of which
fail. Model and store are given the same pieces of work, so an operation is written once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Sequence
from copy import deepcopy
from datetime import datetime
from operator import gt, lt
from typing import ClassVar, Protocol, TypeVar, assert_never

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from sentinel.core.fleet.documents import DiscardedReport, GenerationRecord
from sentinel.core.labels import Operator, Requirement, Selector
from sentinel.ports.audit import AuditEntry, AuditQuery
from sentinel.ports.database import AlreadyExists
from sentinel.ports.fleet_store import (
    FleetTransaction,
    IdTaken,
    ListPosition,
    ListQuery,
    ListResult,
    LongestWait,
    NameTaken,
    OrderBy,
    StoredResource,
)
from sentinel.ports.idempotency import KeyTaken, StoredResponse
from tests.support.fleet.store_records import (
    MOMENT,
    SECOND,
    Stores,
    discarded,
    discarded_of,
    entry,
    expire,
    find,
    generation,
    history_of,
    labelled,
    longest_waits,
    microseconds,
    populations,
    response,
    stored,
)

T = TypeVar("T")

IDS = ("A", "a", "b", "c", "ü")
PLURALS = ("clusters", "nodepools")
NAMES = ("x", "X", "y", "🙂")
ACTORS = ("ops", "dns")
ADAPTERS = ("", "dns", "dns,validation")
TIMES = tuple(MOMENT + number * SECOND for number in range(3))
KEYS = ("region", "size")
VALUES = ("", "a", "7", "10", "007")
PLENTY = 1_000


class Abandoned(Exception):
    """A piece of work that ends with this has changed its mind."""


class Model:
    """A store whose every answer is looked up in all that it keeps."""

    def __init__(self) -> None:
        self.resources: dict[str, StoredResource] = {}
        self.kept_discarded: list[tuple[str, DiscardedReport]] = []
        self.kept_history: list[tuple[str, GenerationRecord]] = []
        self.kept_audit: list[AuditEntry] = []
        self.responses: dict[tuple[str, str], StoredResponse] = {}

    def lock(self, resource_id: str) -> StoredResource | None:
        return self.resources.get(resource_id)

    def children(self, resource_id: str) -> Sequence[StoredResource]:
        own = [each for each in self.resources.values() if each.parent == resource_id]
        return sorted(own, key=lambda each: (each.created_time, each.id))

    def count_children(self, resource_id: str) -> int:
        return len(self.children(resource_id))

    def insert(self, resource: StoredResource) -> None:
        has_id = resource.id in self.resources
        has_name = any(
            (each.plural, each.parent, each.name) == (resource.plural, resource.parent, resource.name)
            for each in self.resources.values()
        )
        if has_id and has_name:
            raise AlreadyExists
        if has_id:
            raise IdTaken
        if has_name:
            raise NameTaken
        self.resources[resource.id] = resource

    def update(self, resource: StoredResource) -> None:
        self.resources[resource.id] = resource

    def remove(self, resource_id: str) -> None:
        del self.resources[resource_id]
        self.kept_discarded = [kept for kept in self.kept_discarded if kept[0] != resource_id]

    def keep_discarded(self, resource_id: str, report: DiscardedReport, *, limit: int) -> None:
        self.kept_discarded.append((resource_id, report))
        surplus = [kept for kept in self.kept_discarded if kept[0] == resource_id][:-limit]
        self.kept_discarded = [kept for kept in self.kept_discarded if kept not in surplus]

    def keep_generation(self, resource_id: str, record: GenerationRecord) -> None:
        self.kept_history.append((resource_id, record))

    def record(self, entry: AuditEntry) -> None:
        self.kept_audit.append(entry)

    def recall(self, actor: str, key: str) -> StoredResponse | None:
        return self.responses.get((actor, key))

    def remember(self, response: StoredResponse) -> None:
        if (response.actor, response.key) in self.responses:
            raise KeyTaken
        self.responses[response.actor, response.key] = response

    def find(self, query: ListQuery) -> ListResult:
        selected = sorted(
            (place(each, query.order_by), each.document)
            for each in self.resources.values()
            if each.plural == query.plural
            and query.parent in (None, each.parent)
            and Selector(query.requirements).matches(each.labels)
        )
        total = len(selected)
        if query.is_descending:
            selected.reverse()
        if query.after is None:
            selected = selected[query.offset :]
        else:
            behind = (query.after.value, query.after.id)
            is_behind = lt if query.is_descending else gt
            selected = [each for each in selected if is_behind(each[0], behind)]
        page = selected[: query.limit]
        return ListResult(
            [document for _, document in page],
            len(page),
            total if query.wants_total else None,
            ListPosition(*page[-1][0]) if len(selected) > len(page) else None,
        )

    def discarded(self, resource_id: str) -> list[DiscardedReport]:
        return [report for of_which, report in reversed(self.kept_discarded) if of_which == resource_id]

    def history(self, resource_id: str) -> list[GenerationRecord]:
        return [record for of_which, record in reversed(self.kept_history) if of_which == resource_id]

    def audit(self, query: AuditQuery) -> list[AuditEntry]:
        selected = [
            each
            for each in sorted(self.kept_audit, key=lambda each: each.id, reverse=True)
            if (not query.before or each.id < query.before)
            and query.actor in ("", each.actor)
            and query.resource_id in ("", each.resource_id)
        ]
        return selected[: query.limit]

    def populations(self) -> dict[tuple[str, bool], int]:
        return dict(Counter((each.plural, each.is_ready) for each in self.resources.values()))

    def longest_waits(self) -> list[LongestWait]:
        waits = [
            (each.plural, adapter, since)
            for each in self.resources.values()
            for adapter, since in each.waiting.items()
        ]
        kinds = sorted({(plural, adapter) for plural, adapter, _ in waits})
        return [LongestWait(*kind, min(since for *of, since in waits if tuple(of) == kind)) for kind in kinds]

    def expire(self, moment: datetime) -> int:
        def size() -> int:
            beside = len(self.kept_audit) + len(self.responses)
            return beside + len(self.kept_discarded) + len(self.kept_history)

        before = size()
        newest = [(each, self.history(each)[0]) for each in self.resources if self.history(each)]
        self.kept_audit = [each for each in self.kept_audit if each.time >= moment]
        self.kept_discarded = [kept for kept in self.kept_discarded if kept[1].received_time >= moment]
        self.kept_history = [kept for kept in self.kept_history if kept[1].time >= moment or kept in newest]
        self.responses = {key: kept for key, kept in self.responses.items() if kept.time >= moment}
        return before - size()


def place(resource: StoredResource, order: OrderBy) -> tuple[str | int, str]:
    match order:
        case OrderBy.CREATED:
            return microseconds(resource.created_time), resource.id
        case OrderBy.UPDATED:
            return microseconds(resource.updated_time), resource.id
        case OrderBy.NAME:
            return resource.name, resource.id
        case OrderBy.ID:
            return resource.id, resource.id
        case _:
            assert_never(order)


class Operation(Protocol):
    """A step of a piece of work, at a numbered moment; what it returns has to be the same everywhere."""

    def perform(self, fleet: FleetTransaction, moment: int) -> object: ...


class Insert(msgspec.Struct, frozen=True):
    resource: StoredResource
    parent: str

    def perform(self, fleet: FleetTransaction, moment: int) -> object:
        if not self.parent:
            fleet.insert(self.resource)
            return self.resource
        parent = fleet.lock(self.parent)
        if parent is not None:
            fleet.insert(msgspec.structs.replace(self.resource, parent=parent.id, root=parent.root))
        return parent


class Update(msgspec.Struct, frozen=True):
    like: StoredResource

    def perform(self, fleet: FleetTransaction, moment: int) -> object:
        before = fleet.lock(self.like.id)
        if before is not None:
            after = msgspec.structs.replace(
                self.like,
                plural=before.plural,
                name=before.name,
                parent=before.parent,
                root=before.root,
                created_time=before.created_time,
                version=before.version + 1,
                document=b"%s at %d" % (before.id.encode(), moment),
            )
            fleet.update(after)
        return before


class Remove(msgspec.Struct, frozen=True):
    id: str

    def perform(self, fleet: FleetTransaction, moment: int) -> object:
        before = fleet.lock(self.id)
        if before is None:
            return None
        if fleet.count_children(self.id):
            return list(fleet.children(self.id))
        fleet.remove(self.id)
        return before


class Keep(msgspec.Struct, frozen=True):
    """A discarded report, and a generation."""

    id: str
    limit: int

    def perform(self, fleet: FleetTransaction, moment: int) -> object:
        before = fleet.lock(self.id)
        if before is not None:
            fleet.keep_discarded(self.id, discarded(moment), limit=self.limit)
            fleet.keep_generation(self.id, generation(moment))
        return before


class Note(msgspec.Struct, frozen=True):
    """An entry in the audit."""

    id: str
    actor: str

    def perform(self, fleet: FleetTransaction, moment: int) -> object:
        fleet.record(entry(moment, actor=self.actor, resource_id=self.id))
        return None


class Remember(msgspec.Struct, frozen=True):
    actor: str
    key: str
    is_careful: bool

    def perform(self, fleet: FleetTransaction, moment: int) -> object:
        known = fleet.recall(self.actor, self.key)
        if known is None or not self.is_careful:
            fleet.remember(response(self.key, actor=self.actor, time=MOMENT + moment * SECOND))
        return known


SOME_ID = st.sampled_from(IDS)
SOME_TIME = st.sampled_from(TIMES)
SOME_ACTOR = st.sampled_from(ACTORS)
SOME_RESOURCE = st.builds(
    stored,
    SOME_ID,
    plural=st.sampled_from(PLURALS),
    name=st.sampled_from(NAMES),
    labels=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)),
    created=SOME_TIME,
    updated=SOME_TIME,
    is_ready=st.booleans(),
    waiting=st.dictionaries(st.sampled_from(("dns", "validation")), SOME_TIME),
    adapters=st.sampled_from(ADAPTERS),
    statuses=st.binary(max_size=3),
)
SOME_OPERATIONS: st.SearchStrategy[list[Operation]] = st.lists(
    st.builds(Insert, SOME_RESOURCE, st.sampled_from(("", "", *IDS)))
    | st.builds(Update, SOME_RESOURCE)
    | st.builds(Remove, SOME_ID)
    | st.builds(Keep, SOME_ID, st.integers(1, 3))
    | st.builds(Note, SOME_ID, SOME_ACTOR)
    | st.builds(Remember, SOME_ACTOR, st.sampled_from(("k", "K")), st.booleans()),
    min_size=1,
    max_size=5,
)


@st.composite
def requirements(draw: st.DrawFn) -> Requirement:
    key, operator = draw(st.sampled_from(KEYS)), draw(st.sampled_from(Operator))
    match operator:
        case Operator.IN | Operator.NOT_IN:
            return labelled(key, operator, *draw(st.sets(st.sampled_from(VALUES), min_size=1)))
        case Operator.GREATER | Operator.LESS:
            return labelled(key, operator, draw(st.sampled_from(("0", "7", "8", "10"))))
        case Operator.EXISTS | Operator.NOT_EXISTS:
            return labelled(key, operator)
        case _:
            assert_never(operator)


@st.composite
def queries(draw: st.DrawFn) -> ListQuery:
    order = draw(st.sampled_from(OrderBy))
    # A place is as good as any other where nobody stands, or stands no longer.
    after = draw(st.none() | SOME_RESOURCE.map(lambda resource: ListPosition(*place(resource, order))))
    return ListQuery(
        plural=draw(st.sampled_from(PLURALS)),
        parent=draw(st.sampled_from((None, None, "", *IDS))),
        requirements=tuple(draw(st.lists(requirements(), max_size=3))),
        order_by=order,
        is_descending=draw(st.booleans()),
        limit=draw(st.integers(1, 4)),
        after=after,
        offset=0 if after is not None else draw(st.integers(0, 4)),
        wants_total=draw(st.booleans()),
    )


class AnyHistory(RuleBasedStateMachine):
    """On one event loop for the life of a store."""

    stores: ClassVar[Stores]

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._backend = self._wait(self.stores.empty())
        self._store = self._backend.fleet
        self._model = Model()
        self._moment = 1

    def _wait(self, asked: Awaitable[T]) -> T:
        async def wait() -> T:
            return await asked

        return self._runner.run(wait())

    @rule(operations=SOME_OPERATIONS, is_abandoned=st.booleans())
    def transact(self, operations: list[Operation], is_abandoned: bool) -> None:
        first = self._moment
        self._moment += len(operations)

        def work(fleet: FleetTransaction) -> list[object]:
            done = [operation.perform(fleet, first + number) for number, operation in enumerate(operations)]
            if is_abandoned:
                raise Abandoned
            return done

        staged = deepcopy(self._model)
        expected: object
        try:
            expected = work(staged)
            self._model = staged
        except (AlreadyExists, Abandoned) as error:
            expected = error
        found: object
        try:
            found = self._wait(self._store.transact(work))
        except (AlreadyExists, Abandoned) as error:
            found = error

        if isinstance(expected, Exception):
            assert isinstance(found, type(expected))
        else:
            assert found == expected

    @rule(query=queries())
    def find(self, query: ListQuery) -> None:
        assert self._wait(find(self._store, query)) == self._model.find(query)

    @rule(resource_id=SOME_ID, limit=st.integers(1, 3), offset=st.integers(0, 3))
    def read_records(self, resource_id: str, limit: int, offset: int) -> None:
        reports, records = self._model.discarded(resource_id), self._model.history(resource_id)
        stretch = slice(offset, offset + limit)

        found_reports = self._wait(discarded_of(self._store, resource_id, limit=limit, offset=offset))
        found_records = self._wait(history_of(self._store, resource_id, limit=limit, offset=offset))

        assert found_reports == (reports[stretch], len(reports))
        assert found_records == (records[stretch], len(records))

    @rule(
        limit=st.integers(1, 4),
        before=st.integers(0, 20),
        actor=st.sampled_from(("", *ACTORS)),
        resource_id=st.sampled_from(("", "", *IDS)),
    )
    def read_audit(self, limit: int, before: int, actor: str, resource_id: str) -> None:
        from_where = entry(before).id if before else ""
        query = AuditQuery(limit=limit, before=from_where, actor=actor, resource_id=resource_id)

        assert list(self._wait(self._backend.audit.find(query))) == self._model.audit(query)

    @rule(plural=st.sampled_from(PLURALS), adapters=st.sampled_from(ADAPTERS))
    def take_stock(self, plural: str, adapters: str) -> None:
        outdated = [
            each.id
            for each in self._model.resources.values()
            if each.plural == plural and each.adapters != adapters
        ]

        assert sorted(self._wait(self._store.outdated(plural, adapters, limit=PLENTY))) == sorted(outdated)
        assert self._wait(populations(self._store)) == self._model.populations()
        assert self._wait(longest_waits(self._store)) == self._model.longest_waits()

    @rule(age=st.integers(0, 10))
    def expire(self, age: int) -> None:
        moment = MOMENT + max(0, self._moment - age) * SECOND

        forgotten = self._wait(expire(self._store, discarded=moment, history=moment, limit=PLENTY))
        forgotten += self._wait(self._backend.audit.expire(moment, limit=PLENTY))
        forgotten += self._wait(self._backend.idempotency.expire(moment, limit=PLENTY))

        assert forgotten == self._model.expire(moment)

    @rule()
    def reopen(self) -> None:
        self._backend = self._wait(self.stores.reopened(self._backend))
        self._store = self._backend.fleet

    def teardown(self) -> None:
        try:
            found = {resource_id: self._wait(self._store.get(resource_id)) for resource_id in IDS}
            self._wait(self._backend.database.close())
        finally:
            self._runner.close()

        assert found == {resource_id: self._model.resources.get(resource_id) for resource_id in IDS}


class ModelContract:
    """Whatever happens to a store, it agrees with the model."""

    examples: ClassVar[int] = 50
    """How many histories are tried; a slow store may try fewer."""

    @pytest.mark.timeout(600)  # a history that fails is shortened for up to five minutes before it is shown
    def test_any_history_agrees_with_the_model(self, stores: Stores) -> None:
        class History(AnyHistory):
            pass

        History.stores = stores
        bounds = settings(
            max_examples=self.examples,
            stateful_step_count=20,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        )

        run_state_machine_as_test(History, settings=bounds)
