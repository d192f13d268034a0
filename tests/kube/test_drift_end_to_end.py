"""Sidecars and the drift operator together, on a real API server with RBAC and the admission policy.

Both are processes. Each sidecar has the token of the account that the operator created for it.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from sentinel.drift.operator.openbao.server_objects import CONFIG_MAP, SERVICE, STATEFUL_SET
from sentinel.ports.kube import KubeKind
from tests.kube.drift_world import KINDS, GuardedCluster, GuardedWorld, create_account
from tests.kube.openbao import TRIGGER, TRIGGER_RESOURCE, install_openbao_crd, install_policy
from tests.support.kube.drift_history import POD, Writer
from tests.support.kube.patch_types import MERGE_PATCH
from tests.support.kube.plain_http import plain_http
from tests.support.tcp_proxy import TcpProxy
from tools.services.kube_apiserver import AuditLog, KubeApiServer, KubeClient

pytestmark = pytest.mark.asyncio(loop_scope="module")

INSTANCE = "app.kubernetes.io/instance"
FINGERPRINT = "openbao.org/sentinel-fingerprint"
METRICS = "sentinel_drift_"
MINER = {"name": "miner", "image": "example.com/miner"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(kube_admin: KubeClient, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GuardedWorld]:
    """A namespace with an operator, on the shared server."""
    async with make_world(kube_admin, tmp_path_factory.mktemp("drift")) as world:
        yield world
        assert world.errors() == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def prod(world: GuardedWorld) -> GuardedCluster:
    """A cluster with its sidecar. Tests leave it as it is wanted, and its sidecar running."""
    return await world.guard("prod")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy(private_kube_apiserver: KubeApiServer) -> AsyncIterator[TcpProxy]:
    """Between the sidecar of `guarded` and its server."""
    async with TcpProxy("127.0.0.1", private_kube_apiserver.port) as proxy:
        yield proxy


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(
    private_kube_apiserver: KubeApiServer, proxy: TcpProxy, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GuardedCluster]:
    """A cluster with its sidecar, on a server that can be restarted."""
    admin, directory = KubeClient(private_kube_apiserver.admin), tmp_path_factory.mktemp("outages")
    async with make_world(admin, directory, url=f"https://127.0.0.1:{proxy.port}") as world:
        yield await world.guard("prod")
        assert world.errors() == []


def make_world(admin: KubeClient, directory: Path, *, url: str = "") -> GuardedWorld:
    """Return a new namespace with an operator, on a server with the kind and the policy."""
    install_openbao_crd(admin)
    install_policy(admin)
    namespace = f"drift-{secrets.token_hex(6)}"
    admin.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    return GuardedWorld(admin, create_account(admin, namespace, directory), directory=directory, url=url)


class Way(msgspec.Struct, frozen=True):
    """A way to make an object drift."""

    kind: KubeKind
    write: Callable[[Writer], Any]
    reason: str
    manager: str
    """Who is named; `unknown` if Kubernetes does not record it."""


def container(**members: Any) -> dict[str, Any]:
    """Return a patch of the operator's container."""
    return {"spec": {"template": {"spec": {"containers": [{"name": "bao", **members}]}}}}


def replace_data(body: Any) -> None:
    body["data"] = {"config.hcl": "ui = false", "more.hcl": "x"}


def remove_port(body: Any) -> None:
    del body["spec"]["ports"][1]


def delete(writer: Writer) -> None:
    writer.delete()


