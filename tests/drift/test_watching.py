"""What is seen of objects and of the cluster: deletions, lost labels, gaps in watches, restarts, modes."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from sentinel.core.drift.judgement import Reason
from sentinel.core.drift.rules import OPENBAO
from sentinel.core.drift.trigger import DriftMode
from sentinel.core.json import Json
from sentinel.core.times import timestamp
from sentinel.drift.operator.restoring import Restorer
from sentinel.ports.kube import KubeKind
from sentinel.runtime.log import get_logger
from sentinel.testing.clock import START
from sentinel.testing.kube.kinds import CONFIG_MAP, SERVICE, STATEFUL_SET
from sentinel.testing.loop import simulated
from tests.drift.harness import (
    ACK_TIMEOUT,
    BAO,
    OPEN_BAO_CLUSTER,
    OPERATOR,
    PROD,
    RESOURCE,
    TRIGGER,
    DriftHarness,
    RunningSidecar,
    config_map,
    drift_harness,
    service,
    stateful_set,
    until,
    with_harness,
    with_sidecar,
)

UNLABELLED: dict[str, Json] = {"metadata": {"labels": {"app.kubernetes.io/instance": None}}}


@pytest.mark.parametrize("kind", [STATEFUL_SET, SERVICE, CONFIG_MAP])
@with_sidecar
async def test_a_deleted_object_is_drift(harness: DriftHarness, sidecar: RunningSidecar, kind: KubeKind) -> None:
    harness.server.delete(kind, BAO, namespace=PROD)

    await harness.until_triggered()
    assert harness.annotations[RESOURCE] == f"{kind.kind}/{PROD}/{BAO}"
    [drift] = sidecar.reports.drift
    assert drift.reason is Reason.DELETED
    assert drift.actor.manager is None


@with_sidecar
async def test_an_object_that_loses_its_label_is_drift_and_not_deleted(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    harness.edit(SERVICE, UNLABELLED)

    await harness.until_triggered()
    [drift] = sidecar.reports.drift
    assert drift.reason is Reason.LABEL_LOST


@with_sidecar
async def test_a_restored_label_is_the_operators_write(harness: DriftHarness, sidecar: RunningSidecar) -> None:
    harness.edit(SERVICE, UNLABELLED)
    await harness.until_triggered()

    await harness.restore()
    await asyncio.sleep(30)

    assert len(sidecar.reports.drift) == 1
    assert len(sidecar.reports.triggers) == 1


@with_harness
async def test_a_change_while_the_label_was_missing_is_drift(harness: DriftHarness) -> None:
    await harness.apply(SERVICE, service(), is_attested=False)
    sidecar = await harness.started()
    harness.edit(SERVICE, UNLABELLED)
    await until(lambda: sidecar.reports.drift)

    harness.edit(SERVICE, {"spec": {"selector": {"app": "evil"}}})
    harness.edit(SERVICE, {"metadata": {"labels": {"app.kubernetes.io/instance": BAO}}})

    await until(lambda: len(sidecar.reports.drift) > 1)
    assert "/spec/selector" in sidecar.reports.drift[-1].changes[-1].path


@with_sidecar
async def test_a_deleted_object_of_which_another_has_the_name_is_deleted(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    harness.server.delete(SERVICE, BAO, namespace=PROD)
    await harness.apply(SERVICE, service())

    await harness.until_triggered()
    assert sidecar.reports.reasons == [Reason.DELETED]


@with_sidecar
async def test_a_deletion_is_reported_once_if_another_manager_creates_it_again(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    harness.server.fail_next(503, verb="get", plural="services")  # so that the new one is seen first

    harness.server.delete(SERVICE, BAO, namespace=PROD)
    harness.server.create(SERVICE, service(), manager="kubectl-create")
    await harness.until_triggered()

    assert sidecar.reports.reasons == [Reason.DELETED]


@with_sidecar
async def test_an_object_that_only_a_deletion_can_restore_drifts_once(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    harness.edit(CONFIG_MAP, {"immutable": True})
    await until(lambda: sidecar.reports.drift)
    # As for each change of immutable data: by the apply, and by the patch of the content.
    harness.server.fail_next(422, verb="patch", plural="configmaps", count=2)
    log = get_logger("test")
    restorer = Restorer(harness.operator, rules=OPENBAO, field_manager=OPERATOR, log=log)

    restored = await restorer.restore(CONFIG_MAP, config_map())
    await asyncio.sleep(30)

    assert "immutable" not in restored
    assert sidecar.reports.reasons == [Reason.UNOWNED_ADDED]
    assert len(sidecar.reports.triggers) == 1


@with_sidecar
async def test_an_object_that_cannot_be_read_again_stays_in_question(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    harness.server.fail_next(503, count=4, verb="get", plural="services")

    harness.edit(SERVICE, UNLABELLED)
    await asyncio.sleep(2)

    assert sidecar.reports.drift == []
    await until(lambda: sidecar.reports.drift)
    assert sidecar.reports.drift[0].reason is Reason.LABEL_LOST


@pytest.mark.parametrize("status", [401, 403, 410, 500])
@with_sidecar
async def test_only_an_object_that_is_not_found_counts_as_deleted(
    harness: DriftHarness, sidecar: RunningSidecar, status: int
) -> None:
    """A server that has just started may refuse every read."""
    harness.server.fail_next(status, count=4, verb="get", plural="services")

    harness.edit(SERVICE, UNLABELLED)

    await until(lambda: "watch-services" in sidecar.problems())
    assert sidecar.reports.drift == []
    assert "cannot be read" in sidecar.problems()["watch-services"]
    await harness.until_triggered()
    assert sidecar.reports.reasons == [Reason.LABEL_LOST]
    assert sidecar.problems() == {}


@with_sidecar
async def test_objects_of_others_are_not_seen(harness: DriftHarness, sidecar: RunningSidecar) -> None:
    seen = len(sidecar.reports.judged_reports)
    other = config_map("other")
    other["metadata"] = {"name": "other", "namespace": PROD}

    harness.server.create(CONFIG_MAP, other)
    harness.edit(CONFIG_MAP, {"data": {"a": "b"}}, name="other")
    harness.server.delete(CONFIG_MAP, "other", namespace=PROD)
    await asyncio.sleep(30)

    assert len(sidecar.reports.judged_reports) == seen


@with_sidecar
async def test_drift_while_the_server_was_down_is_seen_afterwards(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    sidecar.connection.is_down = True
    sidecar.connection.cut_watches()
    await asyncio.sleep(0.1)

    harness.scale(5)
    await until(sidecar.problems)
    assert set(sidecar.problems()) >= {"watch-statefulsets", "watch-services", "watch-configmaps"}
    sidecar.connection.is_down = False

    await harness.until_triggered(timeout=60)
    assert sidecar.reports.reasons == [Reason.OWNED_FIELD_CHANGED]
    await sidecar.until_ready()


@with_sidecar
async def test_a_deletion_in_a_410_gap_is_seen(harness: DriftHarness, sidecar: RunningSidecar) -> None:
    sidecar.connection.is_down = True
    sidecar.connection.cut_watches()
    await asyncio.sleep(0.1)

    harness.server.delete(CONFIG_MAP, BAO, namespace=PROD)
    harness.scale(5)
    harness.server.expire_versions()
    sidecar.connection.is_down = False

    await harness.until_triggered(timeout=60)
    assert set(sidecar.reports.reasons) == {Reason.DELETED, Reason.OWNED_FIELD_CHANGED}
    assert sidecar.reports.relists >= 2
    assert sidecar.metric("relists_total") == sidecar.reports.relists


@with_sidecar
async def test_a_watch_that_expires_in_mid_stream_loses_and_repeats_nothing(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    harness.server.expire_watches()
    await asyncio.sleep(5)
    harness.server.close_watches()
    await asyncio.sleep(5)

    assert sidecar.reports.drift == []
    harness.scale(5)
    await harness.until_triggered()
    assert len(sidecar.reports.drift) == 1


@with_sidecar
async def test_a_restart_makes_nothing_up(harness: DriftHarness, sidecar: RunningSidecar) -> None:
    harness.edit(
        STATEFUL_SET, {"status": {"replicas": 3}}, manager="kube-controller-manager", subresource="status"
    )
    await sidecar.kill()

    again = await harness.started()
    await asyncio.sleep(5 * ACK_TIMEOUT.total_seconds())

    assert again.reports.drift == []
    assert harness.trigger == ""
    assert {report.judgement.reason for report in again.reports.judged_reports} == {Reason.UNCHANGED}


@with_sidecar
async def test_drift_during_a_restart_is_seen_by_the_attestation(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    await sidecar.kill()
    harness.scale(5)

    again = await harness.started()

    await harness.until_triggered()
    assert again.reports.reasons == [Reason.FINGERPRINT_MISMATCH]


@with_harness
async def test_an_annotation_of_ours_that_was_not_triggered_is_seen_again(harness: DriftHarness) -> None:
    killed = await harness.started()
    harness.edit(SERVICE, {"metadata": {"annotations": {"openbao.org/evil": "x"}}})
    await until(lambda: killed.reports.drift)
    await killed.kill()
    assert harness.trigger == ""

    sidecar = await harness.started()

    await harness.until_triggered()
    assert sidecar.reports.reasons == [Reason.UNOWNED_ADDED]


@with_harness
async def test_an_object_without_attestation_is_no_drift_at_the_start(harness: DriftHarness) -> None:
    await harness.apply(CONFIG_MAP, config_map("unattested"), is_attested=False)

    sidecar = await harness.started()
    await asyncio.sleep(30)

    assert sidecar.reports.drift == []
    assert sidecar.metric("ignored_total", kind="ConfigMap", reason="unattested") == 1


@with_harness
async def test_a_trigger_of_the_last_process_is_repeated_until_acknowledged(harness: DriftHarness) -> None:
    harness.annotate(trigger="2024-01-01T00:00:00.000000000Z", trigger_resource=f"Service/{PROD}/{BAO}")
    sidecar = await harness.started()

    await until(lambda: not harness.trigger.startswith("2024"))
    assert harness.annotations[RESOURCE] == f"Service/{PROD}/{BAO}"
    assert sidecar.reports.triggers[0].is_repeated

    await harness.acknowledge()
    await asyncio.sleep(5 * ACK_TIMEOUT.total_seconds())
    assert harness.trigger == ""


@with_harness
async def test_a_trigger_without_a_resource_is_repeated_without_one(harness: DriftHarness) -> None:
    harness.annotate(trigger="2024-01-01T00:00:00.000000000Z")
    sidecar = await harness.started()

    await until(lambda: not harness.trigger.startswith("2024"))
    assert RESOURCE not in harness.annotations
    repeated = harness.trigger

    harness.scale(5)
    await until(lambda: harness.trigger != repeated)
    assert harness.annotations[RESOURCE] == f"StatefulSet/{PROD}/{BAO}"
    assert sidecar.reports.triggers[0].batch.burst.objects == ()


@with_harness
async def test_observe_reports_and_does_not_trigger(harness: DriftHarness) -> None:
    sidecar = await harness.started(mode=DriftMode.OBSERVE)

    harness.scale(5)
    await asyncio.sleep(100)

    assert harness.trigger == ""
    assert sidecar.metric("detected_total", kind="StatefulSet", reason="owned_field_changed") == 1
    assert sidecar.reports.judged_reports[-1].mode is DriftMode.OBSERVE


@with_harness
async def test_off_reports_nothing(harness: DriftHarness) -> None:
    sidecar = await harness.started(mode=DriftMode.OFF)

    harness.scale(5)
    harness.server.delete(SERVICE, BAO, namespace=PROD)
    await asyncio.sleep(100)

    assert sidecar.reports.judged_reports == []
    assert harness.trigger == ""


@with_sidecar
async def test_an_annotation_of_the_cluster_changes_the_mode(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    harness.scale(5)
    await until(lambda: sidecar.reports.drift)
    harness.annotate(mode="observe")
    await asyncio.sleep(100)
    harness.scale(6)
    await asyncio.sleep(100)
    assert len(sidecar.reports.drift) == 2
    assert harness.trigger == ""

    harness.annotate(mode=None)
    await asyncio.sleep(100)
    assert harness.trigger == ""

    harness.scale(7)
    await harness.until_triggered()


@with_sidecar
async def test_a_maintenance_counts_and_triggers_only_at_its_end(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    end = START + timedelta(minutes=10)
    harness.annotate(maintenance_until=timestamp(end))
    await asyncio.sleep(1)  # the two watches are independent of each other

    harness.scale(5)
    await asyncio.sleep(500)

    assert harness.trigger == ""
    assert sidecar.reports.judged_reports[-1].is_maintenance
    assert len(sidecar.reports.drift) == 1
    await harness.until_triggered()
    assert harness.clock.now() == pytest.approx(end, abs=timedelta(seconds=1))


@with_harness
async def test_a_maintenance_can_be_ended_early(harness: DriftHarness) -> None:
    await harness.started()
    harness.annotate(maintenance_until="9999-12-31T23:59:59Z")
    harness.scale(5)
    await asyncio.sleep(100)

    harness.annotate(maintenance_until=None)

    await harness.until_triggered(timeout=5)


@with_sidecar
async def test_the_end_of_a_cluster_is_no_drift_of_its_objects(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    seen = len(sidecar.reports.judged_reports)

    harness.server.delete(OPEN_BAO_CLUSTER, BAO, namespace=PROD)
    await asyncio.sleep(1)
    for kind in (STATEFUL_SET, SERVICE, CONFIG_MAP):
        harness.server.delete(kind, BAO, namespace=PROD)
    await asyncio.sleep(100)

    assert len(sidecar.reports.judged_reports) == seen
    assert sidecar.reports.failures == []
    assert "no OpenBaoCluster bao" in sidecar.problems()["trigger"]


@with_harness
async def test_a_cluster_that_is_being_deleted_gets_no_trigger(harness: DriftHarness) -> None:
    harness.server.merge_patch(
        OPEN_BAO_CLUSTER, BAO, {"metadata": {"finalizers": ["openbao.org/keep"]}}, namespace=PROD
    )
    sidecar = await harness.started()
    seen = len(sidecar.reports.judged_reports)

    harness.server.delete(OPEN_BAO_CLUSTER, BAO, namespace=PROD)
    await asyncio.sleep(1)
    harness.server.delete(SERVICE, BAO, namespace=PROD)
    await asyncio.sleep(100)

    assert len(sidecar.reports.judged_reports) == seen
    assert harness.trigger == ""
    assert sidecar.problems() == {}


@simulated
async def test_without_a_cluster_the_sidecar_is_not_ready_and_waits() -> None:
    async with drift_harness(has_cluster=False) as harness:
        sidecar = harness.start()
        await asyncio.sleep(10)
        assert set(sidecar.problems()) == {"trigger"}

        harness.create_cluster()
        await harness.apply_all()
        await sidecar.until_ready()

        harness.scale(5)
        await harness.until_triggered()


@with_harness
async def test_a_cluster_that_cannot_be_read_is_not_ready(harness: DriftHarness) -> None:
    harness.server.fail_next(403, count=3, verb="list", plural="openbaoclusters")
    sidecar = harness.start()
    await asyncio.sleep(1)

    assert "openbaoclusters" in sidecar.problems()["trigger"]
    assert "watch-services" in sidecar.problems()
    await sidecar.until_ready()


@with_sidecar
async def test_a_watch_that_hears_nothing_is_not_ready(harness: DriftHarness, sidecar: RunningSidecar) -> None:
    harness.server.stall()

    await until(sidecar.problems, timeout=400)

    assert "watch-services" in sidecar.problems()


@with_harness
async def test_the_readiness_checks_are_those_of_the_reference(harness: DriftHarness) -> None:
    sidecar = harness.start()

    assert set(sidecar.part.checks) == {"watch-statefulsets", "watch-services", "watch-configmaps", "trigger"}
    assert set(sidecar.problems()) == set(sidecar.part.checks)


@with_sidecar
async def test_two_sidecars_in_one_namespace_see_only_their_own_objects(
    harness: DriftHarness, sidecar: RunningSidecar
) -> None:
    other = stateful_set(name="other")
    metadata = other["metadata"]
    assert isinstance(metadata, dict)
    metadata["labels"] = {
        "app.kubernetes.io/managed-by": "openbao-operator",
        "app.kubernetes.io/instance": "other",
    }
    await harness.apply(STATEFUL_SET, other)

    harness.edit(STATEFUL_SET, {"spec": {"replicas": 9}}, name="other")
    await asyncio.sleep(30)

    assert sidecar.reports.drift == []
    assert TRIGGER not in harness.annotations
