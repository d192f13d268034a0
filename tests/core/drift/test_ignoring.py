"""Which drift is ignored: by rules, and by the annotation of an object."""

from __future__ import annotations

import fnmatch
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.drift.fingerprint import fingerprint
from sentinel.core.drift.judge import judge
from sentinel.core.drift.judgement import Reason
from sentinel.core.drift.rules import OPENBAO, Glob, IgnoreRule, Unowned
from tests.core.drift.objects import (
    attested,
    changed,
    entry,
    ignoring,
    judge_change,
    operator_entry,
    rules,
    shown,
    stateful_set,
    without,
)

IGNORE = OPENBAO.annotations.ignore


class TestGlobs:
    @pytest.mark.parametrize(
        ("pattern", "matching", "other"),
        [
            ("/a[bc]", ["/ab", "/ac"], ["/ad", "/a", "/abc"]),
            ("/a[!bc]", ["/ad", "/a!"], ["/ab", "/a/", "/a"]),
            ("/a[b-d]*", ["/ab", "/adx"], ["/ae", "/ab/x", "/a-"]),
            ("/a[-b]", ["/a-", "/ab"], ["/ac"]),
            ("/a[]b]", ["/a]", "/ab"], ["/a[", "/a[]b]"]),
            ("/a[!]b]", ["/ac"], ["/a]", "/ab"]),
            ("/a[^b]", ["/a^", "/ab"], ["/ac"]),
            ("/a[+-0]", ["/a.", "/a0"], ["/a/"]),
            ("/a[/]b", [], ["/a/b"]),
            ("/a[d-b]", [], ["/ab", "/ac", "/a-"]),
            ("/a[!d-b]", ["/ab"], ["/a/"]),
            ("/a[b", ["/a[b"], ["/ab"]),
            ("/a[]", ["/a[]"], ["/a"]),
            ("/a[!]", ["/a[!]"], ["/ab"]),
            ("a.b", ["a.b"], ["axb"]),
        ],
    )
    def test_character_classes_do_not_cross_a_slash(
        self, pattern: str, matching: list[str], other: list[str]
    ) -> None:
        glob = Glob.compile(pattern)

        assert [each for each in (*matching, *other) if glob.matches(each)] == matching

    @given(
        pattern=st.text(alphabet="ab-c]![?*^\\&~|", max_size=8).filter(lambda text: "**" not in text),
        text=st.text(alphabet="abc-]![^\\", max_size=4),
    )
    def test_without_slashes_they_match_as_fnmatch_does(self, pattern: str, text: str) -> None:
        assert Glob.compile(pattern).matches(text) == fnmatch.fnmatchcase(text, pattern)


