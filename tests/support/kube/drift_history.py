"""Histories of objects on a real API server, with the judgement that each write deserves.

`python -m tests.support.kube.drift_history FILE` plays them on the server of `tools.services` and writes the
objects to a file, so that tests without a server judge genuine `managedFields`, too.
"""

from __future__ import annotations

import copy
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from sentinel.core.drift.attestation import attest
from sentinel.core.drift.rules import OPENBAO
from tests.support.kube.patch_types import APPLY, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from tools.services.kube_apiserver import KUBECONFIG_VARIABLE, KubeClient, read_kubeconfig

OPERATOR: Final = "openbao-operator"
NAMESPACE: Final = "drift-history"
LABELS: Final = {"app.kubernetes.io/managed-by": "openbao-operator", "app.kubernetes.io/instance": "prod"}
POD: Final = "/spec/template/spec"


class Expected(msgspec.Struct, frozen=True):
    """The judgement that a write deserves."""

    reason: str
    changes: tuple[str, ...] = ()
    """`+`, `~` or `-` and the path."""
    manager: str | None = None


class RecordedStep(msgspec.Struct, frozen=True):
    """An object after a write."""

    name: str
    object: dict[str, Any]
    expected: Expected


class Step(msgspec.Struct, frozen=True):
    """A write."""

    name: str
    write: Callable[[Writer], Any]
    expected: Expected


class Writer:
    """Writes one object."""

    def __init__(self, client: KubeClient, path: str, wanted: Mapping[str, Any]) -> None:
        self._client = client
        self._path = path
        self.wanted: Any = copy.deepcopy(wanted)

    def apply(self, **members: Any) -> Any:
        """Apply what the operator wants, with other members of the spec or the data."""
        for section, fields in members.items():
            self.wanted[section] |= fields
        body = copy.deepcopy(self.wanted)
        body["metadata"]["annotations"] = {OPENBAO.annotations.fingerprint: attest(body, OPENBAO)}
        return self.send("PATCH", body, manager=OPERATOR, content_type=APPLY, query="&force=true")

    def merge(self, patch: Any, manager: str, subresource: str = "") -> Any:
        return self.send("PATCH", patch, manager=manager, content_type=MERGE_PATCH, subresource=subresource)

    def strategic(self, patch: Any, manager: str) -> Any:
        return self.send("PATCH", patch, manager=manager, content_type=STRATEGIC_MERGE_PATCH)

    def json_patch(self, manager: str, op: str, path: str, value: Any = None) -> Any:
        return self.send(
            "PATCH", [{"op": op, "path": path, "value": value}], manager=manager, content_type=JSON_PATCH
        )

    def apply_as(self, manager: str, **members: Any) -> Any:
        """Apply other fields on the server as another manager."""
        body = {"apiVersion": self.wanted["apiVersion"], "kind": self.wanted["kind"], **members}
        return self.send("PATCH", body, manager=manager, content_type=APPLY, query="&force=true")

    def replace(self, manager: str, change: Callable[[Any], None]) -> Any:
        """Read the object, change it, and replace it."""
        body = self._client.get(self._path)
        change(body)
        return self.send("PUT", body, manager=manager, content_type="application/json")

    def delete(self) -> None:
        self._client.delete(self._path)

    def send(
        self, method: str, body: Any, *, manager: str, content_type: str, subresource: str = "", query: str = ""
    ) -> Any:
        path = f"{self._path}{'/' if subresource else ''}{subresource}?fieldManager={manager}{query}"
        response = self._client.send(method, path, body, content_type=content_type)
        assert response.status in (200, 201), response.body
        return self._client.get(self._path)


STATEFUL_SET: Final = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "prod", "labels": LABELS},
    "spec": {
        "replicas": 3,
        "serviceName": "prod",
        "selector": {"matchLabels": LABELS},
        "updateStrategy": {"type": "RollingUpdate"},
        "template": {
            "metadata": {"labels": LABELS},
            "spec": {
                "hostNetwork": False,
                "containers": [
                    {
                        "name": "bao",
                        "image": "openbao/openbao:2.1.0",
                        "args": ["server", "-config=/etc/bao"],
                        "env": [{"name": "BAO_LOG_LEVEL", "value": "info"}, {"name": "BAO_EMPTY", "value": ""}],
                        "ports": [{"name": "api", "containerPort": 8200}],
                        "resources": {"requests": {"cpu": "0.5", "memory": "1024Mi"}, "limits": {"cpu": 2}},
                        "volumeMounts": [{"name": "config", "mountPath": "/etc/bao"}],
                    }
                ],
                "volumes": [
                    {"name": "config", "configMap": {"name": "prod-config"}},
                    {"name": "tmp", "emptyDir": {}},
                ],
            },
        },
        "volumeClaimTemplates": [
            {
                "metadata": {"name": "data"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1024Mi"}},
                },
            }
        ],
    },
}

