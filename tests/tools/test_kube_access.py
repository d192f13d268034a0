"""A kubeconfig that we write can be read again, and others say what they lack."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tools.services.kube_apiserver import KubeAccess, read_kubeconfig
from tools.services.kube_apiserver.credentials import Credentials
from tools.services.server import ServiceError


@pytest.fixture
def credentials(tmp_path: Path) -> Credentials:
    made = Credentials(tmp_path / "credentials")
    made.create()
    return made


def test_a_client_certificate_survives_a_kubeconfig(credentials: Credentials, tmp_path: Path) -> None:
    access = KubeAccess(
        url="https://127.0.0.1:6443",
        ca_file=credentials.ca_file,
        certificate_file=credentials.admin_certificate_file,
        key_file=credentials.admin_key_file,
    )
    (tmp_path / "kubeconfig").write_bytes(access.kubeconfig())

    read = read_kubeconfig(tmp_path / "kubeconfig", directory=tmp_path / "read")

    assert read.url == access.url
    assert read.ca_file.read_bytes() == credentials.ca_file.read_bytes()
    assert read.certificate_file is not None
    assert read.certificate_file.read_bytes() == credentials.admin_certificate_file.read_bytes()
    assert read.key_file is not None
    assert read.key_file.read_bytes() == credentials.admin_key_file.read_bytes()
    read.tls_context()


def test_a_token_survives_a_kubeconfig(credentials: Credentials, tmp_path: Path) -> None:
    access = KubeAccess(url="https://127.0.0.1:6443", ca_file=credentials.ca_file).with_token("abc")
    (tmp_path / "kubeconfig").write_bytes(access.kubeconfig(namespace="one"))

    read = read_kubeconfig(tmp_path / "kubeconfig", directory=tmp_path / "read")

    assert (read.token, read.certificate_file) == ("abc", None)


def test_files_are_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "https://host/", "certificate-authority": "ca.pem"}}],
        "users": [{"name": "u", "user": {"client-certificate": "c.pem", "client-key": "k.pem"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))

    read = read_kubeconfig(tmp_path / "kubeconfig", directory=tmp_path / "read")

    assert (read.url, read.ca_file) == ("https://host", tmp_path / "ca.pem")
    assert (read.certificate_file, read.key_file) == (tmp_path / "c.pem", tmp_path / "k.pem")


@pytest.mark.parametrize(
    ("user", "current", "problem"),
    [
        ({}, "x", "a client certificate or a token"),
        ({"token": "abc"}, "y", "the current context, its cluster or its user is missing"),
        ({"token": 7}, "x", "Expected `str`, got `int`"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_says_why(
    tmp_path: Path, user: dict[str, object], current: str, problem: str
) -> None:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "https://host", "certificate-authority": "ca.pem"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": current,
    }
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))

    with pytest.raises(ServiceError, match=problem) as error:
        read_kubeconfig(file, directory=tmp_path / "read")

    assert str(file) in str(error.value)
