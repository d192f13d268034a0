"""Reads kubeconfig files as kubectl does: merged from several files, and resolved for one context.

If several files define the same name, the first one wins. Relative paths are relative to the folder of the file
that they are written in. Errors name the file, the line and the field, never the value of a secret.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from sentinel.core.json import Json
from sentinel.drivers.kube.exec_plugin import API_VERSIONS
from sentinel.drivers.kube.kubeconfig_fields import KubeconfigFields
from sentinel.drivers.rest.tls import TlsSettings
from sentinel.drivers.rest.url import InvalidUrl, parse_base_url
from sentinel.ports.errors import Misconfigured
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings import yaml_file
from sentinel.runtime.settings.report import closest_match, quoted

_EXEC_EXTENSION = "client.authentication.k8s.io/exec"
_UNSUPPORTED = {
    "auth-provider": "expected a credential plugin (exec), got an auth-provider, which Kubernetes has removed",
    "as": "expected no impersonation, which is not supported",
    "as-groups": "expected no impersonation, which is not supported",
    "as-uid": "expected no impersonation, which is not supported",
    "as-user-extra": "expected no impersonation, which is not supported",
}
"""Ignoring these would act as another user than the file says."""


class ExecSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A credential plugin."""

    command: str
    """A name, or an absolute path."""
    arguments: tuple[str, ...]
    variables: Mapping[str, str]
    api_version: str
    install_hint: str
    needs_cluster: bool
    """Whether to tell the plugin about the cluster."""
    field: str
    """Where the plugin is configured, for messages."""


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """An API server."""

    server: str
    ca_file: Path | None
    ca_data: str
    server_name: str
    is_insecure: bool
    proxy_url: Secret
    """It may contain a password."""
    proxy_field: str
    exec_config: Json
    """What the cluster tells a credential plugin."""


class UserSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Credentials."""

    certificate_file: Path | None = None
    certificate_data: str = ""
    key_file: Path | None = None
    key_data: Secret = Secret("")
    token: Secret = Secret("")
    token_file: Path | None = None
    name: str = ""
    password: Secret = Secret("")
    plugin: ExecSettings | None = None


class KubeconfigContext(msgspec.Struct, frozen=True):
    """What a context selects."""

    name: str
    namespace: str
    cluster: ClusterSettings
    user: UserSettings
    file: Path
    """The file that defines the context."""

    @property
    def tls(self) -> TlsSettings:
        """How to connect with TLS."""
        return TlsSettings(
            ca_file=self.cluster.ca_file,
            ca_data=self.cluster.ca_data,
            certificate_file=self.user.certificate_file,
            certificate_data=self.user.certificate_data,
            key_file=self.user.key_file,
            key_data=self.user.key_data,
            server_name=self.cluster.server_name,
            is_insecure=self.cluster.is_insecure,
            is_strict=False,
        )


def default_files(environ: Mapping[str, str]) -> list[Path]:
    """The files to read without `--kubeconfig`: those of KUBECONFIG, or ~/.kube/config. Only existing ones."""
    named = environ.get("KUBECONFIG", "")
    if named:
        files = [Path(name) for name in named.split(os.pathsep) if name]
    else:
        home = environ.get("HOME", "")
        files = [Path(home, ".kube", "config")] if home else []
    return [file for file in files if file.exists()]


def load(files: Sequence[Path], *, context: str = "") -> KubeconfigContext:
    """Merge the files and resolve a context, by default the current one. Raises `Misconfigured`."""
    merged = _MergedFiles(files)
    name = context or merged.current_context
    shown = ", ".join(map(str, files))
    if not name:
        raise Misconfigured(f"{shown}: current-context: expected the name of a context, got nothing")
    if (found := merged.contexts.get(name)) is None:
        near = closest_match(name, merged.contexts)
        hint = f"; did you mean {quoted(near)}?" if near else ""
        raise Misconfigured(f"{shown}: expected the name of a context, got {quoted(name)}{hint}")
    cluster = merged.clusters.get(found.text("cluster", is_required=True))
    if cluster is None:
        raise found.problem("cluster", f"expected the name of a cluster, got {quoted(found.text('cluster'))}")
    user_name = found.text("user")
    user = merged.users.get(user_name)
    if user is None and user_name:
        raise found.problem("user", f"expected the name of a user, got {quoted(user_name)}")
    return KubeconfigContext(
        name=name,
        namespace=found.text("namespace"),
        cluster=_read_cluster(cluster),
        user=UserSettings() if user is None else _read_user(user),
        file=found.file,
    )


class _MergedFiles:
    def __init__(self, files: Sequence[Path]) -> None:
        self.current_context = ""
        self.contexts: dict[str, KubeconfigFields] = {}
        self.clusters: dict[str, KubeconfigFields] = {}
        self.users: dict[str, KubeconfigFields] = {}
        for file in files:
            self._merge(file)

    def _merge(self, file: Path) -> None:
        parsed = yaml_file.parse_file(file)
        if parsed.root is None or parsed.problems:
            raise Misconfigured(str(parsed.problems[0]))
        root = KubeconfigFields(parsed.root, file=file)
        self.current_context = self.current_context or root.text("current-context")
        for plural, kind, merged in (
            ("contexts", "context", self.contexts),
            ("clusters", "cluster", self.clusters),
            ("users", "user", self.users),
        ):
            for entry in root.mappings(plural):
                name = entry.text("name", is_required=True)
                merged.setdefault(name, entry.mapping(kind, path=f"{plural}[{name}].{kind}"))


def _read_cluster(fields: KubeconfigFields) -> ClusterSettings:
    server = fields.text("server", is_required=True)
    try:
        parse_base_url(server)
    except InvalidUrl as error:
        raise fields.problem("server", str(error)) from None
    cluster = ClusterSettings(
        server=server,
        ca_file=None
        if fields.has("certificate-authority-data")
        else fields.readable_file("certificate-authority"),
        ca_data=fields.decoded("certificate-authority-data"),
        server_name=fields.text("tls-server-name"),
        is_insecure=fields.flag("insecure-skip-tls-verify"),
        proxy_url=Secret(fields.text("proxy-url")),
        proxy_field=fields.place("proxy-url"),
        exec_config=next(
            (
                extension.json("extension")
                for extension in fields.mappings("extensions")
                if extension.text("name") == _EXEC_EXTENSION
            ),
            None,
        ),
    )
    if cluster.is_insecure and (cluster.ca_file is not None or cluster.ca_data):
        raise fields.problem("insecure-skip-tls-verify", "expected no certificate authority with it, got one")
    return cluster


def _read_user(fields: KubeconfigFields) -> UserSettings:
    for key, message in _UNSUPPORTED.items():
        if fields.has(key):
            raise fields.problem(key, message)
    has_certificate = fields.has("client-certificate") or fields.has("client-certificate-data")
    has_key = fields.has("client-key") or fields.has("client-key-data")
    if has_certificate != has_key:
        missing = "client-key" if has_certificate else "client-certificate"
        raise fields.problem(missing, "expected a client certificate and its key, got only one of them")
    if fields.has("username") and (fields.has("token") or fields.has("tokenFile")):
        raise fields.problem("username", "expected a token or a password, got both")
    # As in kubectl, the file wins over the text.
    token_file = fields.readable_file("tokenFile")
    return UserSettings(
        certificate_file=None
        if fields.has("client-certificate-data")
        else fields.readable_file("client-certificate"),
        certificate_data=fields.decoded("client-certificate-data"),
        key_file=None if fields.has("client-key-data") else fields.readable_file("client-key"),
        key_data=Secret(fields.decoded("client-key-data")),
        token=Secret("" if token_file else fields.text("token")),
        token_file=token_file,
        name=fields.text("username"),
        password=Secret(fields.text("password")),
        plugin=_read_plugin(fields.mapping("exec")) if fields.has("exec") else None,
    )


def _read_plugin(fields: KubeconfigFields) -> ExecSettings:
    api_version = fields.text("apiVersion", is_required=True)
    if api_version not in API_VERSIONS:
        raise fields.problem("apiVersion", f"expected {' or '.join(API_VERSIONS)}, got {quoted(api_version)}")
    mode = fields.text("interactiveMode") or "IfAvailable"
    if mode not in ("Never", "IfAvailable", "Always"):
        raise fields.problem("interactiveMode", f"expected Never, IfAvailable or Always, got {quoted(mode)}")
    if mode == "Always":
        raise fields.problem(
            "interactiveMode", "expected Never or IfAvailable, got Always; there is no terminal to ask on"
        )
    command = fields.text("command", is_required=True)
    if os.sep in command:
        command = str(fields.file.parent.absolute() / command)
    return ExecSettings(
        command=command,
        arguments=fields.texts("args"),
        variables={entry.text("name", is_required=True): entry.text("value") for entry in fields.mappings("env")},
        api_version=api_version,
        install_hint=fields.text("installHint"),
        needs_cluster=fields.flag("provideClusterInfo"),
        field=fields.place("command"),
    )
