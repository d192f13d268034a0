"""Judgements on objects that were not known before, by what the operator attested on them."""

from __future__ import annotations

import copy
from typing import Any

from sentinel.core.drift.judge import judge
from sentinel.core.drift.judgement import Judgement, Reason
from sentinel.core.drift.rules import OPENBAO, Rules, Unowned
from tests.core.drift.objects import (
    FINGERPRINT,
    attested,
    changed,
    config_map,
    entry,
    operator_entry,
    rules,
    shown,
    stateful_set,
)

POD = "/spec/template/spec"


class TestInitialJudgement:
    def judge_first(self, body: dict[str, Any], given: Rules = OPENBAO) -> Judgement:
        judgement, state = judge(None, body, given)
        assert state is not None
        return judgement

    def test_without_an_attestation_it_is_unattested(self) -> None:
        judgement = self.judge_first(stateful_set(operator_entry(), entry("team", {"f:spec": {"f:a": {}}})))

        assert shown(judgement) == ("unattested", [], None)

    def test_an_attestation_that_cannot_be_read_is_none(self) -> None:
        body = attested(stateful_set())
        body["metadata"]["annotations"][FINGERPRINT] = "v9:what"

        assert self.judge_first(body).reason is Reason.UNATTESTED

    def test_what_fits_is_unchanged(self) -> None:
        assert self.judge_first(attested(stateful_set())).reason is Reason.UNCHANGED

    def test_what_differs_is_a_mismatch_and_stays_owned(self) -> None:
        body = attested(stateful_set())
        body["spec"]["replicas"] = 5
        del body["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:replicas"]
        body["metadata"]["managedFields"].append(entry("kubectl-edit", {"f:spec": {"f:replicas": {}}}))
        del body["spec"]["template"]["spec"]["containers"][0]["env"]

        first, state = judge(None, body, OPENBAO)
        again, _ = judge(state, changed(body, lambda body: body["spec"].update(replicas=6)), OPENBAO)

        assert shown(first) == (
            "fingerprint_mismatch",
            ["~/spec/replicas", f"-{POD}/containers/name=bao/env"],
            "kubectl-edit",
        )
        assert shown(again)[:2] == ("owned_field_changed", ["~/spec/replicas"])

    def test_another_manager_of_the_operator_may_change_what_was_attested(self) -> None:
        body = attested(stateful_set())
        body["spec"]["replicas"] = 5
        edited = copy.deepcopy(body)
        del body["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:replicas"]
        body["metadata"]["managedFields"].append(entry("manager", {"f:spec": {"f:replicas": {}}}))

        assert self.judge_first(body).reason is Reason.UNCHANGED
        assert self.judge_first(edited).reason is Reason.FINGERPRINT_MISMATCH

    def test_what_another_manager_holds_outside_of_metadata_was_added(self) -> None:
        """In `metadata` only an annotation of ours counts, as it does when it is added."""
        body = attested(stateful_set())
        fields: dict[str, Any] = {
            "f:metadata": {
                "f:annotations": {"f:openbao.org/x": {}, "f:openbao.org/sentinel-ignore": {}, "f:other.org/x": {}},
                "f:labels": {"f:openbao.org/x": {}},
            },
            "f:spec": {"f:template": {"f:spec": {"f:containers": {'k:{"name":"evil"}': {".": {}, "f:name": {}}}}}},
            "f:status": {"f:replicas": {}},
        }
        body["metadata"]["managedFields"].append(entry("team", fields))
        body["metadata"]["annotations"] |= dict.fromkeys(
            ["openbao.org/x", "openbao.org/sentinel-ignore", "other.org/x"], "y"
        )
        body["metadata"]["labels"]["openbao.org/x"] = "y"
        body["spec"]["template"]["spec"]["containers"].append({"name": "evil", "imagePullPolicy": "Always"})

        judgement = self.judge_first(body)

        annotation = "+/metadata/annotations/openbao.org~1x"
        assert shown(judgement) == ("unowned_added", [annotation, f"+{POD}/containers/name=evil"], "team")
        assert self.judge_first(body, rules(unowned=Unowned.NONE)).reason is Reason.UNCHANGED

    def test_a_map_that_another_manager_took_as_a_whole_is_one_change(self) -> None:
        body = attested(stateful_set())
        body["spec"]["selector"]["matchLabels"] = {"app": "evil", "more": "evil"}
        del body["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:selector"]
        body["metadata"]["managedFields"].append(entry("team", {"f:spec": {"f:selector": {}}}))

        assert shown(self.judge_first(body)) == ("fingerprint_mismatch", ["~/spec/selector"], "team")

    def test_an_attestation_by_another_manager_is_a_mismatch(self) -> None:
        body = attested(stateful_set())
        fields = body["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"].pop("f:annotations")
        body["metadata"]["managedFields"].append(entry("team", {"f:metadata": {"f:annotations": fields}}))

        assert shown(self.judge_first(body)) == (
            "fingerprint_mismatch",
            ["~/metadata/annotations/openbao.org~1sentinel-fingerprint"],
            "team",
        )

    def test_without_entries_the_attestation_alone_decides(self) -> None:
        """kubectl prints objects without them."""
        body = attested(stateful_set())
        del body["metadata"]["managedFields"]

        assert self.judge_first(body).reason is Reason.UNCHANGED
        body["spec"]["replicas"] = 5
        assert self.judge_first(body).reason is Reason.FINGERPRINT_MISMATCH

    def test_too_many_fields_are_compared_together(self) -> None:
        data = {f"key-{number}-{number * 7919}": f"value {number}" for number in range(2_000)}
        body = attested(config_map(data))

        assert self.judge_first(body).reason is Reason.UNCHANGED
        body["data"]["key-5-39595"] = "evil"
        assert shown(self.judge_first(body)) == ("fingerprint_mismatch", ["~"], None)
