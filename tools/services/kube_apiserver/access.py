"""How to reach an API server: its URL, its certificate authority, and credentials, as in a kubeconfig file."""

from __future__ import annotations

import base64
import ssl
from pathlib import Path

import msgspec
import yaml

from tools.services.server import ServiceError


class KubeAccess(msgspec.Struct, frozen=True, kw_only=True):
    """An API server and the credentials of one user: a client certificate or a token."""

    url: str
    ca_file: Path
    certificate_file: Path | None = None
    key_file: Path | None = None
    token: str = ""

    def with_token(self, token: str) -> KubeAccess:
        """The same API server for another user."""
        return KubeAccess(url=self.url, ca_file=self.ca_file, token=token)

    def tls_context(self) -> ssl.SSLContext:
        """Trust only the server's authority, and present the client certificate."""
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.certificate_file is not None:
            context.load_cert_chain(self.certificate_file, self.key_file)
        return context

    def kubeconfig(self, *, namespace: str = "default") -> bytes:
        """A kubeconfig with one context and no references to other files. JSON is YAML, too."""
        user = {"token": self.token} if self.token else {}
        if self.certificate_file is not None and self.key_file is not None:
            user["client-certificate-data"] = _encode(self.certificate_file)
            user["client-key-data"] = _encode(self.key_file)
        cluster = {"server": self.url, "certificate-authority-data": _encode(self.ca_file)}
        context = {"cluster": "test", "user": "test", "namespace": namespace}
        return msgspec.json.encode(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "test", "cluster": cluster}],
                "users": [{"name": "test", "user": user}],
                "contexts": [{"name": "test", "context": context}],
                "current-context": "test",
            }
        )


def _encode(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""


class _User(msgspec.Struct, rename="kebab"):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""


class _Context(msgspec.Struct):
    cluster: str = ""
    user: str = ""


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: _Cluster


class _NamedUser(msgspec.Struct):
    name: str
    user: _User


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context


class _Kubeconfig(msgspec.Struct, rename="kebab"):
    clusters: list[_NamedCluster]
    users: list[_NamedUser]
    contexts: list[_NamedContext]
    current_context: str


def read_kubeconfig(file: Path, *, directory: Path) -> KubeAccess:
    """Read the current context. Embedded certificates and keys are written to `directory`.

    Raises `ServiceError` if the user has neither a client certificate nor a token.
    """
    try:
        config = msgspec.convert(yaml.safe_load(file.read_bytes()), _Kubeconfig)
        context = next(each.context for each in config.contexts if each.name == config.current_context)
        cluster = next(each.cluster for each in config.clusters if each.name == context.cluster)
        user = next(each.user for each in config.users if each.name == context.user)
    except (OSError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise ServiceError(f"{file}: {error}") from error
    except StopIteration:
        raise ServiceError(f"{file}: the current context, its cluster or its user is missing") from None

    def pem_file(name: str, path: str, data: str) -> Path | None:
        if not data:
            return file.parent / path if path else None
        target = directory / name
        target.touch(mode=0o600)
        target.write_bytes(base64.b64decode(data))
        return target

    directory.mkdir(parents=True, exist_ok=True)
    ca_file = pem_file("ca.crt", cluster.certificate_authority, cluster.certificate_authority_data)
    certificate_file = pem_file("client.crt", user.client_certificate, user.client_certificate_data)
    if ca_file is None or not (certificate_file or user.token):
        raise ServiceError(
            f"{file}: expected a certificate authority, and a client certificate or a token for the user"
        )
    return KubeAccess(
        url=cluster.server.rstrip("/"),
        ca_file=ca_file,
        certificate_file=certificate_file,
        key_file=pem_file("client.key", user.client_key, user.client_key_data),
        token=user.token,
    )