SERVICE: Final = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "prod", "labels": LABELS},
    "spec": {"selector": LABELS, "ports": [{"name": "api", "port": 8200, "targetPort": "api"}]},
}

CONFIG_MAP: Final = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "prod-config", "labels": LABELS},
    "data": {"config.hcl": 'ui = true\nlistener "tcp" {}\n', "empty": ""},
}

_FINGERPRINT: Final = "~/metadata/annotations/openbao.org~1sentinel-fingerprint"
_INSTANCE: Final = "app.kubernetes.io/instance"
_EVIL: Final = {"name": "evil", "image": "evil:1", "ports": [{"containerPort": 4444}]}


def _template(**spec: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": spec}}}


def _containers(writer: Writer, **members: Any) -> dict[str, Any]:
    """The template with other members of the operator's container."""
    template = copy.deepcopy(writer.wanted["spec"]["template"])
    template["spec"]["containers"][0] |= members
    return {"template": template}


def _set_image(body: Any) -> None:
    body["spec"]["template"]["spec"]["containers"][0]["image"] = "openbao/openbao:evil"


def _clear_args(body: Any) -> None:
    del body["spec"]["template"]["spec"]["containers"][0]["args"]


HISTORIES: Final[Mapping[str, tuple[Mapping[str, Any], tuple[Step, ...]]]] = {
    f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/prod": (
        STATEFUL_SET,
        (
            Step("the operator creates it", lambda w: w.apply(), Expected("unchanged")),
            Step(
                "a controller writes its status",
                lambda w: w.merge(
                    {"status": {"replicas": 1, "observedGeneration": 1}}, "kube-controller-manager", "status"
                ),
                Expected("status", ("~/status",), "kube-controller-manager"),
            ),
            Step(
                "the operator changes the image",
                lambda w: w.apply(spec=_containers(w, image="openbao/openbao:2.2.0")),
                Expected("operator_write", (_FINGERPRINT, f"~{POD}/containers/name=bao/image"), OPERATOR),
            ),
            Step(
                "someone scales it by an edit",
                lambda w: w.merge({"spec": {"replicas": 5}}, "kubectl-edit"),
                Expected("owned_field_changed", ("~/spec/replicas",), "kubectl-edit"),
            ),
            Step(
                "the same scales it again",
                lambda w: w.merge({"spec": {"replicas": 6}}, "kubectl-edit"),
                Expected("owned_field_changed", ("~/spec/replicas",), "kubectl-edit"),
            ),
            Step(
                "the operator restores it",
                lambda w: w.apply(),
                Expected("operator_write", ("~/spec/replicas",), OPERATOR),
            ),
            Step(
                "an autoscaler scales it",
                lambda w: w.merge({"spec": {"replicas": 4}}, "autoscaler", "scale"),
                Expected("owned_field_changed", ("~/spec/replicas",), "autoscaler"),
            ),
            Step(
                "the operator restores it again",
                lambda w: w.apply(),
                Expected("operator_write", ("~/spec/replicas",), OPERATOR),
            ),
            Step(
                "someone adds a container",
                lambda w: w.strategic(_template(containers=[_EVIL]), "kubectl-patch"),
                Expected("unowned_added", (f"+{POD}/containers/name=evil",), "kubectl-patch"),
            ),
            Step(
                "someone adds a port to it",
                lambda w: w.strategic(
                    _template(containers=[{"name": "evil", "ports": [{"containerPort": 4445}]}]), "kubectl-patch"
                ),
                Expected(
                    "unowned_added",
                    (f"+{POD}/containers/name=evil/ports/containerPort=4445,protocol=TCP",),
                    "kubectl-patch",
                ),
            ),
            Step(
                "the operator removes the container",
                lambda w: w.json_patch(OPERATOR, "remove", f"{POD}/containers/0"),
                Expected("unowned", (f"-{POD}/containers/name=evil",)),
            ),
            Step(
                "someone removes a variable",
                lambda w: w.json_patch("kubectl-edit", "remove", f"{POD}/containers/0/env/0"),
                Expected("owned_field_removed", (f"-{POD}/containers/name=bao/env/name=BAO_LOG_LEVEL",)),
            ),
            Step(
                "the operator adds the variable again",
                lambda w: w.apply(),
                Expected("operator_write", (f"+{POD}/containers/name=bao/env/name=BAO_LOG_LEVEL",), OPERATOR),
            ),
            Step(
                "someone replaces the object with another image",
                lambda w: w.replace("kubectl-replace", _set_image),
                Expected("owned_field_changed", (f"~{POD}/containers/name=bao/image",), "kubectl-replace"),
            ),
            Step(
                "someone replaces the object without arguments",
                lambda w: w.replace("kubectl-replace", _clear_args),
                Expected("owned_field_removed", (f"-{POD}/containers/name=bao/args",)),
            ),
            Step(
                "the operator restores both",
                lambda w: w.apply(),
                Expected(
                    "operator_write",
                    (f"+{POD}/containers/name=bao/args", f"~{POD}/containers/name=bao/image"),
                    OPERATOR,
                ),
            ),
            Step(
                "someone changes the arguments",
                lambda w: w.strategic(_template(containers=[{"name": "bao", "args": ["-dev"]}]), "kubectl-edit"),
                Expected("owned_field_changed", (f"~{POD}/containers/name=bao/args",), "kubectl-edit"),
            ),
            Step(
                "the operator restores the arguments",
                lambda w: w.apply(),
                Expected("operator_write", (f"~{POD}/containers/name=bao/args",), OPERATOR),
            ),
            Step(
                "someone adds an annotation",
                lambda w: w.merge({"metadata": {"annotations": {"team": "x"}}}, "kubectl-annotate"),
                Expected("unowned", ("+/metadata/annotations/team",), "kubectl-annotate"),
            ),
            Step(
                "someone adds an annotation of the operator",
                lambda w: w.merge({"metadata": {"annotations": {"openbao.org/x": "y"}}}, "kubectl-annotate"),
                Expected("unowned_added", ("+/metadata/annotations/openbao.org~1x",), "kubectl-annotate"),
            ),
            Step(
                "another manager applies a node selector",
                lambda w: w.apply_as("team", **_template(nodeSelector={"disk": "ssd"})),
                Expected("unowned_added", (f"+{POD}/nodeSelector",), "team"),
            ),
            Step(
                "the manager changes its node selector",
                lambda w: w.apply_as("team", **_template(nodeSelector={"disk": "hdd", "zone": "a"})),
                Expected("unowned", (f"~{POD}/nodeSelector",), "team"),
            ),
            Step(
                "someone changes a default",
                lambda w: w.merge(_template(terminationGracePeriodSeconds=60), "kubectl-edit"),
                Expected("unowned_added", (f"~{POD}/terminationGracePeriodSeconds",), "kubectl-edit"),
            ),
            Step(
                "another one changes it again",
                lambda w: w.merge(_template(terminationGracePeriodSeconds=90), "kubectl-patch"),
                Expected("unowned", (f"~{POD}/terminationGracePeriodSeconds",), "kubectl-patch"),
            ),
            Step(
                "someone restarts the pods",
                lambda w: w.strategic(
                    {"spec": {"template": {"metadata": {"annotations": {"restartedAt": "now"}}}}},
                    "kubectl-rollout",
                ),
                Expected("unowned_added", ("+/spec/template/metadata/annotations",), "kubectl-rollout"),
            ),
            Step(
                "the operator gives up the variables",
                lambda w: w.apply(spec=_containers(w, env=[])),
                Expected("operator_write", (_FINGERPRINT, f"-{POD}/containers/name=bao/env"), OPERATOR),
            ),
            Step(
                "the operator gives up the replicas, which become the default",
                lambda w: (w.wanted["spec"].pop("replicas"), w.apply())[1],
                Expected("operator_write", (_FINGERPRINT, "~/spec/replicas"), OPERATOR),
            ),
            Step(
                "someone removes a label",
                lambda w: w.merge({"metadata": {"labels": {_INSTANCE: None}}}, "kubectl-label"),
                Expected("label_lost", ("-/metadata/labels/app.kubernetes.io~1instance",)),
            ),
            Step(
                "the operator restores the label",
                lambda w: w.apply(),
                Expected("operator_write", ("+/metadata/labels/app.kubernetes.io~1instance",), OPERATOR),
            ),
            Step(
                "someone changes a label",
                lambda w: w.merge({"metadata": {"labels": {_INSTANCE: "dev"}}}, "kubectl-label"),
                Expected("label_lost", ("~/metadata/labels/app.kubernetes.io~1instance",), "kubectl-label"),
            ),
        ),
    ),
    f"/api/v1/namespaces/{NAMESPACE}/services/prod": (
        SERVICE,
        (
            Step("the operator creates it", lambda w: w.apply(), Expected("unchanged")),
            Step(
                "someone adds a port",
                lambda w: w.strategic({"spec": {"ports": [{"name": "x", "port": 9}]}}, "kubectl-patch"),
                Expected("unowned_added", ("+/spec/ports/port=9,protocol=TCP",), "kubectl-patch"),
            ),
            Step(
                "someone changes the target port",
                lambda w: w.strategic({"spec": {"ports": [{"port": 8200, "targetPort": 80}]}}, "kubectl-patch"),
                Expected(
                    "owned_field_changed", ("~/spec/ports/port=8200,protocol=TCP/targetPort",), "kubectl-patch"
                ),
            ),
            Step(
                "someone changes the selector",
                lambda w: w.merge({"spec": {"selector": {"app": "evil"}}}, "kubectl-edit"),
                Expected("owned_field_changed", ("~/spec/selector",), "kubectl-edit"),
            ),
            Step(
                "the operator restores it",
                lambda w: w.apply(),
                Expected(
                    "operator_write",
                    ("~/spec/ports/port=8200,protocol=TCP/targetPort", "~/spec/selector"),
                    OPERATOR,
                ),
            ),
            Step(
                "the operator makes it a load balancer, and the server allocates a port",
                lambda w: w.apply(spec={"type": "LoadBalancer"}),
                Expected(
                    "operator_write",
                    (
                        _FINGERPRINT,
                        "+/spec/allocateLoadBalancerNodePorts",
                        "+/spec/externalTrafficPolicy",
                        "+/spec/ports/port=8200,protocol=TCP/nodePort",
                        "+/spec/ports/port=9,protocol=TCP/nodePort",
                        "~/spec/type",
                    ),
                    OPERATOR,
                ),
            ),
            Step(
                "a controller adds a finalizer",
                lambda w: w.merge({"metadata": {"finalizers": ["a.example.com/lb"]}}, "cloud-controller-manager"),
                Expected("unowned", ("+/metadata/finalizers",), "cloud-controller-manager"),
            ),
        ),
    ),
    f"/api/v1/namespaces/{NAMESPACE}/configmaps/prod-config": (
        CONFIG_MAP,
        (
            Step("the operator creates it", lambda w: w.apply(), Expected("unchanged")),
            Step(
                "someone adds a key",
                lambda w: w.merge({"data": {"evil.hcl": "x"}}, "kubectl-edit"),
                Expected("unowned_added", ("+/data/evil.hcl",), "kubectl-edit"),
            ),
            Step(
                "someone changes a key",
                lambda w: w.merge({"data": {"config.hcl": "ui = false"}}, "kubectl-edit"),
                Expected("owned_field_changed", ("~/data/config.hcl",), "kubectl-edit"),
            ),
            Step(
                "someone adds binary data",
                lambda w: w.apply_as("team", binaryData={"blob": "AAAA"}),
                Expected("unowned_added", ("+/binaryData",), "team"),
            ),
            Step(
                "the operator restores it",
                lambda w: w.apply(),
                Expected("operator_write", ("~/data/config.hcl",), OPERATOR),
            ),
            Step(
                "someone removes all data",
                lambda w: w.json_patch("kubectl-edit", "remove", "/data"),
                Expected("owned_field_removed", ("-/data",)),
            ),
            Step(
                "the operator adds other data",
                lambda w: w.apply(data={"config.hcl": "ui = true"}),
                Expected("operator_write", ("+/data", _FINGERPRINT), OPERATOR),
            ),
            Step(
                "someone removes all entries",
                lambda w: w.merge({"metadata": {"managedFields": [{}]}}, "kubectl-edit"),
                Expected("bookkeeping"),
            ),
            Step(
                "someone changes a key, which the server does not record",
                lambda w: w.merge({"data": {"config.hcl": "ui = false"}}, "kubectl-edit"),
                Expected("owned_field_changed", ("~/data/config.hcl",)),
            ),
            Step(
                "someone adds a key, which the server does not record",
                lambda w: w.merge({"data": {"evil2.hcl": "x"}}, "kubectl-edit"),
                Expected("unowned_added", ("+/data/evil2.hcl",)),
            ),
        ),
    ),
}


def play(client: KubeClient) -> Iterator[tuple[str, list[RecordedStep]]]:
    """Play all histories, and yield the steps of each."""
    response = client.send("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    assert response.status in (201, 409), response.body
    for path, (wanted, steps) in HISTORIES.items():
        client.send("DELETE", path)
        writer = Writer(client, path, wanted)
        yield path, [RecordedStep(step.name, step.write(writer), step.expected) for step in steps]


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        access = read_kubeconfig(Path(os.environ[KUBECONFIG_VARIABLE]), directory=Path(directory))
        recorded = dict(play(KubeClient(access)))
    encoder = msgspec.json.Encoder()
    lines = [
        b"%s:[\n%s\n]" % (encoder.encode(path), b",\n".join(map(encoder.encode, steps)))
        for path, steps in recorded.items()
    ]
    Path(sys.argv[1]).write_bytes(b"{%s}\n" % b",\n".join(lines))


if __name__ == "__main__":
    main()
