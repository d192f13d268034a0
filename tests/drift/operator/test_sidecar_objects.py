"""The objects of a sidecar: what it may do, and where its configuration comes from."""

from __future__ import annotations

from typing import Any

from sentinel.drift.operator.openbao import sidecar_objects
from tests.drift.operator.openbao_clusters import make_cluster


def objects(config_map: str = "") -> dict[str, Any]:
    """Return the objects by kind."""
    made = sidecar_objects.objects(make_cluster(sentinel={}), operator_version="1", config_map=config_map)
    return {kind.kind: body for kind, body in made}


def permissions(role: Any) -> set[tuple[str, str]]:
    return {(verb, resource) for rule in role["rules"] for verb in rule["verbs"] for resource in rule["resources"]}


def test_a_sidecar_may_read_three_kinds_and_patch_its_own_cluster() -> None:
    watched = ("statefulsets", "services", "configmaps", "openbaoclusters")

    assert permissions(objects()["Role"]) == {
        *((verb, resource) for verb in ("get", "list", "watch") for resource in watched),
        ("patch", "openbaoclusters"),
    }


def test_without_a_configuration_nothing_is_mounted() -> None:
    pod = objects()["Deployment"]["spec"]["template"]["spec"]

    assert "volumes" not in pod
    assert "volumeMounts" not in pod["containers"][0]
    assert pod["containers"][0]["args"] == ["drift"]


def test_a_configuration_is_mounted_and_read() -> None:
    pod = objects("sidecars")["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (volume,), (mount,) = pod["volumes"], container["volumeMounts"]

    assert volume["configMap"] == {"name": "sidecars", "items": [{"key": "config.yaml", "path": "config.yaml"}]}
    assert (mount["name"], mount["readOnly"]) == (volume["name"], True)
    assert container["args"] == ["drift", f"--config={mount['mountPath']}/config.yaml"]


def test_a_sidecar_with_a_configuration_may_create_events() -> None:
    assert permissions(objects("sidecars")["Role"]) - permissions(objects()["Role"]) == {("create", "events")}
