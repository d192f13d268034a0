"""What the API knows of an adapter, against what the adapter finds of its task; and the cases at the edges."""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

import msgspec
import pytest

from tests.support.loop.deployments import Make
from tests.support.loop.fake_backend import State
from tests.support.loop.resource_loop import Loop, Subject
from tests.support.loop.status_view import Standing

pytestmark = pytest.mark.asyncio(loop_scope="package")


class Known(StrEnum):
    """What the API has of the adapter."""

    NOTHING = "no condition"
    OLDER = "an older generation"
    SAME = "the same generation"


class Found(StrEnum):
    """What the adapter finds for the current generation."""

    ABSENT = "no task"
    IN_PROGRESS = "a task in progress"
    SUCCEEDED = "a task that succeeded"
    FAILED = "a task that failed"

    @property
    def state(self) -> State | None:
        return None if self is Found.ABSENT else State[self.name]


class Outcome(msgspec.Struct, frozen=True):
    """What the API shows afterwards; the adapter is the only one that is required."""

    is_taken: bool
    ready: str
    available: str
    available_generation: int
    observed_generation: int


# An adapter that finds no task begins one, and then it is in progress.
REPORTED = {
    Found.ABSENT: ("True", "Unknown", "True"),
    Found.IN_PROGRESS: ("True", "Unknown", "True"),
    Found.SUCCEEDED: ("True", "True", "True"),
    Found.FAILED: ("True", "False", "True"),
}
OUTCOMES = {
    # (taken?, Ready, Available, its generation, observed generation)
    (Known.NOTHING, Found.ABSENT): Outcome(True, "False", "False", 1, 0),
    (Known.NOTHING, Found.IN_PROGRESS): Outcome(True, "False", "False", 1, 0),
    (Known.NOTHING, Found.SUCCEEDED): Outcome(True, "True", "True", 1, 1),
    (Known.NOTHING, Found.FAILED): Outcome(True, "False", "False", 1, 1),
    (Known.OLDER, Found.ABSENT): Outcome(False, "False", "True", 1, 1),
    (Known.OLDER, Found.IN_PROGRESS): Outcome(False, "False", "True", 1, 1),
    (Known.OLDER, Found.SUCCEEDED): Outcome(True, "True", "True", 2, 2),
    (Known.OLDER, Found.FAILED): Outcome(True, "False", "True", 1, 2),
    (Known.SAME, Found.ABSENT): Outcome(False, "True", "True", 2, 2),
    (Known.SAME, Found.IN_PROGRESS): Outcome(False, "True", "True", 2, 2),
    (Known.SAME, Found.SUCCEEDED): Outcome(True, "True", "True", 2, 2),
    (Known.SAME, Found.FAILED): Outcome(True, "False", "False", 2, 2),
}


@pytest.mark.parametrize(
    ("known", "found"), [pytest.param(*each, id=f"{each[0]} and {each[1]}") for each in OUTCOMES]
)
async def test_an_adapter_does_and_the_api_shows_what_was_agreed_for(
    loop: Loop, subject: Make, known: Known, found: Found
) -> None:
    workshop, workload = loop.workshop, subject("workloads")
    generation = await bring_to(known, workload)
    begun = workshop.begun["zones", workload.id, generation]
    workshop.begin_with("zones", workload.id, State.IN_PROGRESS)
    workshop.set_task("zones", workload.id, found.state, generation=generation)
    mark = workshop.mark()

    await cause_event(known, workload)
    report = await workload.until_evaluated(since=mark, generation=generation)
    standing = await workload.standing()

    assert workshop.begun["zones", workload.id, generation] - begun == (1 if found is Found.ABSENT else 0)
    assert report.statuses == REPORTED[found]
    shown = Outcome(
        report.is_taken,
        standing.ready,
        standing.available,
        standing.available_generation,
        standing.observed_generation,
    )
    assert shown == OUTCOMES[known, found]


