"""From a change to the trigger, and its acknowledgement."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest

from sentinel.core.drift.conflicts import INITIAL_DELAY
from sentinel.core.drift.judgement import Reason
from sentinel.drift.sidecar.report import FailureClass
from sentinel.testing.kube.kinds import CONFIG_MAP, SERVICE, STATEFUL_SET
from tests.drift.harness import (
    ACK_TIMEOUT,
    BAO,
    MAX_WAIT,
    PROD,
    RESOURCE,
    TRIGGER,
    WINDOW,
    DriftHarness,
    RunningSidecar,
    config_map,
    seconds_since_start,
    until,
    with_harness,
    with_sidecar,
)


@with_sidecar
async def test_a_foreign_change_is_triggered_after_the_window(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    before = harness.annotations
    changed = asyncio.get_running_loop().time()

    harness.scale(5)

    await harness.until_triggered()
    assert asyncio.get_running_loop().time() - changed == pytest.approx(2, abs=0.1)
    assert harness.annotations == {
        **before,
        TRIGGER: harness.trigger,
        RESOURCE: f"StatefulSet/{PROD}/{BAO}",
    }
    assert seconds_since_start(harness.trigger) == pytest.approx(changed + 2, abs=0.1)
    [drift] = sidecar.reports.drift
    assert drift.reason is Reason.OWNED_FIELD_CHANGED
    assert drift.actor.manager == "kubectl-edit"
    assert [change.path for change in drift.changes] == ["/spec/replicas"]


@with_sidecar
async def test_what_the_operator_writes_is_not_triggered(harness: DriftHarness, sidecar: RunningSidecar) -> None:
    for number in range(20):
        await harness.apply(CONFIG_MAP, config_map(text=f"ui = {number}"))
        harness.edit(
            STATEFUL_SET,
            {"status": {"replicas": number}},
            manager="kube-controller-manager",
            subresource="status",
        )
        await asyncio.sleep(1)

    assert sidecar.reports.drift == []
    assert sidecar.reports.triggers == []
    assert len(sidecar.reports.judged_reports) >= 40


@with_sidecar
async def test_a_burst_of_500_events_is_one_trigger(harness: DriftHarness, sidecar: RunningSidecar) -> None:
    for number in range(500):
        harness.edit(CONFIG_MAP, {"data": {"config.hcl": f"ui = {number}"}})
        if number % 100 == 0:
            await asyncio.sleep(0.1)
    await asyncio.sleep(30)

    assert len(sidecar.reports.triggers) == 1
    assert sidecar.reports.triggers[0].batch.burst.events == 500
    assert sidecar.metric("detected_total", kind="ConfigMap", reason="owned_field_changed") == 500


@with_sidecar
async def test_drift_without_a_pause_is_triggered_at_the_maximum_wait(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    for number in range(120):
        harness.scale(10 + number)
        await asyncio.sleep(0.5)

    times = sidecar.reports.trigger_times
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert len(times) >= 5
    assert max(pauses) <= MAX_WAIT.total_seconds() + 0.6


@with_sidecar
async def test_a_trigger_names_the_first_object_of_its_window(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    harness.edit(SERVICE, {"spec": {"selector": {"app": "evil"}}})
    await asyncio.sleep(1)
    harness.scale(5)
    await harness.until_triggered()

    assert harness.annotations[RESOURCE] == f"Service/{PROD}/{BAO}"
    assert len(sidecar.reports.triggers[0].batch.burst.objects) == 2


@with_harness
async def test_the_patch_does_not_touch_what_others_wrote_meanwhile(harness: DriftHarness) -> None:
    await harness.started()

    harness.scale(5)
    await asyncio.sleep(1)
    harness.annotate(note="kept")
    await harness.until_triggered()

    assert harness.annotations["openbao.org/sentinel-note"] == "kept"


@with_sidecar
async def test_an_acknowledged_trigger_is_not_repeated(harness: DriftHarness, sidecar: RunningSidecar) -> None:
    harness.scale(5)
    await harness.until_triggered()

    await harness.restore()
    await asyncio.sleep(10 * ACK_TIMEOUT.total_seconds())

    assert len(sidecar.reports.triggers) == 1
    [acknowledged] = sidecar.reports.acknowledgements
    assert acknowledged.batch.burst.first == f"StatefulSet/{PROD}/{BAO}"
    assert sidecar.metric("unacknowledged") == 0


@with_sidecar
async def test_an_unacknowledged_trigger_is_repeated_with_a_later_value(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    harness.scale(5)
    first = await harness.until_triggered()

    await until(lambda: harness.trigger != first)

    assert seconds_since_start(harness.trigger) == pytest.approx(
        seconds_since_start(first) + ACK_TIMEOUT.total_seconds(), abs=0.1
    )
    assert harness.annotations[RESOURCE] == f"StatefulSet/{PROD}/{BAO}"
    assert sidecar.reports.triggers[1].is_repeated
    assert sidecar.metric("trigger_latency_seconds_count") == 1


@with_harness
async def test_triggers_increase_while_the_clock_is_set_back(harness: DriftHarness) -> None:
    await harness.started()
    harness.scale(5)
    first = await harness.until_triggered()

    harness.scale(6)
    await asyncio.sleep(1)
    harness.clock.offset = timedelta(hours=-3)
    await until(lambda: harness.trigger != first, timeout=10)

    assert harness.trigger > first


@with_sidecar
async def test_triggers_increase_across_a_restart_with_a_slow_clock(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    harness.scale(5)
    first = await harness.until_triggered()
    await sidecar.kill()
    harness.clock.offset = timedelta(hours=-3)

    await harness.started()
    await until(lambda: harness.trigger != first)

    assert harness.trigger > first


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (409, FailureClass.CONFLICT),
        (429, FailureClass.THROTTLED),
        (500, FailureClass.SERVER_ERROR),
        (503, FailureClass.SERVER_ERROR),
        (504, FailureClass.SERVER_ERROR),
    ],
)
@with_sidecar
async def test_a_passing_failure_is_retried_soon(
    harness: DriftHarness, sidecar: RunningSidecar, status: int, failure: FailureClass
) -> None:
    harness.server.fail_next(status, count=2, verb="patch", plural="openbaoclusters")
    changed = asyncio.get_running_loop().time()

    harness.scale(5)

    await harness.until_triggered()
    assert asyncio.get_running_loop().time() - changed < 5
    assert [report.failure for report in sidecar.reports.failures] == [failure] * 2
    assert sidecar.metric("patch_failures_total", **{"class": failure.value}) == 2
    assert sidecar.problems() == {}


@with_harness
async def test_retry_after_is_waited_for(harness: DriftHarness) -> None:
    await harness.started()
    harness.server.fail_next(429, verb="patch", plural="openbaoclusters", retry_after=timedelta(seconds=30))
    changed = asyncio.get_running_loop().time()

    harness.scale(5)

    await harness.until_triggered()
    assert asyncio.get_running_loop().time() - changed == pytest.approx(32, abs=0.1)


@with_sidecar
async def test_a_patch_without_a_response_is_given_up_and_retried(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    sidecar.connection.hanging_patches = 1

    harness.scale(5)

    await harness.until_triggered(timeout=20)
    assert [report.failure for report in sidecar.reports.failures] == [FailureClass.UNREACHABLE]


@with_sidecar
async def test_a_trigger_whose_response_was_lost_is_not_written_twice(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    sidecar.connection.lost_responses = 1

    harness.scale(5)
    value = await harness.until_triggered()
    await asyncio.sleep(30)

    assert harness.trigger == value
    assert sidecar.reports.failures == []
    assert len(sidecar.reports.triggers) == 1


@pytest.mark.parametrize(
    ("status", "failure"),
    [(403, FailureClass.FORBIDDEN), (422, FailureClass.INVALID), (404, FailureClass.NOT_FOUND)],
)
@with_sidecar
async def test_a_failure_that_needs_a_person_is_slow_and_not_ready(
    harness: DriftHarness, sidecar: RunningSidecar, status: int, failure: FailureClass
) -> None:
    harness.server.fail_next(status, count=4, verb="patch", plural="openbaoclusters")

    harness.scale(5)

    await until(lambda: sidecar.reports.failures)
    assert failure.value in sidecar.problems()["trigger"]
    await asyncio.sleep(60)
    assert len(sidecar.reports.failures) <= 3
    await harness.until_triggered()
    assert sidecar.problems() == {}
    assert sidecar.metric("patch_failures_total", **{"class": failure.value}) == 4


@with_sidecar
async def test_an_unreachable_server_is_not_ready_until_the_trigger_is_written(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    harness.server.fail_next(503, count=6, verb="patch", plural="openbaoclusters")

    harness.scale(5)

    await until(lambda: len(sidecar.reports.failures) == 3)
    assert "server_error" in sidecar.problems()["trigger"]
    await harness.until_triggered()
    assert sidecar.problems() == {}


@with_sidecar
async def test_pending_drift_survives_failures_even_if_its_object_is_gone(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    harness.server.fail_next(503, count=5, verb="patch", plural="openbaoclusters")

    harness.edit(SERVICE, {"spec": {"selector": {"app": "evil"}}})
    await until(lambda: sidecar.reports.failures)
    harness.server.delete(SERVICE, BAO, namespace=PROD)

    await harness.until_triggered()
    assert harness.annotations[RESOURCE] == f"Service/{PROD}/{BAO}"


@with_sidecar
async def test_drift_during_a_failed_patch_is_not_lost(harness: DriftHarness, sidecar: RunningSidecar) -> None:
    harness.server.fail_next(503, count=3, verb="patch", plural="openbaoclusters")

    harness.scale(5)
    await until(lambda: sidecar.reports.failures)
    harness.edit(CONFIG_MAP, {"data": {"config.hcl": "evil"}})
    await harness.until_triggered()
    await asyncio.sleep(WINDOW.total_seconds() + 1)

    assert {name for report in sidecar.reports.triggers for name in report.batch.burst.objects} == {
        f"StatefulSet/{PROD}/{BAO}",
        f"ConfigMap/{PROD}/{BAO}",
    }


@with_sidecar
async def test_a_path_in_conflict_is_corrected_ever_more_slowly(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    async def repeat_drift() -> None:
        """Change the same field right after each correction."""
        for replicas in range(10, 1000):
            harness.scale(replicas, manager="hpa")
            await harness.until_triggered()
            await harness.restore()

    changing = asyncio.create_task(repeat_drift())
    await asyncio.sleep(600)
    changing.cancel()

    times = sidecar.reports.trigger_times
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert [round(pause) for pause in pauses[:6]] == [2, 2, 2, INITIAL_DELAY.total_seconds(), 60, 120]
    assert len(times) == 8
    report = sidecar.reports.conflicts[0]
    assert report.judgement.actor.manager == "hpa"
    assert report.conflict.field.path == "/spec/replicas"
    assert report.conflict.corrections == 4
    assert len(sidecar.reports.conflicts) == len(times) - 4 + 1


@with_sidecar
async def test_drift_of_something_else_does_not_wait_for_a_conflict(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    for replicas in range(10, 14):
        harness.scale(replicas, manager="hpa")
        await harness.until_triggered()
        await harness.restore()
    harness.scale(20, manager="hpa")
    await until(lambda: sidecar.reports.conflicts)
    changed = asyncio.get_running_loop().time()

    harness.edit(CONFIG_MAP, {"data": {"config.hcl": "evil"}})

    await harness.until_triggered()
    assert asyncio.get_running_loop().time() - changed == pytest.approx(2, abs=0.1)


@with_sidecar
async def test_stopping_writes_a_pending_trigger(harness: DriftHarness, sidecar: RunningSidecar) -> None:
    harness.scale(5)
    await until(lambda: sidecar.reports.drift)

    await sidecar.stop()

    assert harness.annotations[RESOURCE] == f"StatefulSet/{PROD}/{BAO}"


@with_sidecar
async def test_stopping_during_a_patch_that_hangs_is_quick(harness: DriftHarness, sidecar: RunningSidecar) -> None:
    sidecar.connection.hanging_patches = 2
    harness.scale(5)
    await until(lambda: sidecar.connection.hanging_patches == 1)
    began = asyncio.get_running_loop().time()

    await sidecar.stop()

    assert asyncio.get_running_loop().time() - began < 5
