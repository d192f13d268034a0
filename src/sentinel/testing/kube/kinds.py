"""The kinds that the fake serves, and in what they differ for the API server.

The constants are the kinds that are served from the start. They are those of Kubernetes 1.36, but without its
defaults and validation: what is written is stored.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from sentinel.ports.kube import KubeKind, KubeObject
from sentinel.testing.kube import builtin_types as types
from sentinel.testing.kube.errors import ApiError
from sentinel.testing.kube.field_types import UNTYPED, FieldType, from_schema
from sentinel.testing.kube.structural_schema import Schema

CONFIG_MAP = KubeKind("", "v1", "ConfigMap", "configmaps")
SECRET = KubeKind("", "v1", "Secret", "secrets")
SERVICE = KubeKind("", "v1", "Service", "services")
POD = KubeKind("", "v1", "Pod", "pods")
EVENT = KubeKind("", "v1", "Event", "events")
SERVICE_ACCOUNT = KubeKind("", "v1", "ServiceAccount", "serviceaccounts")
NAMESPACE = KubeKind("", "v1", "Namespace", "namespaces", is_namespaced=False)
STATEFUL_SET = KubeKind("apps", "v1", "StatefulSet", "statefulsets")
DEPLOYMENT = KubeKind("apps", "v1", "Deployment", "deployments")
JOB = KubeKind("batch", "v1", "Job", "jobs")
LEASE = KubeKind("coordination.k8s.io", "v1", "Lease", "leases")
ROLE = KubeKind("rbac.authorization.k8s.io", "v1", "Role", "roles")
ROLE_BINDING = KubeKind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
CLUSTER_ROLE = KubeKind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", is_namespaced=False)
CLUSTER_ROLE_BINDING = KubeKind(
    "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", is_namespaced=False
)
CUSTOM_RESOURCE_DEFINITION = KubeKind(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", is_namespaced=False
)
VALIDATING_ADMISSION_POLICY = KubeKind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicy",
    "validatingadmissionpolicies",
    is_namespaced=False,
)
VALIDATING_ADMISSION_POLICY_BINDING = KubeKind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    is_namespaced=False,
)


class ServedKind(msgspec.Struct, frozen=True):
    """A kind in one version, and how the API server treats its objects."""

    kind: KubeKind
    field_type: FieldType
    has_status: bool = False
    """`status` is written only through the subresource."""
    is_custom: bool = False
    schema: Schema | None = None
    """The structural schema of a custom resource. Without one, everything is stored."""
    has_generation: bool = False
    needs_version: bool = False
    """An update must name the resource version."""
    creates_on_update: bool = False
    """An update creates the object if there is none."""
    selectable_fields: tuple[str, ...] = ()
    """What field selectors may name besides the name and the namespace."""
    empty: KubeObject = {}
    """What an object without any content has in Kubernetes: the first writer does not own these."""

    @property
    def resource(self) -> str:
        """The resource without its version: objects of all versions are stored together."""
        return str(self.kind)

    @property
    def subresources(self) -> tuple[str, ...]:
        """The subresources that are served."""
        status = ("status",) if self.has_status else ()
        return (*status, "finalize") if self.kind == NAMESPACE else status


def custom(
    kind: KubeKind,
    *,
    has_status: bool = False,
    schema: Schema | None = None,
    selectable_fields: tuple[str, ...] = (),
) -> ServedKind:
    """Return a custom kind. Without a schema, everything is stored and every list is one value."""
    return ServedKind(
        kind,
        types.with_metadata(UNTYPED if schema is None else from_schema(schema)),
        has_status=has_status,
        is_custom=True,
        schema=schema,
        has_generation=True,
        needs_version=True,
        selectable_fields=selectable_fields,
    )


_WORKLOAD: KubeObject = {"spec": {"template": {"metadata": {}, "spec": {}}}, "status": {}}
_EVENT_FIELDS = (
    *(
        f"involvedObject.{name}"
        for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    ),
    "reason",
    "reportingComponent",
    "type",
)
_POD_FIELDS = ("spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName", "status.phase", "status.podIP")

BUILT_IN = (
    ServedKind(CONFIG_MAP, types.CONFIG_MAP),
    ServedKind(SECRET, types.SECRET, selectable_fields=("type",)),
    ServedKind(
        SERVICE,
        types.SERVICE,
        has_status=True,
        creates_on_update=True,
        selectable_fields=("spec.clusterIP", "spec.type"),
        empty={"spec": {}, "status": {"loadBalancer": {}}},
    ),
    ServedKind(
        POD,
        types.POD,
        has_status=True,
        has_generation=True,
        selectable_fields=_POD_FIELDS,
        empty={"spec": {}, "status": {}},
    ),
    ServedKind(
        EVENT,
        types.EVENT,
        creates_on_update=True,
        selectable_fields=_EVENT_FIELDS,
        empty={"involvedObject": {}, "source": {}},
    ),
    ServedKind(SERVICE_ACCOUNT, types.SERVICE_ACCOUNT),
    ServedKind(
        NAMESPACE,
        types.NAMESPACE,
        has_status=True,
        selectable_fields=("status.phase",),
        empty={"spec": {}, "status": {}},
    ),
    ServedKind(STATEFUL_SET, types.WORKLOAD, has_status=True, has_generation=True, empty=_WORKLOAD),
    ServedKind(
        DEPLOYMENT,
        types.WORKLOAD,
        has_status=True,
        has_generation=True,
        empty={"spec": {"strategy": {}, "template": {"metadata": {}, "spec": {}}}, "status": {}},
    ),
    ServedKind(
        JOB,
        types.JOB,
        has_status=True,
        has_generation=True,
        selectable_fields=("status.successful",),
        empty=_WORKLOAD,
    ),
    ServedKind(LEASE, types.OBJECT, needs_version=True, creates_on_update=True, empty={"spec": {}}),
    ServedKind(ROLE, types.OBJECT, creates_on_update=True),
    ServedKind(ROLE_BINDING, types.ROLE_BINDING, creates_on_update=True, empty={"roleRef": {}}),
    ServedKind(CLUSTER_ROLE, types.OBJECT, creates_on_update=True),
    ServedKind(CLUSTER_ROLE_BINDING, types.ROLE_BINDING, creates_on_update=True, empty={"roleRef": {}}),
    ServedKind(
        CUSTOM_RESOURCE_DEFINITION,
        types.CUSTOM_RESOURCE_DEFINITION,
        has_status=True,
        has_generation=True,
        needs_version=True,
        empty={"spec": {"names": {}}, "status": {}},
    ),
    # Only stored: no request is refused.
    ServedKind(
        VALIDATING_ADMISSION_POLICY,
        types.VALIDATING_ADMISSION_POLICY,
        has_status=True,
        has_generation=True,
        needs_version=True,
        empty={"spec": {}, "status": {}},
    ),
    ServedKind(
        VALIDATING_ADMISSION_POLICY_BINDING,
        types.VALIDATING_ADMISSION_POLICY_BINDING,
        has_generation=True,
        needs_version=True,
        empty={"spec": {}},
    ),
)


class Kinds:
    """The kinds that are served now."""

    def __init__(self) -> None:
        self._served = {_key(served.kind): served for served in BUILT_IN}

    def __iter__(self) -> Iterator[ServedKind]:
        return iter(self._served.values())

    def add(self, served: ServedKind) -> None:
        """Serve a kind, or serve it differently from now on."""
        self._served[_key(served.kind)] = served

    def remove(self, group: str, plural: str) -> None:
        """Stop serving a custom kind in all versions."""
        kept = {
            key: served
            for key, served in self._served.items()
            if not served.is_custom or (served.kind.group, served.kind.plural) != (group, plural)
        }
        self._served = kept

    def find(self, group: str, version: str, plural: str) -> ServedKind:
        """Return the kind under a path. Raises `ApiError` if there is none."""
        served = self._served.get((group, version, plural))
        if served is None:
            raise ApiError.no_such_path()
        return served

    def of(self, kind: KubeKind) -> ServedKind:
        """Return what is served for a kind. Raises `ApiError` if it is not served."""
        return self.find(*_key(kind))


def _key(kind: KubeKind) -> tuple[str, str, str]:
    return kind.group, kind.version, kind.plural
