"""A namespace of a real API server with a running drift operator, and clusters with running sidecars.

There is no kubelet, so a sidecar is started here: with the account that the operator created for it, and the
variables of the Deployment that the operator wrote.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any, Self

import msgspec

from sentinel.drift.operator.openbao.server_objects import CONFIG_MAP, SERVICE, STATEFUL_SET
from sentinel.ports.kube import KubeKind
from tests.kube.openbao import MANIFESTS, TRIGGER, TRIGGER_RESOURCE, cluster_body, clusters
from tests.support.kube.drift_history import Writer
from tests.support.kube.manifests import apply_file, read_manifest
from tests.support.kube.service_accounts import ServiceAccount, open_service_account, wait_until_allowed
from tests.support.processes.drift import DriftProcess
from tests.support.processes.drift_operator import DriftOperatorProcess
from tests.support.processes.service import Line
from tools.services.kube_apiserver import KubeClient

RBAC = MANIFESTS / "rbac.yaml"
ACCOUNT = "openbao-operator"
TIMEOUT = 90
KINDS = (STATEFUL_SET, SERVICE, CONFIG_MAP)
SETTLER = "settler"
"""The field manager that `GuardedCluster.settle` writes with."""
_LOOK_EVERY = 0.05
"""Each look is a TLS handshake, which costs the processes under test their time."""


def core(namespace: str, plural: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/{plural}/{name}"


def apps(namespace: str, plural: str, name: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/{plural}/{name}"


class World:
    """A namespace with a running operator."""

    def __init__(self, admin: KubeClient, account: ServiceAccount, operator: DriftOperatorProcess) -> None:
        self.admin = admin
        self.account = account
        self.operator = operator
        self.namespace = account.namespace

    def create(self, name: str = "prod", **spec: Any) -> Any:
        return self.admin.create(clusters(self.namespace), cluster_body(name, **spec))

    def cluster(self, name: str = "prod") -> Any:
        return self.admin.get(f"{clusters(self.namespace)}/{name}")

    def annotations(self, name: str = "prod") -> dict[str, str]:
        annotations: dict[str, str] = self.cluster(name)["metadata"].get("annotations", {})
        return annotations

    def reasons(self, name: str = "prod") -> dict[str, str]:
        found = self.cluster(name).get("status", {}).get("conditions", [])
        return {each["type"]: f"{each['status']}/{each['reason']}" for each in found}

    def trigger(self, resource: str, value: str, name: str = "prod") -> None:
        annotations = {TRIGGER: value, TRIGGER_RESOURCE: resource}
        self.admin.merge_patch(f"{clusters(self.namespace)}/{name}", {"metadata": {"annotations": annotations}})

    async def until(self, is_true: Callable[[], object], *, timeout: float = TIMEOUT) -> None:
        async with asyncio.timeout(timeout):
            while not await asyncio.to_thread(is_true):  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_EVERY)

    async def ready(self, name: str = "prod") -> None:
        await self.until(lambda: self.reasons(name).get("Ready") == "True/Reconciled")

    async def heal(self, path: str, name: str = "prod") -> Any:
        """Set a trigger as a sidecar would, wait until it is handled, and return the object at a path."""
        self.trigger(f"StatefulSet/{self.namespace}/{name}", "2026-11-18T09:00:00.000000001Z", name)
        await self.until(lambda: TRIGGER not in self.annotations(name))
        return self.admin.get(path)


def create_account(admin: KubeClient, namespace: str, directory: Path) -> ServiceAccount:
    """Create the operator's account with the permissions of the manifests."""
    apply_file(admin, RBAC, namespace=namespace)
    account = open_service_account(admin, namespace=namespace, name=ACCOUNT, directory=directory)
    for kind in ("Role", "ClusterRole"):
        wait_until_allowed(admin, account, read_manifest(RBAC, kind)["rules"])
    return account


