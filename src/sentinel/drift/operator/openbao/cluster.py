"""OpenBaoCluster: the fields that its owners write, and the names of the objects that belong to it.

The structs are the one description of the fields: how they are read, the CRD (`crd.py`) and the reference. The
docstring of each field is its text in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Final

import msgspec

from sentinel.core.drift.fast_path import DriftStatus, read_status
from sentinel.core.json import Json, Malformed
from sentinel.core.kube import conditions, objects
from sentinel.core.kube.conditions import Condition
from sentinel.core.kube.objects import ObjectReference
from sentinel.ports.kube import KubeKind, KubeObject
from sentinel.runtime.settings import field_types
from sentinel.runtime.settings.field_types import FieldType
from sentinel.runtime.settings.schema import FlatMapping

OPENBAO_CLUSTER: Final = KubeKind(
    group="openbao.org", version="v1alpha1", kind="OpenBaoCluster", plural="openbaoclusters"
)

QUANTITY: Final = FieldType("a quantity such as 100m or 64Mi", str)
_RESOURCES: Final = FlatMapping("a mapping such as {cpu: 100m, memory: 64Mi}", QUANTITY)


class Resources(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The resources of a container."""

    requests: Annotated[Mapping[str, str | int | float], _RESOURCES] = msgspec.field(default_factory=dict)
    """What is reserved for the container, by the name of the resource."""

    limits: Annotated[Mapping[str, str | int | float], _RESOURCES] = msgspec.field(default_factory=dict)
    """What the container may use, by the name of the resource."""

    def encode(self) -> dict[str, Json]:
        """Return the resources as a container has them."""
        return {
            name: dict(values) for name, values in (("requests", self.requests), ("limits", self.limits)) if values
        }


DEFAULT_RESOURCES: Final = Resources(
    requests={"cpu": "100m", "memory": "64Mi"}, limits={"cpu": "200m", "memory": "128Mi"}
)


class SentinelSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The sidecar that watches for drift."""

    enabled: bool = True
    """Whether the sidecar is deployed. It is not deployed either if `spec.sentinel` is absent."""

    image: str | None = None
    """The image of the sidecar. Unset: `openbao/operator-sentinel` in the version of the operator."""

    resources: Resources | None = None
    """The resources of the sidecar. Unset: requests of 100m CPU and 64Mi memory, limits of 200m and 128Mi."""

    debounce_window_seconds: Annotated[int, field_types.integer(1, 60)] = 2
    """How long the sidecar collects changes before it sets the trigger."""

    @property
    def debounce_window(self) -> timedelta:
        return timedelta(seconds=self.debounce_window_seconds)


class OpenBaoClusterSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The `spec` of an OpenBaoCluster."""

    version: str = "2.4.1"
    """The version of OpenBao: the tag of the image `openbao/openbao`."""

    replicas: Annotated[int, field_types.integer(1, 99)] = 3
    """The number of servers."""

    config: str = ""
    """The configuration of the servers, in HCL. They read it from `/openbao/config/config.hcl`."""

    paused: bool = False
    """Whether the operator leaves the cluster alone. A trigger waits until the cluster is resumed."""

    sentinel: SentinelSpec | None = None
    """The sidecar that watches for drift. Absent: it is not deployed."""


class OpenBaoCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster, as the API server has it."""

    reference: ObjectReference
    generation: int
    spec: OpenBaoClusterSpec
    status: Mapping[str, Json]
    """The status as it was last written."""
    annotations: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.reference.name

    @property
    def namespace(self) -> str:
        return self.reference.namespace

    @property
    def has_sentinel(self) -> bool:
        """Whether its owners want a sidecar."""
        return self.spec.sentinel is not None and self.spec.sentinel.enabled

    @property
    def drift(self) -> DriftStatus:
        return read_status(self.status.get("drift", {}))

    @property
    def conditions(self) -> list[Condition]:
        return conditions.read({"status": dict(self.status)})

    @property
    def config_map_name(self) -> str:
        return f"{self.name}-config"

    @property
    def secret_name(self) -> str:
        return f"{self.name}-tls"

    @property
    def sentinel_name(self) -> str:
        """The name of all objects of its sidecar."""
        return f"{self.name}-sentinel"


def read_cluster(document: KubeObject) -> OpenBaoCluster:
    """Read a cluster that the API server sent. Raises `Malformed`."""
    status = document.get("status")
    try:
        spec = msgspec.convert(document.get("spec", {}), OpenBaoClusterSpec)
    except msgspec.ValidationError as error:
        raise Malformed(f"spec: {error}") from error
    return OpenBaoCluster(
        reference=objects.reference(document),
        generation=objects.generation(document),
        spec=spec,
        status=status if isinstance(status, dict) else {},
        annotations=objects.read_annotations(document),
    )
