"""`sentinel drift` as a process, over HTTP."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sentinel.testing.kube import FakeKubeServer
from sentinel.testing.kube.kinds import NAMESPACE, ROLE, ROLE_BINDING, SERVICE, STATEFUL_SET
from tests.drift.harness import (
    BAO,
    OPEN_BAO_CLUSTER,
    PROD,
    RESOURCE,
    TRIGGER,
    service,
    stateful_set,
)
from tests.support.kube.watching import member
from tests.support.processes.drift import DriftProcess
from tests.support.processes.service import run_command

TOKEN = "sidecar-token"
METRICS = "sentinel_drift_"


@pytest.fixture
async def server() -> AsyncIterator[FakeKubeServer]:
    """A server with a cluster, and a service account that may do what the seed allows and nothing else."""
    async with FakeKubeServer(has_rbac=True) as server:
        server.register(OPEN_BAO_CLUSTER, has_status=True)
        server.create(NAMESPACE, {"metadata": {"name": PROD}})
        server.create(OPEN_BAO_CLUSTER, {"metadata": {"name": BAO, "namespace": PROD}, "spec": {"replicas": 3}})
        server.create(STATEFUL_SET, stateful_set(), manager="openbao-operator")
        server.create(SERVICE, service(), manager="openbao-operator")
        _allow(server)
        yield server


@pytest.fixture
def kubeconfig(server: FakeKubeServer, tmp_path: Path) -> Path:
    file = tmp_path / "kubeconfig"
    file.write_bytes(server.kubeconfig(token=TOKEN))
    return file


def _allow(server: FakeKubeServer) -> None:
    read = ["get", "list", "watch"]
    server.add_service_account_token(TOKEN, namespace=PROD, name="bao-sentinel")
    server.create(
        ROLE,
        {
            "metadata": {"name": "bao-sentinel", "namespace": PROD},
            "rules": [
                {"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": list(read)},
                {"apiGroups": [""], "resources": ["services", "configmaps"], "verbs": list(read)},
                {
                    "apiGroups": ["openbao.org"],
                    "resources": ["openbaoclusters"],
                    "verbs": [*read, "patch"],
                },
            ],
        },
    )
    server.create(
        ROLE_BINDING,
        {
            "metadata": {"name": "bao-sentinel", "namespace": PROD},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "bao-sentinel"},
            "subjects": [{"kind": "ServiceAccount", "name": "bao-sentinel", "namespace": PROD}],
        },
    )


async def test_a_changed_object_is_triggered_with_the_permissions_of_the_seed(
    server: FakeKubeServer, kubeconfig: Path
) -> None:
    async with DriftProcess(
        kubeconfig, namespace=PROD, cluster=BAO, environ={"SENTINEL_DEBOUNCE_WINDOW_SECONDS": "1"}
    ) as sidecar:
        started = await sidecar.until_event("service.starting")
        await sidecar.until_event("reflector.listed", kind="configmaps")
        assert (await sidecar.readiness())[0] == 200

        server.merge_patch(STATEFUL_SET, BAO, {"spec": {"replicas": 9}}, namespace=PROD, manager="kubectl-edit")
        written = await sidecar.until_event("trigger.written")

        detected = await sidecar.until_event("drift.detected")
        assert started["debounce_window"] == 1
        assert detected["manager"] == "kubectl-edit"
        assert (detected["added"], detected["changed"], detected["removed"]) == (0, 1, 0)
        assert detected["paths"] == ["/spec/replicas"]
        cluster = server.get(OPEN_BAO_CLUSTER, BAO, namespace=PROD)
        assert member(cluster, "metadata", "annotations") == {
            TRIGGER: written["trigger"],
            RESOURCE: f"StatefulSet/{PROD}/{BAO}",
        }
        assert await sidecar.metric("triggers_total", prefix=METRICS) == 1
        assert await sidecar.metric("detected_total", prefix=METRICS, kind="StatefulSet") == 1
        code, body = await sidecar.readiness()
        assert code == 200
        assert set(body["checks"]) >= {"watch-statefulsets", "watch-services", "watch-configmaps", "trigger"}
        assert await sidecar.stop() == 0
    assert {request.status for request in server.requests if request.verb != "watch"} == {200}


async def test_the_sidecar_never_asks_for_secrets(server: FakeKubeServer, kubeconfig: Path) -> None:
    async with DriftProcess(kubeconfig, namespace=PROD, cluster=BAO) as sidecar:
        await sidecar.until_event("reflector.listed", kind="configmaps")
        await sidecar.stop()

    assert not [request for request in server.requests if "secrets" in request.path]


async def test_a_restarted_api_server_is_followed_again(server: FakeKubeServer, kubeconfig: Path) -> None:
    async with DriftProcess(kubeconfig, "--set=debounce_window_seconds=1", namespace=PROD, cluster=BAO) as sidecar:
        await sidecar.until_event("reflector.listed", kind="configmaps")
        server.expire_versions()
        await server.restart()

        server.delete(SERVICE, BAO, namespace=PROD)

        await sidecar.until_event("drift.detected", reason="deleted")
        await sidecar.until_event("trigger.written", resource=f"Service/{PROD}/{BAO}")
        assert await sidecar.stop() == 0


async def test_a_pending_trigger_is_written_at_the_end(server: FakeKubeServer, kubeconfig: Path) -> None:
    async with DriftProcess(
        kubeconfig, "--set=debounce_window_seconds=60", namespace=PROD, cluster=BAO
    ) as sidecar:
        await sidecar.until_event("reflector.listed", kind="configmaps")
        server.merge_patch(STATEFUL_SET, BAO, {"spec": {"replicas": 9}}, namespace=PROD, manager="kubectl-edit")
        await sidecar.until_event("drift.detected")

        assert await sidecar.stop() == 0

    cluster = server.get(OPEN_BAO_CLUSTER, BAO, namespace=PROD)
    assert member(cluster, "metadata", "annotations", RESOURCE) == f"StatefulSet/{PROD}/{BAO}"


async def test_a_missing_permission_to_patch_shows_in_readiness(server: FakeKubeServer, kubeconfig: Path) -> None:
    server.fail_next(403, count=1, verb="patch", plural="openbaoclusters")
    async with DriftProcess(kubeconfig, "--set=debounce_window_seconds=1", namespace=PROD, cluster=BAO) as sidecar:
        await sidecar.until_event("reflector.listed", kind="configmaps")
        server.merge_patch(STATEFUL_SET, BAO, {"spec": {"replicas": 9}}, namespace=PROD, manager="kubectl-edit")

        await sidecar.until_event("trigger.failed", cause="forbidden")

        code, body = await sidecar.readiness()
        assert code == 503
        assert "forbidden" in body["checks"]["trigger"]["message"]
        assert (await sidecar.liveness())[0] == 200
        assert await sidecar.metric("patch_failures_total", prefix=METRICS, **{"class": "forbidden"}) == 1


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        ({"CLUSTER_NAME": BAO}, "POD_NAMESPACE"),
        ({"POD_NAMESPACE": PROD}, "CLUSTER_NAME"),
        (
            {"CLUSTER_NAME": BAO, "POD_NAMESPACE": PROD, "SENTINEL_DEBOUNCE_WINDOW_SECONDS": "0"},
            "debounce_window_seconds",
        ),
        (
            {"CLUSTER_NAME": BAO, "POD_NAMESPACE": PROD, "SENTINEL_DEBOUNCE_WINDOW_SECONDS": "61"},
            "debounce_window_seconds",
        ),
    ],
)
async def test_a_wrong_environment_exits_with_2(environ: dict[str, str], problem: str) -> None:
    ended = await run_command("drift", environ=environ)

    assert ended.code == 2
    assert problem in ended.stderr


async def test_a_configuration_that_names_secrets_exits_with_2(tmp_path: Path) -> None:
    file = tmp_path / "drift.yaml"
    file.write_text("kinds: [{apiVersion: v1, kind: Secret}]\n")

    ended = await run_command("drift", "--config", file, environ={"CLUSTER_NAME": BAO, "POD_NAMESPACE": PROD})

    assert ended.code == 2
    assert "Secret" in ended.stderr


async def test_the_sidecar_loads_no_library_that_it_does_not_need() -> None:
    heavy = {
        *("aio_pika", "alembic", "asyncpg", "cel_expr_python", "cryptography", "google", "grpc", "jinja2", "jwt"),
        *("opentelemetry", "rich", "sqlalchemy", "sqlite3", "starlette", "uvicorn"),
    }
    program = (
        "import sys, sentinel.cli.main, sentinel.cli.drift.command, sentinel.drivers.kube.client;"
        "print(*sorted(sys.modules))"
    )

    ended = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    loaded = set(ended.stdout.split())
    assert not heavy & loaded
    assert not {
        name for name in loaded if name.startswith(("sentinel.pulse", "sentinel.operator", "sentinel.web"))
    }
