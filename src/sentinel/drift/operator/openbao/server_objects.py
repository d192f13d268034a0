"""The desired objects of the servers of a cluster, and what all objects of a cluster have in common.

The labels are those that the sidecar selects by. The pods of the servers have a component of their own, so that
the Service selects them and not the pod of the sidecar.
"""

from __future__ import annotations

import hashlib
from typing import Final

from sentinel.core.json import Json
from sentinel.drift.operator.openbao.cluster import OPENBAO_CLUSTER, OpenBaoCluster
from sentinel.ports.kube import KubeKind, KubeObject

CONFIG_MAP: Final = KubeKind("", "v1", "ConfigMap", "configmaps")
SECRET: Final = KubeKind("", "v1", "Secret", "secrets")
SERVICE: Final = KubeKind("", "v1", "Service", "services")
STATEFUL_SET: Final = KubeKind("apps", "v1", "StatefulSet", "statefulsets")

MANAGED_BY: Final = "openbao-operator"
CONFIG_KEY: Final = "config.hcl"
API_PORT: Final = 8200
_CLUSTER_PORT: Final = 8201
_SERVER: Final = "server"
_IMAGE: Final = "openbao/openbao"
_USER: Final = 100
"""The user of the image."""
TLS_FILES: Final = ("ca.crt", "tls.crt", "tls.key")
"""What servers get of the Secret. The key of the authority stays with the operator."""


def labels(cluster: OpenBaoCluster, *, component: str, name: str = "openbao") -> dict[str, Json]:
    """Return the labels of an object that belongs to a cluster."""
    return {
        "app.kubernetes.io/name": name,
        "app.kubernetes.io/instance": cluster.name,
        "app.kubernetes.io/managed-by": MANAGED_BY,
        "app.kubernetes.io/component": component,
    }


def make_object(
    cluster: OpenBaoCluster, kind: KubeKind, name: str, *, labels: dict[str, Json], **content: Json
) -> KubeObject:
    """Return an object that belongs to a cluster and is deleted with it."""
    owner: dict[str, Json] = {
        "apiVersion": OPENBAO_CLUSTER.api_version,
        "kind": OPENBAO_CLUSTER.kind,
        "name": cluster.name,
        "uid": cluster.reference.uid,
        "controller": True,
    }
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": name,
            "namespace": cluster.namespace,
            "labels": labels,
            "ownerReferences": [owner],
        },
        **content,
    }


def config_map(cluster: OpenBaoCluster) -> KubeObject:
    """Return the configuration of the servers."""
    return make_object(
        cluster,
        CONFIG_MAP,
        cluster.config_map_name,
        labels=labels(cluster, component=_SERVER),
        data={CONFIG_KEY: cluster.spec.config},
    )


def service(cluster: OpenBaoCluster) -> KubeObject:
    """Return the Service that gives each server a name."""
    ports: list[Json] = [
        {"name": name, "port": port, "targetPort": port, "protocol": "TCP"}
        for name, port in (("api", API_PORT), ("cluster", _CLUSTER_PORT))
    ]
    spec: dict[str, Json] = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,  # servers have to find each other before one of them is ready
        "selector": labels(cluster, component=_SERVER),
        "ports": ports,
    }
    return make_object(cluster, SERVICE, cluster.name, labels=labels(cluster, component=_SERVER), spec=spec)


def stateful_set(cluster: OpenBaoCluster) -> KubeObject:
    """Return the servers."""
    own = labels(cluster, component=_SERVER)
    template: dict[str, Json] = {
        "metadata": {
            "labels": own,
            # Servers read their configuration when they start.
            "annotations": {"openbao.org/config-hash": config_hash(cluster)},
        },
        "spec": {
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": _USER,
                "fsGroup": _USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "automountServiceAccountToken": False,
            "containers": [_container(cluster)],
            "volumes": [
                {"name": "config", "configMap": {"name": cluster.config_map_name}},
                {
                    "name": "tls",
                    "secret": {
                        "secretName": cluster.secret_name,
                        "items": [{"key": file, "path": file} for file in TLS_FILES],
                    },
                },
            ],
        },
    }
    spec: dict[str, Json] = {
        "serviceName": cluster.name,
        "replicas": cluster.spec.replicas,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": own},
        "template": template,
        "volumeClaimTemplates": [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            }
        ],
    }
    return make_object(cluster, STATEFUL_SET, cluster.name, labels=own, spec=spec)


def config_hash(cluster: OpenBaoCluster) -> str:
    """Return the hash of the configuration."""
    return hashlib.sha256(cluster.spec.config.encode()).hexdigest()


def _container(cluster: OpenBaoCluster) -> dict[str, Json]:
    health = {"path": "/v1/sys/health?standbyok=true&sealedcode=204&uninitcode=204", "port": "api"}
    return {
        "name": "bao",
        "image": f"{_IMAGE}:{cluster.spec.version}",
        "args": ["server", f"-config=/openbao/config/{CONFIG_KEY}"],
        "ports": [
            {"name": "api", "containerPort": API_PORT, "protocol": "TCP"},
            {"name": "cluster", "containerPort": _CLUSTER_PORT, "protocol": "TCP"},
        ],
        "readinessProbe": {"httpGet": {**health, "scheme": "HTTPS"}, "periodSeconds": 10},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": "/openbao/config", "readOnly": True},
            {"name": "tls", "mountPath": "/openbao/tls", "readOnly": True},
            {"name": "data", "mountPath": "/openbao/data"},
        ],
    }
