"""What is drift, by example: two versions of an object and the judgement."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from sentinel.core.drift.fingerprint import fingerprint
from sentinel.core.drift.judge import judge
from sentinel.core.drift.judgement import Reason
from sentinel.core.drift.rules import OPENBAO, Unowned
from sentinel.core.json import Malformed
from tests.core.drift.objects import (
    FINGERPRINT,
    LABELS,
    OPERATOR,
    attested,
    changed,
    config_map,
    entry,
    judge_change,
    operator_entry,
    rules,
    shown,
    stateful_set,
    without,
)

LATER = "2026-01-01T00:01:00Z"
POD = "/spec/template/spec"
STATUS_ENTRY = entry("kube-controller-manager", {"f:status": {"f:replicas": {}}}, subresource="status", time=LATER)


class TestOwnedFields:
    def test_a_change_by_another_manager_is_drift(self) -> None:
        before = stateful_set()
        after = stateful_set(
            without(operator_entry(), "f:spec", "f:replicas"),
            entry("kubectl-edit", {"f:spec": {"f:replicas": {}}}, time=LATER),
        )
        after["spec"]["replicas"] = 5

        judgement = judge_change(before, after)

        assert judgement.is_drift
        assert shown(judgement) == ("owned_field_changed", ["~/spec/replicas"], "kubectl-edit")
        assert judgement.encode() == {
            "drift": True,
            "reason": "owned_field_changed",
            "rule": "owned_field_changed",
            "changes": [{"path": "/spec/replicas", "op": "change"}],
            "actor": {"manager": "kubectl-edit", "operation": "Update", "time": LATER},
        }
        assert judgement.summary == "StatefulSet/bao/prod: +0 ~1 -0 by kubectl-edit (Update)"

    @pytest.mark.parametrize("time", [None, "2026-01-01T00:00:00Z", "yesterday"])
    def test_times_that_are_missing_equal_or_odd_break_nothing(self, time: str | None) -> None:
        after = stateful_set(
            entry("kubectl-edit", {"f:spec": {"f:replicas": {}}}, time=time),
            without(operator_entry(), "f:spec", "f:replicas"),
        )
        after["spec"]["replicas"] = 5

        judgement = judge_change(stateful_set(), after)

        assert shown(judgement) == ("owned_field_changed", ["~/spec/replicas"], "kubectl-edit")
        assert (judgement.actor.time is None) == (time != "2026-01-01T00:00:00Z")

    def test_nobody_hides_behind_an_entry_of_the_operator(self) -> None:
        """Entries can be edited, so that the operator's still names a field that another manager changed."""
        after = stateful_set(operator_entry(), entry("kubectl-edit", {"f:spec": {"f:replicas": {}}}, time=LATER))
        after["spec"]["replicas"] = 5

        assert shown(judge_change(stateful_set(), after)) == (
            "owned_field_changed",
            ["~/spec/replicas"],
            "kubectl-edit",
        )

    def test_a_removal_leaves_no_actor(self) -> None:
        after = stateful_set(without(operator_entry(), "f:spec", "f:replicas"))
        del after["spec"]["replicas"]

        judgement = judge_change(stateful_set(), after)

        assert shown(judgement) == ("owned_field_removed", ["-/spec/replicas"], None)
        assert judgement.encode()["actor"] == {"manager": None, "operation": None, "time": None}
        assert judgement.summary.endswith("-1 by unknown")

    @pytest.mark.parametrize("unrelated", ["status", "operator", "annotators"])
    def test_a_removal_is_not_attributed_to_unrelated_writers(self, unrelated: str) -> None:
        status = entry("kube-controller-manager", {"f:status": {"f:replicas": {}}}, subresource="status")
        before = attested(stateful_set(operator_entry(), status))
        after = copy.deepcopy(before)
        del after["spec"]["replicas"]
        entries = after["metadata"]["managedFields"]
        entries[0] = without(entries[0], "f:spec", "f:replicas")
        if unrelated == "annotators":
            after["metadata"]["annotations"] |= {"a": "1", "b": "2"}
            entries += [
                entry(f"team-{name}", {"f:metadata": {"f:annotations": {f"f:{name}": {}}}}, time=LATER)
                for name in ("a", "b")
            ]
        else:
            entries[unrelated == "status"]["time"] = LATER

        assert shown(judge_change(before, after)) == ("owned_field_removed", ["-/spec/replicas"], None)

    def test_a_removed_subtree_is_one_change(self) -> None:
        after = stateful_set(
            without(
                operator_entry(), "f:spec", "f:template", "f:spec", "f:containers", 'k:{"name":"bao"}', "f:env"
            )
        )
        del after["spec"]["template"]["spec"]["containers"][0]["env"]

        assert shown(judge_change(stateful_set(), after))[1] == [f"-{POD}/containers/name=bao/env"]

    @pytest.mark.parametrize(
        ("steps", "reason"),
        [
            (("metadata",), "label_lost"),
            (("metadata", "labels"), "label_lost"),
            (("spec", "template", "spec", "containers", 'k:{"name":"bao"}', "env"), "owned_field_removed"),
            (("spec", "template", "spec", "containers"), "owned_field_removed"),
        ],
    )
    def test_an_entry_that_keeps_an_emptied_parent_holds_no_more(
        self, steps: tuple[str, ...], reason: str
    ) -> None:
        after = copy.deepcopy(stateful_set())
        fields = after["metadata"]["managedFields"][0]["fieldsV1"]
        for step in steps[:-1]:
            fields = fields[step if step.startswith("k:") else f"f:{step}"]
        fields[f"f:{steps[-1]}"] = {}
        if steps[0] == "metadata":
            del after["metadata"]["labels"]
        elif steps[-1] == "env":
            del after["spec"]["template"]["spec"]["containers"][0]["env"]
        else:
            after["spec"]["template"]["spec"]["containers"] = []

        judgement = judge_change(stateful_set(), after)

        assert (judgement.reason.value, judgement.actor.manager) == (reason, None)

    def test_data_that_leaves_an_emptied_map_in_the_entry_is_drift(self) -> None:
        before = config_map({"a": "1"})
        after = copy.deepcopy(before)
        del after["data"]["a"]
        after["metadata"]["managedFields"][0]["fieldsV1"]["f:data"] = {}

        assert shown(judge_change(before, after)) == ("owned_field_removed", ["-/data/a"], None)

    def test_an_emptied_map_in_the_entry_does_not_hold_what_is_added(self) -> None:
        before = config_map({"a": "1"}, entry(OPERATOR, {"f:data": {"f:a": {}}}))
        after = config_map({"b": "2"}, entry(OPERATOR, {"f:data": {}}))

        assert shown(judge_change(before, after))[0] == "owned_field_removed"

    def test_an_atomic_list_and_an_atomic_map_are_one_change_each(self) -> None:
        reduced = without(operator_entry(), "f:spec", "f:selector")
        containers = ("f:spec", "f:template", "f:spec", "f:containers", 'k:{"name":"bao"}')
        reduced = without(reduced, *containers, "f:args")
        taken: dict[str, Any] = {
            "f:spec": {
                "f:selector": {},
                "f:template": {"f:spec": {"f:containers": {'k:{"name":"bao"}': {"f:args": {}}}}},
            }
        }
        after = stateful_set(reduced, entry("kubectl-edit", taken, time=LATER))
        after["spec"]["selector"] = {"matchLabels": {"app": "evil", "more": "1"}}
        after["spec"]["template"]["spec"]["containers"][0]["args"] = ["server", "-dev"]

        assert shown(judge_change(stateful_set(), after)) == (
            "owned_field_changed",
            ["~/spec/selector", f"~{POD}/containers/name=bao/args"],
            "kubectl-edit",
        )

    def test_what_was_taken_stays_owned_until_the_operator_writes(self) -> None:
        reduced = without(operator_entry(), "f:spec", "f:replicas")
        states = []
        for at, replicas in enumerate((5, 6)):
            time = f"2026-01-01T00:0{at + 1}:00Z"
            state = stateful_set(reduced, entry("kubectl-edit", {"f:spec": {"f:replicas": {}}}, time=time))
            state["spec"]["replicas"] = replicas
            states.append(state)

        _, remembered = judge(fingerprint(stateful_set(), OPENBAO), states[0], OPENBAO)
        sidecar, _ = judge(remembered, states[1], OPENBAO)

        assert sidecar.reason is Reason.OWNED_FIELD_CHANGED
        assert judge_change(states[0], states[1]).reason is Reason.UNOWNED

        released = stateful_set({**reduced, "time": LATER}, entry("kubectl-edit", {"f:spec": {"f:replicas": {}}}))
        released["spec"]["replicas"] = 5
        _, remembered = judge(remembered, released, OPENBAO)
        after_release, _ = judge(remembered, states[1], OPENBAO)
        assert after_release.reason is Reason.UNOWNED

    def test_what_was_taken_beside_a_write_of_the_operator_stays_owned(self) -> None:
        after = stateful_set(
            without(operator_entry(time=LATER), "f:spec", "f:replicas"),
            entry("kubectl-edit", {"f:spec": {"f:replicas": {}}}, time=LATER),
        )
        after["spec"]["replicas"] = 5
        after["spec"]["template"]["spec"]["containers"][0]["image"] = "bao:2"
        first, state = judge(fingerprint(stateful_set(), OPENBAO), after, OPENBAO)

        again, _ = judge(state, changed(after, lambda body: body["spec"].update(replicas=6)), OPENBAO)

        assert shown(first)[:2] == ("owned_field_changed", ["~/spec/replicas"])
        assert shown(again)[:2] == ("owned_field_changed", ["~/spec/replicas"])

    def test_a_field_that_was_removed_and_comes_back_is_still_owned(self) -> None:
        gone = stateful_set(without(operator_entry(), "f:spec", "f:replicas"))
        del gone["spec"]["replicas"]
        back = stateful_set(
            without(operator_entry(), "f:spec", "f:replicas"),
            entry("kubectl-edit", {"f:spec": {"f:replicas": {}}}),
        )

        _, state = judge(fingerprint(stateful_set(), OPENBAO), gone, OPENBAO)
        judgement, _ = judge(state, back, OPENBAO)

        assert shown(judgement) == ("owned_field_changed", ["+/spec/replicas"], "kubectl-edit")

    def test_a_type_that_changes_is_one_change(self) -> None:
        after = changed(stateful_set(), lambda body: body["spec"]["template"].update(spec="evil"))

        assert shown(judge_change(stateful_set(), after))[:2] == ("owned_field_changed", [f"~{POD}"])

    def test_members_that_keys_do_not_tell_apart_are_one_change(self) -> None:
        containers = ("f:spec", "f:template", "f:spec", "f:containers")
        after = stateful_set(
            without(operator_entry(), *containers),
            entry("kubectl-edit", {"f:spec": {"f:template": {"f:spec": {"f:containers": {}}}}}, time=LATER),
        )
        after["spec"]["template"]["spec"]["containers"] *= 2

        assert shown(judge_change(stateful_set(), after)) == (
            "owned_field_changed",
            [f"~{POD}/containers"],
            "kubectl-edit",
        )


