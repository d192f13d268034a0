"""Objects with `managedFields` for tests of drift, and judgements on changes of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from sentinel.core.drift.attestation import attest
from sentinel.core.drift.fingerprint import fingerprint
from sentinel.core.drift.judge import judge
from sentinel.core.drift.judgement import Judgement
from sentinel.core.drift.rules import OPENBAO, Glob, IgnoreRule, Rules, Unowned

OPERATOR = "openbao-operator"
LABELS = {"app.kubernetes.io/managed-by": "openbao-operator", "app.kubernetes.io/instance": "prod"}
FINGERPRINT = OPENBAO.annotations.fingerprint
SIGNS = {"add": "+", "change": "~", "remove": "-"}

_LABEL_FIELDS: dict[str, Any] = {"f:labels": {f"f:{label}": {} for label in LABELS}}
_CONTAINER_FIELDS: dict[str, Any] = {".": {}, "f:name": {}, "f:image": {}}


def entry(
    manager: str, fields: Any, *, operation: str = "Update", time: str | None = "2026-01-01T00:00:00Z", **more: Any
) -> dict[str, Any]:
    """Return an entry of `managedFields`."""
    written = {"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields, **more}
    return written if time is None else {**written, "time": time}


def operator_entry(**more: Any) -> dict[str, Any]:
    """Return what the operator holds of `stateful_set`."""
    fields = {
        "f:metadata": _LABEL_FIELDS,
        "f:spec": {
            "f:replicas": {},
            "f:selector": {},
            "f:template": {
                "f:spec": {
                    "f:containers": {
                        'k:{"name":"bao"}': {
                            **_CONTAINER_FIELDS,
                            "f:args": {},
                            "f:env": {'k:{"name":"LEVEL"}': {".": {}, "f:name": {}, "f:value": {}}},
                        }
                    }
                }
            },
        },
    }
    return entry(OPERATOR, more.pop("fieldsV1", fields), **{"operation": "Apply", **more})


def stateful_set(*entries: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
    """Return a StatefulSet. Without entries, the operator's is there."""
    managed = [copy.deepcopy(each) for each in entries] or [operator_entry()]
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": "prod",
            "namespace": "bao",
            "uid": "u1",
            "resourceVersion": "1",
            "generation": 1,
            "labels": dict(LABELS),
            "managedFields": managed,
            **metadata,
        },
        "spec": {
            "replicas": 3,
            "podManagementPolicy": "OrderedReady",
            "selector": {"matchLabels": {"app": "bao"}},
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "bao",
                            "image": "bao:1",
                            "args": ["server"],
                            "env": [{"name": "LEVEL", "value": "info"}],
                            "imagePullPolicy": "Always",
                        }
                    ]
                }
            },
        },
        "status": {"replicas": 3},
    }


def config_map(data: Mapping[str, str], *entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return a ConfigMap. Without entries, the operator holds all data."""
    fields = {"f:data": {f"f:{key}": {} for key in data}, "f:metadata": _LABEL_FIELDS}
    managed = [copy.deepcopy(each) for each in entries] or [entry(OPERATOR, fields, operation="Apply")]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "config", "namespace": "bao", "labels": dict(LABELS), "managedFields": managed},
        "data": dict(data),
    }


def shown(judgement: Judgement) -> tuple[str, list[str], str | None]:
    """Return the reason, the changes with a sign, and the manager."""
    changes = [f"{SIGNS[each.op]}{each.path}" for each in judgement.changes]
    return judgement.reason.value, changes, judgement.actor.manager


def rules(*, unowned: Unowned = Unowned.SPEC, ignore: tuple[IgnoreRule, ...] = ()) -> Rules:
    return Rules(
        managers=OPENBAO.managers,
        managed_labels=OPENBAO.managed_labels,
        annotations=OPENBAO.annotations,
        unowned=unowned,
        ignore=ignore,
    )


def ignoring(**members: str) -> IgnoreRule:
    return IgnoreRule(**{name: Glob.compile(text) for name, text in members.items()})


def judge_change(before: dict[str, Any], after: dict[str, Any], given: Rules = OPENBAO) -> Judgement:
    judgement, _ = judge(fingerprint(before, given), after, given)
    return judgement


def changed(before: dict[str, Any], change: Callable[[Any], None]) -> dict[str, Any]:
    after = copy.deepcopy(before)
    change(after)
    after["metadata"]["resourceVersion"] = "2"
    return after


def without(fields: Any, *steps: str) -> Any:
    """Return an entry without a field, as after someone took or removed it."""
    reduced = copy.deepcopy(fields)
    inner = reduced["fieldsV1"]
    for step in steps[:-1]:
        inner = inner[step]
    del inner[steps[-1]]
    return reduced


def attested(body: dict[str, Any]) -> dict[str, Any]:
    """Return the object with the operator's attestation, which its first entry holds."""
    body = copy.deepcopy(body)
    metadata = body["metadata"]
    metadata.setdefault("annotations", {})[FINGERPRINT] = attest(body, OPENBAO)
    held = metadata["managedFields"][0]["fieldsV1"].setdefault("f:metadata", {}).setdefault("f:annotations", {})
    held[f"f:{FINGERPRINT}"] = {}
    return body