class TestIgnoreRules:
    def scaled(self) -> dict[str, Any]:
        after = stateful_set(
            without(operator_entry(), "f:spec", "f:replicas"), entry("hpa", {"f:spec": {"f:replicas": {}}})
        )
        after["spec"]["replicas"] = 5
        return after

    @pytest.mark.parametrize(
        ("rule", "is_ignored"),
        [
            (ignoring(path="/spec/replicas"), True),
            (ignoring(path="/spec/*"), True),
            (ignoring(path="/*"), False),
            (ignoring(path="/**"), True),
            (ignoring(path="/spec/replica?"), True),
            (ignoring(path="/spec"), False),
            (ignoring(kind="StatefulSet", name="pro*", manager="hpa"), True),
            (ignoring(kind="Service", path="/spec/replicas"), False),
            (ignoring(name="other", path="/spec/replicas"), False),
            (ignoring(manager="kubectl-*", path="/spec/replicas"), False),
        ],
    )
    def test_every_given_member_must_match(self, rule: IgnoreRule, is_ignored: bool) -> None:
        judgement = judge_change(stateful_set(), self.scaled(), rules(ignore=(rule,)))

        assert judgement.rule == ("ignore[0]" if is_ignored else "owned_field_changed")
        assert judgement.reason is (Reason.IGNORED if is_ignored else Reason.OWNED_FIELD_CHANGED)

    def test_the_lowest_of_several_is_named(self) -> None:
        ignore = (ignoring(kind="Service"), ignoring(path="/spec/replicas"), ignoring(name="prod"))

        assert judge_change(stateful_set(), self.scaled(), rules(ignore=ignore)).rule == "ignore[1]"

    def test_what_no_rule_covers_is_still_drift(self) -> None:
        after = changed(self.scaled(), lambda body: body["metadata"]["labels"].pop("app.kubernetes.io/instance"))

        judgement = judge_change(stateful_set(), after, rules(ignore=(ignoring(path="/spec/replicas"),)))

        assert shown(judgement)[:2] == ("label_lost", ["-/metadata/labels/app.kubernetes.io~1instance"])

    @pytest.mark.parametrize(
        ("rule", "is_ignored"),
        [
            (ignoring(kind="StatefulSet"), True),
            (ignoring(manager="*"), True),
            (ignoring(manager="hpa"), False),
            (ignoring(path="**"), False),
        ],
    )
    def test_only_a_rule_without_path_covers_deletion(self, rule: IgnoreRule, is_ignored: bool) -> None:
        given = rules(ignore=(rule,))

        judgement, _ = judge(fingerprint(stateful_set(), given), None, given)

        assert judgement.is_drift != is_ignored

    @pytest.mark.parametrize(("added", "is_ignored"), [(["a"], True), (["a", "b"], False)])
    def test_a_subtree_is_covered_if_all_its_fields_are(self, added: list[str], is_ignored: bool) -> None:
        fields: dict[str, Any] = {
            "f:metadata": {"f:annotations": {".": {}, **{f"f:{name}": {} for name in added}}}
        }
        after = stateful_set(operator_entry(), entry("team", fields), annotations=dict.fromkeys(added, "x"))
        given = rules(unowned=Unowned.ALL, ignore=(ignoring(path="/metadata/annotations/a"),))

        assert judge_change(stateful_set(), after, given).is_drift != is_ignored

    @pytest.mark.parametrize(
        ("ignore", "expected"),
        [
            ((ignoring(manager="team"),), ("unowned_added", ["+/spec/affinity/b"], "kubectl-edit")),
            ((ignoring(path="/spec/affinity/b"),), ("unowned_added", ["+/spec/affinity/a"], "team")),
            ((ignoring(path="/spec/affinity", manager="team"),), ("unowned_added", ["+/spec/affinity"], "team")),
            ((ignoring(path="/spec/affinity"),), ("ignored", ["+/spec/affinity"], "team")),
            ((ignoring(manager="team"), ignoring(manager="kubectl-*")), ("ignored", ["+/spec/affinity"], "team")),
        ],
    )
    def test_each_manager_s_part_of_a_subtree_needs_a_rule(
        self, ignore: tuple[IgnoreRule, ...], expected: tuple[str, list[str], str]
    ) -> None:
        after = stateful_set(
            operator_entry(),
            entry("team", {"f:spec": {"f:affinity": {"f:a": {}}}}, time="2026-01-01T00:01:00Z"),
            entry("kubectl-edit", {"f:spec": {"f:affinity": {"f:b": {}}}}),
        )
        after["spec"]["affinity"] = {"a": 1, "b": 2}

        assert shown(judge_change(stateful_set(), after, rules(ignore=ignore))) == expected


class TestOptOut:
    def opted_out(self, value: str = "true") -> dict[str, Any]:
        held = entry("kubectl-annotate", {"f:metadata": {"f:annotations": {".": {}, f"f:{IGNORE}": {}}}})
        return stateful_set(operator_entry(), held, annotations={IGNORE: value})

    def test_adding_it_is_drift_once(self) -> None:
        judgement = judge_change(stateful_set(), self.opted_out())

        assert shown(judgement) == ("unowned_added", ["+/metadata/annotations"], "kubectl-annotate")
        assert judge_change(stateful_set(), self.opted_out(), rules(unowned=Unowned.NONE)).reason is Reason.UNOWNED

    @pytest.mark.parametrize(("value", "reason"), [("true", "ignored"), ("True", "owned_field_removed")])
    def test_it_is_honoured_from_then_on_and_only_as_true(self, value: str, reason: str) -> None:
        after = changed(self.opted_out(value), lambda body: body["spec"].pop("replicas"))

        judgement = judge_change(self.opted_out(value), after)

        assert judgement.reason.value == reason
        assert judgement.rule == ("annotation" if reason == "ignored" else reason)

    def test_it_covers_deletion_and_objects_first_seen(self) -> None:
        deleted, _ = judge(fingerprint(self.opted_out(), OPENBAO), None, OPENBAO)
        changed_unseen = changed(attested(self.opted_out()), lambda body: body["spec"].update(replicas=9))
        first, _ = judge(None, changed_unseen, OPENBAO)

        assert deleted.rule == first.rule == "annotation"

    def test_it_does_not_change_what_is_no_drift(self) -> None:
        assert judge_change(self.opted_out(), self.opted_out()).reason is Reason.UNCHANGED
