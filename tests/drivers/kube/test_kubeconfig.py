"""Kubeconfig files: which are read, how they are merged, and what is wrong with them."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from sentinel.drivers.kube import kubeconfig
from sentinel.drivers.kube.access import find_access
from sentinel.ports.errors import Misconfigured
from tests.drivers.kube.kubeconfigs import write_kubeconfig

SECRET = "very-secret-77"

FIRST = """
current-context: ""
contexts:
- {name: shared, context: {cluster: east, user: admin, namespace: from-first}}
clusters:
- name: east
  cluster: {server: https://first:6443, certificate-authority: ca.crt}
"""
SECOND = """
apiVersion: v1
kind: Config
preferences: {}
current-context: shared
contexts:
- name: shared
  context: {cluster: west, user: nobody, namespace: from-second}
- name: other
  context: {cluster: west}
clusters:
- name: east
  cluster: {server: https://second:6443, insecure-skip-tls-verify: true}
- name: west
  cluster: {server: "https://west"}
users:
- name: admin
  user: {tokenFile: token}
"""


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two files in folders of their own."""
    contents = {"a": {"config": FIRST, "ca.crt": "CA"}, "b": {"config": SECOND, "token": SECRET}}
    for folder, entries in contents.items():
        (tmp_path / folder).mkdir()
        for name, content in entries.items():
            (tmp_path / folder / name).write_text(content)
    return [tmp_path / "a" / "config", tmp_path / "b" / "config"]


class TestMerging:
    def test_the_first_file_that_defines_a_name_wins(self, files: list[Path]) -> None:
        chosen = kubeconfig.load(files)

        assert (chosen.name, chosen.namespace, chosen.file) == ("shared", "from-first", files[0])
        assert (chosen.cluster.server, chosen.cluster.is_insecure) == ("https://first:6443", False)

    def test_relative_paths_belong_to_the_file_they_are_in(self, files: list[Path]) -> None:
        chosen = kubeconfig.load(files)

        assert chosen.cluster.ca_file == files[0].parent / "ca.crt"
        assert chosen.user.token_file == files[1].parent / "token"

    def test_a_context_may_be_chosen(self, files: list[Path]) -> None:
        chosen = kubeconfig.load(files, context="other")

        assert (chosen.cluster.server, chosen.namespace) == ("https://west", "")
        assert chosen.user == kubeconfig.UserSettings()

    def test_the_variable_lists_files_and_missing_ones_are_skipped(
        self, files: list[Path], tmp_path: Path
    ) -> None:
        names = [str(tmp_path / "missing"), "", *map(str, files)]
        environ = {"KUBECONFIG": os.pathsep.join(names), "HOME": str(tmp_path)}

        assert kubeconfig.default_files(environ) == files

    def test_the_home_folder_counts_only_without_the_variable(self, tmp_path: Path) -> None:
        home = tmp_path / ".kube" / "config"
        home.parent.mkdir()
        home.write_text(SECOND)

        assert kubeconfig.default_files({"HOME": str(tmp_path)}) == [home]
        assert kubeconfig.default_files({"HOME": str(tmp_path), "KUBECONFIG": "/missing"}) == []
        assert kubeconfig.default_files({}) == []

    def test_a_context_without_a_namespace_uses_the_default(self, files: list[Path]) -> None:
        access = find_access(kubeconfig=files[1], context="other", environ={})

        assert (access.namespace, access.origin) == ("default", f'{files[1]}: context "other"')


class TestMistakes:
    @pytest.mark.parametrize(
        ("content", "problem"),
        [
            ("", "config: current-context: expected the name of a context, got nothing"),
            ("current-context: x", 'config: expected the name of a context, got "x"'),
            ("current-context: deve\ncontexts: [{name: dev}]", 'got "deve"; did you mean "dev"?'),
            ("[]", "config:1:1: : expected a mapping of settings, got a list"),
            ("a: [", "config:1:5: : expected YAML, got a syntax error"),
            ("contexts: {}", "config:1:1: contexts: expected a list, got a mapping"),
            ("users: [x]", "config:1:1: users[0]: expected a mapping, got text"),
            ("users: [{user: {}}]", "config:1:9: users[0].name: expected text, got nothing"),
            ("users: [{name: me, user: x}]", "config:1:20: users[0].user: expected a mapping, got text"),
            (
                "current-context: dev\ncontexts: [{name: dev}]",
                "config:2:12: contexts[dev].context.cluster: expected text, got nothing",
            ),
            (
                "current-context: dev\ncontexts: [{name: dev, context: {cluster: x}}]",
                'contexts[dev].context.cluster: expected the name of a cluster, got "x"',
            ),
            (
                "current-context: dev\ncontexts: [{name: dev, context: {cluster: x, user: y}}]\n"
                "clusters: [{name: x, cluster: {server: https://x}}]",
                'contexts[dev].context.user: expected the name of a user, got "y"',
            ),
        ],
    )
    def test_a_mistake_in_the_file_is_located(self, tmp_path: Path, content: str, problem: str) -> None:
        file = tmp_path / "config"
        file.write_text(content)

        with pytest.raises(Misconfigured) as caught:
            kubeconfig.load([file])

        assert problem in str(caught.value)

    def test_a_named_file_that_is_missing_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(Misconfigured, match=r"missing:1:1: : cannot be read: no such file"):
            find_access(kubeconfig=tmp_path / "missing", environ={})

    @pytest.mark.parametrize(
        ("cluster", "problem"),
        [
            ({}, "server: expected text, got nothing"),
            ({"server": "kube:6443"}, "server: expected http(s)://host[:port][/path]"),
            ({"server": f"https://me:{SECRET}@x"}, "server: expected no credentials in a URL"),
            ({"certificate-authority": "missing.crt"}, "certificate-authority: expected a file that can be read"),
            (
                {"certificate-authority-data": SECRET},
                "certificate-authority-data: expected PEM that is encoded in",
            ),
            (
                {"certificate-authority-data": base64.b64encode(SECRET.encode()).decode()},
                'context "dev": ca_data: expected certificates in PEM, got something else',
            ),
            ({"insecure-skip-tls-verify": "si"}, 'insecure-skip-tls-verify: expected true or false, got "si"'),
            (
                {"insecure-skip-tls-verify": True, "certificate-authority-data": "eA=="},
                "insecure-skip-tls-verify: expected no certificate authority with it",
            ),
            ({"proxy-url": f"socks5://{SECRET}"}, "proxy-url: expected a proxy such as http://proxy.example:3128"),
            ({"tls-server-name": ["x"]}, "tls-server-name: expected text, got a list"),
        ],
    )
    def test_a_mistake_in_a_cluster_names_its_field(
        self, tmp_path: Path, cluster: Mapping[str, object], problem: str
    ) -> None:
        server = {} if cluster == {} else {"server": "https://x"}
        file = write_kubeconfig(tmp_path, cluster={**server, **cluster})

        with pytest.raises(Misconfigured) as caught:
            find_access(kubeconfig=file, environ={})

        assert problem in str(caught.value)
        assert str(caught.value).startswith(str(file))
        assert SECRET not in str(caught.value)

    @pytest.mark.parametrize(
        ("user", "problem"),
        [
            ({"token": [SECRET]}, "token: expected text, got a list"),
            ({"token": f"two {SECRET}"}, "token: expected only visible ASCII characters"),
            ({"tokenFile": "missing"}, "tokenFile: expected a file that can be read"),
            ({"client-key-data": f"{SECRET}!"}, "client-certificate: expected a client certificate and its key"),
            ({"client-certificate": "x"}, "client-key: expected a client certificate and its key, got only one"),
            (
                {"client-certificate-data": "eA==", "client-key-data": f"{SECRET}!"},
                "client-key-data: expected PEM that is encoded in base64, got something else",
            ),
            (
                {"client-certificate-data": "eA==", "client-key-data": "eA=="},
                "client certificate: expected a certificate and its unencrypted key in PEM",
            ),
            (
                {"username": "me", "password": SECRET, "token": "x"},
                "username: expected a token or a password, got both",
            ),
            ({"as": "root"}, "as: expected no impersonation, which is not supported"),
            ({"as-groups": ["system:masters"]}, "as-groups: expected no impersonation"),
            ({"auth-provider": {"name": "gcp"}}, "auth-provider: expected a credential plugin (exec)"),
            ({"exec": "x"}, "exec: expected a mapping, got text"),
        ],
    )
    def test_a_mistake_in_a_user_names_its_field(
        self, tmp_path: Path, user: Mapping[str, object], problem: str
    ) -> None:
        file = write_kubeconfig(tmp_path, cluster={"server": "https://x"}, user=user)

        with pytest.raises(Misconfigured) as caught:
            find_access(kubeconfig=file, environ={})

        assert problem in str(caught.value)
        assert str(caught.value).startswith(str(file))
        assert SECRET not in str(caught.value)

    def test_fields_without_a_value_count_as_absent(self, tmp_path: Path) -> None:
        user: dict[str, object] = {
            "token": None,
            "client-key": "",
            "exec": None,
            "as-groups": [],
            "as-user-extra": {},
            "as": "",
        }

        file = write_kubeconfig(tmp_path, cluster={"server": "https://x", "extensions": None}, user=user)

        assert kubeconfig.load([file]).user == kubeconfig.UserSettings()


def test_settings_show_no_secret(tmp_path: Path) -> None:
    key = base64.b64encode(SECRET.encode()).decode()
    user = {
        "token": SECRET,
        "client-key-data": key,
        "client-certificate-data": "eA==",
    }
    file = write_kubeconfig(
        tmp_path, cluster={"server": "https://x", "proxy-url": f"http://me:{SECRET}@proxy"}, user=user
    )

    chosen = kubeconfig.load([file])

    assert SECRET not in repr(chosen) + repr(chosen.tls)
    assert chosen.user.token.reveal() == SECRET
    assert chosen.user.key_data.reveal() == SECRET
