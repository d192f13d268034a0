"""What an operator attests compares with what an API server stores of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.core.drift.attestation import attest, read_attestation
from sentinel.core.drift.judgement import ChangeOp
from sentinel.core.drift.rules import OPENBAO
from tests.core.drift.objects import config_map, stateful_set
from tests.support.kube.drift_history import STATEFUL_SET

CONTAINER = "/spec/template/spec/containers/name=bao"


def differences(applied: Any, change: Callable[[Any], object]) -> dict[str, ChangeOp]:
    """Attest an object, change it as stored, and compare."""
    attestation = read_attestation(attest(applied, OPENBAO))
    assert attestation is not None
    stored = copy.deepcopy(applied)
    change(stored)
    return attestation.differences(stored, OPENBAO, is_owned=lambda path: True)


def container(body: Any) -> Any:
    return body["spec"]["template"]["spec"]["containers"][0]


def set_defaults(body: Any) -> None:
    """What an API server makes of `STATEFUL_SET`."""
    body["status"] = {"replicas": 1}
    body["metadata"] |= {
        "uid": "u1",
        "resourceVersion": "1",
        "annotations": {OPENBAO.annotations.fingerprint: "x"},
    }
    body["spec"] |= {"podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10}
    del body["spec"]["template"]["spec"]["hostNetwork"]
    container(body)["env"][1].pop("value")
    container(body)["ports"][0]["protocol"] = "TCP"
    container(body)["resources"] = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "2"}}
    body["spec"]["volumeClaimTemplates"][0] |= {"apiVersion": "v1", "status": {"phase": "Pending"}}
    body["spec"]["volumeClaimTemplates"][0]["spec"]["volumeMode"] = "Filesystem"
    body["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] = "1Gi"


def test_defaults_and_rewritten_quantities_make_no_difference() -> None:
    assert differences(STATEFUL_SET, set_defaults) == {}


@pytest.mark.parametrize(
    ("change", "path", "op"),
    [
        (lambda body: body["spec"].update(replicas=4), "/spec/replicas", ChangeOp.CHANGE),
        (lambda body: body["spec"].update(replicas=0), "/spec/replicas", ChangeOp.CHANGE),
        (lambda body: body["spec"].pop("replicas"), "/spec/replicas", ChangeOp.REMOVE),
        (lambda body: body["spec"].pop("updateStrategy"), "/spec/updateStrategy", ChangeOp.REMOVE),
        (lambda body: body["spec"].update(updateStrategy={}), "/spec/updateStrategy/type", ChangeOp.REMOVE),
        (lambda body: container(body)["args"].append("-dev"), f"{CONTAINER}/args", ChangeOp.CHANGE),
        (lambda body: container(body)["args"].reverse(), f"{CONTAINER}/args", ChangeOp.CHANGE),
        (lambda body: container(body).update(args=[]), f"{CONTAINER}/args", ChangeOp.CHANGE),
        (lambda body: container(body).pop("args"), f"{CONTAINER}/args", ChangeOp.REMOVE),
        (lambda body: container(body)["env"].pop(0), f"{CONTAINER}/env/name=BAO_LOG_LEVEL", ChangeOp.REMOVE),
        (lambda body: container(body).update(name="evil"), CONTAINER, ChangeOp.REMOVE),
        (
            lambda body: container(body)["resources"]["requests"].update(cpu="501m"),
            f"{CONTAINER}/resources/requests/cpu",
            ChangeOp.CHANGE,
        ),
        (
            lambda body: body["spec"]["volumeClaimTemplates"][0]["spec"]["accessModes"].append("ReadOnlyMany"),
            "/spec/volumeClaimTemplates",
            ChangeOp.CHANGE,
        ),
        (lambda body: body.update(spec="x"), "/spec", ChangeOp.CHANGE),
    ],
)
def test_a_difference_is_named_by_its_path(change: Callable[[Any], object], path: str, op: ChangeOp) -> None:
    assert differences(STATEFUL_SET, change) == {path: op}


@pytest.mark.parametrize(
    ("one", "other", "is_equal"),
    [
        ("1024Mi", "1Gi", True),
        ("0.5", "500m", True),
        ("1e3", "1k", True),
        (2, "2", True),
        ("2.", "2", True),
        ("1k", "1Ki", False),
        ("1M", "1m", False),
        ("what", "what", True),
        ("what", "else", False),
    ],
)
def test_quantities_are_compared_as_numbers(one: object, other: object, is_equal: bool) -> None:
    def body(value: object) -> Any:
        return {"kind": "Quota", "metadata": {"name": "x"}, "spec": {"hard": {"memory": value}}}

    found = differences(body(one), lambda stored: stored["spec"]["hard"].update(memory=other))

    assert (found == {}) == is_equal


def test_a_whole_float_equals_an_integer() -> None:
    body = {"kind": "K", "metadata": {"name": "x"}, "spec": {"a": 2.0}}

    assert differences(body, lambda stored: stored["spec"].update(a=2)) == {}
    assert differences(body, lambda stored: stored["spec"].update(a=2.5)) != {}


def test_neither_the_order_of_fields_nor_the_annotation_changes_the_text() -> None:
    body = stateful_set()
    reordered = dict(reversed(body.items())) | {"spec": dict(reversed(body["spec"].items()))}
    annotated = stateful_set(annotations={OPENBAO.annotations.fingerprint: "x"})

    assert attest(body, OPENBAO) == attest(reordered, OPENBAO) == attest(annotated, OPENBAO)


def test_a_large_object_has_a_short_attestation() -> None:
    text = attest(config_map({f"key-{n}-{n * 7919}": "x" for n in range(5_000)}), OPENBAO)

    assert len(text) < 100
    assert read_attestation(text) is not None


def test_a_separator_in_a_path_makes_it_a_total() -> None:
    assert attest(config_map({"a\0b": "x"}), OPENBAO).startswith("v1-total:")


@pytest.mark.parametrize(
    "text", ["", "v1", "v1:!", "v1:AAAA:AAAA", "v1:eJwDAAAAAAE=:AAAA", "v2:AAAA", "v1-total:A", "v1:a:b:c"]
)
def test_what_is_no_attestation_is_none(text: str) -> None:
    assert read_attestation(text) is None


def test_an_object_of_which_nothing_counts_has_an_attestation() -> None:
    attestation = read_attestation(attest({"kind": "ConfigMap", "metadata": {"name": "x"}}, OPENBAO))

    assert attestation is not None
    assert attestation.owned == frozenset()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab~/", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab~/", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60)
@given(spec=JSON)
def test_an_object_fits_its_own_attestation(spec: Any) -> None:
    body = {"kind": "K", "metadata": {"name": "x"}, "spec": spec}

    assert differences(body, lambda stored: stored.update(more=1)) == {}


@settings(max_examples=60)
@given(spec=JSON, value=st.integers(10, 20))
def test_any_other_value_is_a_difference(spec: Any, value: int) -> None:
    body = {"kind": "K", "metadata": {"name": "x"}, "spec": {"deep": spec, "value": value}}

    assert differences(body, lambda stored: stored["spec"].update(value=value + 1)) == {
        "/spec/value": ChangeOp.CHANGE
    }
