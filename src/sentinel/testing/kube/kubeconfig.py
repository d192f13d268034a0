"""Configuration files for clients of the fake."""

from __future__ import annotations

from pathlib import Path

import msgspec

from sentinel.ports.kube import KubeObject

_NAME = "fake"


def document(
    url: str, *, token: str = "", namespace: str = "", certificate_authority: Path | None = None
) -> bytes:
    """Return a kubeconfig with one context. It is JSON, and so YAML, too."""
    cluster: KubeObject = {"server": url}
    if certificate_authority is not None:
        cluster["certificate-authority"] = str(certificate_authority)
    user: KubeObject = {"token": token} if token else {}
    context: KubeObject = {"cluster": _NAME, "user": _NAME}
    if namespace:
        context["namespace"] = namespace
    config: KubeObject = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": _NAME,
        "clusters": [{"name": _NAME, "cluster": cluster}],
        "contexts": [{"name": _NAME, "context": context}],
        "users": [{"name": _NAME, "user": user}],
    }
    return msgspec.json.format(msgspec.json.encode(config), indent=2)
