"""Which lists of Kubernetes' own kinds are keyed, for lists that no field manager holds.

`managedFields` show the keys of the lists that a manager holds. A manifest that is about to be applied has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from sentinel.core.json import Json

ListKeys: TypeAlias = tuple[str, ...]
"""The fields that name a member of a list, sorted. Empty for a set, whose members are named by their value."""

KEY_DEFAULTS: Final[Mapping[str, Json]] = {"protocol": "TCP"}
"""What the API server takes for a key that a member lacks."""


class KnownFields(msgspec.Struct, frozen=True):
    """What is known about a map's fields: which are keyed lists, and what is known about the fields below."""

    lists: Mapping[str, ListKeys] = {}
    fields: Mapping[str, KnownFields] = {}
    """Below a field; for a keyed list, below each of its members."""

    def below(self, field: str) -> KnownFields:
        """Return what is known below a field."""
        return self.fields.get(field, NOTHING_KNOWN)


NOTHING_KNOWN: Final = KnownFields()

_NAME: Final = ("name",)
_CONTAINER: Final = KnownFields(
    lists={
        "env": _NAME,
        "ports": ("containerPort", "protocol"),
        "volumeDevices": ("devicePath",),
        "volumeMounts": ("mountPath",),
    },
    fields={"resources": KnownFields(lists={"claims": _NAME})},
)
_POD_SPEC: Final = KnownFields(
    lists={
        "containers": _NAME,
        "ephemeralContainers": _NAME,
        "hostAliases": ("ip",),
        "imagePullSecrets": _NAME,
        "initContainers": _NAME,
        "resourceClaims": _NAME,
        "schedulingGates": _NAME,
        "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
        "volumes": _NAME,
    },
    fields={"containers": _CONTAINER, "ephemeralContainers": _CONTAINER, "initContainers": _CONTAINER},
)
_METADATA: Final = KnownFields(lists={"finalizers": (), "ownerReferences": ("uid",)})
_POD_TEMPLATE: Final = KnownFields(fields={"metadata": _METADATA, "spec": _POD_SPEC})
_WORKLOAD_SPEC: Final = KnownFields(fields={"template": _POD_TEMPLATE})
_SPECS: Final = {
    "CronJob": KnownFields(fields={"jobTemplate": KnownFields(fields={"spec": _WORKLOAD_SPEC})}),
    "DaemonSet": _WORKLOAD_SPEC,
    "Deployment": _WORKLOAD_SPEC,
    "Job": _WORKLOAD_SPEC,
    "Pod": _POD_SPEC,
    "ReplicaSet": _WORKLOAD_SPEC,
    "Service": KnownFields(lists={"ports": ("port", "protocol")}),
    "StatefulSet": _WORKLOAD_SPEC,
}


def known_fields(kind: Json) -> KnownFields:
    """Return what is known about the objects of a kind."""
    spec = _SPECS.get(kind, NOTHING_KNOWN) if isinstance(kind, str) else NOTHING_KNOWN
    return KnownFields(fields={"metadata": _METADATA, "spec": spec})
