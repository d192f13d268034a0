"""The status is written to the cluster that it is about, and to no other of its name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from sentinel.core.kube.conditions import ConditionStatus
from sentinel.drift.operator.openbao.cluster import OPENBAO_CLUSTER, read_cluster
from sentinel.drift.operator.openbao.status import ConditionType, ConditionUpdate, StatusWriter
from sentinel.drivers.kube.access import find_access
from sentinel.drivers.kube.client import KubeClient
from sentinel.drivers.kube.connection import ApiConnection
from sentinel.ports.kube import Conflict
from sentinel.runtime.clock import SystemClock
from tests.drift.operator.harness import NAMESPACE, DriftHarness

READY = ConditionUpdate(ConditionType.READY, ConditionStatus.TRUE, "Reconciled")


@pytest.fixture
async def writer(bare_harness: DriftHarness, tmp_path: Path) -> AsyncIterator[StatusWriter]:
    access = find_access(kubeconfig=tmp_path / "kubeconfig", environ={})
    api = KubeClient(ApiConnection(access, user_agent="test"))
    yield StatusWriter(api, field_manager="test", clock=SystemClock())
    await api.close()


async def test_a_cluster_that_was_created_again_gets_no_old_status(
    bare_harness: DriftHarness, writer: StatusWriter
) -> None:
    harness = bare_harness
    old = read_cluster(harness.create())
    harness.server.delete(OPENBAO_CLUSTER, "prod", namespace=NAMESPACE)
    harness.create()

    await writer.merge(old, {"version": "1"})
    await writer.set_conditions(old, READY)

    assert harness.status() == {}


async def test_one_that_is_created_again_during_the_write_gets_none_either(
    bare_harness: DriftHarness, writer: StatusWriter
) -> None:
    harness = bare_harness
    old = read_cluster(harness.create())
    harness.server.delay_responses(timedelta(milliseconds=20))
    writing = asyncio.create_task(writer.merge(old, {"version": "1"}))
    async with asyncio.timeout(60):
        await harness.server.wait_for_request(lambda each: each.method == "PATCH")
    harness.server.delete(OPENBAO_CLUSTER, "prod", namespace=NAMESPACE)
    harness.create()

    await writing

    assert harness.status() == {}


async def test_a_conflict_with_a_trigger_is_tried_again(bare_harness: DriftHarness, writer: StatusWriter) -> None:
    cluster = read_cluster(bare_harness.create())
    bare_harness.server.fail_next(409, verb="patch", count=4)

    await writer.merge(cluster, {"version": "1"})

    assert bare_harness.status() == {"version": "1"}


async def test_a_status_that_cannot_be_written_is_a_failure(
    bare_harness: DriftHarness, writer: StatusWriter
) -> None:
    cluster = read_cluster(bare_harness.create())
    bare_harness.server.fail_next(409, verb="patch", count=5)

    with pytest.raises(Conflict, match="default/prod: expected to write the status, got 5 conflicts"):
        await writer.merge(cluster, {"version": "1"})
