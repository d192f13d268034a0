"""RBAC on a real API server: with our manifests, the operator may do everything that it needs and nothing else."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests.kube.crds import API_PATH, CRD_PATH, ROOT, sentinel_configs
from tests.operator.resources import make_object
from tests.support.kube.manifests import apply_file, read_manifest
from tests.support.kube.patch_types import MERGE_PATCH
from tests.support.kube.service_accounts import (
    CreateServiceAccount,
    ServiceAccount,
    open_service_account,
    wait_until_allowed,
)
from tests.support.processes.operator import OperatorProcess
from tools.services.kube_apiserver import AuditEntry, AuditLog, KubeClient

pytestmark = pytest.mark.usefixtures("sentinel_config_crd")

MANIFESTS = ROOT / "deploy" / "manifests"
RBAC, SECRETS_RBAC, LEASES_RBAC = (
    MANIFESTS / file for file in ("rbac.yaml", "secrets/rbac.yaml", "leader-election/rbac.yaml")
)
ACCOUNT = "hyperfleet-sentinel"
SPEC = {
    "hyperfleetAPI.url": "http://127.0.0.1:9",
    "broker": {"type": "rabbitmq", "topic": "events", "url": "amqp://127.0.0.1:9/"},
    "pollInterval": "1s",
}
"""A valid one. Nothing listens on port 9, so that its pulse is degraded."""
TIMEOUT = 90

Permission = tuple[str, str, str]
"""The verb, the group, and the resource with its subresource."""


def grant(admin: KubeClient, account: ServiceAccount, file: Path) -> None:
    """Apply a Role and its binding, and wait until they take effect."""
    apply_file(admin, file, namespace=account.namespace)
    wait_until_allowed(admin, account, read_manifest(file, "Role")["rules"])


def create_account(admin: KubeClient, namespace: str, directory: Path) -> ServiceAccount:
    """Create the operator's account with the permissions that it always needs."""
    apply_file(admin, RBAC, namespace=namespace)
    account = open_service_account(admin, namespace=namespace, name=ACCOUNT, directory=directory)
    wait_until_allowed(admin, account, read_manifest(RBAC, "Role")["rules"])
    return account


