"""Writes on a real API server are judged right, as they happen."""

from __future__ import annotations

from sentinel.core.drift.fingerprint import Fingerprint
from sentinel.core.drift.judge import judge
from sentinel.core.drift.rules import OPENBAO
from tests.core.drift.objects import shown
from tests.support.kube.drift_history import play
from tools.services.kube_apiserver import KubeClient


def test_each_write_is_judged_right(kube_admin: KubeClient) -> None:
    for path, steps in play(kube_admin):
        state: Fingerprint | None = None
        for step in steps:
            judgement, state = judge(state, step.object, OPENBAO)

            reason, changes, manager = shown(judgement)
            assert (path, step.name, reason, sorted(changes), manager) == (
                path,
                step.name,
                step.expected.reason,
                sorted(step.expected.changes),
                step.expected.manager,
            )
