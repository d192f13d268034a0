"""Lists of any shape are walked to their end, even if they change meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.pulse import listing
from sentinel.core.pulse.listing import (
    BadPage,
    DecodedPage,
    EndlessList,
    NeedsAllFields,
    NextPage,
    PageShape,
    Position,
    ShortPage,
    advance,
    decode_page,
)
from sentinel.core.pulse.observation import MalformedItem

NO_NEXT_PAGE = None


def items(*ids: str) -> list[dict[str, Any]]:
    return [{"id": each} for each in ids]


def page(*ids: str, **members: Any) -> DecodedPage:
    return decode_page(msgspec.json.encode({"items": items(*ids), **members}))


def follow(step: NextPage) -> Position:
    assert step.next_position is not None
    return step.next_position


def walk(pages: Iterable[DecodedPage], *, size: int) -> None:
    """Walk these pages. Each must have a next position."""
    position = Position(size=size)
    for response in pages:
        position = follow(advance(position, response))


def ids(step: NextPage) -> list[str]:
    return [resource.observation.id for resource in step.new_resources]


class TestReading:
    def test_a_page_with_a_total_is_numbered(self) -> None:
        response = page("a", "b", page=2, size=2, total=7)

        assert (response.shape, response.count, response.total, response.page) == (PageShape.NUMBERED, 2, 7, 2)
        assert [resource.decode() for resource in response.resources] == items("a", "b")

    def test_a_page_with_next_is_a_cursor_page(self) -> None:
        response = page("a", page=1, size=1, total=7, next="x")

        assert (response.shape, response.total, response.next) == (PageShape.CURSOR, 7, "x")

    @pytest.mark.parametrize("end", [None, ""])
    def test_an_empty_next_ends_the_list(self, end: str | None) -> None:
        response = page("a", next=end)

        assert (response.shape, response.next, response.total) == (PageShape.CURSOR, "", None)

    def test_a_bare_list_is_the_whole_fleet(self) -> None:
        response = decode_page(msgspec.json.encode(items("a", "b")))

        assert (response.shape, response.count) == (PageShape.WHOLE, 2)
        assert [resource.decode() for resource in response.resources] == items("a", "b")

    def test_null_items_are_no_items(self) -> None:
        response = decode_page(b'{"page": 1, "size": 0, "total": 0, "items": null}')

        assert (response.shape, response.count, response.total) == (PageShape.NUMBERED, 0, 0)

    def test_other_members_do_not_matter(self) -> None:
        assert page("a", kind="ClusterList", total=1, page="one", size="?").count == 1

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"<html>",
            b"null",
            b"7",
            b"{}",
            b'{"total": 3}',
            b'{"items": {}, "total": 1}',
            b'{"items": [',
            b"[" * 9999,
        ],
    )
    def test_anything_else_is_a_bad_page(self, body: bytes) -> None:
        with pytest.raises(BadPage, match="expected a page of resources"):
            decode_page(body)

    @pytest.mark.parametrize("total", ["7", 7.5, True])
    def test_a_total_that_is_not_a_number_is_a_bad_page(self, total: object) -> None:
        with pytest.raises(BadPage, match=r"\$\.total"):
            page("a", total=total)

    def test_a_negative_total_is_a_bad_page(self) -> None:
        with pytest.raises(BadPage, match="-1"):
            page(total=-1)

    def test_a_malformed_item_is_reported_and_the_others_are_read(self) -> None:
        body = msgspec.json.encode({"items": [*items("a"), {"id": 7}, *items("b")], "total": 3})

        response = decode_page(body)

        assert response.count == 3
        assert [resource.decode() for resource in response.resources] == items("a", "b")
        assert list(response.malformed) == [
            MalformedItem("7", "Expected `str`, got `int` - at `$.id`", "items[1]")
        ]

    def test_an_item_with_an_empty_id_is_malformed(self) -> None:
        response = page("a", "", total=2)

        assert response.count == 2
        assert list(response.malformed) == [MalformedItem(None, "id: expected a non-empty string", "items[1]")]

    @pytest.mark.parametrize("name", ['"conditions": 7', '"phase": 7', '"last_updated_time": "yesterday"'])
    def test_a_malformed_item_is_named_by_its_id(self, name: str) -> None:
        response = decode_page(b'[{"id": "a"}, {"spec": {}, "status": {%b}, "id": "b"}]' % name.encode())

        assert [item.id for item in response.malformed] == ["b"]
        assert [each.observation.id for each in response.resources] == ["a"]

    def test_a_page_of_malformed_items_is_a_page(self) -> None:
        response = decode_page(b'{"items": [1, null, "x"], "total": 3}')

        assert (response.count, len(response.resources), len(response.malformed)) == (3, 0, 3)

    def test_the_documents_of_a_page_are_a_sequence(self) -> None:
        [resource, _] = page("a", "b", total=2).resources

        assert not isinstance(resource.source, msgspec.Raw)
        assert len(resource.source) == 2
        assert [bytes(document) for document in resource.source[1:]] == [b'{"id":"b"}']

    @given(st.binary(max_size=80))
    def test_any_bytes_are_a_page_or_a_bad_one(self, body: bytes) -> None:
        with suppress(BadPage):
            decode_page(body)

    @given(st.lists(st.text(min_size=1, max_size=5)), st.booleans())
    def test_a_malformed_neighbour_changes_nothing(self, given_ids: list[str], is_bare: bool) -> None:
        alone: Any = items(*given_ids)
        with_malformed: Any = [*alone, "not a resource"]

        expected = decode_page(msgspec.json.encode(alone if is_bare else {"items": alone, "total": 1}))
        response = decode_page(
            msgspec.json.encode(with_malformed if is_bare else {"items": with_malformed, "total": 1})
        )

        assert response.shape is expected.shape
        assert [each.observation for each in response.resources] == [
            each.observation for each in expected.resources
        ]
        assert [each.decode() for each in response.resources] == [each.decode() for each in expected.resources]


class TestWholeLists:
    def test_a_bare_list_is_the_whole_fleet(self) -> None:
        step = advance(Position(size=1), decode_page(msgspec.json.encode(items("a", "b"))))

        assert ids(step) == ["a", "b"]
        assert step.next_position is NO_NEXT_PAGE

    def test_a_bare_list_in_mid_walk_is_a_bad_page(self) -> None:
        with pytest.raises(BadPage, match="expected page 2, got a bare list"):
            advance(Position(size=1, number=2), decode_page(b"[]"))


class TestNumberedPages:
    def test_pages_are_requested_until_the_total_is_read(self) -> None:
        first = advance(Position(size=2), page("a", "b", total=3))
        second = advance(follow(first), page("c", total=3))

        assert (follow(first).number, follow(first).after) == (2, "")
        assert ids(first) + ids(second) == ["a", "b", "c"]
        assert second.next_position is NO_NEXT_PAGE

    def test_pages_that_end_evenly_need_no_empty_page(self) -> None:
        assert advance(Position(size=2), page("a", "b", total=2)).next_position is NO_NEXT_PAGE

    def test_an_empty_fleet_is_one_empty_page(self) -> None:
        assert advance(Position(size=2), page(total=0)).next_position is NO_NEXT_PAGE

    def test_a_page_with_neither_total_nor_next_is_a_bad_page(self) -> None:
        with pytest.raises(BadPage, match="`total`"):
            advance(Position(size=2), page("a"))

    def test_fewer_items_than_promised_are_not_the_end(self) -> None:
        second = follow(advance(Position(size=2), page("a", "b", total=4)))

        with pytest.raises(ShortPage, match=r"expected 2 items of a total of 4, got 1$") as caught:
            advance(second, page("c", total=4))

        assert caught.value.count == 1

    def test_no_items_are_not_the_end(self) -> None:
        with pytest.raises(ShortPage):
            advance(Position(size=2), decode_page(b'{"items": null, "total": 4}'))

    def test_a_repeated_short_page_is_still_rejected(self) -> None:
        with pytest.raises(ShortPage):
            advance(Position(size=2), page("a", total=4), previous_count=1)

    def test_a_first_page_that_is_short_may_be_capped(self) -> None:
        with pytest.raises(ShortPage, match="page_size"):
            advance(Position(size=500), page("a", "b", total=4))

    def test_malformed_items_count_as_items(self) -> None:
        body = msgspec.json.encode({"items": ["malformed", *items("a")], "total": 2})

        assert advance(Position(size=2), decode_page(body)).next_position is NO_NEXT_PAGE

    def test_a_server_that_ignores_the_size_uses_its_own(self) -> None:
        everything = advance(Position(size=1), page("a", "b", "c", total=3))
        larger = advance(Position(size=1), page("a", "b", total=3))

        assert everything.next_position is NO_NEXT_PAGE
        assert follow(larger).number == 2
        assert advance(follow(larger), page("c", total=3)).next_position is NO_NEXT_PAGE

    def test_a_total_that_has_grown_is_read_to_its_new_end(self) -> None:
        second = follow(advance(Position(size=2), page("a", "b", total=4)))

        assert follow(advance(second, page("c", "d", total=5))).number == 3

    def test_resources_repeated_by_an_insert_are_left_out(self) -> None:
        second = follow(advance(Position(size=2), page("b", "c", total=3)))

        step = advance(second, page("c", "d", total=4))

        assert ids(step) == ["d"]
        assert step.next_position is NO_NEXT_PAGE

    def test_repetition_within_a_page_is_left_out(self) -> None:
        assert ids(advance(Position(size=3), page("a", "b", "a", total=3))) == ["a", "b"]

    def test_after_a_deletion_the_previous_page_is_read_again(self) -> None:
        second = follow(advance(Position(size=2), page("a", "b", total=5)))

        third = advance(second, page("d", "e", total=4))  # c has moved to the first page
        again = advance(follow(third), page("b", "c", total=4))

        assert follow(third).number == 1
        assert ids(again) == ["c"]
        assert again.next_position is NO_NEXT_PAGE

    def test_after_a_second_read_the_walk_continues_where_it_was(self) -> None:
        second = follow(advance(Position(size=2), page("a", "b", total=8)))
        look_back = advance(second, page("d", "e", total=7))

        again = advance(follow(look_back), page("b", "c", total=6))

        assert follow(look_back).number == 1
        assert follow(again).number == 3
        # The deletion was noticed on the second read, after page 2 was read. The next page must notice it too.
        assert follow(advance(follow(again), page("g", "h", total=6))).number == 2

    def test_a_server_that_repeats_one_page_is_detected(self) -> None:
        second = follow(advance(Position(size=2), page("a", "b", page=1, total=4)))

        with pytest.raises(BadPage, match="expected page 2, got page 1 again"):
            advance(second, page("a", "b", page=1, total=4))

    def test_a_page_that_legitimately_repeats_is_accepted(self) -> None:
        second = follow(advance(Position(size=1), page("a", page=1, total=2)))

        step = advance(second, page("a", page=2, total=3))  # one was inserted before it

        assert ids(step) == []
        assert follow(step).number == 3

    def test_a_list_that_keeps_growing_is_endless(self) -> None:
        grown = (page(*(f"{n}-{each}" for each in range(1000)), total=(n + 2) * 1000) for n in range(100))

        with pytest.raises(EndlessList, match="and a next page"):
            walk(grown, size=1000)


class TestCursorPages:
    def test_the_cursor_leads_on_until_it_is_null(self) -> None:
        first = advance(Position(size=2), page("a", "b", page=1, total=3, next="x"))
        second = advance(follow(first), page("c", page=2, total=3, next=None))

        assert (follow(first).number, follow(first).after) == (2, "x")
        assert ids(first) + ids(second) == ["a", "b", "c"]
        assert second.next_position is NO_NEXT_PAGE

    def test_a_cursor_without_a_total_is_followed(self) -> None:
        first = advance(Position(size=2), page("a", next="x"))

        assert follow(first).after == "x"
        assert advance(follow(first), page("b", next=None)).next_position is NO_NEXT_PAGE

    def test_a_page_that_leaves_out_next_is_the_last(self) -> None:
        second = follow(advance(Position(size=2), page("a", "b", total=3, next="x")))

        assert advance(second, page("c", total=3)).next_position is NO_NEXT_PAGE

    def test_a_server_may_switch_to_cursors_during_a_walk(self) -> None:
        second = follow(advance(Position(size=2), page("a", "b", total=6)))

        assert follow(advance(second, page("c", "d", total=6, next="x"))).after == "x"

    def test_a_short_page_is_retried_once_and_then_accepted(self) -> None:
        second = follow(advance(Position(size=2), page("a", "b", total=5, next="x")))
        short = page("c", total=5, next="y")

        with pytest.raises(ShortPage) as first_try:
            advance(second, short)
        second_try = advance(second, short, previous_count=first_try.value.count)

        assert ids(second_try) == ["c"]
        assert follow(second_try).after == "y"

    def test_a_last_page_without_deleted_items_is_accepted(self) -> None:
        second = follow(advance(Position(size=2), page("a", "b", total=4, next="x")))

        step = advance(second, page("c", total=4, next=None), previous_count=1)

        assert step.next_position is NO_NEXT_PAGE
        assert step.ended_early_at == 3

    def test_a_list_that_ends_at_its_total_did_not_end_early(self) -> None:
        second = follow(advance(Position(size=2), page("a", "b", total=3, next="x")))

        assert advance(second, page("c", total=3, next=None)).ended_early_at is None

    def test_a_different_short_page_is_retried_again(self) -> None:
        second = follow(advance(Position(size=3), page("a", "b", "c", total=6, next="x")))

        with pytest.raises(ShortPage):
            advance(second, page("d", total=6, next="y"), previous_count=2)

    def test_a_single_page_that_contradicts_its_total_is_rejected(self) -> None:
        with pytest.raises(ShortPage):
            advance(Position(size=9), page("a", total=2, next=None), previous_count=1)

    def test_pages_capped_by_the_server_are_retried_only_once(self) -> None:
        capped = advance(Position(size=500), page("a", "b", total=6, next="x"), previous_count=2)

        step = advance(follow(capped), page("c", "d", total=6, next="y"))

        assert follow(step).after == "y"

    @pytest.mark.parametrize("circle", ["a", "ab", "abc", "abcdefg", "xyab", "xyzabcde"])
    def test_a_cycle_of_cursors_is_endless(self, circle: str) -> None:
        cursors = circle + circle.lstrip("xyz") * 20
        pages = (page(str(number), next=cursor) for number, cursor in enumerate(cursors))

        with pytest.raises(EndlessList, match="leads back"):
            walk(pages, size=1)

    def test_empty_pages_without_end_are_endless(self) -> None:
        pages = (page(total=0, next=str(number)) for number in range(2 * listing.MAX_GROWTH))

        with pytest.raises(EndlessList):
            walk(pages, size=1)


class ListServer:
    """A list in a stable order, oldest or newest first, that changes between pages."""

    def __init__(self, count: int, *, newest_first: bool) -> None:
        self.rows = [f"{row:03}" for row in range(count)]
        self.made = count
        self.newest_first = newest_first

    def insert(self) -> None:
        self.rows.append(f"{self.made:03}")
        self.made += 1

    def delete(self, at: int) -> None:
        if self.rows:
            del self.rows[at % len(self.rows)]

    def numbered(self, position: Position) -> DecodedPage:
        rows = self.rows[::-1] if self.newest_first else self.rows
        start = (position.number - 1) * position.size
        return page(*rows[start : start + position.size], page=position.number, total=len(rows))

    def cursor(self, position: Position) -> DecodedPage:
        rows = sorted(self.rows)
        total, _, last = (position.after or f"{len(rows)}~").partition("~")
        rest = [row for row in rows if row > last]
        rows = rest[: position.size]
        return page(*rows, total=int(total), next=f"{total}~{rows[-1]}" if len(rest) > position.size else None)


counts = st.integers(0, 30)
sizes = st.integers(1, 6)


@given(counts, sizes, st.booleans(), st.lists(st.integers(0, 3)))
def test_inserts_between_numbered_pages_lose_and_repeat_nothing(
    count: int, size: int, newest_first: bool, inserts: list[int]
) -> None:
    server = ListServer(count, newest_first=newest_first)
    stable = set(server.rows)
    position: Position | None = Position(size=size)
    yielded: list[str] = []

    for inserted in (*inserts, *[0] * 200):
        if position is None:
            break
        step = advance(position, server.numbered(position))
        yielded += ids(step)
        position = step.next_position
        for _ in range(min(inserted, size)):
            server.insert()

    assert position is NO_NEXT_PAGE
    assert stable <= set(yielded)
    assert len(yielded) == len(set(yielded))


@given(counts, sizes, st.booleans(), st.data())
def test_deletions_between_numbered_pages_lose_and_repeat_nothing(
    count: int, size: int, newest_first: bool, data: st.DataObject
) -> None:
    server = ListServer(count, newest_first=newest_first)
    position: Position | None = Position(size=size)
    yielded: list[str] = []

    for _ in range(200):
        if position is None:
            break
        step = advance(position, server.numbered(position))
        yielded += ids(step)
        position = step.next_position
        if position is not None and not position.highest_page:
            # At most one page of deletions between two new pages.
            for at in data.draw(st.lists(st.integers(0, 99), max_size=size)):
                server.delete(at)

    assert position is NO_NEXT_PAGE
    assert set(server.rows) <= set(yielded)
    assert len(yielded) == len(set(yielded))


@given(counts, sizes, st.data())
def test_changes_between_cursor_pages_lose_and_repeat_nothing(count: int, size: int, data: st.DataObject) -> None:
    server = ListServer(count, newest_first=False)
    stable = set(server.rows)
    position: Position | None = Position(size=size)
    yielded: list[str] = []

    for _ in range(200):
        if position is None:
            break
        response = server.cursor(position)
        try:
            step = advance(position, response)
        except ShortPage as short:
            step = advance(position, response, previous_count=short.count)
        yielded += ids(step)
        position = step.next_position
        for at in data.draw(st.lists(st.none() | st.integers(0, 99), max_size=3)):
            if at is None:
                server.insert()
            else:
                server.delete(at)

    assert position is NO_NEXT_PAGE
    assert stable & set(server.rows) <= set(yielded)
    assert len(yielded) == len(set(yielded))


class TestPlainness:
    STATUS: ClassVar = {"phase": "Ready", "observed_generation": 1, "last_updated_time": "2026-03-01T12:00:00Z"}

    def page(self, *ids: str, odd: tuple[str, ...] = (), **members: Any) -> DecodedPage:
        plain = [{"id": each, "labels": {}, "status": self.STATUS} for each in ids]
        return decode_page(msgspec.json.encode({"items": [*plain, *items(*odd)], **members}))

    def test_a_page_is_plain_if_every_item_is(self) -> None:
        assert self.page("a", "b", next="x").is_plain
        assert not self.page("a", odd=("b",), next="x").is_plain

    def test_a_page_with_a_malformed_item_is_not_plain(self) -> None:
        assert not decode_page(b'{"items":[{"id":7}],"next":null}').is_plain

    def test_a_walk_is_plain_as_long_as_every_page_was(self) -> None:
        first = follow(advance(Position(size=1), self.page("a", next="x")))
        second = follow(advance(first, self.page("b", next="y")))

        assert (first.is_plain, second.is_plain) == (True, True)

    def test_a_walk_never_becomes_plain_later(self) -> None:
        first = follow(advance(Position(size=1), page("a", next="x")))
        second = follow(advance(first, self.page("b", next="y")))

        assert (first.is_plain, second.is_plain) == (False, False)

    def test_a_page_that_is_not_plain_needs_all_fields(self) -> None:
        first = follow(advance(Position(size=1), self.page("a", next="x")))
        odd = self.page(odd=("b",), next="y")

        with pytest.raises(NeedsAllFields):
            advance(first, odd)

        assert ids(advance(msgspec.structs.replace(first, is_plain=False), odd)) == ["b"]