class TestOperatorWrites:
    def test_a_new_value_that_the_operator_holds_is_its_own(self) -> None:
        after = stateful_set(operator_entry(time=LATER), entry("kube-controller-manager", {"f:status": {}}))
        after["spec"]["replicas"] = 5

        assert shown(judge_change(stateful_set(), after)) == ("operator_write", ["~/spec/replicas"], OPERATOR)

    @pytest.mark.parametrize("is_proven_by", ["time", "attestation"])
    def test_a_value_that_another_manager_wants_too_is_its_own(self, is_proven_by: str) -> None:
        time = LATER if is_proven_by == "time" else "2026-01-01T00:00:00Z"
        after = stateful_set(operator_entry(time=time), entry("team", {"f:spec": {"f:replicas": {}}}, time=LATER))
        after["spec"]["replicas"] = 5
        if is_proven_by == "attestation":
            after = attested(after)

        assert not judge_change(stateful_set(), after).is_drift

    @pytest.mark.parametrize("manager", sorted(OPENBAO.managers))
    def test_each_of_its_managers_is_the_operator(self, manager: str) -> None:
        after = stateful_set(
            without(operator_entry(), "f:spec", "f:replicas"), entry(manager, {"f:spec": {"f:replicas": {}}})
        )
        after["spec"]["replicas"] = 5

        assert shown(judge_change(stateful_set(), after)) == ("operator_write", ["~/spec/replicas"], manager)

    @pytest.mark.parametrize(("managers", "is_drift"), [({OPERATOR, "manager"}, False), ({OPERATOR}, True)])
    @pytest.mark.parametrize("operation", ["Apply", "Update"])
    def test_an_operation_can_be_part_of_what_the_operator_is(
        self, managers: set[str], is_drift: bool, operation: str
    ) -> None:
        """`manager` is the name of many controllers, so its updates need not be the operator's."""
        limited = msgspec.structs.replace(OPENBAO, managers=frozenset({*managers, "manager/Apply"}))
        after = stateful_set(
            without(operator_entry(), "f:spec", "f:replicas"),
            entry("manager", {"f:spec": {"f:replicas": {}}}, operation=operation, time=LATER),
        )
        after["spec"]["replicas"] = 5

        assert judge_change(stateful_set(), after, limited).is_drift == (is_drift and operation == "Update")

    def test_a_field_that_it_no_longer_applies_is_its_own_removal(self) -> None:
        after = stateful_set(without(operator_entry(time=LATER), "f:spec", "f:replicas"))
        del after["spec"]["replicas"]

        assert shown(judge_change(stateful_set(), after)) == ("operator_write", ["-/spec/replicas"], OPERATOR)

    def test_its_status_write_does_not_excuse_a_removal(self) -> None:
        status = entry(OPERATOR, {"f:status": {"f:replicas": {}}}, subresource="status", time=LATER)
        after = stateful_set(without(operator_entry(), "f:spec", "f:replicas"), status)
        del after["spec"]["replicas"]

        assert judge_change(stateful_set(), after).reason is Reason.OWNED_FIELD_REMOVED

    def test_a_removal_beside_two_writers_is_by_the_other_one(self) -> None:
        after = stateful_set(
            without(operator_entry(time=LATER), "f:spec", "f:replicas"),
            entry("kubectl-edit", {"f:metadata": {"f:annotations": {"f:a": {}}}}, time=LATER),
        )
        del after["spec"]["replicas"]
        after["metadata"]["annotations"] = {"a": "b"}

        assert shown(judge_change(stateful_set(), after)) == (
            "owned_field_removed",
            ["-/spec/replicas"],
            "kubectl-edit",
        )

    def test_two_actors_in_one_event_are_drift_by_the_other_one(self) -> None:
        after = stateful_set(
            without(operator_entry(time=LATER), "f:spec", "f:replicas"),
            entry("kubectl-scale", {"f:spec": {"f:replicas": {}}}, subresource="scale", time=LATER),
        )
        after["spec"]["replicas"] = 5
        after["spec"]["template"]["spec"]["containers"][0]["image"] = "bao:2"

        judgement = judge_change(stateful_set(), after)

        assert shown(judgement) == ("owned_field_changed", ["~/spec/replicas"], "kubectl-scale")
        assert judgement.actor.subresource == "scale"

    def test_a_default_that_comes_with_its_write_is_its_own(self) -> None:
        after = stateful_set(operator_entry(time=LATER))
        after["spec"]["revisionHistoryLimit"] = 10
        after["spec"]["podManagementPolicy"] = "Parallel"

        assert judge_change(stateful_set(), after).reason is Reason.OPERATOR_WRITE

    def test_a_field_that_falls_back_to_its_default_is_its_own(self) -> None:
        after = stateful_set(without(operator_entry(time=LATER), "f:spec", "f:replicas"))
        after["spec"]["replicas"] = 1

        assert judge_change(stateful_set(), after).reason is Reason.OPERATOR_WRITE

    def test_a_fallback_without_its_write_is_drift(self) -> None:
        after = stateful_set(without(operator_entry(), "f:spec", "f:replicas"))
        after["spec"]["replicas"] = 1

        assert shown(judge_change(stateful_set(), after)) == ("owned_field_changed", ["~/spec/replicas"], None)

    def test_it_removes_a_foreign_field(self) -> None:
        before, after = stateful_set(), stateful_set(operator_entry(time=LATER))
        before["spec"]["paused"] = True

        assert shown(judge_change(before, after))[:2] == ("operator_write", ["-/spec/paused"])


