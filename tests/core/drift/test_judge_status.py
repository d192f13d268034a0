from __future__ import annotations

import asyncio
from enum import Enum, auto

from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.drift.fingerprint import Fingerprint, fingerprint
from sentinel.core.drift.judge import judge
from sentinel.core.drift.judge_status import StatusSummary, judge_status_update, summarize
from sentinel.core.drift.judgement import Judgement, Reason
from sentinel.core.drift.rules import OPENBAO
from sentinel.core.json import Json
from sentinel.core.kube.objects import resource_version
from sentinel.core.merge_patch import apply
from sentinel.ports.kube import KubeObject
from sentinel.testing.kube import FakeKubeServer
from sentinel.testing.kube.kinds import STATEFUL_SET
from tests.support.kube.in_process import in_process_client

KNOWN = "bao"


def document(**changes: Json) -> KubeObject:
    body: KubeObject = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": KNOWN,
            "namespace": "prod",
            "uid": "u1",
            "resourceVersion": "1",
            "managedFields": [
                {"manager": "openbao-operator", "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
                {
                    "manager": "kube-controller-manager",
                    "operation": "Update",
                    "subresource": "status",
                    "time": "2026-01-01T00:00:00Z",
                    "fieldsV1": {"f:status": {"f:replicas": {}}},
                },
            ],
        },
        "spec": {"replicas": 3},
        "status": {"replicas": 1},
    }
    changed = apply(body, dict(changes))
    assert isinstance(changed, dict)
    return changed


def quick(before: KubeObject, after: KubeObject) -> Judgement | None:
    judged = judge_status_update(summarize(before), summarize(after), fingerprint(before, OPENBAO), after)
    return None if judged is None else judged[0]


def test_an_update_of_the_status_is_recognized() -> None:
    entries: Json = [
        {"manager": "openbao-operator", "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
        {"manager": "other", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}},
    ]
    after = document(status={"replicas": 2}, metadata={"resourceVersion": "2", "managedFields": entries})

    judgement = quick(document(), after)

    assert judgement is not None
    assert judgement.reason is Reason.STATUS
    assert (judgement.kind, judgement.namespace, judgement.name) == ("StatefulSet", "prod", KNOWN)


def test_any_other_change_is_left_to_the_judgement() -> None:
    changes: list[dict[str, Json]] = [
        {"spec": {"replicas": 5}},
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"managedFields": []}},
        {"metadata": {"managedFields": None}},
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"data": {"a": "b"}},
    ]

    assert [quick(document(), document(status={"replicas": 2}, **change)) for change in changes] == [None] * 6


def test_an_unchanged_status_is_left_to_the_judgement() -> None:
    assert quick(document(), document(metadata={"resourceVersion": "2"})) is None


def test_an_object_without_a_status_is_left_to_the_judgement() -> None:
    assert summarize(document(status=None)) is None
    assert summarize({"status": {}}) is None
    assert quick(document(status=None), document()) is None


class Step(Enum):
    STATUS = auto()
    OPERATOR_STATUS = auto()
    SCALE = auto()
    APPLY = auto()
    ANNOTATE = auto()
    OPT_OUT = auto()
    REMOVE = auto()


@given(st.lists(st.sampled_from(Step), max_size=12))
def test_the_judgements_are_the_same_as_without_it(steps: list[Step]) -> None:
    history = asyncio.run(_history(steps))
    slow: list[Judgement] = []
    fast: list[Judgement] = []
    known: Fingerprint | None = None
    for version in history:
        judgement, known = judge(known, version, OPENBAO)
        slow.append(judgement)
    summary: StatusSummary | None = None
    known = None
    for version in history:
        summary, before = summarize(version), summary
        quickly: tuple[Judgement, Fingerprint] | None = None
        if known is not None:
            quickly = judge_status_update(before, summary, known, version)
        judgement, known = quickly or judge(known, version, OPENBAO)
        fast.append(judgement)

    assert [each.reason for each in fast] == [each.reason for each in slow]
    assert [each for each in fast if each.is_drift] == [each for each in slow if each.is_drift]


async def _history(steps: list[Step]) -> list[KubeObject]:
    """Return the versions of a StatefulSet that these steps make."""
    api = in_process_client(FakeKubeServer())
    applied: KubeObject = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": KNOWN, "labels": {"app": KNOWN}},
        "spec": {"replicas": 3, "serviceName": KNOWN},
    }

    async def apply_it() -> KubeObject:
        return await api.apply(
            STATEFUL_SET, applied, field_manager="openbao-operator", namespace="default", is_forced=True
        )

    async def patch(body: dict[str, Json], manager: str, subresource: str = "") -> KubeObject:
        return await api.merge_patch(
            STATEFUL_SET, KNOWN, body, namespace="default", field_manager=manager, subresource=subresource
        )

    history = [await apply_it()]
    for number, step in enumerate(steps):
        match step:
            case Step.STATUS:
                made = await patch({"status": {"replicas": number + 1}}, "kube-controller-manager", "status")
            case Step.OPERATOR_STATUS:
                made = await patch({"status": {"replicas": number + 1}}, "openbao-operator", "status")
            case Step.SCALE:
                made = await patch({"spec": {"replicas": number + 10}}, "kubectl-edit")
            case Step.APPLY:
                made = await apply_it()
            case Step.ANNOTATE:
                made = await patch({"metadata": {"annotations": {"note": str(number)}}}, "kubectl-annotate")
            case Step.OPT_OUT:
                made = await patch(
                    {"metadata": {"annotations": {"openbao.org/sentinel-ignore": "true"}}}, "kubectl-annotate"
                )
            case Step.REMOVE:
                made = await patch({"spec": {"serviceName": None}}, "kubectl-edit")
        if resource_version(made) != resource_version(history[-1]):  # otherwise there is no event
            history.append(made)
    return history
