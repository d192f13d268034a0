"""Keys with reasons, each in the hands of one worker at a time."""

from __future__ import annotations

import asyncio

from sentinel.runtime.workqueue import Agenda


async def test_keys_come_in_the_order_in_which_they_were_added() -> None:
    agenda: Agenda[str, int] = Agenda()
    for number, key in enumerate("abc"):
        agenda.add(key, number)

    assert [await agenda.next() for _ in range(3)] == [("a", [0]), ("b", [1]), ("c", [2])]


async def test_reasons_for_one_key_are_taken_together() -> None:
    agenda: Agenda[str, int] = Agenda()
    for number in range(3):
        agenda.add("a", number)

    assert await agenda.next() == ("a", [0, 1, 2])
    assert agenda.under_way == 1


async def test_a_key_in_somebody_s_hands_is_not_handed_out() -> None:
    agenda: Agenda[str, int] = Agenda()
    agenda.add("a", 1)
    await agenda.next()
    agenda.add("a", 2)
    agenda.add("b", 3)

    assert await agenda.next() == ("b", [3])


async def test_what_came_meanwhile_is_handed_out_when_the_key_is_free() -> None:
    agenda: Agenda[str, int] = Agenda()
    agenda.add("a", 1)
    await agenda.next()
    agenda.add("a", 2)
    agenda.add("a", 3)

    agenda.done("a")

    assert await agenda.next() == ("a", [2, 3])


async def test_a_key_without_new_reasons_is_over() -> None:
    agenda: Agenda[str, int] = Agenda()
    agenda.add("a", 1)
    await agenda.next()
    agenda.done("a")
    agenda.add("b", 2)

    assert await agenda.next() == ("b", [2])


async def test_closing_releases_everybody_who_waits_and_leaves_the_rest_where_it_is() -> None:
    agenda: Agenda[str, int] = Agenda()
    waiting = [asyncio.create_task(agenda.next()) for _ in range(5)]
    await asyncio.sleep(0)

    agenda.close()
    agenda.add("a", 1)

    assert await asyncio.wait_for(asyncio.gather(*waiting), 5) == [None] * 5
    assert await agenda.next() is None
