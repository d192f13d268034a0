"""One screen of the live view: a pure function of the board, the moment and the size of the terminal.

From 80 columns and 24 lines everything has a place; on more, there is more of it. Resources that wait for
something come first, so that in a large fleet they are the ones to be seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import assert_never

from rich.console import Group, RenderableType
from rich.text import Text

from sentinel.cli.client.rows import Item
from sentinel.cli.up.dashboard_state import DashboardState, Shelf
from sentinel.cli.up.narration import Activity, Tone
from sentinel.cli.up.welcome import Hint
from sentinel.core.fleet.aggregate import condition_type
from sentinel.core.fleet.documents import AVAILABLE, Condition
from sentinel.core.pulse.pacing import PacingVerdict
from sentinel.runtime.settings.report import printable

_LEAST_HAPPENINGS = 5
"""Lines of happenings that are shown even where the fleet would fill the terminal."""
_MOST_TROUBLES = 2
_ROOMY = 36

_TONES = {Tone.PLAIN: "", Tone.GOOD: "green", Tone.WAITING: "yellow", Tone.BAD: "bold red"}
_SOURCE = 11
_WAITING_REASON = "PreconditionsNotMet"


def draw(
    board: DashboardState,
    *,
    now: datetime,
    title: str,
    hints: Sequence[Hint],
    troubles: Sequence[str] = (),
    width: int,
    height: int,
) -> RenderableType:
    """One screen, never higher than `height` lines nor wider than `width` columns."""
    air = [Text("")] if height >= _ROOMY else []
    head: list[Text] = [_title(board, now, title, width)]
    head += [Text(_cut(f" ! {printable(text)}", width), style="bold red") for text in troubles[:_MOST_TROUBLES]]
    head += air
    foot = [*air, *_hints(hints, width)[: max(height // 4, 1)]]
    shelves = board.shelves
    room = height - len(head) - len(foot) - len(air) - 1  # the line of sums
    happenings = max(_LEAST_HAPPENINGS, height // 4)
    rows = _share(room - len(shelves) - happenings, [len(shelf.items) for shelf in shelves])
    fleet = [
        line
        for shelf, count in zip(shelves, rows, strict=True)
        for line in _shelf(board, shelf, now, rows=count, width=width)
    ]
    count = max(room - len(fleet), 1)
    lines: list[RenderableType] = [
        *head,
        *fleet,
        *air,
        _sums(board, now, width),
        *_happenings(board, count, width),
        *foot,
    ]
    return Group(*lines[:height])


def _share(room: int, wanted: Sequence[int]) -> list[int]:
    """Lines for each shelf: what it wants where there is room, else as evenly as can be; one at least."""
    given = [0] * len(wanted)
    for index in sorted(range(len(wanted)), key=lambda index: wanted[index]):
        waiting = sum(1 for each in given if each == 0)
        given[index] = max(min(wanted[index], (room - sum(given)) // max(waiting, 1)), 1)
    return given


def _title(board: DashboardState, now: datetime, title: str, width: int) -> Text:
    ready, total = sum(map(board.ready, board.shelves)), sum(shelf.total for shelf in board.shelves)
    left = Text.assemble((" sentinel ", "bold white on blue"), " ", (title, "bold"))
    right = Text(f"{ready} of {total} ready · up {_duration(now - board.started)} ", style="dim")
    return _justified(left, right, width)


def _shelf(board: DashboardState, shelf: Shelf, now: datetime, *, rows: int, width: int) -> list[Text]:
    """A head, and so many rows."""
    names = _name_width(width)
    head = _row(f"{shelf.plural} ({shelf.total})", "GEN", "READY", "AVAIL", "EVENT", names)
    head.append("ADAPTERS")
    head.stylize("bold")
    head.truncate(width)
    ordered = sorted(shelf.items, key=_urgency)
    shown = ordered if len(ordered) == shelf.total <= rows else ordered[: rows - 1]
    lines = [_resource(board, item, shelf.required, now, width) for item in shown]
    if len(shown) < shelf.total:
        unseen = shelf.total - board.ready(shelf) - sum(not item.is_ready for item in shown)
        waiting = f", {unseen} of them not ready" if unseen > 0 else ""
        lines.append(Text(_cut(f"   … and {shelf.total - len(shown)} more{waiting}", width), style="dim"))
    elif not lines:
        lines.append(Text(_cut("   none yet", width), style="dim"))
    return [head, *lines]


def _urgency(item: Item) -> int:
    """What moves comes first; among equals the order stays."""
    if item.deleted_time is not None:
        return 0
    return 1 if not item.is_ready else 2


def _resource(board: DashboardState, item: Item, required: Sequence[str], now: datetime, width: int) -> Text:
    is_deleting = item.deleted_time is not None
    mark, style = ("✕", "red") if is_deleting else ("●", "green") if item.is_ready else ("○", "yellow")
    line = _row(
        f"{mark} {item.name}",
        f"{item.generation}/{item.status.observed_generation}",
        "deleting" if is_deleting else "yes" if item.is_ready else "no",
        _available(item),
        _prospect(board, item, now),
        _name_width(width),
    )
    if item.paused:
        line.stylize("dim")
    elif not item.is_ready:
        line.stylize(style)
    line.stylize(style, 1, 2)
    for adapter in required:
        line.append_text(_adapter(item, adapter))
    said = _first_words(item, required)
    if said and width - line.cell_len > 12:
        line.append(f"– {printable(said)}", style="dim")
    line.truncate(width, overflow="ellipsis")
    return line


def _row(name: str, generation: str, ready: str, available: str, event: str, names: int) -> Text:
    text = f" {_shortened(name, names).ljust(names)} {generation:>6}  {ready:<8} {available:<6} {event:<7} "
    return Text(text, no_wrap=True)


def _name_width(width: int) -> int:
    return max(min(width // 5, 36), 4)


def _available(item: Item) -> str:
    available = item.status.condition(AVAILABLE)
    if available is None or not available.is_true:
        return "no"
    return "yes" if available.observed_generation == item.generation else f"at {available.observed_generation}"


def _adapter(item: Item, adapter: str) -> Text:
    said = _said(item, adapter)
    if said is None:
        return Text(f"·{adapter} ", style="dim")
    if said.is_true:
        return Text(f"✓{adapter} ", style="green")
    if said.reason == _WAITING_REASON:
        return Text(f"…{adapter} ", style="yellow")
    return Text(f"✗{adapter} ", style="red")


def _said(item: Item, adapter: str) -> Condition | None:
    """What an adapter says of this generation; None where it has said nothing that counts."""
    condition = item.status.condition(condition_type(adapter))
    return condition if condition is not None and condition.observed_generation == item.generation else None


def _first_words(item: Item, required: Sequence[str]) -> str:
    """What is in the way, in its own words: of those who failed before those who only wait for them."""
    if item.is_ready or item.deleted_time is not None:
        return ""
    said = [
        each for each in (_said(item, adapter) for adapter in required) if each is not None and not each.is_true
    ]
    said.sort(key=lambda condition: condition.reason == _WAITING_REASON)
    return said[0].message if said else ""


def _prospect(board: DashboardState, item: Item, now: datetime) -> str:
    """When the next event is due, or what became of the one that is."""
    judgement = board.prospect(item.id)
    if judgement is None:
        return "-"
    match judgement.verdict:
        case PacingVerdict.PUBLISH:
            return "→ sent"
        case PacingVerdict.PACED:
            return "paced"
        case PacingVerdict.SKIP | PacingVerdict.REPEATED:
            following = judgement.decision.next_event_time
            return "paused" if following is None else f"in {_duration(following - now)}"
        case _:
            assert_never(judgement.verdict)


def _sums(board: DashboardState, now: datetime, width: int) -> Text:
    totals = board.totals
    left = Text(" happenings", style="bold")
    right = Text.assemble(
        (f"{totals.published:,} events", "bold green"),
        f" · {board.rate(now):.1f}/s · {totals.paced:,} paced · ",
        (f"{totals.failed:,} failed", "bold red" if totals.failed else ""),
        f" · {totals.evaluations:,} evaluations ",
    )
    return _justified(left, right, width)


def _happenings(board: DashboardState, count: int, width: int) -> list[Text]:
    lines = [_happening(board, happening, width) for happening in board.latest(count)]
    return lines + [Text("")] * (count - len(lines))


def _happening(board: DashboardState, happening: Activity, width: int) -> Text:
    line = Text(no_wrap=True)
    line.append(f" {happening.at.astimezone():%H:%M:%S} ", style="dim")
    line.append(
        _cut(happening.source, _SOURCE).ljust(_SOURCE + 1), style="bold cyan" * (happening.source == "pulse")
    )
    name = happening.name or board.name_of(happening.resource_id) or happening.resource_id
    if name:
        names = _name_width(width)
        line.append(_shortened(printable(name), names).ljust(names + 1))
    line.append(printable(happening.text), style=_TONES[happening.tone])
    line.truncate(width, overflow="ellipsis")
    return line


def _hints(hints: Sequence[Hint], width: int) -> list[Text]:
    if not hints:
        return []
    lines = [Text(_cut(" try next, in another terminal (Ctrl-C ends this one)", width), style="bold")]
    for hint in hints:
        line = Text(no_wrap=True)
        line.append(_cut(f" {hint.command}", width), style="cyan")
        if width - len(line) >= len(hint.purpose) + 4:
            line.append(f"  # {hint.purpose}", style="dim")
        lines.append(line)
    return lines


def _justified(left: Text, right: Text, width: int) -> Text:
    """Both on one line; the right one gives way where there is no room for it."""
    gap = width - left.cell_len - right.cell_len
    if gap >= 1:
        return Text.assemble(left, " " * gap, right, no_wrap=True)
    left.truncate(width)
    return left


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…" * (width > 0)


def _shortened(name: str, width: int) -> str:
    """A name, without its middle where it is too long: names of a family begin alike and end differently."""
    if len(name) <= width:
        return name
    tail = max(width - 1, 0) // 2
    return _cut(name, width - tail) + name[len(name) - tail :]


def _duration(duration: timedelta) -> str:
    """As short as it can be said: 4s, 12m, 3h."""
    seconds = max(int(duration.total_seconds()), 0)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