class TestAttestedRemovals:
    """A removal leaves no trace, but the operator attests what it wants."""

    def test_a_removal_of_what_it_wants_is_drift_whoever_wrote(self) -> None:
        before = attested(stateful_set())
        after = copy.deepcopy(before)
        del after["spec"]["replicas"]
        after["metadata"]["managedFields"][0]["time"] = LATER
        del after["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:replicas"]

        assert shown(judge_change(before, after))[:2] == ("owned_field_removed", ["-/spec/replicas"])

    def test_a_removal_of_what_it_no_longer_wants_is_its_own_at_equal_times(self) -> None:
        before = attested(stateful_set())
        after = stateful_set(without(operator_entry(), "f:spec", "f:replicas"))
        del after["spec"]["replicas"]
        after = attested(after)

        assert shown(judge_change(before, after))[0] == "operator_write"

    def test_a_removal_of_its_own_beside_another_writer_is_still_its_own(self) -> None:
        before = attested(stateful_set())
        after = stateful_set(without(operator_entry(), "f:spec", "f:replicas"))
        del after["spec"]["replicas"]
        after = attested(after)
        after["metadata"]["annotations"]["team"] = "x"
        theirs = entry("kubectl-annotate", {"f:metadata": {"f:annotations": {"f:team": {}}}}, time=LATER)
        after["metadata"]["managedFields"].append(theirs)

        assert not judge_change(before, after).is_drift

    def test_what_it_gives_up_and_another_changes_in_the_same_event_is_drift(self) -> None:
        before = attested(stateful_set())
        after = stateful_set(without(operator_entry(), "f:spec", "f:replicas"))
        del after["spec"]["replicas"]
        after = attested(after)
        after["spec"]["replicas"] = 5
        after["metadata"]["managedFields"].append(entry("kubectl-edit", {"f:spec": {"f:replicas": {}}}))

        assert shown(judge_change(before, after)) == ("owned_field_changed", ["~/spec/replicas"], "kubectl-edit")

    def test_one_write_restores_and_a_later_one_removes_in_the_same_event(self) -> None:
        before = attested(stateful_set())
        wanted = stateful_set(operator_entry(time=LATER))
        wanted["spec"]["template"]["spec"]["containers"][0]["image"] = "bao:2"
        after = attested(wanted)
        del after["spec"]["replicas"]
        del after["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:replicas"]

        assert shown(judge_change(before, after))[:2] == ("owned_field_removed", ["-/spec/replicas"])

    def test_another_manager_of_the_operator_removes_its_own_field(self) -> None:
        own = entry("manager", {"f:spec": {"f:paused": {}, "f:a": {}}})
        before = attested(stateful_set())
        before["metadata"]["managedFields"].append(own)
        before["spec"] |= {"paused": True, "a": 1}
        after = copy.deepcopy(before)
        del after["spec"]["paused"]
        after["metadata"]["managedFields"][1] = entry("manager", {"f:spec": {"f:a": {}}}, time=LATER)

        assert judge_change(before, after).reason is Reason.OPERATOR_WRITE

    def test_too_many_fields_are_compared_together(self) -> None:
        data = {f"key-{number}-{number * 7919}": f"value {number}" for number in range(2_000)}
        before = attested(config_map(data))
        assert before["metadata"]["annotations"][FINGERPRINT].startswith("v1-total:")
        fewer = {key: value for key, value in data.items() if key != "key-5-39595"}

        by_operator = judge_change(before, attested(config_map(fewer)))
        stolen = attested(config_map(fewer))
        del stolen["data"]["key-7-55433"]
        del stolen["metadata"]["managedFields"][0]["fieldsV1"]["f:data"]["f:key-7-55433"]
        by_another = judge_change(before, stolen)
        by_another_alone = judge_change(before, changed(before, lambda body: body["data"].pop("key-5-39595")))

        assert by_operator.reason is Reason.OPERATOR_WRITE
        assert by_another.reason is Reason.OWNED_FIELD_REMOVED
        assert by_another_alone.reason is Reason.OWNED_FIELD_REMOVED