WAYS = {
    "an edit": Way(
        STATEFUL_SET,
        lambda w: w.strategic(container(image="example.com/bao:evil"), "kubectl-edit"),
        "owned_field_changed",
        "kubectl-edit",
    ),
    "a scale": Way(
        STATEFUL_SET,
        lambda w: w.merge({"spec": {"replicas": 1}}, "kubectl", "scale"),
        "owned_field_changed",
        "kubectl",
    ),
    # The API server records nobody who scales to zero.
    "a scale to zero": Way(
        STATEFUL_SET,
        lambda w: w.merge({"spec": {"replicas": 0}}, "kubectl", "scale"),
        "owned_field_changed",
        "unknown",
    ),
    "a client-side apply": Way(
        STATEFUL_SET,
        lambda w: w.strategic(
            {
                "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}},
                **container(args=["server", "-dev"]),
            },
            "kubectl-client-side-apply",
        ),
        "owned_field_changed",
        "kubectl-client-side-apply",
    ),
    "a server-side apply": Way(
        STATEFUL_SET,
        lambda w: w.apply_as("argocd-controller", **container(image="example.com/bao:other")),
        "owned_field_changed",
        "argocd-controller",
    ),
    "a replaced object": Way(
        CONFIG_MAP,
        lambda w: w.replace("kubectl-replace", replace_data),
        "owned_field_changed",
        "kubectl-replace",
    ),
    "a removed label": Way(
        SERVICE,
        lambda w: w.merge({"metadata": {"labels": {INSTANCE: None}}}, "kubectl-label"),
        "label_lost",
        "unknown",
    ),
    "a changed label": Way(
        CONFIG_MAP,
        lambda w: w.merge({"metadata": {"labels": {INSTANCE: "other"}}}, "kubectl-label"),
        "label_lost",
        "kubectl-label",
    ),
    "a removed field": Way(
        STATEFUL_SET,
        lambda w: w.json_patch("kubectl-edit", "remove", f"{POD}/containers/0/args"),
        "owned_field_removed",
        "unknown",
    ),
    "a removed port, by replacing the object": Way(
        SERVICE, lambda w: w.replace("kubectl-replace", remove_port), "owned_field_removed", "unknown"
    ),
    "an added container": Way(
        STATEFUL_SET,
        lambda w: w.json_patch("kubectl-patch", "add", f"{POD}/containers/-", MINER),
        "unowned_added",
        "kubectl-patch",
    ),
    "an added port, by a server-side apply": Way(
        SERVICE,
        lambda w: w.apply_as("team", spec={"ports": [{"name": "shell", "port": 22, "protocol": "TCP"}]}),
        "unowned_added",
        "team",
    ),
    "an added key": Way(
        CONFIG_MAP,
        lambda w: w.merge({"data": {"evil.hcl": "x"}}, "kubectl-patch"),
        "unowned_added",
        "kubectl-patch",
    ),
    "an added annotation of the operator": Way(
        SERVICE,
        lambda w: w.merge({"metadata": {"annotations": {"openbao.org/x": "y"}}}, "kubectl-annotate"),
        "unowned_added",
        "kubectl-annotate",
    ),
    "a removed fingerprint": Way(
        CONFIG_MAP,
        lambda w: w.merge({"metadata": {"annotations": {FINGERPRINT: None}}}, "kubectl-annotate"),
        "owned_field_removed",
        "unknown",
    ),
    "a deleted StatefulSet": Way(STATEFUL_SET, delete, "deleted", "unknown"),
    "a deleted Service": Way(SERVICE, delete, "deleted", "unknown"),
    "a deleted ConfigMap": Way(CONFIG_MAP, delete, "deleted", "unknown"),
}


