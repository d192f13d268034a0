"""One pass over an object of another operator: which steps run, in which order everything is written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sentinel.core.drift.fast_path import DriftStatus, PassKind
from sentinel.ports.kube import KubeUnavailable
from tests.drift.operator.database_world import DATABASE, NAMES, World, database_world

URGENT = ["status drift, trigger set", "certs", "infra", "status drift phase steps, trigger set"]
"""What every pass does that a trigger causes."""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with database_world(tmp_path) as world:
        yield world


async def test_a_pass_without_a_trigger_runs_all_steps(world: World) -> None:
    report = await world.reconciler.run(world.target, is_policy_enforced=True)

    assert report.kind is PassKind.NORMAL
    assert world.acts == ["certs", "infra", "upgrade", "backup", "status drift phase steps, trigger cleared"]


async def test_the_fast_path_runs_the_urgent_steps_and_then_clears(world: World) -> None:
    world.annotate("2026-11-18T09:00:00Z")

    report = await world.reconciler.run(world.target, is_policy_enforced=True)

    assert (report.kind, report.is_cleared) == (PassKind.FAST, True)
    assert world.acts == URGENT
    assert world.annotations() == {}


async def test_a_forced_pass_clears_before_the_slow_steps(world: World) -> None:
    world.annotate("2026-11-18T09:00:00Z")
    world.drift = DriftStatus(last_full_reconcile_time=datetime.now(UTC) - timedelta(minutes=5))

    report = await world.reconciler.run(world.target, is_policy_enforced=True)

    assert (report.kind, report.is_cleared) == (PassKind.FORCED, True)
    assert world.acts == [*URGENT, "upgrade", "backup", "status drift phase steps, trigger cleared"]


@pytest.mark.parametrize("failing", ["certs", "infra"])
async def test_a_failed_urgent_step_keeps_the_trigger(world: World, failing: str) -> None:
    world.annotate("2026-11-18T09:00:00Z")
    world.failing = failing

    report = await world.reconciler.run(world.target, is_policy_enforced=True)

    assert (report.failed_step, report.error) == (failing, "out of disk")
    assert NAMES.trigger in world.annotations()
    assert world.acts[-1].startswith("status")
    assert "drift" not in world.status


async def test_a_failed_slow_step_is_no_full_pass(world: World) -> None:
    world.failing = "upgrade"

    report = await world.reconciler.run(world.target, is_policy_enforced=True)

    assert report.failed_step == "upgrade"
    assert world.acts == ["certs", "infra", "upgrade", "status phase steps, trigger cleared"]
    assert world.status["steps"].keys() == {"certs", "infra"}  # type: ignore[union-attr]


async def test_a_newer_trigger_is_not_cleared(world: World) -> None:
    world.annotate("2026-11-18T09:00:00Z")
    world.newer = "2026-11-18T09:00:01Z"

    report = await world.reconciler.run(world.target, is_policy_enforced=True)

    assert not report.is_cleared
    assert world.annotations()[NAMES.trigger] == "2026-11-18T09:00:01Z"


async def test_a_trigger_that_could_not_be_cleared_is_counted_once(world: World) -> None:
    world.annotate("2026-11-18T09:00:00Z")
    world.server.fail_next(503, plural="databases", verb="patch")
    with pytest.raises(KubeUnavailable):
        await world.reconciler.run(world.target, is_policy_enforced=True)

    report = await world.reconciler.run(world.target, is_policy_enforced=True)

    labels = {"namespace": "default", "name": "db"}
    assert report.is_cleared
    assert world.registry.get_sample_value("database_drift_corrected_total", labels) == 1
    detected = world.registry.get_sample_value(
        "database_drift_detected_total", {**labels, "resource_kind": "Service"}
    )
    assert detected == 1


async def test_an_object_that_is_gone_is_no_failure(world: World) -> None:
    world.annotate("2026-11-18T09:00:00Z")
    target = world.target
    world.server.delete(DATABASE, "db", namespace="default")

    report = await world.reconciler.run(target, is_policy_enforced=True)

    assert not report.is_cleared


async def test_a_trigger_that_is_sent_again_is_the_same_drift(world: World) -> None:
    world.failing = "infra"
    for second in range(3):
        world.annotate(f"2026-11-18T09:00:0{second}Z")
        await world.reconciler.run(world.target, is_policy_enforced=True)
    failing = world.metrics()

    world.failing = ""
    await world.reconciler.run(world.target, is_policy_enforced=True)

    assert failing == {"detected_total": 1, "corrected_total": 0, "unhandled": 1}
    assert world.metrics() == {"detected_total": 1, "corrected_total": 1, "unhandled": 0}


async def test_drift_after_a_correction_is_counted_again(world: World) -> None:
    for second in range(2):
        world.annotate(f"2026-11-18T09:00:0{second}Z")
        await world.reconciler.run(world.target, is_policy_enforced=True)

    assert world.metrics() == {"detected_total": 2, "corrected_total": 2, "unhandled": 0}


async def test_an_object_has_all_its_series_from_the_start(world: World) -> None:
    world.reconciler.add(world.target.reference)
    before = world.metrics()

    world.reconciler.forget(world.target.reference)

    assert before == {"detected_total": 0, "corrected_total": 0, "unhandled": 0}
    assert [sample for family in world.registry.collect() for sample in family.samples] == []
