"""Kubeconfig files and TLS servers for tests."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from pathlib import Path

import msgspec
import trustme


def write_kubeconfig(
    folder: Path,
    *,
    cluster: Mapping[str, object],
    user: Mapping[str, object] | None = None,
    context: Mapping[str, object] | None = None,
    name: str = "config",
) -> Path:
    """Write a file with one context, in JSON, which is YAML."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "dev",
        "contexts": [{"name": "dev", "context": {"cluster": "east", "user": "me", **(context or {})}}],
        "clusters": [{"name": "east", "cluster": cluster}],
        "users": [{"name": "me", "user": user or {}}],
    }
    file = folder / name
    file.write_bytes(msgspec.json.encode(content))
    return file


def encoded(blob: trustme.Blob) -> str:
    """A certificate or key as kubeconfig files contain it."""
    return base64.b64encode(blob.bytes()).decode()


def server_context(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    """TLS of a server with these names that asks for a client certificate, as API servers do."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context
