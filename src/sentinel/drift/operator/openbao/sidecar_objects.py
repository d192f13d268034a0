"""The objects of a cluster's sidecar: a Deployment, and an account with as few permissions as possible.

All have the name `CLUSTER-sentinel`, so that neighbours in a namespace share nothing. The account may read what
the sidecar watches, and patch its own OpenBaoCluster; the admission policy limits what it may patch there. It has
no permission for Secrets.

All sidecars may read one configuration, from a ConfigMap that the operator is told about. It can turn on Events,
so the account then may create these, too.
"""

from __future__ import annotations

from typing import Final

from sentinel.core.json import Json
from sentinel.drift.operator.openbao.cluster import (
    DEFAULT_RESOURCES,
    OPENBAO_CLUSTER,
    OpenBaoCluster,
    SentinelSpec,
)
from sentinel.drift.operator.openbao.server_objects import labels, make_object
from sentinel.ports.kube import KubeKind, KubeObject

SERVICE_ACCOUNT: Final = KubeKind("", "v1", "ServiceAccount", "serviceaccounts")
ROLE: Final = KubeKind("rbac.authorization.k8s.io", "v1", "Role", "roles")
ROLE_BINDING: Final = KubeKind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
DEPLOYMENT: Final = KubeKind("apps", "v1", "Deployment", "deployments")

KINDS: Final = (SERVICE_ACCOUNT, ROLE, ROLE_BINDING, DEPLOYMENT)
"""The kinds in the order of creation. They are deleted in reverse."""

_IMAGE: Final = "openbao/operator-sentinel"
_USER: Final = 65532
_READ: Final[list[Json]] = ["get", "list", "watch"]
_CONFIG_DIRECTORY: Final = "/etc/sentinel"
_CONFIG_KEY: Final = "config.yaml"


def default_image(operator_version: str) -> str:
    """Return the image for clusters that name none."""
    return f"{_IMAGE}:{operator_version}"


def objects(
    cluster: OpenBaoCluster, *, operator_version: str, config_map: str = ""
) -> list[tuple[KubeKind, KubeObject]]:
    """Return the objects of the sidecar, in the order of `KINDS`.

    `config_map` is the ConfigMap with its configuration; empty if there is none.
    """
    bodies = (
        _object(cluster, SERVICE_ACCOUNT),
        _role(cluster, has_config=bool(config_map)),
        _role_binding(cluster),
        _deployment(cluster, operator_version=operator_version, config_map=config_map),
    )
    return list(zip(KINDS, bodies, strict=True))


def _labels(cluster: OpenBaoCluster) -> dict[str, Json]:
    # Not the name of the servers: a selector of those must not match the sidecar.
    return labels(cluster, component="sentinel", name="openbao-sentinel")


def _object(cluster: OpenBaoCluster, kind: KubeKind, **content: Json) -> KubeObject:
    return make_object(cluster, kind, cluster.sentinel_name, labels=_labels(cluster), **content)


def _role(cluster: OpenBaoCluster, *, has_config: bool) -> KubeObject:
    rules: list[Json] = [
        {"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": _READ},
        {"apiGroups": [""], "resources": ["services", "configmaps"], "verbs": _READ},
        {
            "apiGroups": [OPENBAO_CLUSTER.group],
            "resources": [OPENBAO_CLUSTER.plural],
            "resourceNames": [cluster.name],
            "verbs": [*_READ, "patch"],
        },
    ]
    if has_config:
        rules.append({"apiGroups": [""], "resources": ["events"], "verbs": ["create"]})
    return _object(cluster, ROLE, rules=rules)


def _role_binding(cluster: OpenBaoCluster) -> KubeObject:
    return _object(
        cluster,
        ROLE_BINDING,
        roleRef={"apiGroup": ROLE.group, "kind": ROLE.kind, "name": cluster.sentinel_name},
        subjects=[
            {"kind": SERVICE_ACCOUNT.kind, "name": cluster.sentinel_name, "namespace": cluster.namespace},
        ],
    )


def _deployment(cluster: OpenBaoCluster, *, operator_version: str, config_map: str) -> KubeObject:
    own, sentinel = _labels(cluster), cluster.spec.sentinel or SentinelSpec()
    container = _container(cluster, sentinel, sentinel.image or default_image(operator_version))
    volumes: dict[str, Json] = {}
    if config_map:
        container["args"] = ["drift", f"--config={_CONFIG_DIRECTORY}/{_CONFIG_KEY}"]
        container["volumeMounts"] = [{"name": "config", "mountPath": _CONFIG_DIRECTORY, "readOnly": True}]
        items: Json = [{"key": _CONFIG_KEY, "path": _CONFIG_KEY}]
        volumes["volumes"] = [{"name": "config", "configMap": {"name": config_map, "items": items}}]
    spec: dict[str, Json] = {
        "replicas": 1,
        # Two at once would set two triggers for one change.
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": own},
        "template": {
            "metadata": {"labels": own},
            "spec": {
                "serviceAccountName": cluster.sentinel_name,
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": _USER,
                    "runAsGroup": _USER,
                    "fsGroup": _USER,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [container],
                **volumes,
            },
        },
    }
    return _object(cluster, DEPLOYMENT, spec=spec)


def _container(cluster: OpenBaoCluster, sentinel: SentinelSpec, image: str) -> dict[str, Json]:
    return {
        "name": "sentinel",
        "image": image,
        "command": ["/sentinel"],
        "args": ["drift"],
        "env": [
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "CLUSTER_NAME", "value": cluster.name},
            {"name": "SENTINEL_DEBOUNCE_WINDOW_SECONDS", "value": str(sentinel.debounce_window_seconds)},
        ],
        "ports": [
            {"name": "metrics", "containerPort": 8080, "protocol": "TCP"},
            {"name": "health", "containerPort": 8081, "protocol": "TCP"},
        ],
        "livenessProbe": _probe("/healthz", initialDelaySeconds=10, periodSeconds=10, timeoutSeconds=5),
        "readinessProbe": _probe("/readyz", initialDelaySeconds=5, periodSeconds=5, timeoutSeconds=3),
        "resources": (sentinel.resources or DEFAULT_RESOURCES).encode(),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _probe(path: str, **times: Json) -> dict[str, Json]:
    return {"httpGet": {"path": path, "port": "health"}, "failureThreshold": 3, **times}
