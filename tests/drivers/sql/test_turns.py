"""Turns: one has it, the others wait, each key by itself, and nobody for ever."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from sentinel.drivers.sql.turns import Turns
from sentinel.ports.errors import Unavailable

AMPLE = timedelta(seconds=60)


async def test_those_who_want_the_same_have_it_in_the_order_in_which_they_came() -> None:
    turns = Turns(patience=AMPLE)
    seen: list[str] = []

    async def use(name: str) -> None:
        turn = await turns.take("cls-1")
        seen.append(f"{name} begins")
        await asyncio.sleep(0)
        seen.append(f"{name} ends")
        turn.release()

    await asyncio.gather(*(use(name) for name in ("a", "b", "c")))

    assert seen == ["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]


async def test_nobody_waits_for_the_turn_of_another_key() -> None:
    turns = Turns(patience=AMPLE)

    taken = [await turns.take("cls-1"), await turns.take("cls-2")]

    assert [turn.locked() for turn in taken] == [True, True]


async def test_who_has_waited_long_enough_is_told_to_come_back_and_takes_nothing_along() -> None:
    turns = Turns(patience=timedelta(0))
    first = await turns.take("cls-1")

    with pytest.raises(Unavailable, match="cls-1: others were writing to it for 0 s"):
        await turns.take("cls-1")

    first.release()
    assert (await turns.take("cls-1")).locked()


async def test_what_nobody_wants_any_more_is_forgotten() -> None:
    turns = Turns(patience=AMPLE)

    (await turns.take("cls-1")).release()

    assert len(turns) == 0