class GuardedCluster:
    """A cluster with its objects and its sidecar."""

    def __init__(self, world: World, name: str, *, processes: AsyncExitStack, directory: Path, url: str) -> None:
        self.name = name
        self.world = world
        self.namespace = world.namespace
        self.path = f"{clusters(world.namespace)}/{name}"
        self.token_file = directory / f"{name}.token"
        self.sidecar: DriftProcess
        self.sidecars: list[DriftProcess] = []
        """All that ever ran."""
        self._processes = processes
        self._directory = directory
        self._url = url

    async def start_sidecar(self, *arguments: str) -> DriftProcess:
        """Start the sidecar as its Deployment says, and wait until it has seen all objects."""
        deployment = self.world.admin.get(apps(self.namespace, "deployments", f"{self.name}-sentinel"))
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        self.sidecar = DriftProcess(
            self._kubeconfig(),
            "--log-level=debug",
            *arguments,
            namespace=self.namespace,
            cluster=self.name,
            environ={each["name"]: each["value"] for each in container["env"] if "value" in each},
        )
        self.sidecars.append(self.sidecar)
        await self._processes.enter_async_context(self.sidecar)
        for kind in KINDS:
            await self.sidecar.until_event("reflector.listed", kind=str(kind))
        await self.sidecar_ready()
        return self.sidecar

    def issue_token(self) -> str:
        """Write a new token of the sidecar's account to the file that the sidecar reads, as a kubelet does."""
        account = open_service_account(
            self.world.admin,
            namespace=self.namespace,
            name=f"{self.name}-sentinel",
            directory=self._directory,
        )
        new = self.token_file.with_suffix(".new")
        new.write_text(account.access.token)
        new.replace(self.token_file)
        return account.access.token

    def may_read(self, kind: KubeKind) -> bool:
        """Whether the sidecar's account may read its object of a kind now."""
        access = self.world.admin.access.with_token(self.token_file.read_text())
        return KubeClient(access).send("GET", self.object_path(kind)).status == 200

    def object_path(self, kind: KubeKind) -> str:
        """Return the path of the object of a kind."""
        group = apps if kind.group else core
        return group(self.namespace, kind.plural, self._object_name(kind))

    def resource(self, kind: KubeKind) -> str:
        """Return the object of a kind as triggers and logs name it."""
        return f"{kind.kind}/{self.namespace}/{self._object_name(kind)}"

    def writer(self, kind: KubeKind) -> Writer:
        """Return someone who writes to the object of a kind with all rights."""
        path = self.object_path(kind)
        return Writer(self.world.admin, path, self.world.admin.get(path))

    def content(self, kind: KubeKind) -> dict[str, Any]:
        """Return what the operator wants of an object: without what belongs to others."""
        found = self.world.admin.get(self.object_path(kind))
        metadata = found["metadata"]
        annotations = metadata.get("annotations", {})
        return {
            **{key: found[key] for key in ("spec", "data", "binaryData", "immutable") if key in found},
            "labels": metadata.get("labels"),
            "annotations": {key: value for key, value in annotations.items() if key.startswith("openbao.org/")},
        }

    def contents(self) -> list[dict[str, Any]]:
        """Return what the operator wants of all objects."""
        return [self.content(kind) for kind in KINDS]

    def drift(self) -> dict[str, Any]:
        """Return `status.drift`."""
        status: dict[str, Any] = self.world.cluster(self.name).get("status", {}).get("drift", {})
        return status

    def corrections(self) -> int:
        """Return how many triggers the operator has handled."""
        count: int = self.drift().get("driftCorrectionCount", 0)
        return count

    def history(self, *, since: str) -> list[dict[str, Any]]:
        """Return each version of the cluster after a resource version, up to the current one."""
        current = self.world.cluster(self.name)["metadata"]["resourceVersion"]
        query = f"watch=true&fieldSelector=metadata.name={self.name}&resourceVersion={since}&timeoutSeconds=10"
        found: list[dict[str, Any]] = []
        with closing(self.world.admin.watch(f"{clusters(self.namespace)}?{query}")) as events:
            for event in events:
                found.append(event["object"])
                if event["object"]["metadata"]["resourceVersion"] == current:
                    return found
        raise AssertionError(f"expected version {current}, got only {len(found)} versions")

    async def sidecar_ready(self) -> None:
        """Wait until the sidecar is ready. After an outage, a silent watch counts after half a minute."""
        async with asyncio.timeout(2 * TIMEOUT):
            while (await self.sidecar.readiness())[0] != 200:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_EVERY)

    async def until_healed(self, corrections: int, *, timeout: float = TIMEOUT) -> None:
        """Wait until this many triggers are handled, the last is cleared, and the normal pass after it is done."""

        def is_healed() -> bool:
            found = self.world.cluster(self.name)
            drift = found.get("status", {}).get("drift", {})
            return (
                drift.get("driftCorrectionCount", 0) >= corrections
                and drift["consecutiveFastPaths"] == 0
                and TRIGGER not in found["metadata"].get("annotations", {})
            )

        await self.world.until(is_healed, timeout=timeout)

    async def settle(self, *kinds: KubeKind) -> None:
        """Wait until the sidecar has judged everything that was written before to objects of these kinds.

        Each object gets a foreign annotation, which is not drift. A watch delivers in order.
        """
        since, value = len(self.sidecar.lines), secrets.token_hex(6)
        for kind in kinds or KINDS:
            self.writer(kind).merge({"metadata": {"annotations": {"example.com/settled": value}}}, SETTLER)
        for kind in kinds or KINDS:
            await self.sidecar.until_event(
                "event.ignored", resource=self.resource(kind), manager=SETTLER, reason="unowned", since=since
            )

    def judgements(self, since: int = 0) -> list[Line]:
        """Return what the sidecar judged, since a line of its log."""
        return [
            line
            for line in self.sidecar.lines[since:]
            if line.get("event") in ("drift.detected", "event.ignored") and line["manager"] != SETTLER
        ]

    def detected(self, since: int = 0) -> list[tuple[str, str, str]]:
        """Return the drift that the sidecar detected: the object, the reason, and who did it."""
        return [
            (line["resource"], line["reason"], line["manager"])
            for line in self.judgements(since)
            if line["event"] == "drift.detected"
        ]

    def _object_name(self, kind: KubeKind) -> str:
        return f"{self.name}-config" if kind == CONFIG_MAP else self.name

    def _kubeconfig(self) -> Path:
        token = self.issue_token()
        access = self.world.admin.access.with_token(token)
        document = msgspec.json.decode(access.kubeconfig(namespace=self.namespace))
        document["users"][0]["user"] = {"tokenFile": str(self.token_file)}
        if self._url:
            document["clusters"][0]["cluster"]["server"] = self._url
        file = self._directory / f"{self.name}.kubeconfig"
        file.write_bytes(msgspec.json.encode(document))
        return file


