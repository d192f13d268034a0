"""Fixtures for tests on a real Kubernetes API server, which `make test-kube` provides."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.kube.crds import install_crd
from tests.kube.openbao import install_openbao_crd
from tests.support.kube.service_accounts import (
    CreateServiceAccount,
    Rule,
    ServiceAccount,
    create_service_account,
)
from tests.support.missing_service import skip_or_fail
from tools.services import kube_apiserver
from tools.services.kube_apiserver import binaries

EXPIRING_RESOURCES = ("configmaps", "sentinelconfigs.hyperfleet.redhat.com")
"""What the private server does not cache, so that compaction expires its versions."""


@pytest.fixture(scope="session")
def kubeconfig() -> Path:
    """The administrator's kubeconfig of the server that all tests share."""
    file = os.environ.get(kube_apiserver.KUBECONFIG_VARIABLE)
    if not file:
        skip_or_fail(
            f"no Kubernetes API server ({kube_apiserver.KUBECONFIG_VARIABLE} is not set): run `make test-kube`, "
            "or `python -m tools.services kube-apiserver -- pytest ...`"
        )
    return Path(file).absolute()


@pytest.fixture(scope="session")
def kube_access(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> kube_apiserver.KubeAccess:
    """The URL of the shared server, and the administrator's credentials in files."""
    return kube_apiserver.read_kubeconfig(kubeconfig, directory=tmp_path_factory.mktemp("kube-access"))


@pytest.fixture(scope="session")
def kube_admin(kube_access: kube_apiserver.KubeAccess) -> kube_apiserver.KubeClient:
    """The administrator's client of the shared server, for set-up and checks."""
    return kube_apiserver.KubeClient(kube_access)


@pytest.fixture(scope="session")
def sentinel_config_crd(kube_admin: kube_apiserver.KubeClient) -> None:
    """The shared server serves SentinelConfigs."""
    install_crd(kube_admin)


@pytest.fixture(scope="session")
def openbao_crd(kube_admin: kube_apiserver.KubeClient) -> None:
    """The shared server serves OpenBaoClusters."""
    install_openbao_crd(kube_admin)


@pytest.fixture
def namespace(kube_admin: kube_apiserver.KubeClient) -> Iterator[str]:
    """A namespace of this test. It has no default service account on a server without controllers."""
    name = f"test-{secrets.token_hex(6)}"
    kube_admin.create("/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    # Without controllers it stays in the phase Terminating, in which nothing can be created.
    kube_admin.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def service_account(kube_admin: kube_apiserver.KubeClient, namespace: str, tmp_path: Path) -> CreateServiceAccount:
    """Creates service accounts in the namespace of this test."""

    def create(name: str = "tester", *, rules: Sequence[Rule] = ()) -> ServiceAccount:
        return create_service_account(kube_admin, namespace=namespace, name=name, rules=rules, directory=tmp_path)

    return create


@pytest.fixture
def audit_log(kubeconfig: Path) -> kube_apiserver.AuditLog:
    """The requests that the shared server got since this test began."""
    file = os.environ.get(kube_apiserver.AUDIT_LOG_VARIABLE)
    if not file:
        skip_or_fail(f"no audit log of the API server that {kube_apiserver.KUBECONFIG_VARIABLE} names")
    return kube_apiserver.AuditLog(Path(file))


@pytest.fixture(scope="session")
def private_kube_apiserver() -> Iterator[kube_apiserver.KubeApiServer]:
    """A server that tests may kill, restart and compact. A test that kills it starts it again."""
    programs = binaries.given()
    if programs is None:
        skip_or_fail(
            f"no programs for a private API server ({kube_apiserver.ASSETS_VARIABLE} is not set): "
            "run `make test-kube`"
        )
    with kube_apiserver.temporary_server(programs=programs, uncached_resources=EXPIRING_RESOURCES) as server:
        yield server
