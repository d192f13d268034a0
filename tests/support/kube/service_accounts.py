"""Service accounts with exactly the rights that a test gives them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

from tools.services.kube_apiserver import KubeAccess, KubeClient

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_RBAC_GROUP = "rbac.authorization.k8s.io"
_TOKEN_LIFETIME = timedelta(hours=1)
_TIMEOUT = timedelta(seconds=90)

Rule: TypeAlias = Mapping[str, Sequence[str]]
"""A rule as in a Role: `apiGroups`, `resources`, `verbs`, and maybe `resourceNames`."""


class ServiceAccount(msgspec.Struct, frozen=True, kw_only=True):
    """An account and a token for it."""

    namespace: str
    name: str
    access: KubeAccess
    kubeconfig: Path

    @property
    def user(self) -> str:
        """The name in audit logs and in RBAC's messages."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"


class CreateServiceAccount(Protocol):
    """Creates an account in the namespace of the test."""

    def __call__(self, name: str = "tester", *, rules: Sequence[Rule] = ()) -> ServiceAccount: ...


def create_service_account(
    admin: KubeClient, *, namespace: str, name: str, rules: Sequence[Rule] = (), directory: Path
) -> ServiceAccount:
    """Create an account, bound to a Role with these rules if there are any, and request a token for it.

    The kubeconfig is written to `directory`. Its namespace is the account's.
    """
    admin.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
    account = open_service_account(admin, namespace=namespace, name=name, directory=directory)
    if rules:
        _bind(admin, account, rules)
        wait_until_allowed(admin, account, rules)
    return account


def open_service_account(admin: KubeClient, *, namespace: str, name: str, directory: Path) -> ServiceAccount:
    """Request a token for an account that exists. The kubeconfig is written to `directory`."""
    lifetime = {"expirationSeconds": int(_TOKEN_LIFETIME.total_seconds())}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    access = admin.access.with_token(admin.create(path, {"spec": lifetime})["status"]["token"])
    kubeconfig = directory / f"{namespace}-{name}.kubeconfig"
    kubeconfig.write_bytes(access.kubeconfig(namespace=namespace))
    return ServiceAccount(namespace=namespace, name=name, access=access, kubeconfig=kubeconfig)


def wait_until_allowed(admin: KubeClient, account: ServiceAccount, rules: Sequence[Rule]) -> None:
    """Wait until a Role with these rules, which was bound to the account, takes effect."""
    # The server's authorizer watches Roles, so a new one takes effect some milliseconds later, all of it at once.
    # We ask as the administrator: the account's entries in the audit log are those of the test.
    rule = rules[0]
    group, resource, verb = (rule[key][0] for key in ("apiGroups", "resources", "verbs"))
    resource, _, subresource = resource.partition("/")
    attributes = {
        "namespace": account.namespace,
        "group": group,
        "resource": resource,
        "subresource": subresource,
        "verb": verb,
        "name": next(iter(rule.get("resourceNames", ())), ""),
    }
    review = {"spec": {"user": account.user, "resourceAttributes": attributes}}
    deadline = time.monotonic() + _TIMEOUT.total_seconds()
    while not admin.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"]:
        assert time.monotonic() < deadline, f"the Role of {account.user} has no effect"
        time.sleep(0.01)


def _bind(admin: KubeClient, account: ServiceAccount, rules: Sequence[Rule]) -> None:
    admin.create(
        f"{_RBAC}/namespaces/{account.namespace}/roles", {"metadata": {"name": account.name}, "rules": rules}
    )
    admin.create(
        f"{_RBAC}/namespaces/{account.namespace}/rolebindings",
        {
            "metadata": {"name": account.name},
            "roleRef": {"apiGroup": _RBAC_GROUP, "kind": "Role", "name": account.name},
            "subjects": [{"kind": "ServiceAccount", "name": account.name, "namespace": account.namespace}],
        },
    )
