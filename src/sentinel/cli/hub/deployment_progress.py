"""How far a deployment is, as a client knows it, and what has changed, in words.

Everything here is a value or a pure function: `deployment_watch` reads and follows, `deployment_view` draws.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from sentinel.cli.table import format_number
from sentinel.core.counted import counted
from sentinel.core.hub.rollout_row import IN_FLIGHT, UNSUCCESSFUL, RowState
from sentinel.core.hub.rollout_state import TERMINAL, RollbackState, RolloutState
from sentinel.hub.deployment_documents import (
    AnalysisDocument,
    DeploymentDocument,
    DeploymentInstanceDocument,
    FindingDocument,
)

_MAX_NAMES: Final = 5
"""How many instances a line names."""

Rows = Mapping[str, DeploymentInstanceDocument]


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment and its targets, by id, in the order of the plan."""

    deployment: DeploymentDocument
    rows: Rows

    @property
    def is_over(self) -> bool:
        """Whether nothing happens any more without a command of a user."""
        found = self.deployment
        is_finished = found.state in TERMINAL and found.finished_time is not None
        return is_finished and found.rollback is not RollbackState.RUNNING

    @property
    def is_success(self) -> bool:
        """Whether the version is where it should be."""
        found = self.deployment
        return found.state is RolloutState.COMPLETED and found.rollback is RollbackState.NONE

    @property
    def counts(self) -> Mapping[RowState, int]:
        """How many targets are in each state."""
        return Counter(row.state for row in self.rows.values())

    def batches(self) -> Sequence[Sequence[DeploymentInstanceDocument]]:
        """Return the targets of each batch."""
        found: list[list[DeploymentInstanceDocument]] = [[] for _ in range(self.deployment.batch.total)]
        for row in self.rows.values():
            found[row.batch - 1].append(row)
        return found


def with_row(progress: Progress, row: DeploymentInstanceDocument) -> Progress:
    """Take over a row from an event, unless a newer one is known already."""
    known = progress.rows.get(row.instance_id)
    if known is None or row.updated_time < known.updated_time:
        return progress
    return msgspec.structs.replace(progress, rows={**progress.rows, row.instance_id: row})


def title(deployment: DeploymentDocument, targets: int) -> str:
    """Return what a deployment is about."""
    batches = counted(deployment.batch.total, "batch", "batches")
    instances = counted(targets, "instance")
    return f"{deployment.config_id}@{deployment.version} to {instances} in {batches}, {deployment.strategy}"


def changes(before: Progress | None, after: Progress) -> Iterator[str]:
    """Yield a line for everything worth telling that has happened between two looks."""
    found = after.deployment
    if before is None:
        yield f"{found.id}: {title(found, len(after.rows))}"
    yield from _new_batches(before, after)
    if found.analysis is not None and (before is None or found.analysis != before.deployment.analysis):
        yield from analysis_lines(found.analysis)
    ended = _ended_rows(before, after)
    yield from (text for state, text in ended if state is not RowState.SKIPPED)
    yield from (text for state, text in ended if state is RowState.SKIPPED)
    if before is None or (found.state, found.reason) != (before.deployment.state, before.deployment.reason):
        yield _with_reason(found.state, found.reason)
    if found.rollback is not (RollbackState.NONE if before is None else before.deployment.rollback):
        yield f"rollback {found.rollback}"


def _new_batches(before: Progress | None, after: Progress) -> Iterator[str]:
    known = 0 if before is None else _latest_batch(before)
    batches = after.batches()
    for position in range(known + 1, _latest_batch(after) + 1):
        names = [row.instance_id for row in batches[position - 1]]
        kind = "canaries" if position <= after.deployment.canary_batches else "batch"
        yield f"{kind} {position} of {len(batches)}: {joined(names)}"


def _latest_batch(progress: Progress) -> int:
    """Return the position of the last batch that has begun. Rows are newer than the document."""
    told = (RowState.WAITING, RowState.SKIPPED)
    by_rows = (row.batch for row in progress.rows.values() if row.state not in told)
    return max([progress.deployment.batch.position, *by_rows])


def _ended_rows(before: Progress | None, after: Progress) -> Sequence[tuple[RowState, str]]:
    """Rows that came to the same end in the same words share a line."""
    groups: dict[tuple[RowState, str], list[str]] = {}
    for name, row in after.rows.items():
        known = None if before is None else before.rows.get(name)
        is_new = known is None or (row.state, row.message) != (known.state, known.message)
        if is_new and row.state not in IN_FLIGHT and row.state is not RowState.WAITING:
            groups.setdefault((row.state, row.message), []).append(name)
    return [
        (state, f"{joined(names)}: {_with_reason(state, message)}") for (state, message), names in groups.items()
    ]


def analysis_lines(analysis: AnalysisDocument) -> Iterator[str]:
    """Yield the numbers of the canaries against their limits."""
    if analysis.outcome is None:
        yield "canary: watching"
        return
    requests = counted(analysis.requests, "request")
    reason = f": {analysis.reason}" if analysis.reason else ""
    yield f"canary: {analysis.outcome} after {requests}{reason}"
    for finding in analysis.findings:
        yield f"canary: {finding.metric} {format_number(finding.value)}, {limit(finding)}"


def limit(finding: FindingDocument) -> str:
    """Return what a metric is compared with."""
    text = f"at most {format_number(finding.limit)}"
    if finding.baseline is not None:
        text += f" (untouched instances: {format_number(finding.baseline)})"
    return text


def is_unsuccessful(row: DeploymentInstanceDocument) -> bool:
    """Whether something went wrong on this instance."""
    return row.state in UNSUCCESSFUL or row.state is RowState.ROLLBACK_FAILED


def _with_reason(state: str, reason: str) -> str:
    shown = state.replace("_", " ")
    return f"{shown}: {reason}" if reason else shown


def joined(names: Iterable[str]) -> str:
    """Return the first few names as text."""
    listed = list(names)
    shown = ", ".join(listed[:_MAX_NAMES])
    rest = len(listed) - _MAX_NAMES
    return f"{shown} and {rest:,} more" if rest > 0 else shown