class TestAdditions:
    def test_an_added_container_is_one_change(self) -> None:
        fields: dict[str, Any] = {"f:containers": {'k:{"name":"evil"}': {".": {}, "f:name": {}, "f:image": {}}}}
        after = stateful_set(
            operator_entry(), entry("kubectl-patch", {"f:spec": {"f:template": {"f:spec": fields}}})
        )
        evil = {"name": "evil", "image": "evil", "imagePullPolicy": "Always", "ports": [{"containerPort": 1}]}
        after["spec"]["template"]["spec"]["containers"].insert(0, evil)

        assert shown(judge_change(stateful_set(), after)) == (
            "unowned_added",
            [f"+{POD}/containers/name=evil"],
            "kubectl-patch",
        )

    def test_a_default_that_nobody_holds_is_an_addition_when_it_changes(self) -> None:
        after = stateful_set(operator_entry(), entry("kubectl-edit", {"f:spec": {"f:podManagementPolicy": {}}}))
        after["spec"]["podManagementPolicy"] = "Parallel"

        assert shown(judge_change(stateful_set(), after))[:2] == ("unowned_added", ["~/spec/podManagementPolicy"])

    def test_what_another_manager_holds_is_no_addition_when_it_changes(self) -> None:
        theirs: dict[str, Any] = {"f:spec": {"f:podManagementPolicy": {}}}
        before = stateful_set(operator_entry(), entry("team", theirs))
        after = stateful_set(operator_entry(), entry("kubectl-edit", theirs, time=LATER))
        after["spec"]["podManagementPolicy"] = "Parallel"

        assert shown(judge_change(before, after)) == ("unowned", ["~/spec/podManagementPolicy"], "kubectl-edit")

    def test_a_foreign_removal_of_what_is_not_owned_is_no_drift(self) -> None:
        after = changed(stateful_set(), lambda body: body["spec"].pop("podManagementPolicy"))

        assert shown(judge_change(stateful_set(), after)) == ("unowned", ["-/spec/podManagementPolicy"], None)

    @pytest.mark.parametrize(
        ("unowned", "metadata", "spec", "own"),
        [
            (Unowned.NONE, "unowned", "unowned", "unowned"),
            (Unowned.SPEC, "unowned", "unowned_added", "unowned_added"),
            (Unowned.ALL, "unowned_added", "unowned_added", "unowned_added"),
        ],
    )
    def test_what_counts_is_a_setting(self, unowned: Unowned, metadata: str, spec: str, own: str) -> None:
        fields: dict[str, Any] = {
            "f:metadata": {"f:annotations": {"f:team": {}, "f:openbao.org/x": {}}},
            "f:spec": {"f:a": {}},
        }
        before = stateful_set(annotations={"x": "y"})

        def reason(change: Callable[[Any], None]) -> str:
            after = stateful_set(operator_entry(), entry("team", fields), annotations={"x": "y"})
            change(after)
            return judge_change(before, after, rules(unowned=unowned)).reason.value

        assert reason(lambda body: body["metadata"]["annotations"].update(team="a")) == metadata
        assert reason(lambda body: body["spec"].update(a=1)) == spec
        assert reason(lambda body: body["metadata"]["annotations"].update({"openbao.org/x": "a"})) == own

    def test_the_template_s_metadata_counts_as_spec(self) -> None:
        fields: dict[str, Any] = {
            "f:spec": {"f:template": {"f:metadata": {"f:annotations": {".": {}, "f:restartedAt": {}}}}}
        }
        after = stateful_set(operator_entry(), entry("kubectl-rollout", fields))
        after["spec"]["template"]["metadata"] = {"annotations": {"restartedAt": "now"}}

        assert shown(judge_change(stateful_set(), after))[:2] == ("unowned_added", ["+/spec/template/metadata"])

    def test_an_annotation_of_ours_that_its_holder_changes_counts(self) -> None:
        held = entry("team", {"f:metadata": {"f:annotations": {"f:openbao.org/x": {}}}})
        before = stateful_set(operator_entry(), held, annotations={"openbao.org/x": "a"})
        after = stateful_set(operator_entry(), {**held, "time": LATER}, annotations={"openbao.org/x": "b"})

        assert shown(judge_change(before, after))[0] == "unowned_added"
        assert judge_change(before, after, rules(unowned=Unowned.NONE)).reason is Reason.UNOWNED

    def test_a_default_of_the_server_alone_is_no_drift(self) -> None:
        after = stateful_set()
        after["spec"]["newInThisRelease"] = "default"

        assert shown(judge_change(stateful_set(), after)) == ("unowned", ["+/spec/newInThisRelease"], None)

    def test_a_default_of_the_server_beside_a_status_update_is_no_drift(self) -> None:
        after = stateful_set(operator_entry(), STATUS_ENTRY, resourceVersion="2")
        after["spec"]["newInThisRelease"] = "default"
        after["status"]["replicas"] = 2

        assert shown(judge_change(stateful_set(), after)) == ("unowned", ["+/spec/newInThisRelease"], None)

    @pytest.mark.parametrize("entries", [[operator_entry()], [operator_entry(), STATUS_ENTRY]])
    def test_a_default_that_changes_without_a_trace_is_drift(self, entries: list[Any]) -> None:
        after = stateful_set(*entries, resourceVersion="2")
        after["spec"]["podManagementPolicy"] = "Parallel"

        assert shown(judge_change(stateful_set(), after)) == (
            "unowned_added",
            ["~/spec/podManagementPolicy"],
            None,
        )

    def test_a_field_that_is_written_without_a_trace_is_drift(self) -> None:
        after = stateful_set(resourceVersion="2")
        after["spec"]["template"]["spec"] |= {"hostNetwork": True, "securityContext": {"runAsUser": 0}}

        assert shown(judge_change(stateful_set(), after)) == (
            "unowned_added",
            [f"+{POD}/hostNetwork", f"+{POD}/securityContext"],
            None,
        )

    def test_a_list_without_members_is_no_addition(self) -> None:
        after = stateful_set(resourceVersion="2")
        after["spec"]["template"]["spec"]["initContainers"] = []

        assert shown(judge_change(stateful_set(), after)) == ("unowned", [f"+{POD}/initContainers"], None)

    @pytest.mark.parametrize("field", ["containers", "initContainers"])
    @pytest.mark.parametrize(
        "entries", [[operator_entry()], [operator_entry(), STATUS_ENTRY], [operator_entry(time=LATER)]]
    )
    def test_a_container_that_nobody_holds_is_drift(self, field: str, entries: list[Any]) -> None:
        after = stateful_set(*entries)
        evil = {"name": "evil", "image": "evil", "ports": [{"containerPort": 1}]}
        after["spec"]["template"]["spec"].setdefault(field, []).append(evil)
        expected = f"+{POD}/containers/name=evil" if field == "containers" else f"+{POD}/initContainers"

        assert shown(judge_change(stateful_set(), after)) == ("unowned_added", [expected], None)

    @pytest.mark.parametrize("field", ["data", "binaryData"])
    def test_a_key_of_data_that_nobody_holds_is_drift(self, field: str) -> None:
        after = config_map({"a": "1"})
        after.setdefault(field, {})["evil"] = "eA=="
        expected = "+/data/evil" if field == "data" else "+/binaryData"

        assert shown(judge_change(config_map({"a": "1"}), after)) == ("unowned_added", [expected], None)

    def test_a_member_of_which_the_operator_holds_parts_is_its_own(self) -> None:
        own = operator_entry(time=LATER)
        own["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"]['k:{"name":"more"}'] = {"f:image": {}}
        after = stateful_set(own)
        after["spec"]["template"]["spec"]["containers"].append({"name": "more", "image": "more"})

        assert judge_change(stateful_set(), after).reason is Reason.OPERATOR_WRITE

    def test_a_default_that_comes_with_a_foreign_write_is_foreign(self) -> None:
        after = stateful_set(operator_entry(), entry("team", {"f:spec": {"f:a": {}}}, operation="Apply"))
        after["spec"] |= {"a": 1, "defaultOfA": 2}

        judgement = judge_change(stateful_set(), after)

        assert shown(judgement) == ("unowned_added", ["+/spec/a", "+/spec/defaultOfA"], "team")

    def test_without_entries_every_addition_counts(self) -> None:
        """Someone removed all entries, so the API server records nothing."""
        before = stateful_set(managedFields=[])
        after = changed(before, lambda body: body["spec"].update(a=1))

        assert shown(judge_change(before, after)) == ("unowned_added", ["+/spec/a"], None)

    def test_a_subtree_that_two_managers_add_is_one_change(self) -> None:
        after = stateful_set(
            operator_entry(),
            entry("team", {"f:spec": {"f:affinity": {"f:a": {"f:x": {}}}}}, time=LATER),
            entry("kubectl-edit", {"f:spec": {"f:affinity": {"f:a": {"f:y": {}}, "f:b": {}}}}),
        )
        after["spec"]["affinity"] = {"a": {"x": 1, "y": 2}, "b": 2}

        assert shown(judge_change(stateful_set(), after)) == ("unowned_added", ["+/spec/affinity"], "team")


