"""One frame of the live view: a pure function of the dashboard, the time and the terminal's size.

80 columns and 24 lines are enough for everything; a larger terminal shows more rows. Resources that wait for
something come first, so that they are visible in a large fleet. Proxy instances are several in a line
(`instance_grid`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import assert_never

from rich.console import Group, RenderableType
from rich.text import Text

from sentinel.cli.client.resource_table import ResourceSummary
from sentinel.cli.hub import deployment_view
from sentinel.cli.up import instance_grid
from sentinel.cli.up.activity import Activity, ActivityLevel
from sentinel.cli.up.dashboard_state import DashboardState, KindState
from sentinel.cli.up.welcome import ExampleCommand
from sentinel.core.fleet.aggregate import condition_type
from sentinel.core.fleet.documents import AVAILABLE, Condition
from sentinel.core.pulse.pacing import PacingVerdict
from sentinel.runtime.secret_text import mask_secret_text
from sentinel.runtime.settings.report import printable

_MIN_ACTIVITIES = 5
"""Lines of activity that are shown even if the fleet would fill the terminal."""
_MAX_ERRORS = 2
_MIN_HEIGHT_FOR_SPACING = 36
_DEPLOYMENT_SHOWN = timedelta(seconds=30)
"""How long a deployment that is over is shown."""

_STYLES = {
    ActivityLevel.INFO: "",
    ActivityLevel.SUCCESS: "green",
    ActivityLevel.PENDING: "yellow",
    ActivityLevel.ERROR: "bold red",
}
_SOURCE_WIDTH = 11
_WAITING_REASON = "PreconditionsNotMet"


def draw(
    dashboard: DashboardState,
    *,
    now: datetime,
    title: str,
    examples: Sequence[ExampleCommand],
    errors: Sequence[str] = (),
    width: int,
    height: int,
) -> RenderableType:
    """Draw one frame of at most `height` lines and `width` columns."""
    spacing = [Text("")] if height >= _MIN_HEIGHT_FOR_SPACING else []
    header: list[Text] = [_title(dashboard, now, title, width)]
    header += [Text(_cut(f" ! {printable(error)}", width), style="bold red") for error in errors[:_MAX_ERRORS]]
    header += spacing
    kinds = dashboard.kinds
    instances = instance_grid.draw(dashboard.instances, width=width, max_lines=max(height // 8, 2))
    deployment = _deployment(dashboard, now, width=width, max_lines=max(height // 6, 3))
    instances += deployment
    # Examples make room for a deployment.
    footer = [*spacing, *_examples(examples, width)[: max(height // (8 if deployment else 4), 1)]]
    if instances:
        instances += spacing
    free = height - len(header) - len(footer) - len(instances) - len(spacing) - 1  # the line of totals
    min_activities = max(_MIN_ACTIVITIES, height // 4)
    row_counts = _distribute(free - len(kinds) - min_activities, [len(kind.resources) for kind in kinds])
    fleet = [
        line
        for kind, row_count in zip(kinds, row_counts, strict=True)
        for line in _kind(dashboard, kind, now, row_count=row_count, width=width)
    ]
    lines: list[RenderableType] = [
        *header,
        *fleet,
        *spacing,
        *instances,
        _totals(dashboard, now, width),
        *_activities(dashboard, max(free - len(fleet), 1), width),
        *footer,
    ]
    return Group(*lines[:height])


def _deployment(dashboard: DashboardState, now: datetime, *, width: int, max_lines: int) -> list[Text]:
    """The newest deployment, until it has been over for a while."""
    progress = dashboard.deployment
    if progress is None:
        return []
    finished = progress.deployment.finished_time
    if progress.is_over and finished is not None and now - finished > _DEPLOYMENT_SHOWN:
        return []
    lines = deployment_view.summary(progress, now=now)[:max_lines]
    return [Text.from_ansi(line.render(width=width, is_colored=True), no_wrap=True) for line in lines]


def _distribute(lines: int, wanted: Sequence[int]) -> list[int]:
    """Distribute lines over the kinds: as many as each wants if they fit, else evenly; at least one each."""
    given = [0] * len(wanted)
    for index in sorted(range(len(wanted)), key=lambda index: wanted[index]):
        remaining = sum(1 for each in given if each == 0)
        given[index] = max(min(wanted[index], (lines - sum(given)) // max(remaining, 1)), 1)
    return given


def _title(dashboard: DashboardState, now: datetime, title: str, width: int) -> Text:
    kinds = dashboard.kinds
    ready, total = sum(map(dashboard.count_ready, kinds)), sum(kind.total for kind in kinds)
    left = Text.assemble((" sentinel ", "bold white on blue"), " ", (title, "bold"))
    right = Text(f"{ready} of {total} ready · up {_duration(now - dashboard.started)} ", style="dim")
    return _justified(left, right, width)


def _kind(dashboard: DashboardState, kind: KindState, now: datetime, *, row_count: int, width: int) -> list[Text]:
    """A heading, and at most this many rows."""
    heading = _row(f"{kind.plural} ({kind.total})", "GEN", "READY", "AVAIL", "EVENT", _name_width(width))
    heading.append("ADAPTERS")
    heading.stylize("bold")
    heading.truncate(width)
    resources = sorted(kind.resources, key=_urgency)
    shown = resources if kind.is_complete and kind.total <= row_count else resources[: row_count - 1]
    rows = [_resource(dashboard, resource, kind.required, now, width) for resource in shown]
    if len(shown) < kind.total:
        hidden = kind.total - dashboard.count_ready(kind) - sum(not resource.is_ready for resource in shown)
        not_ready = f", {hidden} of them not ready" if hidden > 0 else ""
        rows.append(Text(_cut(f"   … and {kind.total - len(shown)} more{not_ready}", width), style="dim"))
    elif not rows:
        rows.append(Text(_cut("   none yet", width), style="dim"))
    return [heading, *rows]


def _urgency(resource: ResourceSummary) -> int:
    """The sort key of a row: deleting, not ready, ready."""
    if resource.is_deleting:
        return 0
    return 1 if not resource.is_ready else 2


def _resource(
    dashboard: DashboardState, resource: ResourceSummary, required: Sequence[str], now: datetime, width: int
) -> Text:
    is_deleting = resource.is_deleting
    mark, style = ("✕", "red") if is_deleting else ("●", "green") if resource.is_ready else ("○", "yellow")
    line = _row(
        f"{mark} {resource.name}",
        f"{resource.generation}/{resource.status.observed_generation}",
        "deleting" if is_deleting else "yes" if resource.is_ready else "no",
        _available(resource),
        _next_event(dashboard, resource, now),
        _name_width(width),
    )
    if resource.paused:
        line.stylize("dim")
    elif not resource.is_ready:
        line.stylize(style)
    line.stylize(style, 1, 2)
    for adapter in required:
        line.append_text(_adapter(resource, adapter))
    message = _first_message(resource, required)
    if message and width - line.cell_len > 12:
        line.append(f"– {printable(mask_secret_text(message))}", style="dim")
    line.truncate(width, overflow="ellipsis")
    return line


def _row(name: str, generation: str, ready: str, available: str, event: str, name_width: int) -> Text:
    name = _without_middle(name, name_width).ljust(name_width)
    return Text(f" {name} {generation:>6}  {ready:<8} {available:<6} {event:<7} ", no_wrap=True)


def _name_width(width: int) -> int:
    return max(min(width // 5, 36), 4)


def _available(resource: ResourceSummary) -> str:
    available = resource.status.condition(AVAILABLE)
    if available is None or not available.is_true:
        return "no"
    return "yes" if available.observed_generation == resource.generation else f"at {available.observed_generation}"


def _adapter(resource: ResourceSummary, adapter: str) -> Text:
    condition = _condition(resource, adapter)
    if condition is None:
        return Text(f"·{adapter} ", style="dim")
    if condition.is_true:
        return Text(f"✓{adapter} ", style="green")
    if condition.reason == _WAITING_REASON:
        return Text(f"…{adapter} ", style="yellow")
    return Text(f"✗{adapter} ", style="red")


def _condition(resource: ResourceSummary, adapter: str) -> Condition | None:
    """The adapter's condition for the current generation; None if it has not reported on that."""
    condition = resource.status.condition(condition_type(adapter))
    return condition if condition is not None and condition.observed_generation == resource.generation else None


