"""Changes of an object on which the operator attests: forged attestations, and two actors within one event."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from sentinel.core.drift.attestation import attest
from sentinel.core.drift.judge import judge
from sentinel.core.drift.judgement import Reason
from sentinel.core.drift.rules import OPENBAO
from tests.core.drift.objects import (
    FINGERPRINT,
    attested,
    changed,
    config_map,
    entry,
    judge_change,
    shown,
    stateful_set,
)
from tests.core.drift.test_history_properties import Model, manifest, set_replicas

ANNOTATION = "~/metadata/annotations/openbao.org~1sentinel-fingerprint"
LABEL = "app.kubernetes.io/instance"
POD = "/spec/template/spec"
NOTHING: dict[str, Any] = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "prod"}}


def container(body: Any) -> Any:
    return body["spec"]["template"]["spec"]["containers"][0]


def set_image(body: Any) -> None:
    container(body)["image"] = "evil"


def lose_label_and_replicas(body: Any) -> None:
    del body["metadata"]["labels"][LABEL]
    del body["spec"]["replicas"]


class TestForgedAttestations:
    @pytest.mark.parametrize("is_absent", [False, True])
    @pytest.mark.parametrize(
        ("change", "reason", "path"),
        [
            (set_image, Reason.OWNED_FIELD_CHANGED, f"~{POD}/containers/name=bao/image"),
            (lose_label_and_replicas, Reason.LABEL_LOST, "-/spec/replicas"),
        ],
    )
    @pytest.mark.parametrize("attests_evil", [False, True])
    def test_without_entries_an_attestation_excuses_nothing(
        self, change: Callable[[Any], None], reason: Reason, path: str, attests_evil: bool, is_absent: bool
    ) -> None:
        """A client may remove all entries with `managedFields: [{}]`, and the API server then records none."""
        before = attested(stateful_set())
        after = changed(before, change)
        after["metadata"]["annotations"][FINGERPRINT] = attest(after if attests_evil else NOTHING, OPENBAO)
        after["metadata"]["managedFields"] = []
        if is_absent:
            del after["metadata"]["managedFields"]

        judgement = judge_change(before, after)

        assert judgement.reason is reason
        assert {ANNOTATION, path} <= set(shown(judgement)[1])

    def test_what_was_forged_stays_owned_until_the_operator_writes(self) -> None:
        before = attested(stateful_set())
        forged = changed(before, set_image)
        forged["metadata"]["annotations"][FINGERPRINT] = attest(NOTHING, OPENBAO)
        forged["metadata"]["managedFields"] = []
        _, state = judge(judge(None, before, OPENBAO)[1], forged, OPENBAO)

        again, _ = judge(state, changed(forged, lambda body: body["spec"].update(replicas=9)), OPENBAO)
        restored, _ = judge(state, copy.deepcopy(before), OPENBAO)

        assert shown(again)[:2] == ("owned_field_changed", ["~/spec/replicas"])
        assert restored.reason is Reason.OPERATOR_WRITE


WANTED: dict[str, Any] = {"containers": {"bao": ("a", {"LEVEL": "a"})}}
WITH_REPLICAS: dict[str, Any] = {**WANTED, "replicas": 3}


class TestTwoActorsInOneEvent:
    """Where ownership begins in that event, nothing was owned before, so only the attestation shows the change."""

    def start(self) -> Model:
        model = Model()
        model.apply(manifest(WANTED, attests=True))
        model.wait(timedelta(seconds=2))
        model.see()
        return model

    def test_another_removes_what_the_operator_just_added(self) -> None:
        model = self.start()

        model.apply(manifest(WITH_REPLICAS, attests=True))
        model.update("kubectl", lambda body: body["spec"].pop("replicas"))

        assert shown(model.see()) == ("owned_field_removed", ["-/spec/replicas"], None)

    def test_another_removes_a_member_that_the_operator_just_added(self) -> None:
        model = self.start()

        model.apply(manifest({"containers": {"bao": ("a", {"LEVEL": "a", "MODE": "a"})}}, attests=True))
        model.update("kubectl", lambda body: container(body)["env"].pop())

        path = f"-{POD}/containers/name=bao/env/name=MODE"
        assert shown(model.see()) == ("owned_field_removed", [path], None)

    def test_another_takes_back_what_the_operator_just_took(self) -> None:
        model = self.start()
        model.update("hpa", set_replicas(2))
        model.see()
        model.wait(timedelta(seconds=2))

        model.apply(manifest(WITH_REPLICAS, attests=True))
        model.update("hpa", set_replicas(5))

        assert shown(model.see()) == ("owned_field_changed", ["~/spec/replicas"], "hpa")

    @pytest.mark.parametrize(
        "change",
        [
            lambda body: body["metadata"]["labels"].update({LABEL: "dev"}),
            lambda body: body["metadata"]["labels"].pop(LABEL),
            lambda body: body["metadata"].pop("labels"),
        ],
    )
    def test_a_label_that_the_operator_just_added_is_lost(self, change: Callable[[Any], None]) -> None:
        body = manifest(WANTED, attests=False)
        del body["metadata"]["labels"]
        model = Model()
        model.apply(body)
        model.see()

        model.apply(manifest(WANTED, attests=True))
        model.update("kubectl", change)

        assert model.see().reason is Reason.LABEL_LOST

    def test_what_is_found_otherwise_is_named_once(self) -> None:
        model = self.start()

        model.apply(manifest({**WANTED, "annotations": {"x": "y"}}, attests=True))
        model.update("kubectl", lambda body: container(body).pop("env"))

        path = f"-{POD}/containers/name=bao/env"
        assert shown(model.see()) == ("owned_field_removed", [path], None)

    def test_too_many_fields_are_compared_together(self) -> None:
        data = large_data(1_900)
        before = attested(config_map(data))
        after = attested(config_map({**data, "new": "operator's"}))
        del after["metadata"]["managedFields"][0]["fieldsV1"]["f:data"]["f:new"]
        after["metadata"]["managedFields"].append(entry("kubectl", {"f:data": {"f:new": {}}}))

        after["data"]["new"] = "evil"

        assert shown(judge_change(before, after))[::2] == ("unowned_added", "kubectl")
        del after["data"]["new"]
        del after["metadata"]["managedFields"][1]
        assert shown(judge_change(before, after)) == ("owned_field_changed", ["~"], None)

    def test_another_manager_of_the_operator_may_add_to_too_many_fields(self) -> None:
        data = large_data(1_900)
        after = attested(config_map({**data, "new": "x"}))
        after["metadata"]["managedFields"].append(entry("manager", {"f:data": {"f:more": {}}}))
        after["data"]["more"] = "y"

        assert judge_change(attested(config_map(data)), after).reason is Reason.OPERATOR_WRITE
        assert judge(None, after, OPENBAO)[0].reason is Reason.UNCHANGED


def large_data(keys: int) -> dict[str, str]:
    """Return so much data that only all of it together can be attested."""
    return {f"key-{number:05}-{number * 7919}": "v" for number in range(keys)}


class _Counted(dict[str, Any]):
    """An object that counts how often all of it is read."""

    reads = 0

    def items(self) -> Any:
        self.reads += 1
        return super().items()


def test_an_object_is_hashed_once_however_many_keys_are_removed() -> None:
    data = large_data(1_900)
    before = attested(config_map(data))
    after = _Counted(attested(config_map(dict(list(data.items())[:1_800]))))
    after["metadata"]["managedFields"][0]["time"] = "2026-01-01T00:00:09Z"

    judgement = judge_change(before, after)

    assert judgement.reason is Reason.OPERATOR_WRITE
    assert judgement.removed == 100
    assert after.reads <= 2