class TestActor:
    @pytest.mark.parametrize("is_reversed", [False, True])
    def test_of_several_writers_it_is_the_latest_whatever_the_order(self, is_reversed: bool) -> None:
        reduced = without(without(operator_entry(), "f:spec", "f:replicas"), "f:spec", "f:selector")
        after = stateful_set(
            reduced,
            entry("late", {"f:spec": {"f:replicas": {}}}, time="2026-01-01T00:00:40Z"),
            entry("early", {"f:spec": {"f:selector": {}}}, time="2026-01-01T00:00:30Z"),
        )
        after["spec"] |= {"replicas": 5, "selector": {"matchLabels": {"app": "evil"}}}
        if is_reversed:
            after["spec"] = dict(reversed(after["spec"].items()))
            after["metadata"]["managedFields"].reverse()

        assert shown(judge_change(stateful_set(), after)) == (
            "owned_field_changed",
            ["~/spec/replicas", "~/spec/selector"],
            "late",
        )

    def test_it_is_not_who_did_what_does_not_decide(self) -> None:
        label = "app.kubernetes.io/instance"
        reduced = without(operator_entry(), "f:metadata", "f:labels", f"f:{label}")
        after = stateful_set(
            without(reduced, "f:spec", "f:replicas"),
            entry("kubectl-scale", {"f:spec": {"f:replicas": {}}}, time=LATER),
            entry("kubectl-annotate", {"f:metadata": {"f:annotations": {".": {}, "f:a": {}}}}, time=LATER),
            annotations={"a": "b"},
        )
        del after["metadata"]["labels"][label]
        after["spec"]["replicas"] = 5

        assert shown(judge_change(stateful_set(), after))[::2] == ("label_lost", None)


