"""Data with thousands of keys is folded into one value: what is kept of it, and how changes of it are judged."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from sentinel.core.drift.attestation import attest
from sentinel.core.drift.fingerprint import fingerprint
from sentinel.core.drift.judge import judge
from sentinel.core.drift.judgement import Reason
from sentinel.core.drift.object_fields import MAX_KEYS
from sentinel.core.drift.rules import OPENBAO
from sentinel.testing.kube.kinds import CONFIG_MAP, Kinds
from tests.core.drift.objects import FINGERPRINT, LABELS, shown
from tests.core.drift.test_history_properties import Model

DATA = {f"key{number:05}": "x" for number in range(MAX_KEYS + 1)}


def manifest(data: dict[str, str], *, attests: bool = True) -> dict[str, Any]:
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "prod", "labels": dict(LABELS), "annotations": {}},
        "data": data,
    }
    if attests:
        body["metadata"]["annotations"][FINGERPRINT] = attest(body, OPENBAO)
    return body


def start(data: dict[str, str] | None = None, *, attests: bool = True) -> Model:
    model = Model(Kinds().of(CONFIG_MAP))
    model.apply(manifest(DATA if data is None else data, attests=attests))
    model.see()
    return model


def test_little_is_kept_however_many_keys_there_are() -> None:
    kept = fingerprint(start().body, OPENBAO)

    assert len(kept.nodes) < 10
    assert len(kept.owned) < 10
    assert [len(entry.fields) < 10 for entry in kept.entries] == [True]
    assert kept.nodes["/data"].text is None


FOREIGN: dict[str, Callable[[Any], object]] = {
    "change": lambda body: body["data"].update(key00007="evil"),
    "addition": lambda body: body["data"].update(evil="evil"),
    "removal": lambda body: body["data"].pop("key00007"),
    "all": lambda body: body["data"].clear(),
}


@pytest.mark.parametrize("attests", [False, True])
@pytest.mark.parametrize("change", FOREIGN)
def test_what_another_manager_does_is_a_change_of_the_whole(change: str, attests: bool) -> None:
    model = start(attests=attests)

    model.update("kubectl-edit", FOREIGN[change])

    actor = "kubectl-edit" if change in ("change", "addition") else None
    assert shown(model.see()) == ("owned_field_changed", ["~/data"], actor)
    model.wait(timedelta(seconds=2))
    model.apply(manifest(DATA, attests=attests))
    assert not model.see().is_drift


def test_another_manager_that_adds_again_in_the_same_second_is_drift() -> None:
    model = start(attests=False)
    model.update("kubectl-edit", FOREIGN["addition"])
    model.see()

    model.update("kubectl-edit", lambda body: body["data"].update(worse="evil"))

    assert shown(model.see()) == ("owned_field_changed", ["~/data"], "kubectl-edit")


@pytest.mark.parametrize("change", ["change", "addition"])
def test_it_is_drift_by_the_other_one_in_the_same_event(change: str) -> None:
    model = start()

    model.apply(manifest({**DATA, "more": "x"}))
    model.update("kubectl-edit", FOREIGN[change])

    assert shown(model.see()) == ("owned_field_changed", ["~/data"], "kubectl-edit")


def test_a_removal_in_the_same_event_is_seen_by_the_attestation() -> None:
    model = start()

    model.apply(manifest({**DATA, "more": "x"}))
    model.update("kubectl-edit", lambda body: body["data"].pop("key00007"))

    assert model.see().reason in (Reason.OWNED_FIELD_CHANGED, Reason.OWNED_FIELD_REMOVED)


@pytest.mark.parametrize(
    "data",
    [{**DATA, "key00007": "y"}, {**DATA, "more": "y"}, dict(list(DATA.items())[1:]), {"one": "x"}, {}],
)
@pytest.mark.parametrize(("attests", "pause"), [(True, 0), (True, 2), (False, 2)])
def test_what_the_operator_does_is_its_own(data: dict[str, str], attests: bool, pause: int) -> None:
    model = start(attests=attests)
    model.wait(timedelta(seconds=pause))

    model.apply(manifest(data, attests=attests))

    assert model.see().reason is Reason.OPERATOR_WRITE
    model.wait(timedelta(seconds=pause))
    model.apply(manifest(DATA, attests=attests))
    assert model.see().reason is Reason.OPERATOR_WRITE


def test_without_entries_the_attestation_alone_decides() -> None:
    body = start({f"key-{number}-{number * 7919}": "x" for number in range(MAX_KEYS + 1)}).body
    body["metadata"]["managedFields"] = []

    assert judge(None, body, OPENBAO)[0].reason is Reason.UNCHANGED
    body["data"]["key-0-0"] = "evil"
    assert judge(None, body, OPENBAO)[0].reason is Reason.FINGERPRINT_MISMATCH


def test_data_that_shrinks_stays_one_value() -> None:
    model = start()
    model.apply(manifest({"one": "x", "two": "x"}))
    model.see()

    model.update("kubectl-edit", lambda body: body["data"].pop("one"))

    assert shown(model.see())[:2] == ("owned_field_changed", ["~/data"])


@pytest.mark.parametrize("attests", [False, True])
def test_data_that_grows_becomes_one_value(attests: bool) -> None:
    fewer = dict(list(DATA.items())[1:])
    model, other = start(fewer, attests=attests), start(fewer, attests=attests)

    model.apply(manifest(DATA, attests=attests))
    other.update("kubectl-edit", lambda body: body["data"].update(evil="x"))

    assert model.see().reason is Reason.OPERATOR_WRITE
    assert shown(other.see())[1:] == (["~/data"], "kubectl-edit")


def test_data_that_another_manager_holds_is_not_owned() -> None:
    model = start({})
    model.update("team", lambda body: body.update(binaryData=dict(DATA)))
    assert shown(model.see()) == ("unowned_added", ["+/binaryData"], "team")

    model.update("team", lambda body: body["binaryData"].update(more="x"))

    assert model.see().reason is Reason.UNOWNED


def test_at_first_sight_each_key_is_judged() -> None:
    model = start()
    model.update("kubectl-edit", FOREIGN["addition"])

    judgement, _ = judge(None, model.body, OPENBAO)

    assert shown(judgement) == ("unowned_added", ["+/data/evil"], "kubectl-edit")
