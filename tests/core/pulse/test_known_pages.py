"""Known pages read like decoded ones, and are decoded only if they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.pulse import listing
from sentinel.core.pulse.known_pages import KnownPages, PageTable, ReadPage
from sentinel.core.pulse.listing import BadPage, EndlessList, PageShape, Position
from tests.support.fleet.listed_fleet import Change, ListedFleet, changes

NOW = datetime(2025, 10, 21, 12, 0, tzinfo=UTC)


class Undecodable(bytes):
    """A body with the hash of another one, which cannot be decoded."""

    def __new__(cls, body: bytes) -> Undecodable:
        made = super().__new__(cls, b"not JSON")
        made.hash = hash(body)
        return made

    hash: int

    def __hash__(self) -> int:
        return self.hash


def body(*ids: str, revision: int = 0, **members: Any) -> bytes:
    items = [{"id": each, "revision": revision} for each in ids]
    return msgspec.json.encode({"items": items, "total": 6, **members})


def reads(pages: KnownPages, bodies: Iterable[bytes]) -> Iterator[ReadPage]:
    """Walk a list of pages of two."""
    pages.begin_walk()
    position: Position | None = Position(size=2)
    for each in bodies:
        assert position is not None
        read = pages.read(position, each)
        yield read
        position = read.step.next_position


def walk(pages: KnownPages, *bodies: bytes) -> list[tuple[list[str], int | None]]:
    """Walk a list of pages. Return the ids and the version of each."""
    return [
        ([resource.observation.id for resource in read.step.new_resources], read.version)
        for read in reads(pages, bodies)
    ]


def skim(pages: KnownPages, *bodies: bytes) -> list[int | None]:
    """Walk a list of pages without reading its resources. Return the versions."""
    return [read.version for read in reads(pages, bodies)]


def test_a_page_that_has_not_changed_is_not_decoded() -> None:
    pages = KnownPages()
    bodies = [body("a", "b"), body("c", "d"), body("e", "f")]
    versions = skim(pages, *bodies)

    assert skim(pages, *map(Undecodable, bodies)) == versions
    assert skim(pages, *map(Undecodable, bodies)) == versions
    assert None not in versions


def test_an_update_decodes_neither_the_pages_before_nor_those_after() -> None:
    pages = KnownPages()
    before, after = body("a", "b"), body("e", "f")
    first, _, last = skim(pages, before, body("c", "d"), after)

    versions = skim(pages, Undecodable(before), body("c", "d", revision=1), Undecodable(after))

    assert (versions[0], versions[2]) == (first, last)


def test_a_changed_page_has_another_version() -> None:
    pages = KnownPages()

    assert skim(pages, body("a", "b")) != skim(pages, body("a", "b", revision=1))


def test_the_ids_of_an_unchanged_page_are_compared_with_new_ones() -> None:
    pages = KnownPages()
    first, last = body("a", "b"), body("e", "f")
    walk(pages, first, body("c", "d"), last)

    found = walk(pages, first, body("b", "e"), last)

    assert [ids for ids, _ in found] == [["a", "b"], ["e"], ["f"]]
    assert [version is None for _, version in found] == [False, True, True]


def test_a_page_after_other_ids_than_before_is_known_again() -> None:
    pages = KnownPages()
    walk(pages, body("a", "b"), body("c", "d"))
    walk(pages, body("x", "b"), body("c", "d"))

    versions = skim(pages, *map(Undecodable, (body("x", "b"), body("c", "d"))))

    assert None not in versions


def test_a_resource_that_is_listed_twice_is_dropped_once() -> None:
    pages = KnownPages()
    walk(pages, body("a", "b"))

    assert walk(pages, body("a", "b", "b")) == [(["a", "b"], None)]


@pytest.mark.parametrize("page", [{"number": 1}, "one"])
def test_a_page_with_other_json_as_its_number_is_not_kept(page: object) -> None:
    pages = KnownPages()

    assert skim(pages, body("a", "b", page=page)) == [None]


def test_a_page_with_a_malformed_item_has_no_version() -> None:
    pages = KnownPages()
    malformed = msgspec.json.encode({"items": [{"id": "a"}, 7], "total": 2})

    assert walk(pages, malformed) == [(["a"], None)]
    assert walk(pages, malformed) == [(["a"], None)]


def test_pages_that_are_gone_are_forgotten() -> None:
    table = PageTable[str]()
    table.keep(1, "one")
    for _ in range(2):
        table.begin_walk()

    assert table.find(1) is None
    assert len(table) == 0


Outcome: TypeAlias = tuple[object, ...]
ReadBody: TypeAlias = Callable[[Position, bytes, int | None], tuple[Outcome, Position | None]]


def outcome(page: listing.DecodedPage, step: listing.NextPage) -> tuple[Outcome, Position | None]:
    position = step.next_position
    without_ids = None if position is None else msgspec.structs.replace(position, recent=Position(size=1).recent)
    resources = [(each.observation, each.decode()) for each in step.new_resources]
    return (resources, list(page.malformed), without_ids, step.ended_early_at), position


def walk_changing(fleet: ListedFleet, read: ReadBody, while_walking: Sequence[Change]) -> list[Outcome]:
    """Walk the fleet, with one of the changes before each request. Return all that is read."""
    outcomes: list[Outcome] = []
    position: Position | None = Position(size=2)
    previous_count = None
    remaining = list(while_walking)
    while position is not None and len(outcomes) < 40:
        if remaining:
            fleet.apply(remaining.pop(0), NOW)
        place = {"after": position.after} if position.after else {"page": str(position.number)}
        try:
            found, position = read(position, fleet.respond({**place, "size": "2"}), previous_count)
            previous_count = None
            outcomes.append(found)
        except (BadPage, EndlessList) as error:
            previous_count = error.count if isinstance(error, listing.ShortPage) else None
            outcomes.append((repr(error),))
    return outcomes


@given(
    walks=st.lists(st.lists(changes, max_size=4), min_size=2, max_size=6),
    shape=st.sampled_from(PageShape),
    has_conditions=st.booleans(),
    size=st.integers(0, 7),
)
def test_a_list_reads_the_same_with_and_without_known_pages(
    walks: list[list[Change]], shape: PageShape, has_conditions: bool, size: int
) -> None:
    known = KnownPages()

    def read_known(position: Position, body: bytes, previous: int | None) -> tuple[Outcome, Position | None]:
        read = known.read(position, body, previous_count=previous)
        return outcome(read.page, read.step)

    def decode(position: Position, body: bytes, previous: int | None) -> tuple[Outcome, Position | None]:
        page = listing.decode_page(body)
        return outcome(page, listing.advance(position, page, previous_count=previous))

    def histories(read: ReadBody) -> list[list[Outcome]]:
        fleet = ListedFleet(shape=shape, has_conditions=has_conditions, size=size, now=NOW)
        found = []
        for while_walking in walks:
            known.begin_walk()
            found.append(walk_changing(fleet, read, while_walking))
        return found

    assert histories(read_known) == histories(decode)