def _first_message(resource: ResourceSummary, required: Sequence[str]) -> str:
    """The message of the first adapter that is not done; failures before adapters that wait for others."""
    if resource.is_ready or resource.is_deleting:
        return ""
    conditions = [condition for adapter in required if (condition := _condition(resource, adapter)) is not None]
    unmet = [condition for condition in conditions if not condition.is_true]
    unmet.sort(key=lambda condition: condition.reason == _WAITING_REASON)
    return unmet[0].message if unmet else ""


def _next_event(dashboard: DashboardState, resource: ResourceSummary, now: datetime) -> str:
    """When the next event is due, or the result of the last cycle if it is due."""
    paced = dashboard.decision_on(resource.id)
    if paced is None:
        return "-"
    match paced.verdict:
        case PacingVerdict.PUBLISH:
            return "→ sent"
        case PacingVerdict.PACED:
            return "paced"
        case PacingVerdict.SKIP | PacingVerdict.REPEATED:
            due = paced.decision.next_event_time
            return "paused" if due is None else f"in {_duration(due - now)}"
        case _:
            assert_never(paced.verdict)


def _totals(dashboard: DashboardState, now: datetime, width: int) -> Text:
    totals = dashboard.totals
    left = Text(" activity", style="bold")
    right = Text.assemble(
        (f"{totals.published:,} events", "bold green"),
        f" · {dashboard.events_per_second(now):.1f}/s · {totals.paced:,} paced · ",
        (f"{totals.failed:,} failed", "bold red" if totals.failed else ""),
        f" · {totals.evaluations:,} evaluations ",
    )
    return _justified(left, right, width)


