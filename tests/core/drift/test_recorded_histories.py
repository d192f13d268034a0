"""Judgements on objects that a real API server stored, written by `tests.support.kube.drift_history`."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sentinel.core.drift.fingerprint import Fingerprint, fingerprint
from sentinel.core.drift.judge import judge
from sentinel.core.drift.judgement import Reason
from sentinel.core.drift.rules import OPENBAO
from tests.core.drift.objects import OPERATOR, shown
from tests.support.kube.drift_history import RecordedStep

HISTORIES = msgspec.json.decode(
    (Path(__file__).parent / "data" / "histories.json").read_bytes(), type=dict[str, list[RecordedStep]]
)
KINDS = pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.split("/")[-2])


@KINDS
def test_each_write_on_a_real_server_is_judged_right(path: str) -> None:
    state: Fingerprint | None = None
    for step in HISTORIES[path]:
        judgement, state = judge(state, step.object, OPENBAO)

        reason, changes, manager = shown(judgement)
        expected = step.expected
        assert (step.name, reason, sorted(changes), manager) == (
            step.name,
            expected.reason,
            sorted(expected.changes),
            expected.manager,
        )


@KINDS
def test_what_the_operator_wrote_last_fits_when_first_seen(path: str) -> None:
    """What it cannot restore by applying is still found."""
    for step in HISTORIES[path]:
        if step.expected.manager == OPERATOR:
            judgement, _ = judge(None, step.object, OPENBAO)

            assert judgement.reason in (Reason.UNCHANGED, Reason.UNOWNED_ADDED), (step.name, judgement)


@KINDS
def test_a_changed_object_is_drift_when_first_seen(path: str) -> None:
    for step in HISTORIES[path]:
        if step.expected.reason in ("owned_field_changed", "owned_field_removed", "label_lost"):
            judgement, state = judge(None, step.object, OPENBAO)

            assert judgement.reason is Reason.FINGERPRINT_MISMATCH, (step.name, judgement)
            assert {each[1:] for each in step.expected.changes} <= {each.path for each in judgement.changes}
            assert state is not None


@KINDS
def test_drift_is_seen_across_any_gap_in_which_the_operator_did_not_heal(path: str) -> None:
    """A relist shows the sum of several writes."""
    steps = HISTORIES[path]
    for first, step in enumerate(steps):
        for later in steps[first + 1 :]:
            if later.expected.manager == OPERATOR or later.expected.reason == "bookkeeping":
                break
            if not Reason(later.expected.reason).is_drift:
                continue
            judgement, _ = judge(fingerprint(step.object, OPENBAO), later.object, OPENBAO)

            assert judgement.is_drift or later.object == step.object, (step.name, later.name)


@KINDS
def test_the_attestation_stays_small(path: str) -> None:
    for step in HISTORIES[path]:
        text = step.object["metadata"]["annotations"][OPENBAO.annotations.fingerprint]

        assert len(text) < 1_500