class TestHealing:
    async def test_the_fast_path_comes_first_and_then_the_normal_pass(self, prod: GuardedCluster) -> None:
        wanted, before = prod.contents(), prod.world.cluster("prod")

        prod.writer(STATEFUL_SET).merge({"spec": {"replicas": 7}}, "kubectl-edit")
        await prod.until_healed(1)

        history = prod.history(since=before["metadata"]["resourceVersion"])
        states = [
            (
                TRIGGER in each["metadata"]["annotations"],
                each["status"]["drift"]["driftCorrectionCount"],
                each["status"]["drift"]["consecutiveFastPaths"],
            )
            for each in history
        ]
        assert list(dict.fromkeys(states)) == [(True, 0, 0), (True, 1, 1), (False, 1, 1), (False, 1, 0)]
        corrected = next(each for each in history if each["status"]["drift"]["driftCorrectionCount"] == 1)
        assert ran_since(before, corrected) == {"certs", "infra"}
        assert ran_since(corrected, history[-1]) >= {"upgrade", "backup"}
        triggered = history[0]["metadata"]["annotations"]
        assert triggered[TRIGGER_RESOURCE] == prod.resource(STATEFUL_SET)
        assert history[-1]["status"]["drift"]["lastDriftResource"] == prod.resource(STATEFUL_SET)
        assert history[-1]["metadata"]["annotations"] == before["metadata"]["annotations"]
        assert prod.contents() == wanted
        await prod.world.operator.until_event("drift.corrected", name="prod", path="fast")

    @pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
    async def test_drift_is_judged_right_and_restored(self, prod: GuardedCluster, way: Way) -> None:
        wanted, corrections, since = prod.content(way.kind), prod.corrections(), len(prod.sidecar.lines)

        way.write(prod.writer(way.kind))
        await prod.until_healed(corrections + 1)
        await prod.settle(way.kind)

        assert prod.content(way.kind) == wanted
        assert prod.detected(since) == [(prod.resource(way.kind), way.reason, way.manager)]
        assert prod.corrections() == corrections + 1
        assert prod.drift()["lastDriftResource"] == prod.resource(way.kind)

    async def test_an_immutable_config_map_is_healed_by_one_trigger(self, prod: GuardedCluster) -> None:
        wanted, corrections, since = prod.contents(), prod.corrections(), len(prod.sidecar.lines)

        patch = {"data": {"config.hcl": "x"}, "immutable": True}
        prod.writer(CONFIG_MAP).merge(patch, "kubectl-edit")
        await prod.until_healed(corrections + 1)
        await prod.sidecar.until(lambda line: line.get("reason") in ("deleted", "ignored"), since=since)
        await prod.settle()

        assert prod.contents() == wanted
        assert prod.detected(since) == [(prod.resource(CONFIG_MAP), "owned_field_changed", "kubectl-edit")]
        assert prod.corrections() == corrections + 1

    async def test_a_status_and_the_operators_own_writes_are_not_drift(self, prod: GuardedCluster) -> None:
        admin, corrections, since = prod.world.admin, prod.corrections(), len(prod.sidecar.lines)
        pods = {"replicas": 3, "readyReplicas": 3, "observedGeneration": 1}
        condition = {"type": "Ready", "status": "True", "reason": "Found", "message": ""}
        condition["lastTransitionTime"] = "2026-11-18T09:00:00Z"

        prod.writer(STATEFUL_SET).merge({"status": pods}, "kube-controller-manager", "status")
        prod.writer(SERVICE).merge({"status": {"conditions": [condition]}}, "cloud-controller-manager", "status")
        spec = {"version": "2.4.2", "replicas": 5, "config": "ui = false"}
        changed = admin.merge_patch(prod.path, {"spec": spec})
        await prod.world.until(
            lambda: prod.world.cluster()["status"]["observedGeneration"] == changed["metadata"]["generation"]
        )
        prod.writer(STATEFUL_SET).merge({"status": {**pods, "replicas": 5}}, "kube-controller-manager", "status")
        await prod.settle()

        judged = [(line["resource"].partition("/")[0], line["reason"]) for line in prod.judgements(since)]
        assert {reason for _, reason in judged} == {"status", "operator_write"}
        assert judged.count(("StatefulSet", "status")) == 2
        assert {kind for kind, reason in judged if reason == "operator_write"} == {"StatefulSet", "ConfigMap"}
        assert prod.corrections() == corrections
        assert TRIGGER not in prod.world.annotations()


class TestBurst:
    async def test_500_writes_are_one_trigger(self, world: GuardedWorld) -> None:
        # A slow machine must neither pause for a window nor stretch the writes beyond the longest wait.
        cluster = await world.guard("burst", "--set=max_wait=60s", window=10)
        wanted, access = cluster.contents(), world.admin.access
        patches: list[tuple[KubeKind, int, Callable[[int], Any]]] = [
            (STATEFUL_SET, 166, lambda number: {"spec": {"replicas": 10 + number}}),
            (SERVICE, 167, lambda number: {"metadata": {"annotations": {"openbao.org/burst": str(number)}}}),
            (CONFIG_MAP, 167, lambda number: {"data": {"config.hcl": str(number)}}),
        ]

        async with plain_http(access.url, tls=access.tls_context()) as http, asyncio.TaskGroup() as group:

            async def write(kind: KubeKind, count: int, patch: Callable[[int], Any]) -> None:
                for number in range(count):
                    response = await http.call(
                        "PATCH",
                        cluster.object_path(kind),
                        patch(number),
                        content_type=MERGE_PATCH,
                        fieldManager="kubectl",
                    )
                    assert response.status == 200

            for each in patches:
                group.create_task(write(*each))
        await cluster.until_healed(1)
        await cluster.settle()

        written = await cluster.sidecar.until_event("trigger.written")
        assert (written["events"], written["objects"]) == (500, 3)
        assert await cluster.sidecar.metric("triggers_total", prefix=METRICS) == 1
        assert await cluster.sidecar.metric("detected_total", prefix=METRICS) == 500
        assert cluster.corrections() == 1
        assert cluster.contents() == wanted


