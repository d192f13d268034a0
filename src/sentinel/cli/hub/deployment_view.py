"""A deployment drawn for a terminal: batches as bars, canaries against their limits, and what went wrong where.

A pure function of the progress, the time and the terminal's size. What needs attention comes first, so that it is
visible in a large fleet; 80 columns and 24 lines are enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

import click
import msgspec

from sentinel.cli.hub.deployment_progress import Progress, is_unsuccessful, joined, limit
from sentinel.cli.table import format_duration, format_number
from sentinel.core.counted import counted
from sentinel.core.hub.analysis import Outcome
from sentinel.core.hub.deployment import Strategy
from sentinel.core.hub.rollout_row import IN_FLIGHT, RowState
from sentinel.core.hub.rollout_state import RollbackState, RolloutState, Stage
from sentinel.hub.deployment_documents import AnalysisDocument, DeploymentDocument, DeploymentInstanceDocument
from sentinel.runtime.settings.report import printable

_BAR: Final = 30
_MIN_BATCHES: Final = 5
"""Lines of batches that are shown even if the rows would fill the terminal."""
_SPARE: Final = timedelta(seconds=1)

STATE_COLORS: Final = {
    RolloutState.PENDING: "blue",
    RolloutState.RUNNING: "cyan",
    RolloutState.PAUSED: "yellow",
    RolloutState.COMPLETED: "green",
    RolloutState.FAILED: "red",
    RolloutState.ABORTED: "magenta",
}
_ROLLBACK_COLORS: Final = {
    RollbackState.NONE: None,
    RollbackState.RUNNING: "yellow",
    RollbackState.COMPLETED: "green",
    RollbackState.FAILED: "red",
}


class _Look(msgspec.Struct, frozen=True):
    """How a state of a target looks."""

    mark: str
    block: str
    color: str


_WAITING: Final = _Look("·", "░", "bright_black")
_IN_FLIGHT: Final = _Look("●", "▒", "cyan")
_UNSUCCESSFUL: Final = _Look("✗", "█", "red")
_LOOKS: Final = {
    RowState.WAITING: _WAITING,
    RowState.PENDING: _IN_FLIGHT,
    RowState.IN_PROGRESS: _IN_FLIGHT,
    RowState.VALIDATING: _IN_FLIGHT,
    RowState.COMPLETED: _Look("✓", "█", "green"),
    RowState.FAILED: _UNSUCCESSFUL,
    RowState.REJECTED: _UNSUCCESSFUL,
    RowState.TIMED_OUT: _UNSUCCESSFUL,
    RowState.SKIPPED: _Look("–", "░", "bright_black"),
    RowState.ROLLED_BACK: _Look("↩", "▓", "yellow"),
    RowState.ROLLBACK_FAILED: _Look("✗", "█", "bright_red"),
}
_BAR_ORDER: Final = (
    RowState.COMPLETED,
    RowState.ROLLED_BACK,
    RowState.FAILED,
    RowState.REJECTED,
    RowState.TIMED_OUT,
    RowState.ROLLBACK_FAILED,
    RowState.VALIDATING,
    RowState.IN_PROGRESS,
    RowState.PENDING,
    RowState.SKIPPED,
    RowState.WAITING,
)


class Span(msgspec.Struct, frozen=True):
    """A piece of a line in one style."""

    text: str
    color: str | None = None
    is_bold: bool = False


class Line:
    """A line in several styles, which can be cut to a width."""

    def __init__(self, *spans: Span | str) -> None:
        self._spans = [Span(each) if isinstance(each, str) else each for each in spans]

    def add(self, text: str, color: str | None = None, *, is_bold: bool = False) -> Line:
        self._spans.append(Span(text, color, is_bold))
        return self

    def render(self, *, width: int | None = None, is_colored: bool = False) -> str:
        """Return the text, of at most `width` columns."""
        left = len(self.plain) if width is None else width
        is_cut = len(self.plain) > left
        left -= is_cut
        shown = []
        for span in self._spans:
            text = span.text[:left]
            left -= len(text)
            has_style = is_colored and text and (span.color or span.is_bold)
            shown.append(click.style(text, fg=span.color, bold=span.is_bold or None) if has_style else text)
        return "".join(shown).rstrip(" ") + ("…" if is_cut else "")

    @property
    def plain(self) -> str:
        return "".join(span.text for span in self._spans)


def draw(
    progress: Progress, *, now: datetime, height: int | None = None, problem: str = "", hint: str = ""
) -> list[Line]:
    """Return a frame of at most `height` lines; None shows everything.

    `problem` is why the progress cannot be read just now, `hint` what a user can do.
    """
    found = progress.deployment
    head = [*_heading(progress, now), Line()]
    canary = [*_canary(found, now)]
    foot = [Line(Span(f" ! {printable(problem)}", "yellow"))] if problem else []
    foot += [Line(Span(f" {hint}", "bright_black"))] if hint else []
    rows = list(_rows(progress))
    free = None if height is None else max(height - len(head) - len(canary) - len(foot) - 2, 2)
    batches_shown, rows_shown = _share(free, found.batch.total, len(rows))
    return [
        *head,
        *_batches(progress, now, batches_shown),
        *canary,
        *([Line(), *_cut(rows, rows_shown)] if rows else []),
        *foot,
    ]


def summary(progress: Progress, *, now: datetime) -> list[Line]:
    """Return a few lines: what it is, how far it is, and what the canaries' numbers are while they are watched."""
    found = progress.deployment
    is_failed = found.analysis is not None and found.analysis.outcome is Outcome.FAILED
    canaries = list(_canary(found, now))[1:] if found.stage is Stage.ANALYSIS or is_failed else []
    return [*_heading(progress, now), *canaries]