def _activities(dashboard: DashboardState, count: int, width: int) -> list[Text]:
    lines = [_activity(dashboard, activity, width) for activity in dashboard.latest(count)]
    return lines + [Text("")] * (count - len(lines))


def _activity(dashboard: DashboardState, activity: Activity, width: int) -> Text:
    line = Text(no_wrap=True)
    line.append(f" {activity.at.astimezone():%H:%M:%S} ", style="dim")
    source = _cut(activity.source, _SOURCE_WIDTH).ljust(_SOURCE_WIDTH + 1)
    line.append(source, style="bold cyan" if activity.source == "pulse" else "")
    name = activity.name or dashboard.name_of(activity.resource_id) or activity.resource_id
    if name:
        name_width = _name_width(width)
        line.append(_without_middle(printable(name), name_width).ljust(name_width + 1))
    line.append(printable(activity.text), style=_STYLES[activity.level])
    line.truncate(width, overflow="ellipsis")
    return line


def _examples(examples: Sequence[ExampleCommand], width: int) -> list[Text]:
    if not examples:
        return []
    lines = [Text(_cut(" try next, in another terminal (Ctrl-C ends this one)", width), style="bold")]
    for example in examples:
        line = Text(no_wrap=True)
        line.append(_cut(f" {example.command}", width), style="cyan")
        if width - len(line) >= len(example.purpose) + 4:
            line.append(f"  # {example.purpose}", style="dim")
        lines.append(line)
    return lines


def _justified(left: Text, right: Text, width: int) -> Text:
    """Put both on one line; omit the right one if it does not fit."""
    gap = width - left.cell_len - right.cell_len
    if gap >= 1:
        return Text.assemble(left, " " * gap, right, no_wrap=True)
    left.truncate(width)
    return left


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…" * (width > 0)


def _without_middle(name: str, width: int) -> str:
    """Cut the middle of a long name: related names often differ only at the end."""
    if len(name) <= width:
        return name
    tail = max(width - 1, 0) // 2
    return _cut(name, width - tail) + name[len(name) - tail :]


def _duration(duration: timedelta) -> str:
    """Render a duration in one unit: 4s, 12m, 3h."""
    seconds = max(int(duration.total_seconds()), 0)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
