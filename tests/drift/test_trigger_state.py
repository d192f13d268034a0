"""What is said of triggers beside writing them: the metric of unacknowledged ones, readiness, and stopping."""

from __future__ import annotations

import asyncio

import pytest

from tests.drift.harness import (
    BAO,
    OPEN_BAO_CLUSTER,
    PROD,
    DriftHarness,
    RunningSidecar,
    until,
    with_harness,
    with_sidecar,
)


@with_sidecar
async def test_a_written_trigger_is_unacknowledged_until_it_is_cleared(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    assert sidecar.metric("unacknowledged") == 0

    harness.scale(5)
    await until(lambda: sidecar.reports.triggers)
    assert sidecar.metric("unacknowledged") == 1

    await harness.restore()
    assert sidecar.metric("unacknowledged") == 0


@with_harness
async def test_a_trigger_of_the_last_process_is_unacknowledged(harness: DriftHarness) -> None:
    harness.annotate(trigger="2024-01-01T00:00:00.000000000Z")
    sidecar = await harness.started()

    assert sidecar.metric("unacknowledged") == 1
    await harness.acknowledge()
    assert sidecar.metric("unacknowledged") == 0


@with_sidecar
async def test_a_trigger_that_cannot_be_repeated_stays_unacknowledged(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    harness.scale(5)
    await until(lambda: sidecar.reports.triggers)
    harness.server.fail_next(403, count=100, verb="patch", plural="openbaoclusters")

    await until(lambda: sidecar.reports.failures)

    assert sidecar.metric("unacknowledged") == 1


@pytest.mark.parametrize("mode", ["observe", "off"])
@with_sidecar
async def test_no_acknowledgement_is_expected_in_another_mode(
    harness: DriftHarness, sidecar: RunningSidecar, mode: str
) -> None:
    harness.scale(5)
    await until(lambda: sidecar.reports.triggers)

    harness.annotate(mode=mode)
    await asyncio.sleep(1)

    assert sidecar.metric("unacknowledged") == 0


@with_sidecar
async def test_no_acknowledgement_is_expected_of_another_cluster(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    harness.scale(5)
    await until(lambda: sidecar.reports.triggers)

    harness.server.delete(OPEN_BAO_CLUSTER, BAO, namespace=PROD)
    harness.create_cluster()
    await asyncio.sleep(1)

    assert sidecar.metric("unacknowledged") == 0


@pytest.mark.parametrize("mode", ["observe", "off"])
@with_sidecar
async def test_a_failed_trigger_is_no_problem_in_another_mode(
    harness: DriftHarness, sidecar: RunningSidecar, mode: str
) -> None:
    harness.server.fail_next(403, verb="patch", plural="openbaoclusters")
    harness.scale(5)
    await until(lambda: "trigger" in sidecar.problems())

    harness.annotate(mode=mode)
    await asyncio.sleep(1)

    assert sidecar.problems() == {}


@with_harness
async def test_stopping_during_a_maintenance_writes_no_trigger(harness: DriftHarness) -> None:
    harness.annotate(maintenance_until="9999-12-31T23:59:59Z")
    sidecar = await harness.started()
    harness.scale(5)
    await until(lambda: sidecar.reports.drift)

    await sidecar.stop()

    assert harness.trigger == ""


@with_sidecar
async def test_stopping_in_another_mode_writes_no_trigger(harness: DriftHarness, sidecar: RunningSidecar) -> None:
    harness.scale(5)
    await until(lambda: sidecar.reports.drift)
    harness.annotate(mode="observe")
    await asyncio.sleep(0.5)

    await sidecar.stop()

    assert harness.trigger == ""
