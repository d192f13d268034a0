"""Objects for tests of API servers."""

from __future__ import annotations

from sentinel.core.json import Json
from sentinel.ports.kube import KubeObject
from sentinel.testing.kube import FakeKubeServer
from sentinel.testing.kube.kinds import CONFIG_MAP, STATEFUL_SET
from tests.support.kube.watching import member


def config_map(name: str, **data: str) -> KubeObject:
    """Return a ConfigMap with this data."""
    own: KubeObject = dict(data)
    return {
        "apiVersion": CONFIG_MAP.api_version,
        "kind": CONFIG_MAP.kind,
        "metadata": {"name": name},
        **({"data": own} if own else {}),
    }


def put_config_maps(server: FakeKubeServer, *names: str) -> None:
    """Create ConfigMaps in the default namespace of a fake server."""
    for name in names:
        server.create(CONFIG_MAP, {"metadata": {"name": name, "namespace": "default"}})


def container(name: str, **members: Json) -> KubeObject:
    """Return a container."""
    return {"name": name, "image": "registry.example.com/app:1", **members}


def stateful_set(name: str, *containers: KubeObject) -> KubeObject:
    """Return a StatefulSet that a real API server accepts."""
    labels: KubeObject = {"app": name}
    listed: list[Json] = list(containers) or [container("app")]
    return {
        "apiVersion": STATEFUL_SET.api_version,
        "kind": STATEFUL_SET.kind,
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": listed}},
        },
    }


def labelled(body: KubeObject, **labels: str) -> KubeObject:
    """Return the object with these labels."""
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    own: KubeObject = dict(labels)
    return {**body, "metadata": {**metadata, "labels": own}}


def owners(body: KubeObject) -> dict[str, Json]:
    """Return what each manager owns: `{"kubectl Apply": {"f:data": …}}`, with the subresource if there is one."""
    entries = member(body, "metadata", "managedFields")
    found: dict[str, Json] = {}
    for entry in entries if isinstance(entries, list) else ():
        assert isinstance(entry, dict)
        words = (entry["manager"], entry["operation"], entry.get("subresource", ""))
        found[" ".join(str(word) for word in words if word)] = entry["fieldsV1"]
    return found
