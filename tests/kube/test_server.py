"""The API server of the tests is real: it authorizes, records, restarts on its data, and forgets old versions."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.kube.service_accounts import CreateServiceAccount
from tests.support.service_command import run_with_service
from tools.services.kube_apiserver import (
    ASSETS_VARIABLE,
    AUDIT_LOG_VARIABLE,
    KUBECONFIG_VARIABLE,
    AuditLog,
    KubeAccess,
    KubeApiServer,
    KubeClient,
    read_kubeconfig,
)

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def expired(event: Any) -> bool:
    return bool(event["type"] == "ERROR" and event["object"]["code"] == 410)


@pytest.fixture
def private_admin(private_kube_apiserver: KubeApiServer) -> KubeClient:
    return KubeClient(private_kube_apiserver.admin)


class TestAccess:
    def test_the_server_reports_its_release(self, private_admin: KubeClient) -> None:
        assert re.fullmatch(r"v1\.\d+\.\d+", private_admin.get("/version")["gitVersion"])

    def test_a_request_without_credentials_is_anonymous(self, kube_access: KubeAccess, namespace: str) -> None:
        client = KubeClient(KubeAccess(url=kube_access.url, ca_file=kube_access.ca_file))

        response = client.send("GET", f"/api/v1/namespaces/{namespace}/configmaps")

        assert response.status == 403
        assert 'User "system:anonymous" cannot list resource "configmaps"' in response.body["message"]

    def test_a_wrong_token_is_refused(self, kube_access: KubeAccess) -> None:
        assert KubeClient(kube_access.with_token("wrong")).send("GET", "/api").status == 401


class TestServiceAccounts:
    async def test_an_unbound_account_is_forbidden_and_the_audit_log_shows_it(
        self, service_account: CreateServiceAccount, namespace: str, audit_log: AuditLog
    ) -> None:
        account = service_account("unbound")

        response = KubeClient(account.access).send("GET", f"/api/v1/namespaces/{namespace}/configmaps/one")

        assert (response.status, response.body["reason"]) == (403, "Forbidden")
        entry = await audit_log.wait_for(lambda entry: entry.user == account.user)
        assert (entry.verb, entry.group, entry.resource, entry.name) == ("get", "", "configmaps", "one")
        assert (entry.namespace, entry.code) == (namespace, 403)
        assert entry.uri == f"/api/v1/namespaces/{namespace}/configmaps/one"

    def test_an_account_may_do_what_its_role_says_and_nothing_else(
        self, service_account: CreateServiceAccount, namespace: str
    ) -> None:
        rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
        client = KubeClient(service_account("reader", rules=[rule]).access)

        allowed = client.send("GET", f"/api/v1/namespaces/{namespace}/configmaps")
        other_verb = client.send("POST", f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "a"}})
        other_namespace = client.send("GET", "/api/v1/namespaces/default/configmaps")

        assert [each.status for each in (allowed, other_verb, other_namespace)] == [200, 403, 403]

    def test_the_kubeconfig_of_an_account_is_its_own(
        self, service_account: CreateServiceAccount, tmp_path: Path
    ) -> None:
        account = service_account()

        client = KubeClient(read_kubeconfig(account.kubeconfig, directory=tmp_path / "read"))

        review = client.create(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
        )
        assert review["status"]["userInfo"]["username"] == account.user

    async def test_the_audit_log_shows_open_watches_and_subresources(
        self, kube_admin: KubeClient, namespace: str, audit_log: AuditLog
    ) -> None:
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        watch = kube_admin.watch(f"{path}?watch=true&timeoutSeconds=60")
        kube_admin.create(path, {"metadata": {"name": "one"}})
        assert next(watch)["object"]["metadata"]["name"] == "one"
        opened = await audit_log.wait_for(lambda entry: entry.namespace == namespace and entry.verb == "watch")

        watch.close()
        kube_admin.merge_patch(f"/api/v1/namespaces/{namespace}/status", {"metadata": {"labels": {"a": "b"}}})

        patched = await audit_log.wait_for(lambda entry: entry.name == namespace and entry.verb == "patch")
        assert (opened.code, opened.is_complete) == (200, False)
        assert (patched.resource, patched.subresource) == ("namespaces", "status")


class TestPrivateServer:
    def test_a_restart_keeps_objects(
        self, private_kube_apiserver: KubeApiServer, private_admin: KubeClient
    ) -> None:
        created = private_admin.create(CONFIG_MAPS, {"metadata": {"generateName": "kept-"}})

        private_kube_apiserver.restart()

        kept = private_admin.get(f"{CONFIG_MAPS}/{created['metadata']['name']}")
        assert kept["metadata"]["uid"] == created["metadata"]["uid"]
        assert kept["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]

    def test_a_killed_server_refuses_connections(
        self, private_kube_apiserver: KubeApiServer, private_admin: KubeClient
    ) -> None:
        private_kube_apiserver.kill()
        try:
            with pytest.raises(OSError, match="refused"):
                private_admin.send("GET", "/readyz")
        finally:
            private_kube_apiserver.start()

    def test_compaction_expires_an_old_watch_and_an_old_list(
        self, private_kube_apiserver: KubeApiServer, private_admin: KubeClient
    ) -> None:
        name = private_admin.create(CONFIG_MAPS, {"metadata": {"generateName": "changed-"}})["metadata"]["name"]
        old = private_admin.get(CONFIG_MAPS)["metadata"]["resourceVersion"]
        for value in "abc":
            private_admin.merge_patch(f"{CONFIG_MAPS}/{name}", {"data": {"value": value}})
        watch_path = f"{CONFIG_MAPS}?watch=true&timeoutSeconds=10&resourceVersion={old}"
        list_path = f"{CONFIG_MAPS}?resourceVersion={old}&resourceVersionMatch=Exact"
        before = next(private_admin.watch(watch_path))
        assert before["object"]["data"] == {"value": "a"}
        assert private_admin.send("GET", list_path).status == 200

        private_kube_apiserver.compact()

        assert [expired(event) for event in private_admin.watch(watch_path)] == [True]
        assert private_admin.send("GET", list_path).status == 410
        assert private_admin.get(f"{CONFIG_MAPS}/{name}")["data"] == {"value": "c"}

    def test_a_cached_resource_survives_compaction_until_a_restart(
        self, private_kube_apiserver: KubeApiServer, private_admin: KubeClient
    ) -> None:
        secrets = "/api/v1/namespaces/default/secrets"
        name = private_admin.create(secrets, {"metadata": {"generateName": "cached-"}})["metadata"]["name"]
        old = private_admin.get(secrets)["metadata"]["resourceVersion"]
        for value in "abc":
            private_admin.merge_patch(f"{secrets}/{name}", {"stringData": {"value": value}})
        watch_path = f"{secrets}?watch=true&timeoutSeconds=10&resourceVersion={old}"

        private_kube_apiserver.compact()

        assert next(private_admin.watch(watch_path))["type"] == "MODIFIED"
        private_kube_apiserver.restart()
        assert expired(next(private_admin.watch(watch_path)))


class TestService:
    PRINT_VARIABLES = f"""
