"""Every combination of the adapter's last report and the state of its task, and three edge cases."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum

import msgspec
import pytest

from tests.support.loop.deployments import MakeResource
from tests.support.loop.fake_backend import State
from tests.support.loop.resource_loop import LoopResource, ResourceLoop
from tests.support.loop.status_view import StatusView

pytestmark = pytest.mark.asyncio(loop_scope="package")


class Known(StrEnum):
    """The adapter's last report in the API."""

    NOTHING = "no condition"
    OLDER = "an older generation"
    SAME = "the same generation"


class Found(StrEnum):
    """The task that the adapter finds for the current generation."""

    ABSENT = "no task"
    IN_PROGRESS = "a task in progress"
    SUCCEEDED = "a task that succeeded"
    FAILED = "a task that failed"

    @property
    def state(self) -> State | None:
        return None if self is Found.ABSENT else State[self.name]


class Expected(msgspec.Struct, frozen=True):
    """The status afterwards; no other adapter is required."""

    is_stored: bool
    ready: str
    available: str
    available_generation: int
    observed_generation: int


# An adapter that finds no task starts one, which is then in progress.
REPORTED = {
    Found.ABSENT: ("True", "Unknown", "True"),
    Found.IN_PROGRESS: ("True", "Unknown", "True"),
    Found.SUCCEEDED: ("True", "True", "True"),
    Found.FAILED: ("True", "False", "True"),
}
OUTCOMES = {
    # (stored?, Ready, Available, its generation, observed generation)
    Known.NOTHING: {
        Found.ABSENT: Expected(True, "False", "False", 1, 0),
        Found.IN_PROGRESS: Expected(True, "False", "False", 1, 0),
        Found.SUCCEEDED: Expected(True, "True", "True", 1, 1),
        Found.FAILED: Expected(True, "False", "False", 1, 1),
    },
    Known.OLDER: {
        Found.ABSENT: Expected(False, "False", "True", 1, 1),
        Found.IN_PROGRESS: Expected(False, "False", "True", 1, 1),
        Found.SUCCEEDED: Expected(True, "True", "True", 2, 2),
        Found.FAILED: Expected(True, "False", "True", 1, 2),
    },
    Known.SAME: {
        Found.ABSENT: Expected(False, "True", "True", 2, 2),
        Found.IN_PROGRESS: Expected(False, "True", "True", 2, 2),
        Found.SUCCEEDED: Expected(True, "True", "True", 2, 2),
        Found.FAILED: Expected(True, "False", "False", 2, 2),
    },
}


@pytest.mark.parametrize("found", Found)
@pytest.mark.parametrize("known", Known)
async def test_report_and_status_follow_the_matrix(
    loop: ResourceLoop, make_resource: MakeResource, known: Known, found: Found
) -> None:
    backend, workload = loop.backend, make_resource("workloads")
    generation = await bring_to(known, workload)
    started = backend.started["zones", workload.id, generation]
    backend.set_initial_state("zones", workload.id, State.IN_PROGRESS)
    backend.set_task("zones", workload.id, found.state, generation=generation)
    mark = backend.mark()

    await cause_event(known, workload)
    report = await workload.until_evaluated(since=mark, generation=generation)
    status = await workload.status()

    assert backend.started["zones", workload.id, generation] - started == (1 if found is Found.ABSENT else 0)
    assert report.statuses == REPORTED[found]
    actual = Expected(
        report.is_stored,
        status.ready,
        status.available,
        status.available_generation,
        status.observed_generation,
    )
    assert actual == OUTCOMES[known][found]


async def bring_to(known: Known, workload: LoopResource) -> int:
    """Bring the API to this state and return the generation of the scenario."""
    if known is Known.NOTHING:
        return 1
    await workload.create()
    await workload.until_ready(1)
    if known is Known.SAME:
        await workload.change()
        await workload.until_ready(2)
    return 2


async def cause_event(known: Known, workload: LoopResource) -> None:
    causes: dict[Known, Callable[[], Awaitable[object]]] = {
        Known.NOTHING: workload.create,
        Known.OLDER: workload.change,
        Known.SAME: workload.request_pulse,
    }
    await causes[known]()


async def test_edge_1_a_check_in_progress_leaves_a_ready_cluster_ready(
    loop: ResourceLoop, make_resource: MakeResource
) -> None:
    cluster = await make_resource().create()
    before = await cluster.until_ready()
    known = (await cluster.reports())["zones"]
    loop.backend.set_initial_state("zones", cluster.id, State.IN_PROGRESS)
    loop.backend.set_task("zones", cluster.id, None)
    mark = loop.backend.mark()

    report = await cluster.until_evaluated(since=mark)
    call = await cluster.until_called_because("max age expired (ready)", since=mark)
    during, known_during = await cluster.status(), (await cluster.reports())["zones"]
    loop.backend.set_task("zones", cluster.id, State.SUCCEEDED)
    await cluster.request_pulse()
    after = await cluster.until(lambda now: now.last_updated_time > call.time)

    assert (report.statuses, report.is_stored) == (("True", "Unknown", "True"), False)
    assert during.is_ready
    assert known_during == known
    assert during.last_updated_time <= known.time, "no report says that it was checked"
    assert after.is_ready
    assert after.last_transition_time == before.last_transition_time


async def test_edge_2_with_mixed_generations_it_is_available_but_not_ready(
    loop: ResourceLoop, make_resource: MakeResource
) -> None:
    cluster = await make_resource().create()
    await cluster.until_ready()

    mixed = await change_with_mixed_reports(loop, cluster)
    loop.backend.set_task("zones", cluster.id, State.FAILED, generation=2)
    failed = await cluster.until(lambda now: now.observed_generation == 2)

    assert availability(mixed) == ("False", "True", 1)
    assert mixed.observed_generation == 1
    assert availability(failed) == ("False", "True", 1), "it is still available at the old generation"


async def test_edge_3_it_is_ready_again_when_all_adapters_agree(
    loop: ResourceLoop, make_resource: MakeResource
) -> None:
    cluster = await make_resource().create()
    await cluster.until_ready()
    loop.backend.set_task("quota", cluster.id, State.FAILED)
    await cluster.request_pulse()
    failed = await cluster.until(lambda now: not now.is_ready)

    mixed = await change_with_mixed_reports(loop, cluster)
    loop.backend.set_task("zones", cluster.id, State.SUCCEEDED, generation=2)
    agreed = await cluster.until_ready(2)

    assert availability(failed) == ("False", "False", 1)
    assert availability(mixed) == ("False", "False", 2)
    assert availability(agreed) == ("True", "True", 2)


async def change_with_mixed_reports(loop: ResourceLoop, cluster: LoopResource) -> StatusView:
    """Change the spec so that quota is done with generation 2 and zones is in progress; return the status."""
    loop.backend.set_initial_state("zones", cluster.id, State.IN_PROGRESS)
    mark = loop.backend.mark()
    await cluster.change()
    await cluster.until_evaluated("quota", since=mark, generation=2)
    await cluster.until_evaluated("zones", since=mark, generation=2)
    return await cluster.status()


def availability(status: StatusView) -> tuple[str, str, int]:
    return status.ready, status.available, status.available_generation