class TestLabels:
    @pytest.mark.parametrize("label", LABELS)
    def test_a_managed_label_is_lost_by_removal(self, label: str) -> None:
        after = stateful_set(without(operator_entry(), "f:metadata", "f:labels", f"f:{label}"))
        del after["metadata"]["labels"][label]

        assert shown(judge_change(stateful_set(), after))[0] == "label_lost"

    def test_a_managed_label_is_lost_by_another_value(self) -> None:
        label = "app.kubernetes.io/instance"
        after = stateful_set(
            without(operator_entry(), "f:metadata", "f:labels", f"f:{label}"),
            entry("kubectl-label", {"f:metadata": {"f:labels": {f"f:{label}": {}}}}),
        )
        after["metadata"]["labels"][label] = "dev"

        assert shown(judge_change(stateful_set(), after))[::2] == ("label_lost", "kubectl-label")

    def test_a_managed_label_that_nobody_holds_is_lost_too(self) -> None:
        before = stateful_set(managedFields=[])
        after = changed(before, lambda body: body["metadata"]["labels"].pop("app.kubernetes.io/instance"))

        assert judge_change(before, after).reason is Reason.LABEL_LOST

    def test_a_label_that_it_never_held_is_lost_beside_its_write(self) -> None:
        """The operator's own write explains the removal of what nobody owned, but not that of a managed label."""
        label = "app.kubernetes.io/instance"
        unheld = without(operator_entry(), "f:metadata", "f:labels", f"f:{label}")
        after = stateful_set({**unheld, "time": LATER})
        after["spec"]["replicas"] = 4
        del after["metadata"]["labels"][label]

        judgement = judge_change(stateful_set(unheld), after)

        assert shown(judgement)[:2] == ("label_lost", ["-/metadata/labels/app.kubernetes.io~1instance"])

    def test_the_operator_may_remove_its_label(self) -> None:
        after = stateful_set(without(operator_entry(time=LATER), "f:metadata", "f:labels"))
        after["metadata"]["labels"] = {}

        assert judge_change(stateful_set(), after).reason is Reason.OPERATOR_WRITE

    def test_it_is_named_before_all_other_reasons(self) -> None:
        after = stateful_set(
            entry("kubectl-edit", {"f:spec": {"f:replicas": {}, "f:a": {}}}, time=LATER), operator_entry()
        )
        after["metadata"]["managedFields"][1]["fieldsV1"]["f:spec"].pop("f:replicas")
        after["spec"] |= {"replicas": 5, "a": 1}
        del after["spec"]["selector"]
        without_label = changed(after, lambda body: body["metadata"]["labels"].pop("app.kubernetes.io/instance"))

        assert shown(judge_change(stateful_set(), without_label)) == (
            "label_lost",
            ["-/metadata/labels/app.kubernetes.io~1instance", "+/spec/a", "~/spec/replicas", "-/spec/selector"],
            "kubectl-edit",
        )
        assert judge_change(stateful_set(), after).reason is Reason.OWNED_FIELD_CHANGED
        after["spec"]["replicas"] = 3
        assert judge_change(stateful_set(), after).reason is Reason.OWNED_FIELD_REMOVED