import os, pathlib
for name in ("{KUBECONFIG_VARIABLE}", "{AUDIT_LOG_VARIABLE}", "{ASSETS_VARIABLE}"):
    print(os.environ.get(name, "none"))
print(pathlib.Path(os.environ["{KUBECONFIG_VARIABLE}"]).read_text())
"""

    def run(self, **environment: str) -> subprocess.CompletedProcess[str]:
        unset = (KUBECONFIG_VARIABLE, AUDIT_LOG_VARIABLE)
        return run_with_service("kube-apiserver", self.PRINT_VARIABLES, unset=unset, **environment)

    @pytest.mark.usefixtures("private_kube_apiserver")
    def test_a_server_is_started_for_the_command_and_stopped_after_it(self, tmp_path: Path) -> None:
        done = self.run()

        assert done.returncode == 0, done.stderr
        file, audit_log, programs, text = done.stdout.splitlines()
        assert not Path(file).exists()
        assert Path(audit_log).parent == Path(file).parent
        assert programs == os.environ[ASSETS_VARIABLE]
        (tmp_path / "kubeconfig").write_text(text)
        client = KubeClient(read_kubeconfig(tmp_path / "kubeconfig", directory=tmp_path))
        with pytest.raises(OSError, match="refused"):
            client.send("GET", "/readyz")

    def test_a_given_server_is_used_and_not_stopped(self, kubeconfig: Path, kube_admin: KubeClient) -> None:
        done = self.run(**{KUBECONFIG_VARIABLE: str(kubeconfig)})

        assert done.stdout.splitlines()[0] == str(kubeconfig)
        assert done.stderr == f"services: using the Kubernetes API server that {KUBECONFIG_VARIABLE} names\n"
        assert kube_admin.send("GET", "/readyz").status == 200

    def test_a_given_server_that_does_not_answer_is_a_failure(
        self, kubeconfig: Path, kube_access: KubeAccess, tmp_path: Path
    ) -> None:
        elsewhere = tmp_path / "kubeconfig"
        elsewhere.write_text(kubeconfig.read_text().replace(kube_access.url, "https://127.0.0.1:1"))

        done = self.run(**{KUBECONFIG_VARIABLE: str(elsewhere)})

        assert done.returncode == 1
        assert "https://127.0.0.1:1" in done.stderr
