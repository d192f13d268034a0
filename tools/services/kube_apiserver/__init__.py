"""A real Kubernetes API server: kube-apiserver with RBAC and an audit log, and the etcd it stores objects in.

`binaries` finds or builds the two programs, `server` runs them, `access` and `client` reach an API server, and
`audit_log` reads what was requested.
"""

from tools.services.kube_apiserver.access import KubeAccess, read_kubeconfig
from tools.services.kube_apiserver.audit_log import AuditEntry, AuditLog
from tools.services.kube_apiserver.binaries import ASSETS_VARIABLE
from tools.services.kube_apiserver.client import KubeClient, KubeResponse
from tools.services.kube_apiserver.server import (
    AUDIT_LOG_VARIABLE,
    KUBECONFIG_VARIABLE,
    KubeApiServer,
    provide,
    temporary_server,
)

__all__ = [
    "ASSETS_VARIABLE",
    "AUDIT_LOG_VARIABLE",
    "KUBECONFIG_VARIABLE",
    "AuditEntry",
    "AuditLog",
    "KubeAccess",
    "KubeApiServer",
    "KubeClient",
    "KubeResponse",
    "provide",
    "read_kubeconfig",
    "temporary_server",
]
