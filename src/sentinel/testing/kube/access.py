"""Who may do what: bearer tokens, client certificates, and RBAC from the stored roles and bindings."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from sentinel.ports.kube import KubeKind, KubeObject
from sentinel.testing.kube.errors import ApiError
from sentinel.testing.kube.kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING
from sentinel.testing.kube.objects import member, objects, text, texts
from sentinel.testing.kube.requests import ApiRequest, Target
from sentinel.testing.kube.store import Key, ObjectStore

ADMINS = "system:masters"
_EVERYBODY = "system:authenticated"


class KubeUser(msgspec.Struct, frozen=True):
    """A user of the API. Members of `system:masters` may do everything."""

    name: str
    groups: tuple[str, ...] = ()


ADMIN = KubeUser("admin", (ADMINS, _EVERYBODY))


def service_account(namespace: str, name: str) -> KubeUser:
    """Return the user that a service account is."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", _EVERYBODY)
    return KubeUser(f"system:serviceaccount:{namespace}:{name}", groups)


class Authentication:
    """The users of a server. While it has no tokens, a request without a certificate comes from an admin."""

    def __init__(self) -> None:
        self._tokens: dict[str, KubeUser] = {}

    def add(self, token: str, user: KubeUser) -> None:
        """Accept a token."""
        self._tokens[token] = user

    def revoke(self, token: str) -> None:
        """Reject a token from now on. The server still expects tokens if it was the last one."""
        self._tokens[token] = KubeUser("")

    def user_of(self, request: ApiRequest) -> KubeUser:
        """Return who sent a request. Raises `ApiError` if that is unknown."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            user = self._tokens.get(token.strip())
            if user is None or not user.name:
                raise ApiError.unauthorized()
            return user
        names = request.certificate_subject.get("commonName", ())
        if names:
            groups = request.certificate_subject.get("organizationName", ())
            return KubeUser(names[0], (*groups, _EVERYBODY))
        if self._tokens:
            raise ApiError.unauthorized()
        return ADMIN


class Rbac:
    """Role-based access control, as Kubernetes evaluates it."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def check(self, user: KubeUser, target: Target) -> None:
        """Raise `ApiError` unless a role allows the request. Paths without objects are open to every user."""
        if not target.is_resource or ADMINS in user.groups:
            return
        if any(_allows(rule, target) for rule in self._rules(user, target.namespace)):
            return
        resource = f"{target.plural}/{target.subresource}" if target.subresource else target.plural
        where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
        why = (
            f'User "{user.name}" cannot {target.verb} resource "{resource}" in API group "{target.group}" {where}'
        )
        raise ApiError.forbidden(KubeKind(target.group, target.version, "", target.plural), target.name, why)

    def _rules(self, user: KubeUser, namespace: str) -> Iterator[KubeObject]:
        for binding in self._store.objects(str(CLUSTER_ROLE_BINDING)):
            if _binds(binding, user):
                yield from self._bound_rules(binding, "")
        if namespace:
            for binding in self._store.objects(str(ROLE_BINDING)):
                if text(member(binding, "metadata"), "namespace") == namespace and _binds(binding, user):
                    yield from self._bound_rules(binding, namespace)

    def _bound_rules(self, binding: KubeObject, namespace: str) -> Iterator[KubeObject]:
        reference = member(binding, "roleRef")
        is_cluster_role = reference.get("kind") == CLUSTER_ROLE.kind
        key = Key("" if is_cluster_role else namespace, text(reference, "name"))
        role = self._store.get(str(CLUSTER_ROLE if is_cluster_role else ROLE), key)
        yield from objects(role or {}, "rules")


def _binds(binding: KubeObject, user: KubeUser) -> bool:
    for subject in objects(binding, "subjects"):
        name = text(subject, "name")
        match text(subject, "kind"):
            case "User" if name == user.name:
                return True
            case "Group" if name in user.groups:
                return True
            case "ServiceAccount" if service_account(text(subject, "namespace"), name).name == user.name:
                return True
    return False


def _allows(rule: KubeObject, target: Target) -> bool:
    names = texts(rule, "resourceNames")
    return (
        _contains(texts(rule, "verbs"), target.verb)
        and _contains(texts(rule, "apiGroups"), target.group)
        and _names_resource(texts(rule, "resources"), target)
        and (not names or target.name in names)
    )


def _contains(allowed: list[str], value: str) -> bool:
    return "*" in allowed or value in allowed


def _names_resource(allowed: list[str], target: Target) -> bool:
    if not target.subresource:
        return _contains(allowed, target.plural)
    return any(
        each in allowed for each in ("*", f"{target.plural}/{target.subresource}", f"*/{target.subresource}")
    )
