"""Finds the API server, the credentials and the default namespace, for a command in a pod or on a workstation."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from sentinel.core.json import Json
from sentinel.drivers.kube.credentials import Credentials, system_now
from sentinel.drivers.kube.exec_plugin import ExecPlugin
from sentinel.drivers.kube.kubeconfig import ClusterSettings, ExecSettings, KubeconfigContext, default_files, load
from sentinel.drivers.rest.proxies import Proxies
from sentinel.drivers.rest.tls import TlsSettings
from sentinel.ports.errors import Misconfigured
from sentinel.runtime.settings.report import quoted

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token, the cluster's CA and its namespace."""
DEFAULT_NAMESPACE = "default"


class ClusterAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Where to connect and as whom."""

    server: str
    """The URL of the API server."""
    namespace: str = DEFAULT_NAMESPACE
    """For commands that were not given one."""
    credentials: Credentials
    proxies: Proxies
    origin: str
    """Where this was configured, for messages."""


def find_access(
    *,
    kubeconfig: Path | None = None,
    context: str = "",
    environ: Mapping[str, str] = os.environ,
    on_secret: Callable[[str], None] = lambda secret: None,
    now: Callable[[], datetime] = system_now,
    service_account: Path = SERVICE_ACCOUNT,
) -> ClusterAccess:
    """Return how to reach the API server: by a kubeconfig that the user names, in a pod, or by ~/.kube/config.

    The user names one with `kubeconfig`, with the variable KUBECONFIG, or with a context. `on_secret` is called
    with every secret before its first use, so that logs can redact it. Raises `Misconfigured`.
    """
    if kubeconfig is None and not context and not environ.get("KUBECONFIG"):
        access = _in_pod(environ, service_account, on_secret)
        if access is not None:
            return access
    files = default_files(environ) if kubeconfig is None else [kubeconfig]
    if not files:
        raise Misconfigured(
            "no Kubernetes API server is configured: name a kubeconfig file with --kubeconfig or KUBECONFIG, "
            "or run in a pod with a service account"
        )
    return _by_kubeconfig(load(files, context=context), environ, on_secret, now)


def _in_pod(
    environ: Mapping[str, str], service_account: Path, on_secret: Callable[[str], None]
) -> ClusterAccess | None:
    """Return the access of the pod's service account; None outside of a pod."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    token_file = service_account / "token"
    if not host or not port or not token_file.exists():
        return None
    try:
        namespace = (service_account / "namespace").read_text("utf-8").strip()
    except OSError:
        namespace = ""
    tls = TlsSettings(ca_file=service_account / "ca.crt", is_strict=False)
    access = ClusterAccess(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=namespace or DEFAULT_NAMESPACE,
        credentials=Credentials(tls=tls, token_file=token_file, on_secret=on_secret),
        proxies=Proxies(environ),
        origin="service account of the pod",
    )
    access.credentials.check()
    return access


def _by_kubeconfig(
    chosen: KubeconfigContext,
    environ: Mapping[str, str],
    on_secret: Callable[[str], None],
    now: Callable[[], datetime],
) -> ClusterAccess:
    cluster, user = chosen.cluster, chosen.user
    origin = f"{chosen.file}: context {quoted(chosen.name)}"
    proxies = Proxies(environ)
    if cluster.proxy_url:
        proxies = Proxies.fixed(cluster.proxy_url.reveal(), name=cluster.proxy_field)
    plugin = None
    if user.plugin is not None:
        plugin = _make_plugin(user.plugin, cluster, environ)
        plugin.find()  # fail now rather than at every call
    credentials = Credentials(
        tls=chosen.tls,
        token=user.token.reveal(),
        token_file=user.token_file,
        user_name=user.name,
        password=user.password.reveal(),
        plugin=plugin,
        on_secret=on_secret,
        now=now,
    )
    try:
        credentials.check()
    except Misconfigured as error:
        raise Misconfigured(f"{origin}: {error}") from error.__cause__
    return ClusterAccess(
        server=cluster.server,
        namespace=chosen.namespace or DEFAULT_NAMESPACE,
        credentials=credentials,
        proxies=proxies,
        origin=origin,
    )


def _make_plugin(settings: ExecSettings, cluster: ClusterSettings, environ: Mapping[str, str]) -> ExecPlugin:
    return ExecPlugin(
        name=settings.field,
        command=settings.command,
        arguments=settings.arguments,
        variables=settings.variables,
        environ=environ,
        api_version=settings.api_version,
        cluster=_describe_cluster(cluster) if settings.needs_cluster else None,
        install_hint=settings.install_hint,
    )


def _describe_cluster(cluster: ClusterSettings) -> dict[str, Json]:
    """What a credential plugin is told, in the names of client.authentication.k8s.io."""
    authority = cluster.ca_data
    if cluster.ca_file is not None:
        try:
            authority = cluster.ca_file.read_text("ascii")
        except (OSError, ValueError) as error:
            raise Misconfigured(f"certificate-authority {cluster.ca_file}: {error}") from error
    described: dict[str, Json] = {
        "server": cluster.server,
        "tls-server-name": cluster.server_name,
        "insecure-skip-tls-verify": cluster.is_insecure,
        "certificate-authority-data": base64.b64encode(authority.encode()).decode(),
        "proxy-url": cluster.proxy_url.reveal(),
        "config": cluster.exec_config,
    }
    return {key: value for key, value in described.items() if value}