def permissions(file: Path) -> set[Permission]:
    """Return what the Role of a file grants."""
    return {
        (verb, group, resource)
        for rule in read_manifest(file, "Role")["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def forbidden(entries: Sequence[AuditEntry]) -> set[Permission]:
    """Return the permissions that requests needed and did not have."""
    return used([each for each in entries if each.code == 403])


def used(entries: Sequence[AuditEntry]) -> set[Permission]:
    """Return the permissions that requests needed."""
    return {
        (each.verb, each.group, f"{each.resource}/{each.subresource}" if each.subresource else each.resource)
        for each in entries
    }


async def condition(admin: KubeClient, namespace: str, name: str, kind: str, reason: str) -> dict[str, str]:
    """Wait until a condition of a SentinelConfig has this reason, and return the condition."""

    def watch() -> dict[str, str]:
        query = f"watch=true&timeoutSeconds={TIMEOUT}&fieldSelector=metadata.name={name}"
        last: object = None
        with closing(admin.watch(f"{sentinel_configs(namespace)}?{query}")) as events:
            for event in events:
                last = event["object"].get("status")
                for each in event["object"].get("status", {}).get("conditions", ()):
                    if (each["type"], each["reason"]) == (kind, reason):
                        found: dict[str, str] = each
                        return found
        raise AssertionError(f"{name}: expected {kind} to be {reason} within {TIMEOUT} s, got {last}")

    return await asyncio.to_thread(watch)


async def stop(operator: OperatorProcess, audit_log: AuditLog, account: ServiceAccount) -> list[AuditEntry]:
    """Stop the operator in order and return all its requests."""
    await audit_log.wait_for(lambda entry: entry.user == account.user and entry.verb == "watch")
    assert await operator.stop() == 0
    # The entry of the last request may be written after the operator has ended. The watch ends then, too.
    await audit_log.wait_for(
        lambda entry: entry.user == account.user and entry.verb == "watch" and entry.is_complete
    )
    return audit_log.entries(user=account.user)


@pytest.fixture
def account(kube_admin: KubeClient, namespace: str, tmp_path: Path) -> ServiceAccount:
    """The operator's account in the namespace of this test."""
    return create_account(kube_admin, namespace, tmp_path)


class TestOperator:
    async def test_it_needs_exactly_what_its_role_grants(
        self, kube_admin: KubeClient, account: ServiceAccount, namespace: str, audit_log: AuditLog
    ) -> None:
        path = sentinel_configs(namespace)
        kube_admin.create(path, make_object(SPEC, name="valid", namespace=namespace))
        kube_admin.create(
            path,
            make_object({**SPEC, "hyperfleetAPI.url": "ftp://127.0.0.1"}, name="invalid", namespace=namespace),
        )
        kube_admin.create(
            path, make_object({**SPEC, "resourceType": "nodepools"}, name="deleted", namespace=namespace)
        )

        async with OperatorProcess(account.kubeconfig) as operator:
            for name, kind, reason in (
                ("valid", "Running", "Polling"),
                ("invalid", "Accepted", "Invalid"),
                ("deleted", "Running", "Polling"),
            ):
                await condition(kube_admin, namespace, name, kind, reason)
            kube_admin.merge_patch(f"{path}/valid", {"spec": {"pollInterval": "2s"}})
            await operator.until_event("config.reloaded", config="valid")
            kube_admin.delete(f"{path}/deleted")
            await operator.until_event("config.stopped", config="deleted")
            await condition(kube_admin, namespace, "valid", "Degraded", "FetchFailed")
            requests = await stop(operator, audit_log, account)

        events = kube_admin.get(f"/api/v1/namespaces/{namespace}/events")["items"]
        granted = permissions(RBAC)
        assert forbidden(requests) == set()
        assert {each.namespace for each in requests} == {namespace}
        assert used(requests) < granted
        assert granted - used(requests) == {
            # Promised, though reading the list and watching it is enough.
            ("get", "hyperfleet.redhat.com", "sentinelconfigs"),
            ("get", "hyperfleet.redhat.com", "sentinelconfigs/status"),
        }
        assert {(each["involvedObject"]["name"], each["reason"]) for each in events} == {
            ("valid", "Started"),
            ("valid", "Reloaded"),
            ("invalid", "Invalid"),
            ("deleted", "Started"),
            ("deleted", "Stopped"),
        }

    async def test_one_config_by_name_needs_the_same(
        self, kube_admin: KubeClient, account: ServiceAccount, namespace: str, audit_log: AuditLog
    ) -> None:
        for name in ("named", "other"):
            kube_admin.create(sentinel_configs(namespace), make_object(SPEC, name=name, namespace=namespace))

        async with OperatorProcess(account.kubeconfig, "--config=named") as operator:
            await condition(kube_admin, namespace, "named", "Running", "Polling")
            requests = await stop(operator, audit_log, account)

        assert forbidden(requests) == set()
        assert used(requests) < permissions(RBAC)
        assert {each.name for each in requests if each.verb == "patch"} == {"named"}

    async def test_a_secret_needs_the_role_for_secrets(
        self, kube_admin: KubeClient, account: ServiceAccount, namespace: str, audit_log: AuditLog
    ) -> None:
        secret = {"metadata": {"name": "api-token"}, "stringData": {"token": "hunter2"}}
        kube_admin.create(f"/api/v1/namespaces/{namespace}/secrets", secret)
        config = make_object(
            {**SPEC, "hyperfleetAPI.tokenSecretRef": {"name": "api-token"}}, name="one", namespace=namespace
        )
        kube_admin.create(sentinel_configs(namespace), config)

        async with OperatorProcess(account.kubeconfig) as operator:
            refused = await condition(kube_admin, namespace, "one", "Accepted", "Invalid")
            stopped = await condition(kube_admin, namespace, "one", "Running", "Stopped")
            grant(kube_admin, account, SECRETS_RBAC)
            # At once, instead of after 30 seconds.
            kube_admin.merge_patch(f"{sentinel_configs(namespace)}/one", {"spec": {"pollInterval": "2s"}})
            accepted = await condition(kube_admin, namespace, "one", "Accepted", "Valid")
            await condition(kube_admin, namespace, "one", "Running", "Polling")
            requests = await stop(operator, audit_log, account)

        assert (refused["status"], stopped["status"], accepted["status"]) == ("False", "False", "True")
        assert refused["message"].startswith("cannot read the Secret api-token: ")
        assert f'User "{account.user}" cannot get resource "secrets"' in refused["message"]
        assert forbidden(requests) == permissions(SECRETS_RBAC) == used(requests) - permissions(RBAC)
        assert b"hunter2" not in operator.stderr

    async def test_leader_election_needs_the_role_for_leases(
        self, kube_admin: KubeClient, account: ServiceAccount, namespace: str, audit_log: AuditLog
    ) -> None:
        path = f"{sentinel_configs(namespace)}/one"
        kube_admin.create(sentinel_configs(namespace), make_object(SPEC, name="one", namespace=namespace))

        async with OperatorProcess(account.kubeconfig, "--leader-elect") as operator:
            failed = await operator.until_event("leader.failed")
            before = kube_admin.get(path)
            grant(kube_admin, account, LEASES_RBAC)
            await condition(kube_admin, namespace, "one", "Running", "Polling")
            requests = await stop(operator, audit_log, account)

        assert f'User "{account.user}" cannot get resource "leases"' in failed["error"]
        assert "status" not in before
        assert forbidden(requests) == {("get", "coordination.k8s.io", "leases")}
        assert {each.name for each in requests if each.resource == "leases" and each.name} == {"sentinel-one"}
        assert used(requests) - permissions(RBAC) == permissions(LEASES_RBAC)


class Boundary(msgspec.Struct, frozen=True, kw_only=True):
    """An account of the operator, the namespace that it may work in, and one that it may not."""

    account: ServiceAccount
    own: str
    other: str


def create_boundary(admin: KubeClient, directory: Path, *files: Path) -> Iterator[Boundary]:
    """Create an account with the Roles of these files, and two namespaces with an object of each kind."""
    names = [f"test-{secrets.token_hex(6)}" for _ in range(2)]
    for name in names:
        admin.create("/api/v1/namespaces", {"metadata": {"name": name}})
        admin.create(sentinel_configs(name), make_object(name="one", namespace=name))
        admin.create(LEASES.format(own=name), {"metadata": {"name": "one"}, "spec": {}})
        for plural in ("secrets", "configmaps"):
            admin.create(f"/api/v1/namespaces/{name}/{plural}", {"metadata": {"name": "one"}})
        # Pods need it.
        admin.create(f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})
        involved = {"kind": "SentinelConfig", "name": "one", "namespace": name}
        admin.create(EVENTS.format(own=name), {"metadata": {"name": "one"}, "involvedObject": involved})
    account = create_account(admin, names[0], directory)
    for file in files:
        grant(admin, account, file)
    yield Boundary(account=account, own=names[0], other=names[1])
    for name in names:
        admin.delete(f"/api/v1/namespaces/{name}")


def attempt(client: KubeClient, act: str, boundary: Boundary) -> int:
    """Send a request such as `patch /api/v1/namespaces/{own}` that changes nothing, and return the status."""
    verb, path = act.format(own=boundary.own, other=boundary.other).split()
    match verb:
        case "get" | "list":
            return client.send("GET", path).status
        case "watch":
            return client.send("GET", f"{path}?watch=true&timeoutSeconds=1").status
        case "patch":
            return client.send("PATCH", f"{path}?dryRun=All", {}, content_type=MERGE_PATCH).status
        case "delete" | "deletecollection":
            # Without a body: the server reads options either from the body or from the query.
            return client.send("DELETE", f"{path}?dryRun=All").status
        case _:
            return client.send({"create": "POST", "update": "PUT"}[verb], f"{path}?dryRun=All", {}).status


OWN, OTHER = "/api/v1/namespaces/{own}", "/api/v1/namespaces/{other}"
CONFIGS, OTHER_CONFIGS = sentinel_configs("{own}"), sentinel_configs("{other}")
SECRETS, CONFIG_MAPS, EVENTS = f"{OWN}/secrets", f"{OWN}/configmaps", f"{OWN}/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{own}/leases"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/{own}/roles"

OTHER_NAMESPACE = [
    *(f"{verb} {OTHER_CONFIGS}" for verb in ("list", "watch")),
    f"get {OTHER_CONFIGS}/one",
    *(f"{verb} {OTHER_CONFIGS}/one/status" for verb in ("get", "patch", "update")),
    f"create {OTHER}/events",
    f"get {OTHER}/secrets/one",
    "get /apis/coordination.k8s.io/v1/namespaces/{other}/leases/one",
    "update /apis/coordination.k8s.io/v1/namespaces/{other}/leases/one",
    *(f"{verb} {API_PATH}/sentinelconfigs" for verb in ("list", "watch")),
    "list /api/v1/secrets",
    "list /api/v1/namespaces",
    "list /api/v1/nodes",
    f"get {OWN}",
    f"get {CRD_PATH}",
    f"patch {CRD_PATH}",
    "get /metrics",
]
ALWAYS_FORBIDDEN = [
    *(f"{verb} {CONFIGS}" for verb in ("create", "deletecollection")),
    *(f"{verb} {CONFIGS}/one" for verb in ("update", "patch", "delete")),
    f"update {CONFIGS}/one/status",
    *(f"{verb} {SECRETS}" for verb in ("list", "watch", "create", "deletecollection")),
    *(f"{verb} {SECRETS}/one" for verb in ("update", "patch", "delete")),
    *(f"{verb} {LEASES}" for verb in ("list", "watch", "deletecollection")),
    *(f"{verb} {LEASES}/one" for verb in ("patch", "delete")),
    *(f"{verb} {EVENTS}" for verb in ("list", "watch", "deletecollection")),
    *(f"{verb} {EVENTS}/one" for verb in ("get", "update", "patch", "delete")),
    "create /apis/events.k8s.io/v1/namespaces/{own}/events",
    *(f"{verb} {CONFIG_MAPS}" for verb in ("list", "watch", "create")),
    *(f"{verb} {CONFIG_MAPS}/one" for verb in ("get", "patch", "delete")),
    *(f"{verb} {OWN}/pods" for verb in ("list", "create", "deletecollection")),
    "list /apis/apps/v1/namespaces/{own}/deployments",
    "create /apis/apps/v1/namespaces/{own}/deployments",
    f"get {OWN}/serviceaccounts/{ACCOUNT}",
    f"create {OWN}/serviceaccounts/{ACCOUNT}/token",
    *(f"{verb} {ROLES}" for verb in ("list", "create")),
    *(f"{verb} {ROLES}/{ACCOUNT}" for verb in ("get", "update", "patch", "delete")),
    "create /apis/rbac.authorization.k8s.io/v1/namespaces/{own}/rolebindings",
]
OPTIONAL = [
    f"get {SECRETS}/one",
    f"get {LEASES}/one",
    f"create {LEASES}",
    f"update {LEASES}/one",
]
"""What the two optional manifests allow."""


def rules(account: ServiceAccount, namespace: str) -> set[Permission]:
    """Return what the server says that an account may do in a namespace."""
    review = KubeClient(account.access).create(
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespace},
        },
    )
    return {
        (verb, group, resource)
        for rule in review["status"]["resourceRules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


@pytest.fixture(scope="module")
def plain(kube_admin: KubeClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boundary]:
    """An account with the permissions that it always has."""
    yield from create_boundary(kube_admin, tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def full(kube_admin: KubeClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boundary]:
    """An account with the permissions of the optional manifests, too."""
    yield from create_boundary(kube_admin, tmp_path_factory.mktemp("full"), SECRETS_RBAC, LEASES_RBAC)


class TestLimits:
    """Acts that only an administrator may do. The administrator tries them, too, so that no path is misspelt."""

    @pytest.mark.parametrize("act", [*ALWAYS_FORBIDDEN, *OTHER_NAMESPACE])
    def test_an_act_is_forbidden_with_all_roles(self, kube_admin: KubeClient, full: Boundary, act: str) -> None:
        refused = attempt(KubeClient(full.account.access), act, full)

        assert refused == 403
        assert attempt(kube_admin, act, full) not in (403, 404, 405)

    @pytest.mark.parametrize("act", OPTIONAL)
    def test_an_act_is_forbidden_without_the_optional_roles(
        self, plain: Boundary, full: Boundary, act: str
    ) -> None:
        refused, allowed = (attempt(KubeClient(each.account.access), act, each) for each in (plain, full))

        assert refused == 403
        assert allowed not in (403, 404, 405)

    def test_the_server_lists_the_granted_rules_and_no_others(
        self, plain: Boundary, full: Boundary, service_account: CreateServiceAccount
    ) -> None:
        unbound = service_account("unbound")
        everyone = rules(unbound, unbound.namespace)

        assert rules(plain.account, plain.own) - everyone == permissions(RBAC)
        assert rules(full.account, full.own) - everyone == permissions(RBAC) | permissions(
            SECRETS_RBAC
        ) | permissions(LEASES_RBAC)
        assert rules(full.account, full.other) == everyone