class TestNothingOfInterest:
    def test_an_update_of_the_status_is_no_drift(self) -> None:
        status = entry("kube-controller-manager", {"f:status": {"f:replicas": {}}}, subresource="status")
        after = stateful_set(operator_entry(), status)
        after["status"]["replicas"] = 1

        judgement = judge_change(stateful_set(), after)

        assert not judgement.is_drift
        assert shown(judgement) == ("status", ["~/status"], "kube-controller-manager")

    @pytest.mark.parametrize("field", ["resourceVersion", "generation", "managedFields", "deletionTimestamp"])
    def test_what_the_api_server_maintains_is_no_drift(self, field: str) -> None:
        after = changed(stateful_set(), lambda body: body["metadata"].update({field: "other"}))

        assert judge_change(stateful_set(), after).reason is Reason.BOOKKEEPING

    def test_equal_versions_are_unchanged(self) -> None:
        assert shown(judge_change(stateful_set(), stateful_set())) == ("unchanged", [], None)

    def test_the_order_of_a_keyed_list_does_not_matter(self) -> None:
        before = stateful_set()
        before["spec"]["template"]["spec"]["containers"].append({"name": "other", "image": "x"})
        after = changed(before, lambda body: body["spec"]["template"]["spec"]["containers"].reverse())

        assert judge_change(before, after).reason is Reason.BOOKKEEPING

    def test_a_list_that_turns_out_to_be_keyed_has_not_changed(self) -> None:
        before, after = stateful_set(), stateful_set()
        for body in (before, after):
            body["kind"] = "Widget"
            body["spec"]["rules"] = [{"id": "a", "x": 1}, {"id": "b", "x": 2}]
        shows = entry("team", {"f:spec": {"f:rules": {'k:{"id":"a"}': {".": {}, "f:id": {}}}}}, time=LATER)
        after["metadata"]["managedFields"].append(shows)

        judgement, state = judge(fingerprint(before, OPENBAO), after, OPENBAO)
        assert judgement.reason is Reason.BOOKKEEPING

        # Who showed it is gone, but what is known stays known.
        last = changed(before, lambda body: body["spec"]["rules"].pop())
        judgement, _ = judge(state, last, OPENBAO)
        assert shown(judgement)[1] == ["-/spec/rules/id=b"]


