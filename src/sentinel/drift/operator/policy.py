"""The ValidatingAdmissionPolicy that limits every sidecar to the trigger of its own cluster.

A sidecar needs the permission to patch its OpenBaoCluster, and RBAC knows no permission for two annotations. So
the API server checks each write of a sidecar: only an update, only of its own cluster, only the two annotations,
only values of the right form. A compromised sidecar can therefore cause fast paths, and nothing else.

A sidecar is recognized by its service account, `NAMESPACE:CLUSTER-sentinel`. Every account whose name ends in
`-sentinel` is limited. An account that is limited by mistake is refused, which its owner notices; one that escaped
the limits would go unnoticed.
"""

from __future__ import annotations

from typing import Final

from sentinel.core.drift.rules import OPENBAO
from sentinel.core.json import Json
from sentinel.ports.kube import KubeKind, KubeObject

NAME: Final = "openbao-restrict-sentinel-mutations"
"""The name of the policy, and of its binding."""
POLICY: Final = KubeKind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicy",
    "validatingadmissionpolicies",
    is_namespaced=False,
)
BINDING: Final = KubeKind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    is_namespaced=False,
)
ACCOUNT_SUFFIX: Final = "-sentinel"

_TRIGGER: Final = OPENBAO.annotations.trigger
_TRIGGER_RESOURCE: Final = OPENBAO.annotations.trigger_resource
_LABELS: Final[KubeObject] = {
    "app.kubernetes.io/name": "openbao-operator",
    "app.kubernetes.io/component": "drift-operator",
}
_TIME: Final = (
    "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    "T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
)
_RESOURCE: Final = (
    "^[A-Z][A-Za-z0-9]{0,62}/[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$"
)


def _unchanged(parent: str, field: str) -> str:
    """Return the rule that an optional field is the same as before."""
    new = f"{parent}.{field}"
    old = new.replace("object", "oldObject", 1)
    return f"has({new}) == has({old}) && (!has({new}) || {new} == {old})"


_VARIABLES: Final = {
    "isUpdate": "request.operation == 'UPDATE' && (!has(request.subResource) || request.subResource == '')",
    "annotations": "variables.isUpdate && has(object.metadata.annotations) ? object.metadata.annotations : {}",
    "oldAnnotations": "variables.isUpdate && has(oldObject.metadata.annotations)"
    " ? oldObject.metadata.annotations : {}",
    "changed": "variables.annotations.filter(key, !(key in variables.oldAnnotations)"
    " || variables.oldAnnotations[key] != variables.annotations[key])",
}


def _owners(document: str) -> str:
    """Return who owns which fields of the spec."""
    return (
        f"(has({document}.metadata.managedFields) ? {document}.metadata.managedFields : [])"
        ".filter(entry, has(entry.fieldsV1) && 'f:spec' in entry.fieldsV1)"
        ".map(entry, [entry.manager, entry.operation, entry.fieldsV1['f:spec']])"
    )


_VALIDATIONS: Final = (
    (
        "variables.isUpdate",
        "A sentinel may only update an OpenBaoCluster. It may not create or delete one, nor write its status.",
    ),
    (
        "request.userInfo.username == 'system:serviceaccount:' + request.namespace + ':' + request.name"
        f" + '{ACCOUNT_SUFFIX}'",
        "A sentinel may only update its own OpenBaoCluster.",
    ),
    (
        f"!variables.isUpdate || ({_unchanged('object', 'spec')})",
        "A sentinel may not change the spec of an OpenBaoCluster.",
    ),
    (
        f"!variables.isUpdate || ({_unchanged('object', 'status')})",
        "A sentinel may not change the status of an OpenBaoCluster.",
    ),
    (
        f"!variables.isUpdate || ({_unchanged('object.metadata', 'labels')})",
        "A sentinel may not change the labels of an OpenBaoCluster.",
    ),
    (
        f"!variables.isUpdate || ({_unchanged('object.metadata', 'finalizers')})",
        "A sentinel may not change the finalizers of an OpenBaoCluster.",
    ),
    (
        f"!variables.isUpdate || ({_unchanged('object.metadata', 'ownerReferences')})",
        "A sentinel may not change the owners of an OpenBaoCluster.",
    ),
    (
        f"!variables.isUpdate || ({_unchanged('object.metadata', 'generateName')})",
        "A sentinel may not change the generated name of an OpenBaoCluster.",
    ),
    (
        f"!variables.isUpdate || {_owners('object')} == {_owners('oldObject')}",
        "A sentinel may not own fields of the spec of an OpenBaoCluster, nor take them from others.",
    ),
    (
        f"variables.changed.all(key, key in ['{_TRIGGER}', '{_TRIGGER_RESOURCE}'])",
        f"A sentinel may only add or change the annotations {_TRIGGER} and {_TRIGGER_RESOURCE}.",
    ),
    (
        "variables.oldAnnotations.all(key, key in variables.annotations)",
        "A sentinel may not remove annotations of an OpenBaoCluster.",
    ),
    (
        f"variables.changed.size() == 0 || '{_TRIGGER}' in variables.changed",
        f"A sentinel may only change {_TRIGGER_RESOURCE} together with {_TRIGGER}.",
    ),
    (
        f"!('{_TRIGGER}' in variables.changed) || (size(variables.annotations['{_TRIGGER}']) <= 64"
        f" && variables.annotations['{_TRIGGER}'].matches('{_TIME}'))",
        f"The annotation {_TRIGGER} has to be a time in RFC 3339, of at most 64 characters.",
    ),
    (
        f"!('{_TRIGGER_RESOURCE}' in variables.changed)"
        f" || (size(variables.annotations['{_TRIGGER_RESOURCE}']) <= 400"
        f" && variables.annotations['{_TRIGGER_RESOURCE}'].matches('{_RESOURCE}')"
        f" && variables.annotations['{_TRIGGER_RESOURCE}'].split('/')[1] == request.namespace)",
        f"The annotation {_TRIGGER_RESOURCE} has to be KIND/NAMESPACE/NAME, in the namespace of the cluster.",
    ),
)


def policy() -> KubeObject:
    """Return the policy."""
    variables: list[Json] = [{"name": name, "expression": text} for name, text in _VARIABLES.items()]
    validations: list[Json] = [
        {"expression": expression, "message": message, "reason": "Forbidden"}
        for expression, message in _VALIDATIONS
    ]
    return {
        "apiVersion": POLICY.api_version,
        "kind": POLICY.kind,
        "metadata": {"name": NAME, "labels": dict(_LABELS)},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "resourceRules": [
                    {
                        "apiGroups": ["openbao.org"],
                        "apiVersions": ["*"],
                        "operations": ["*"],
                        "resources": ["openbaoclusters", "openbaoclusters/*"],
                        "scope": "*",
                    }
                ],
            },
            "matchConditions": [
                {
                    "name": "is-sentinel",
                    "expression": "request.userInfo.username.startsWith('system:serviceaccount:')"
                    f" && request.userInfo.username.endsWith('{ACCOUNT_SUFFIX}')",
                }
            ],
            "variables": variables,
            "validations": validations,
        },
    }


def binding() -> KubeObject:
    """Return the binding that enforces the policy everywhere."""
    return {
        "apiVersion": BINDING.api_version,
        "kind": BINDING.kind,
        "metadata": {"name": NAME, "labels": dict(_LABELS)},
        "spec": {"policyName": NAME, "validationActions": ["Deny"]},
    }