class TestNeighbours:
    async def test_two_clusters_in_a_namespace_do_not_disturb_each_other(
        self, world: GuardedWorld, prod: GuardedCluster
    ) -> None:
        neighbour = await world.guard("neighbour")
        wanted, corrections, since = prod.contents(), prod.corrections(), len(prod.sidecar.lines)

        neighbour.writer(STATEFUL_SET).delete()
        await neighbour.until_healed(1)
        await prod.settle()
        assert prod.judgements(since) == []
        assert prod.corrections() == corrections

        for cluster in (prod, neighbour):
            cluster.writer(SERVICE).merge({"spec": {"selector": {"app": "evil"}}}, "kubectl-edit")
        await prod.until_healed(corrections + 1)
        await neighbour.until_healed(2)
        for cluster in (prod, neighbour):
            await cluster.settle()
            assert cluster.detected()[-1] == (cluster.resource(SERVICE), "owned_field_changed", "kubectl-edit")
        assert (prod.corrections(), neighbour.corrections()) == (corrections + 1, 2)

        world.admin.merge_patch(neighbour.path, {"spec": {"sentinel": {"enabled": False}}})
        await world.until(lambda: world.reasons("neighbour").get("Degraded") == "False/SentinelDisabled")
        prod.writer(CONFIG_MAP).merge({"data": {"config.hcl": "x"}}, "kubectl-edit")
        await prod.until_healed(corrections + 2)
        assert prod.contents() == wanted
        assert await neighbour.sidecar.stop() == 0


class TestRestarts:
    async def test_a_trigger_waits_for_an_operator_that_is_down(
        self, world: GuardedWorld, prod: GuardedCluster
    ) -> None:
        wanted, corrections, since = prod.contents(), prod.corrections(), len(prod.sidecar.lines)
        assert await world.operator.stop(signal.SIGKILL) == -signal.SIGKILL

        prod.writer(SERVICE).delete()
        written = await prod.sidecar.until_event("trigger.written", since=since)
        annotations = world.annotations()
        await world.start_operator()
        await prod.until_healed(corrections + 1)

        acknowledged = await prod.sidecar.until_event("trigger.acknowledged", since=since)
        assert annotations[TRIGGER] == written["trigger"]
        assert acknowledged["resource"] == prod.resource(SERVICE)
        assert prod.contents() == wanted
        await prod.settle()
        assert prod.detected(since) == [(prod.resource(SERVICE), "deleted", "unknown")]

    async def test_a_killed_sidecar_makes_nothing_up(self, prod: GuardedCluster) -> None:
        corrections = prod.corrections()
        assert await prod.sidecar.stop(signal.SIGKILL) == -signal.SIGKILL
        prod.writer(STATEFUL_SET).merge({"status": {"replicas": 4}}, "kube-controller-manager", "status")

        await prod.start_sidecar()
        await prod.settle()

        judged = {(line["resource"], line["reason"]) for line in prod.judgements()}
        assert judged == {(prod.resource(kind), "unchanged") for kind in KINDS}
        assert prod.corrections() == corrections

    async def test_drift_while_no_sidecar_ran_is_found_by_the_next(self, prod: GuardedCluster) -> None:
        wanted, corrections = prod.contents(), prod.corrections()
        assert await prod.sidecar.stop(signal.SIGKILL) == -signal.SIGKILL
        prod.writer(STATEFUL_SET).json_patch("kubectl-patch", "add", f"{POD}/containers/-", MINER)
        prod.writer(SERVICE).json_patch("kubectl-edit", "remove", "/spec/ports/1")
        prod.writer(CONFIG_MAP).merge({"data": {"config.hcl": "x"}}, "kubectl-edit")

        await prod.start_sidecar()
        await prod.until_healed(corrections + 1)
        await prod.settle()

        assert prod.contents() == wanted
        assert set(prod.detected()) == {
            (prod.resource(STATEFUL_SET), "unowned_added", "kubectl-patch"),
            (prod.resource(SERVICE), "fingerprint_mismatch", "unknown"),
            (prod.resource(CONFIG_MAP), "fingerprint_mismatch", "kubectl-edit"),
        }
        assert len(prod.detected()) == 3
        assert prod.corrections() == corrections + 1

    async def test_drift_that_a_killed_sidecar_had_not_triggered_is_not_lost(self, prod: GuardedCluster) -> None:
        wanted, corrections, since = prod.contents(), prod.corrections(), len(prod.sidecar.lines)
        prod.writer(CONFIG_MAP).merge({"data": {"evil.hcl": "x"}}, "kubectl-edit")
        await prod.sidecar.until_event("drift.detected", since=since)
        assert await prod.sidecar.stop(signal.SIGKILL) == -signal.SIGKILL
        assert TRIGGER not in prod.world.annotations()

        await prod.start_sidecar()
        await prod.until_healed(corrections + 1)

        assert prod.detected() == [(prod.resource(CONFIG_MAP), "unowned_added", "kubectl-edit")]
        assert prod.contents() == wanted