class TestDeletion:
    def test_a_deleted_object_is_drift_of_the_whole(self) -> None:
        judgement, state = judge(fingerprint(stateful_set(), OPENBAO), None, OPENBAO)

        assert (shown(judgement), judgement.rule, state) == (("deleted", ["-"], None), "deleted", None)

    def test_an_object_that_another_manager_created_again_was_deleted(self) -> None:
        after = stateful_set(entry("kubectl-create", {"f:spec": {"f:replicas": {}}}), uid="u2")

        judgement, state = judge(fingerprint(stateful_set(), OPENBAO), after, OPENBAO)

        assert judgement.reason is Reason.DELETED
        assert state is not None

    def test_an_object_that_the_operator_created_again_is_a_new_one(self) -> None:
        after = attested(stateful_set(uid="u2"))

        assert judge_change(stateful_set(), after).reason is Reason.UNCHANGED

    def test_neither_before_nor_after_is_an_error(self) -> None:
        with pytest.raises(TypeError, match="expected an object"):
            judge(None, None, OPENBAO)


class TestMalformedObjects:
    @pytest.mark.parametrize(
        "entries",
        [
            None,
            "none",
            ["x", {}, {"manager": 5}, {"manager": "x", "fieldsV1": 5}],
            [operator_entry(fieldsV1={"f:spec": {"k:{": {}, "k:[]": {}, "v:{}": {}, "x:": {}}})],
        ],
    )
    def test_entries_that_cannot_be_read_are_left_out(self, entries: Any) -> None:
        body = stateful_set(managedFields=entries)

        judgement = judge_change(stateful_set(), changed(body, lambda body: body["spec"].pop("replicas")))

        assert judgement.reason is Reason.OWNED_FIELD_REMOVED

    @pytest.mark.parametrize(
        "body", [{}, {"metadata": {}}, {"metadata": {"name": "x"}}, {"metadata": [], "kind": "K"}]
    )
    def test_an_object_without_a_name_or_kind_is_malformed(self, body: dict[str, Any]) -> None:
        with pytest.raises(Malformed):
            fingerprint(body, OPENBAO)

    def test_half_of_a_surrogate_pair_breaks_nothing(self) -> None:
        body = stateful_set(operator_entry(), entry("\ud800", {"f:spec": {"f:a": {}}}))

        assert judge_change(body, copy.deepcopy(body)).reason is Reason.UNCHANGED

    def test_fields_of_other_types_break_nothing(self) -> None:
        body = stateful_set(annotations=["x"], labels=5, uid=7)
        body["spec"] = [1, {"a": 1}]

        assert judge_change(body, copy.deepcopy(body)).reason is Reason.UNCHANGED
        assert judge_change(body, stateful_set()).reason is Reason.UNOWNED_ADDED


class TestValues:
    def test_short_values_are_shown_and_data_is_hashed(self) -> None:
        scaled = judge_change(
            stateful_set(), changed(stateful_set(), lambda body: body["spec"].update(replicas=5))
        )
        data = judge_change(config_map({"a": "secret"}), config_map({"a": "other secret"}))

        (change,) = scaled.changes
        assert (str(change.before), str(change.after)) == ("3", "5")
        (change,) = data.changes
        assert change.before is not None
        assert (change.before.text, change.before.size) == (None, 6)
        assert str(change.before) == f"6 bytes, hash {change.before.digest}"
        assert "secret" not in repr(data)

    def test_the_value_of_a_variable_and_a_long_text_are_hashed(self) -> None:
        def change(body: Any) -> None:
            container = body["spec"]["template"]["spec"]["containers"][0]
            container["env"][0]["value"] = "hunter2"
            container["image"] = "x" * 100

        judgement = judge_change(stateful_set(), changed(stateful_set(), change))

        assert [each.after.text for each in judgement.changes if each.after is not None] == [None, None]
        assert "hunter2" not in repr(judgement)

    def test_a_subtree_has_one_hash_and_the_size_of_its_values(self) -> None:
        judgement = judge_change(
            stateful_set(), changed(stateful_set(), lambda body: body["spec"].pop("selector"))
        )

        (change,) = judgement.changes
        assert change.after is None
        assert change.before is not None
        assert (change.before.size, change.before.text) == (3, None)
