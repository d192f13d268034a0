"""The drift sidecar: memory after many events, the time from a change to its trigger, CPU per ignored event.

    python -m bench.drift [--output json]

The process under test is `sentinel drift` against a fake API server in another process. Among the events are
ConfigMaps of 1 MiB, the largest that Kubernetes stores, with one key or with as many as fit. The memory limit is
the request of the Deployment that the operator makes.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from bench.budget import Budget
from bench.command_line import DEFAULT_ROUNDS, main
from bench.processes import cpu_seconds, memory, peak_mebibytes
from sentinel.core.drift.attestation import attest
from sentinel.core.drift.rules import OPENBAO
from sentinel.core.json import Json
from sentinel.drift.operator.openbao import crd
from sentinel.drift.operator.openbao.cluster import OPENBAO_CLUSTER
from sentinel.drivers.kube.access import find_access
from sentinel.drivers.kube.client import KubeClient
from sentinel.drivers.kube.connection import ApiConnection
from sentinel.ports.kube import KubeKind, KubeObject, ObjectChanged
from sentinel.testing.kube.kinds import CONFIG_MAP, SERVICE, STATEFUL_SET
from tests.support.processes.drift import DriftProcess
from tests.support.processes.service import ServiceProcess

EVENTS = 2_000
MEMORY_LIMIT = 64.0
"""MiB: the memory request of the Deployment."""
LATENCY_LIMIT = 100.0
"""Milliseconds from the end of the debounce window to the trigger."""
IGNORED_LIMIT = 1_000.0
"""Microseconds of CPU."""

_NAMESPACE = "default"
_CLUSTER = "bao"
_WINDOW = 1.0
_TRIGGER = "openbao.org/sentinel-trigger"
_LARGE_EVERY = 20
_LARGE = 1024 * 1024 - 4096
"""Bytes of data. Kubernetes limits the data to 1 MiB."""
_MANY = 20_000
"""Keys of the ConfigMap with many."""
_OBJECTS = 10
_OPERATOR = "openbao-operator"


class DriftFigures(msgspec.Struct, frozen=True):
    """The cost of a sidecar."""

    mebibytes: float
    """After all events."""
    peak_mebibytes: float
    latency_milliseconds: float
    """Beyond the window, the longest of several."""
    ignored_microseconds: float
    """The cheapest of several rounds."""


async def measure(*, rounds: int = 4) -> DriftFigures:
    """Run a sidecar through all events."""
    with tempfile.TemporaryDirectory() as directory:
        async with (
            _kubernetes(Path(directory)) as (kubeconfig, api),
            DriftProcess(
                kubeconfig,
                "--set=debounce_window_seconds=1",
                namespace=_NAMESPACE,
                cluster=_CLUSTER,
            ) as sidecar,
        ):
            await sidecar.until_event("reflector.listed", kind=str(CONFIG_MAP), timeout=60)
            latencies = [await _latency(api, number) for number in range(_OBJECTS)]
            ignored = [await _ignored(api, sidecar) for _ in range(rounds)]
            await _many_events(api, sidecar)
            figures = DriftFigures(
                mebibytes=memory(sidecar.pid).resident,
                peak_mebibytes=peak_mebibytes(sidecar.pid),
                latency_milliseconds=(max(latencies) - _WINDOW) * 1000,
                ignored_microseconds=min(ignored),
            )
            assert await sidecar.stop() == 0
    return figures


def budgets(figures: DriftFigures) -> list[Budget]:
    """Return the budgets."""
    large = f"every {_LARGE_EVERY}th a ConfigMap of 1 MiB, some with {_MANY:,} keys"
    after = f"`sentinel drift` after {EVENTS:,} events, {large}"
    return [
        Budget(f"{after}: memory", figures.mebibytes, "MiB", MEMORY_LIMIT),
        Budget("the same: peak memory", figures.peak_mebibytes, "MiB", MEMORY_LIMIT),
        Budget(
            "from a foreign change to the written trigger, beyond the window",
            figures.latency_milliseconds,
            "ms",
            LATENCY_LIMIT,
        ),
        Budget("CPU per ignored event", figures.ignored_microseconds, "µs", IGNORED_LIMIT),
    ]


async def _latency(api: KubeClient, number: int) -> float:
    """Change an object that no one has changed before. Returns the seconds until the trigger is on the cluster."""
    loop = asyncio.get_running_loop()
    cluster = await api.get(OPENBAO_CLUSTER, _CLUSTER, namespace=_NAMESPACE)
    written = asyncio.create_task(_trigger_time(api, str(_metadata(cluster)["resourceVersion"])))
    changed = loop.time()
    patch: dict[str, Json] = {"spec": {"selector": {"app": "changed"}}}
    name = f"bao-{number}"
    await api.merge_patch(SERVICE, name, patch, namespace=_NAMESPACE, field_manager="kubectl-edit")
    async with asyncio.timeout(30):
        found = await written - changed
    await _apply(api, SERVICE, _service(name))
    cleared: dict[str, Json] = {"metadata": {"annotations": {_TRIGGER: None}}}
    await api.merge_patch(OPENBAO_CLUSTER, _CLUSTER, cleared, namespace=_NAMESPACE)
    return found


async def _trigger_time(api: KubeClient, version: str) -> float:
    async for event in api.watch(OPENBAO_CLUSTER, resource_version=version, namespace=_NAMESPACE):
        if isinstance(event, ObjectChanged):
            annotations = _metadata(event.object).get("annotations")
            if isinstance(annotations, dict) and _TRIGGER in annotations:
                return asyncio.get_running_loop().time()
    raise AssertionError("the watch ended")


async def _ignored(api: KubeClient, sidecar: ServiceProcess, events: int = 500) -> float:
    """Return the CPU for one update of a status, in microseconds."""
    seen = await sidecar.metric("events_total", prefix="sentinel_drift_")
    before = cpu_seconds(sidecar.pid)
    for number in range(events):
        await _update_status(api, number)
    await asyncio.sleep(0.5)  # not by looking at metrics, which costs as much as many events
    cost = cpu_seconds(sidecar.pid) - before
    await _until_seen(sidecar, seen + events)
    return cost / events * 1e6


async def _many_events(api: KubeClient, sidecar: ServiceProcess) -> None:
    seen = await sidecar.metric("events_total", prefix="sentinel_drift_")
    for number in range(EVENTS):
        if number % _LARGE_EVERY:
            await _update_status(api, number)
        else:
            at = number // _LARGE_EVERY % _OBJECTS
            data = _one_key(f"{number:08}") if at else _many_keys(number)
            await _apply(api, CONFIG_MAP, _config_map(f"bao-{at}", data))
    await _until_seen(sidecar, seen + EVENTS)


async def _update_status(api: KubeClient, number: int) -> None:
    status: dict[str, Json] = {"status": {"replicas": number, "readyReplicas": number, "observedGeneration": 1}}
    await api.merge_patch(
        STATEFUL_SET,
        f"bao-{number % _OBJECTS}",
        status,
        namespace=_NAMESPACE,
        subresource="status",
        field_manager="kube-controller-manager",
    )


async def _until_seen(sidecar: ServiceProcess, events: float) -> None:
    async with asyncio.timeout(120):
        while await sidecar.metric("events_total", prefix="sentinel_drift_") < events:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


@asynccontextmanager
async def _kubernetes(directory: Path) -> AsyncIterator[tuple[Path, KubeClient]]:
    """Yield a fake API server in another process, with a cluster and its objects."""
    definition, kubeconfig = directory / "crd.json", directory / "kubeconfig"
    definition.write_bytes(msgspec.json.encode(_crd()))
    command = ("-m", "sentinel.testing.kube", f"--kubeconfig={kubeconfig}", f"--object={definition}")
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            await process.stdout.readline()
        api = KubeClient(ApiConnection(find_access(kubeconfig=kubeconfig, environ={}), user_agent=_OPERATOR))
        try:
            cluster: KubeObject = {
                "apiVersion": OPENBAO_CLUSTER.api_version,
                "kind": OPENBAO_CLUSTER.kind,
                "metadata": {"name": _CLUSTER},
            }
            await api.create(OPENBAO_CLUSTER, cluster, namespace=_NAMESPACE)
            for kind, body in _objects():
                await _apply(api, kind, body)
            yield kubeconfig, api
        finally:
            await api.close()
    finally:
        process.terminate()
        await process.wait()


async def _apply(api: KubeClient, kind: KubeKind, body: KubeObject) -> None:
    annotated: KubeObject = {
        **body,
        "metadata": {
            **_metadata(body),
            "annotations": {OPENBAO.annotations.fingerprint: attest(body, OPENBAO)},
        },
    }
    await api.apply(kind, annotated, field_manager=_OPERATOR, namespace=_NAMESPACE, is_forced=True)


def _metadata(body: KubeObject) -> KubeObject:
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    return metadata


def _objects() -> Iterator[tuple[KubeKind, KubeObject]]:
    for number in range(_OBJECTS):
        name = f"bao-{number}"
        yield STATEFUL_SET, _stateful_set(name)
        yield SERVICE, _service(name)
        yield CONFIG_MAP, _config_map(name, _one_key("xxxxxxxx") if number else _many_keys(EVENTS))


def _named(name: str) -> KubeObject:
    labels: KubeObject = {"app.kubernetes.io/managed-by": _OPERATOR, "app.kubernetes.io/instance": _CLUSTER}
    return {"name": name, "labels": labels}


def _config_map(name: str, data: KubeObject) -> KubeObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _named(name), "data": data}


def _one_key(text: str) -> KubeObject:
    return {"config.hcl": text * (_LARGE // len(text))}


def _many_keys(number: int) -> KubeObject:
    """Data of short keys. With their entry in `managedFields` they take 1 MiB, as Kubernetes stores objects."""
    return {f"key{key:06}": f"{number:08}" for key in range(_MANY)}


def _service(name: str) -> KubeObject:
    ports: Json = [{"name": "http", "port": 8200, "protocol": "TCP"}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _named(name),
        "spec": {"ports": ports, "selector": {"app": name}},
    }


def _stateful_set(name: str) -> KubeObject:
    """A StatefulSet of the usual size: about a hundred fields."""
    variables: list[Json] = [{"name": f"VARIABLE_{number}", "value": str(number)} for number in range(20)]
    container: Json = {
        "name": "bao",
        "image": "openbao/openbao:2.1.0",
        "env": variables,
        "ports": [{"name": "http", "containerPort": 8200, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
        "volumeMounts": [{"name": volume, "mountPath": f"/{volume}"} for volume in ("data", "config", "tls")],
    }
    labels: KubeObject = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": _named(name),
        "spec": {
            "replicas": 3,
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def _crd() -> Json:
    return crd.document(lambda struct: dict.fromkeys(struct.__struct_fields__, ""))


if __name__ == "__main__":
    sys.exit(main("drift", __doc__, measure, budgets, rounds=DEFAULT_ROUNDS))