async def test_every_scenario_is_there() -> None:
    assert set(OUTCOMES) == {(known, found) for known in Known for found in Found}


async def bring_to(known: Known, workload: Subject) -> int:
    """Lets the API know that much; the generation that the scenario is about."""
    if known is Known.NOTHING:
        return 1
    await workload.create()
    await workload.until_ready(1)
    if known is Known.SAME:
        await workload.change()
        await workload.until_ready(2)
    return 2


async def cause_event(known: Known, workload: Subject) -> None:
    match known:
        case Known.NOTHING:
            await workload.create()
        case Known.OLDER:
            await workload.change()
        case Known.SAME:
            await workload.ask_for_pulse()
        case _:
            assert_never(known)


async def test_edge_1_a_check_in_progress_leaves_a_ready_cluster_ready(loop: Loop, subject: Make) -> None:
    cluster = await subject().create()
    before = await cluster.until_ready()
    known = (await cluster.reports())["zones"]
    loop.workshop.begin_with("zones", cluster.id, State.IN_PROGRESS)
    loop.workshop.set_task("zones", cluster.id, None)
    mark = loop.workshop.mark()

    report = await cluster.until_evaluated(since=mark)
    look = await cluster.until_looked_at_because("max age expired (ready)", since=mark)
    during, known_during = await cluster.standing(), (await cluster.reports())["zones"]
    loop.workshop.set_task("zones", cluster.id, State.SUCCEEDED)
    await cluster.ask_for_pulse()
    after = await cluster.until(lambda now: now.last_updated_time > look.time)

    assert (report.statuses, report.is_taken) == (("True", "Unknown", "True"), False)
    assert during.is_ready
    assert known_during == known
    assert during.last_updated_time <= known.time, "nobody has said that it was checked"
    assert after.is_ready
    assert after.last_transition_time == before.last_transition_time


async def test_edge_2_with_mixed_generations_a_cluster_is_available_at_the_old_one_and_not_ready(
    loop: Loop, subject: Make
) -> None:
    cluster = await subject().create()
    await cluster.until_ready()
    loop.workshop.begin_with("zones", cluster.id, State.IN_PROGRESS)
    mark = loop.workshop.mark()

    await cluster.change()
    await cluster.until_evaluated("quota", since=mark, generation=2)
    await cluster.until_evaluated("zones", since=mark, generation=2)
    mixed = await cluster.standing()
    loop.workshop.set_task("zones", cluster.id, State.FAILED, generation=2)
    failed = await cluster.until(lambda now: now.observed_generation == 2)

    assert availability(mixed) == ("False", "True", 1)
    assert mixed.observed_generation == 1
    assert availability(failed) == ("False", "True", 1), "what ran at the old generation still does"


async def test_edge_3_a_cluster_that_fell_is_not_ready_before_all_adapters_agree_on_the_new_generation(
    loop: Loop, subject: Make
) -> None:
    cluster = await subject().create()
    await cluster.until_ready()
    loop.workshop.set_task("quota", cluster.id, State.FAILED)
    await cluster.ask_for_pulse()
    fallen = await cluster.until(lambda now: not now.is_ready)
    loop.workshop.begin_with("zones", cluster.id, State.IN_PROGRESS)
    mark = loop.workshop.mark()

    await cluster.change()
    await cluster.until_evaluated("quota", since=mark, generation=2)
    await cluster.until_evaluated("zones", since=mark, generation=2)
    mixed = await cluster.standing()
    loop.workshop.set_task("zones", cluster.id, State.SUCCEEDED, generation=2)
    agreed = await cluster.until_ready(2)

    assert availability(fallen) == ("False", "False", 1)
    assert availability(mixed) == ("False", "False", 2)
    assert availability(agreed) == ("True", "True", 2)


def availability(standing: Standing) -> tuple[str, str, int]:
    return standing.ready, standing.available, standing.available_generation