class GuardedWorld(World):
    """A namespace with an operator that can be stopped, and clusters with sidecars."""

    def __init__(self, admin: KubeClient, account: ServiceAccount, *, directory: Path, url: str = "") -> None:
        """`url` is where sidecars reach the API server, if it is not the administrator's."""
        super().__init__(admin, account, DriftOperatorProcess(account.kubeconfig))
        self.guarded: list[GuardedCluster] = []
        self._directory = directory
        self._url = url
        self._processes = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._processes.enter_async_context(self.operator)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._processes.aclose()

    async def guard(self, name: str, *arguments: str, window: int = 1) -> GuardedCluster:
        """Create a cluster with a debounce window of some seconds, and start its sidecar with these arguments."""
        body = cluster_body(name, config="ui = true")
        body["spec"]["sentinel"] = {"debounceWindowSeconds": window}
        self.admin.create(clusters(self.namespace), body)
        await self.ready(name)
        cluster = GuardedCluster(self, name, processes=self._processes, directory=self._directory, url=self._url)
        self.guarded.append(cluster)
        await cluster.start_sidecar(*arguments)
        return cluster

    async def start_operator(self) -> None:
        """Start the operator again after it was stopped."""
        assert not self.operator.is_running
        self.operator = DriftOperatorProcess(self.account.kubeconfig)
        await self._processes.enter_async_context(self.operator)

    def errors(self) -> list[Line]:
        """Return what sidecars logged as errors: nothing that happens to them is one."""
        lines = [line for each in self.guarded for sidecar in each.sidecars for line in sidecar.lines]
        return [line for line in lines if line.get("level") in (None, "error", "critical")]