class TestToken:
    async def test_a_new_token_is_used_without_a_restart(self, prod: GuardedCluster, audit_log: AuditLog) -> None:
        corrections = prod.corrections()

        identity = token_identity(prod.issue_token())
        prod.writer(SERVICE).merge({"spec": {"publishNotReadyAddresses": False}}, "kubectl-edit")
        await prod.until_healed(corrections + 1)

        user = f"system:serviceaccount:{prod.namespace}:prod-sentinel"
        patch = await audit_log.wait_for(lambda entry: entry.user == user and entry.verb == "patch")
        assert (patch.code, patch.credential) == (200, identity)


class TestOutages:
    async def test_drift_after_all_watches_were_cut_is_healed(
        self, guarded: GuardedCluster, proxy: TcpProxy
    ) -> None:
        wanted, corrections, since = guarded.contents(), guarded.corrections(), len(guarded.sidecar.lines)

        await proxy.reset()
        guarded.writer(STATEFUL_SET).merge({"spec": {"replicas": 7}}, "kubectl-edit")
        await guarded.until_healed(corrections + 1)
        await guarded.settle()

        assert guarded.contents() == wanted
        assert guarded.detected(since) == [(guarded.resource(STATEFUL_SET), "owned_field_changed", "kubectl-edit")]

    async def test_a_deletion_in_a_gap_that_ends_with_410_is_healed(
        self, guarded: GuardedCluster, proxy: TcpProxy, private_kube_apiserver: KubeApiServer
    ) -> None:
        wanted, corrections, since = guarded.contents(), guarded.corrections(), len(guarded.sidecar.lines)

        await proxy.cut()
        guarded.writer(CONFIG_MAP).delete()
        for number in range(3):  # a watch from the last two versions would not expire
            guarded.writer(SERVICE).merge({"metadata": {"annotations": {"team": str(number)}}}, "kubectl")
        await asyncio.to_thread(private_kube_apiserver.compact)
        await proxy.accept()
        await guarded.until_healed(corrections + 1)

        await guarded.sidecar.until_event("reflector.listed", kind="configmaps", reason="expired", since=since)
        assert guarded.detected(since) == [(guarded.resource(CONFIG_MAP), "deleted", "unknown")]
        assert guarded.contents() == wanted

    async def test_drift_after_a_restart_of_the_api_server_is_healed(
        self, guarded: GuardedCluster, private_kube_apiserver: KubeApiServer
    ) -> None:
        wanted, corrections, since = guarded.contents(), guarded.corrections(), len(guarded.sidecar.lines)

        await asyncio.to_thread(private_kube_apiserver.restart)
        # A server that has just started knows no Role yet. A trigger that it refuses is retried slowly.
        await guarded.world.until(lambda: guarded.may_read(SERVICE))
        guarded.writer(SERVICE).delete()
        await guarded.until_healed(corrections + 1)
        await guarded.settle()

        assert guarded.detected(since) == [(guarded.resource(SERVICE), "deleted", "unknown")]
        assert guarded.contents() == wanted
        await guarded.sidecar_ready()


def ran_since(before: Any, after: Any) -> set[str]:
    """Return the steps that ran between two versions of a cluster, by the times in their status."""
    steps = after["status"]["steps"]
    return {name for name, step in steps.items() if step["lastRun"] > before["status"]["steps"][name]["lastRun"]}


def token_identity(token: str) -> str:
    """Return the identity of a token as the audit log shows it."""
    claims = token.split(".")[1]
    decoded = msgspec.json.decode(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    return f"JTI={decoded['jti']}"
