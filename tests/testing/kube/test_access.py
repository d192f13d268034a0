"""Who may use the fake: tokens, certificates and RBAC."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme

from sentinel.core.json import Json
from sentinel.drivers.kube.access import find_access
from sentinel.drivers.kube.client import KubeClient
from sentinel.drivers.kube.connection import ApiConnection
from sentinel.testing.kube import ADMIN, FakeKubeServer
from sentinel.testing.kube.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    CUSTOM_RESOURCE_DEFINITION,
    ROLE,
    ROLE_BINDING,
)
from tests.support.kube.objects import config_map, put_config_maps
from tests.support.kube.patch_types import APPLY, MERGE_PATCH
from tests.support.kube.plain_http import CONFIG_MAPS, PlainHttp, plain_http
from tests.support.kube.widgets import WIDGET_DEFINITION, widget

WIDGETS = "/apis/contract.example.com/v1/namespaces/default/widgets"


@pytest.fixture
async def server() -> AsyncIterator[FakeKubeServer]:
    async with FakeKubeServer(tokens={"admin-token": ADMIN}, has_rbac=True) as running:
        running.add_service_account_token("token", namespace="default", name="tester")
        running.create(CUSTOM_RESOURCE_DEFINITION, WIDGET_DEFINITION)
        yield running


def rule(group: str, resource: str, *verbs: str, names: tuple[str, ...] = ()) -> dict[str, Json]:
    found: dict[str, Json] = {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
    return {**found, "resourceNames": list(names)} if names else found


def subject(kind: str, name: str, namespace: str = "") -> dict[str, Json]:
    found: dict[str, Json] = {"kind": kind, "name": name}
    return {**found, "namespace": namespace} if namespace else found


TESTER = subject("ServiceAccount", "tester", "default")


def allow(server: FakeKubeServer, *rules: dict[str, Json], to: dict[str, Json] = TESTER) -> None:
    metadata: dict[str, Json] = {"name": "tester", "namespace": "default"}
    server.create(ROLE, {"metadata": metadata, "rules": list(rules)})
    reference: dict[str, Json] = {"apiGroup": ROLE.group, "kind": "Role", "name": "tester"}
    server.create(ROLE_BINDING, {"metadata": metadata, "roleRef": reference, "subjects": [to]})


class TestAuthentication:
    @pytest.mark.parametrize("token", ["", "unknown"])
    async def test_a_request_without_a_known_token_is_unauthorized(
        self, server: FakeKubeServer, http: PlainHttp, token: str
    ) -> None:
        response = await http.call("GET", CONFIG_MAPS, token=token)

        assert (response.status, response.body["reason"]) == (401, "Unauthorized")
        assert (server.requests[-1].user, server.requests[-1].status) == ("", 401)

    async def test_a_revoked_token_is_unauthorized(self, server: FakeKubeServer, http: PlainHttp) -> None:
        server.revoke_token("admin-token")

        assert (await http.call("GET", CONFIG_MAPS, token="admin-token")).status == 401
        assert (await http.call("GET", CONFIG_MAPS)).status == 401

    async def test_a_token_names_its_user(self, server: FakeKubeServer, http: PlainHttp) -> None:
        await http.call("GET", "/version", token="token")

        assert server.requests[-1].user == "system:serviceaccount:default:tester"

    async def test_a_client_certificate_names_its_user(self, authority: trustme.CA) -> None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(tls)
        authority.configure_trust(tls)
        tls.verify_mode = ssl.CERT_OPTIONAL
        client_tls = ssl.create_default_context()
        authority.configure_trust(client_tls)
        client = authority.issue_cert("a@example.com", common_name="anna", organization_name="system:masters")
        client.configure_cert(client_tls)

        fake = FakeKubeServer(tls=tls, tokens={"token": ADMIN}, has_rbac=True)
        async with fake as server, plain_http(server.url, tls=client_tls) as http:
            response = await http.call("GET", CONFIG_MAPS)

        assert server.url.startswith("https://")
        assert (response.status, server.requests[-1].user) == (200, "anna")


class TestRbac:
    async def test_what_no_role_allows_is_forbidden(self, http: PlainHttp) -> None:
        response = await http.call("GET", CONFIG_MAPS, token="token")

        assert (response.status, response.body["reason"]) == (403, "Forbidden")
        assert response.body["message"] == (
            'configmaps is forbidden: User "system:serviceaccount:default:tester" cannot list resource '
            '"configmaps" in API group "" in the namespace "default"'
        )

    async def test_a_forbidden_object_is_named(self, http: PlainHttp) -> None:
        response = await http.call("GET", f"{WIDGETS}/a", token="token")

        assert response.body["message"].startswith('widgets.contract.example.com "a" is forbidden: User')

    async def test_an_admin_may_do_everything(self, http: PlainHttp) -> None:
        assert (await http.call("POST", CONFIG_MAPS, config_map("a"), token="admin-token")).status == 201

    async def test_a_role_allows_its_verbs_in_its_namespace(self, server: FakeKubeServer, http: PlainHttp) -> None:
        allow(server, rule("", "configmaps", "get", "list"))
        put_config_maps(server, "a")

        statuses = {
            path: (await http.call(method, path, token="token")).status
            for method, path in (
                ("GET", CONFIG_MAPS),
                ("GET", f"{CONFIG_MAPS}/a"),
                ("DELETE", f"{CONFIG_MAPS}/b"),
                ("GET", "/api/v1/configmaps"),
                ("GET", CONFIG_MAPS.replace("default", "kube-system")),
                ("GET", CONFIG_MAPS.replace("configmaps", "secrets")),
            )
        }

        assert list(statuses.values()) == [200, 200, 403, 403, 403, 403]

    async def test_a_watch_needs_its_own_verb(self, server: FakeKubeServer, http: PlainHttp) -> None:
        allow(server, rule("", "configmaps", "list"))

        response = await http.call("GET", CONFIG_MAPS, token="token", watch="true")

        assert response.status == 403

    async def test_a_rule_may_be_about_some_names(self, server: FakeKubeServer, http: PlainHttp) -> None:
        allow(server, rule("", "configmaps", "get", names=("a",)))

        assert (await http.call("GET", f"{CONFIG_MAPS}/a", token="token")).status == 404
        assert (await http.call("GET", f"{CONFIG_MAPS}/b", token="token")).status == 403

    async def test_a_subresource_needs_a_rule_of_its_own(self, server: FakeKubeServer, http: PlainHttp) -> None:
        allow(server, rule("contract.example.com", "widgets/status", "patch"))
        await http.call("POST", WIDGETS, widget("a"), token="admin-token")
        patch: Json = {"status": {"phase": "x"}}

        main = await http.call("PATCH", f"{WIDGETS}/a", patch, content_type=MERGE_PATCH, token="token")
        status = await http.call("PATCH", f"{WIDGETS}/a/status", patch, content_type=MERGE_PATCH, token="token")

        assert (main.status, status.status) == (403, 200)

    async def test_an_apply_that_creates_needs_create_too(self, server: FakeKubeServer, http: PlainHttp) -> None:
        allow(server, rule("", "configmaps", "patch"))

        async def apply() -> int:
            response = await http.call(
                "PATCH", f"{CONFIG_MAPS}/a", config_map("a"), content_type=APPLY, token="token", fieldManager="m"
            )
            return response.status

        creating = await apply()
        await http.call("POST", CONFIG_MAPS, config_map("a"), token="admin-token")

        assert (creating, await apply()) == (403, 200)

    @pytest.mark.parametrize(
        "to",
        [
            subject("User", "system:serviceaccount:default:tester"),
            subject("Group", "system:serviceaccounts:default"),
            subject("Group", "system:authenticated"),
        ],
    )
    async def test_users_and_groups_can_be_bound(
        self, server: FakeKubeServer, http: PlainHttp, to: dict[str, Json]
    ) -> None:
        allow(server, rule("*", "*", "*"), to=to)

        assert (await http.call("GET", WIDGETS, token="token")).status == 200

    async def test_a_cluster_role_is_bound_everywhere_or_in_one_namespace(
        self, server: FakeKubeServer, http: PlainHttp
    ) -> None:
        reference: dict[str, Json] = {"apiGroup": CLUSTER_ROLE.group, "kind": "ClusterRole", "name": "reader"}
        server.create(CLUSTER_ROLE, {"metadata": {"name": "reader"}, "rules": [rule("", "*", "list")]})
        server.create(
            ROLE_BINDING,
            {"metadata": {"name": "here", "namespace": "default"}, "roleRef": reference, "subjects": [TESTER]},
        )
        here = await http.call("GET", CONFIG_MAPS, token="token")
        there = await http.call("GET", CONFIG_MAPS.replace("default", "kube-system"), token="token")
        everywhere = await http.call("GET", "/api/v1/configmaps", token="token")
        server.create(
            CLUSTER_ROLE_BINDING, {"metadata": {"name": "all"}, "roleRef": reference, "subjects": [TESTER]}
        )

        assert (here.status, there.status, everywhere.status) == (200, 403, 403)
        assert (await http.call("GET", "/api/v1/configmaps", token="token")).status == 200


async def test_our_client_can_use_the_kubeconfig(server: FakeKubeServer, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_bytes(server.kubeconfig(token="admin-token", namespace="kube-system"))

    access = find_access(kubeconfig=file)
    client = KubeClient(ApiConnection(access, user_agent="test"))
    created = await client.create(CONFIG_MAP, config_map("a"), namespace=access.namespace)
    await client.close()

    assert created == server.get(CONFIG_MAP, "a", namespace="kube-system")