def _share(free: int | None, batches: int, rows: int) -> tuple[int, int]:
    """Divide lines between batches and rows."""
    if free is None or batches + rows <= free:
        return batches, rows
    for_batches = min(batches, max(_MIN_BATCHES, free - rows, free // 3))
    return for_batches, max(free - for_batches, 1)


def _heading(progress: Progress, now: datetime) -> Iterator[Line]:
    found = progress.deployment
    line = Line(" ", Span(f"{found.config_id}@{found.version}", is_bold=True))
    line.add(f" → {counted(len(progress.rows), 'instance')} · {found.strategy.replace('_', ' ')} · ")
    line.add(found.state, STATE_COLORS[found.state], is_bold=True)
    if found.rollback is not RollbackState.NONE:
        line.add(" · ").add(f"rollback {found.rollback}", _ROLLBACK_COLORS[found.rollback], is_bold=True)
    began = found.started_time or found.created_time
    line.add(f" · {_span(max((found.finished_time or now) - began, timedelta(0)))}")
    yield line.add(f"  {found.id}", "bright_black")
    if found.reason:
        yield Line("   ", Span(printable(found.reason), STATE_COLORS[found.state]))
    counts = progress.counts
    parts = [f"{counts[state]} {state.replace('_', ' ')}" for state in _BAR_ORDER if counts.get(state)]
    yield Line("   ", *_bar([*progress.rows.values()]), f"  {' · '.join(parts)}")


def _batches(progress: Progress, now: datetime, shown: int) -> Iterator[Line]:
    batches = progress.batches()
    first = _first_shown(progress.deployment.batch.position, len(batches), shown)
    last = min(first + shown, len(batches))
    hidden_before, hidden_after = first > 0, last < len(batches)
    for index in range(first + hidden_before, last - hidden_after):
        yield _batch(progress.deployment, index + 1, batches[index], now)
    if hidden_before or hidden_after:
        before, after = first + hidden_before, len(batches) - last + hidden_after
        parts = [f"{before} before"] * bool(before) + [f"{after} after"] * bool(after)
        yield Line(Span(f"   … batches not shown: {', '.join(parts)}", "bright_black"))


def _first_shown(position: int, total: int, shown: int) -> int:
    """Show the current batch, two that are done, and those that follow."""
    return max(min(position - 3, total - shown), 0)


def _batch(
    found: DeploymentDocument, position: int, rows: Sequence[DeploymentInstanceDocument], now: datetime
) -> Line:
    name = "canary" if position <= found.canary_batches else "batch"
    is_current = position == found.batch.position
    label = f" {'▸' if is_current and found.stage is not None else ' '} {name + f' {position}':<10}"
    done = sum(row.state not in (*IN_FLIGHT, RowState.WAITING) for row in rows)
    line = Line(Span(label, is_bold=is_current), *_bar(rows), f"  {done}/{len(rows)}")
    return line.add(f"  {_waits_for(found, position, now)}".rstrip(), "cyan")


def _waits_for(found: DeploymentDocument, position: int, now: datetime) -> str:
    """Return what happens next with a batch, or at it."""
    if found.stage is Stage.DELAY and found.next_batch_time is not None and position == found.batch.position + 1:
        if found.state is RolloutState.PAUSED:
            return "begins when it is resumed"
        left = found.next_batch_time - now
        return f"begins in {_span(left)}" if left > _SPARE else "begins when enough targets are online"
    if found.stage is not Stage.ANALYSIS or position != found.batch.position or found.analysis is None:
        return ""
    if found.state is RolloutState.PAUSED or found.analysis.ends is None:
        return "watched"
    extended = found.analysis.extensions
    text = f"watched for {_span(max(found.analysis.ends - now, timedelta(0)))} more"
    return f"{text}, extended {counted(extended, 'time')}" if extended else text


def _bar(rows: Sequence[DeploymentInstanceDocument]) -> list[Span]:
    """One block for each instance, or for several in a large batch."""
    ordered = sorted(rows, key=lambda row: _BAR_ORDER.index(row.state))
    width = min(_BAR, max(len(ordered), 1))
    cells = [_LOOKS[ordered[index * len(ordered) // width].state] for index in range(width)] if ordered else []
    spans = [Span(look.block, look.color) for look in cells]
    return [*spans, Span(" " * (_BAR - len(cells)))]


def _canary(found: DeploymentDocument, now: datetime) -> Iterator[Line]:
    if found.strategy is not Strategy.CANARY or found.analysis is None:
        return
    analysis = found.analysis
    yield Line()
    yield Line(Span("   canaries  ", is_bold=True), *_verdict(analysis, found, now))
    if analysis.outcome is Outcome.SUCCESS and found.stage not in (Stage.ANALYSIS, None):
        return  # they have passed, and others are of interest now
    if analysis.findings:
        for finding in analysis.findings:
            mark, color = ("✗", "red") if finding.violated else ("✓", "green")
            line = Line("   ", Span(mark, color), f" {finding.metric:<15} ")
            yield line.add(f"{format_number(finding.value):>9}", color, is_bold=True).add(f"  {limit(finding)}")
        return
    for criterion in found.canary.success_criteria:
        limits = [f"at most {format_number(criterion.max)}"] if isinstance(criterion.max, float) else []
        if isinstance(criterion.max_vs_baseline, float):
            limits.append(f"at most {format_number(criterion.max_vs_baseline)} × untouched instances")
        yield Line(f"   · {criterion.metric:<15}         –  {', '.join(limits)}")


def _verdict(analysis: AnalysisDocument, found: DeploymentDocument, now: datetime) -> Iterator[Span]:
    if analysis.outcome is None:
        yield Span("no numbers yet", "bright_black")
        return
    colors = {Outcome.SUCCESS: "green", Outcome.FAILED: "red", Outcome.INCONCLUSIVE: "yellow"}
    yield Span(analysis.outcome, colors[analysis.outcome], is_bold=True)
    yield Span(f" · {counted(analysis.requests, 'request', 'requests')}")
    if analysis.requests < max(found.canary.min_requests, 1):
        yield Span(f" of {max(found.canary.min_requests, 1):,} that are needed")
    elif analysis.reason and analysis.reason not in found.reason:
        yield Span(f" · {printable(analysis.reason)}")


def _rows(progress: Progress) -> Iterator[Line]:
    """What has not begun is in the bars. What was skipped for one reason shares a line."""
    told = [row for row in progress.rows.values() if row.state is not RowState.WAITING]
    name_width = max((len(row.instance_id) for row in told), default=0)
    for row in sorted((row for row in told if row.state is not RowState.SKIPPED), key=_urgency):
        look = _LOOKS[row.state]
        line = Line("   ", Span(f"{look.mark} ", look.color), f"{printable(row.instance_id):<{name_width}}  ")
        line.add(f"{row.state.replace('_', ' '):<15}", look.color)
        line.add(f"  {_path(row, progress.deployment.rollback)}", "bright_black")
        yield line.add(f"  {printable(row.message)}" if row.message else "")
    skipped: dict[str, list[str]] = {}
    for row in told:
        if row.state is RowState.SKIPPED:
            skipped.setdefault(row.message, []).append(row.instance_id)
    for message, names in skipped.items():
        reason = f": {message}" if message else ""
        yield Line(Span(printable(f"   – {joined(names)} skipped{reason}"), "bright_black"))


def _path(row: DeploymentInstanceDocument, rollback: RollbackState) -> str:
    """Return where an instance comes from and goes to. A row keeps its state while it is on its way back."""
    if row.state is RowState.ROLLED_BACK:
        return f"back at {row.from_}" if row.from_ else "nothing assigned, as before"
    if rollback is RollbackState.RUNNING and row.state not in (RowState.REJECTED, RowState.ROLLBACK_FAILED):
        return f"{row.from_ or '-'} ← {row.to}"
    return f"{row.from_ or '-'} → {row.to}"


def _cut(rows: Sequence[Line], shown: int) -> Iterator[Line]:
    is_all = len(rows) <= shown
    visible = rows if is_all else rows[: max(shown - 1, 0)]
    yield from visible
    if not is_all:
        yield Line(Span(f"   … and {len(rows) - len(visible)} more", "bright_black"))


def _urgency(row: DeploymentInstanceDocument) -> int:
    if is_unsuccessful(row):
        return 0
    if row.state in IN_FLIGHT:
        return 1
    return {RowState.ROLLED_BACK: 2, RowState.COMPLETED: 3}.get(row.state, 4)


def _span(duration: timedelta) -> str:
    return format_duration(duration)
