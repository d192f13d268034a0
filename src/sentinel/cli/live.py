"""The live view of `sentinel up`: the fleet, each decision with its reason, and the events as they go out.

A screen is drawn anew a few times a second from the board, by a pure function of the board, the moment and the
size of the terminal. From 80 columns and 24 lines everything has a place; on more, there is more of it.
"""

from __future__ import annotations

import asyncio
import io
from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TextIO, assert_never

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sentinel.cli.board import Board, Column, Happening
from sentinel.core.decision import Reason
from sentinel.core.pacing import Verdict
from sentinel.ports import Clock, Outcome
from sentinel.pulse.report import Judgement
from sentinel.runtime.lifecycle import Stopping

_FRAME = timedelta(milliseconds=250)
_HELD_LINES = 500
_LEAST_EVENTS = 4
"""Lines of events that are shown even where the fleet would fill the terminal."""

_REASON_STYLE = {
    Reason.GENERATION_CHANGED: "bold magenta",
    Reason.PULSE_REQUESTED: "bold green",
    Reason.NEVER_UPDATED: "bold cyan",
    Reason.EXPIRED_NOT_READY: "yellow",
    Reason.EXPIRED_READY: "blue",
    Reason.NOT_EXPIRED: "dim",
    Reason.PAUSED: "dim",
}


class Hint(msgspec.Struct, frozen=True):
    """Something to try next."""

    command: str
    purpose: str


class LiveView:
    """Draws until it is told to stop, on a screen of its own that gives the terminal back as it was."""

    def __init__(
        self, *, board: Board, clock: Clock, title: str, hints: Sequence[Hint], console: Console | None = None
    ) -> None:
        self._board = board
        self._clock = clock
        self._title = title
        self._hints = hints
        self._console = console or Console(highlight=False)

    async def run(self, stopping: Stopping) -> None:
        with Live(
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        ) as live:
            while True:
                live.update(self._draw(), refresh=True)
                if await stopping.interrupts(asyncio.sleep(_FRAME.total_seconds())):
                    return

    def _draw(self) -> RenderableType:
        width, height = self._console.size
        return draw(
            self._board,
            now=self._clock.now(),
            title=self._title,
            hints=self._hints,
            width=width,
            height=height,
        )


class HeldLog(io.StringIO):
    """Takes log lines while the screen belongs to the view; the latest of them are written when it is over."""

    def __init__(self, terminal: TextIO) -> None:
        super().__init__()
        self._terminal = terminal
        self._lines: deque[str] = deque(maxlen=_HELD_LINES)

    def isatty(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        self._lines.append(text)
        return len(text)

    def release(self) -> None:
        """Writes them."""
        self._terminal.writelines(self._lines)
        self._terminal.flush()


def draw(
    board: Board, *, now: datetime, title: str, hints: Sequence[Hint], width: int, height: int
) -> RenderableType:
    """One screen, never higher than `height` lines nor wider than `width` columns."""
    is_roomy = height >= 36
    foot = _hints(hints, width)
    # Title, head of the fleet, legend, head of the events; and air where there is room for it.
    fixed = 4 + len(foot) + (3 if is_roomy else 0)
    longest = max((len(column.judgements) for column in board.columns), default=0)
    rows = max(min(longest, height - fixed - _LEAST_EVENTS), 1)
    events = max(height - fixed - rows, 1)
    air = [Text("")] if is_roomy else []
    lines: list[RenderableType] = [
        _title(board, now, title, width),
        *air,
        _fleet(board.columns, now, rows, width),
        _legend(width),
        *air,
        _sums(board, now, width),
        *_events(board.latest(events), events, width),
        *air,
        *foot,
    ]
    return Group(*lines)


def _title(board: Board, now: datetime, title: str, width: int) -> Text:
    resources = sum(len(column.judgements) for column in board.columns)
    left = Text.assemble((" sentinel ", "bold white on blue"), " ", (title, "bold"))
    right = Text(f"{resources} resources · up {_duration(now - board.started)} ", style="dim")
    return _justified(left, right, width)


def _fleet(columns: Sequence[Column], now: datetime, rows: int, width: int) -> Table:
    """The columns side by side, each a table of so many rows below its head."""
    side_by_side = Table.grid(expand=False, padding=0)
    share = width // max(len(columns), 1)
    for _ in columns:
        side_by_side.add_column(width=share, no_wrap=True)
    side_by_side.add_row(*(_column(column, now, rows, share) for column in columns))
    return side_by_side


def _column(column: Column, now: datetime, rows: int, width: int) -> Group:
    is_wide = width >= 50
    lines = [_row(column.resource_type, "GEN", "READY", "AGE", "EVENT", width, is_wide)]
    lines[0].stylize("bold")
    shown = column.judgements
    if len(shown) > rows:
        shown = shown[: rows - 1]
    lines.extend(_resource(judgement, now, width, is_wide) for judgement in shown)
    if len(shown) < len(column.judgements):
        lines.append(Text(f"   … and {len(column.judgements) - len(shown)} more", style="dim"))
    lines.extend(Text("") for _ in range(rows + 1 - len(lines)))
    return Group(*lines)


def _resource(judgement: Judgement, now: datetime, width: int, is_wide: bool) -> Text:
    seen = judgement.resource
    is_behind = seen.generation > seen.observed_generation
    age = "-" if seen.last_updated_time is None else _duration(now - seen.last_updated_time)
    line = _row(
        f"{'●' if seen.is_ready else '○'} {seen.id}",
        f"{seen.generation}/{seen.observed_generation}",
        "ready" if seen.is_ready else "not ready",
        age,
        _prospect(judgement, now),
        width,
        is_wide,
    )
    if is_behind:
        line.stylize("magenta")
    elif not seen.is_ready:
        line.stylize("yellow")
    line.stylize("green" if seen.is_ready else "yellow", 1, 2)
    if judgement.verdict is Verdict.PUBLISH:
        line.stylize("bold")
    return line


def _row(name: str, generation: str, ready: str, age: str, event: str, width: int, is_wide: bool) -> Text:
    rest = f"{generation:>6} " + (f"{ready:<9} " if is_wide else "") + f"{age:>5}  {event:<7} "
    room = width - len(rest) - 1
    return Text(" " + _cut(name, room).ljust(room) + rest, no_wrap=True)


def _prospect(judgement: Judgement, now: datetime) -> str:
    """When the next event is due, or what became of the one that is."""
    match judgement.verdict:
        case Verdict.PUBLISH:
            return "→ sent"
        case Verdict.PACED:
            return "paced"
        case Verdict.SKIP | Verdict.REPEATED:
            following = judgement.decision.next_event_time
            return "paused" if following is None else f"in {_duration(following - now)}"
        case _:
            assert_never(judgement.verdict)


def _legend(width: int) -> Text:
    text = " ● ready ○ not ready · GEN wanted/observed · AGE of status · paced: just sent"
    return Text(_cut(text, width), style="dim", no_wrap=True)


def _sums(board: Board, now: datetime, width: int) -> Text:
    totals = board.totals
    left = Text(" events", style="bold")
    right = Text.assemble(
        (f"{totals.published:,} published", "bold green"),
        f" · {board.rate(now):.1f}/s · {totals.skipped:,} skipped · {totals.paced:,} paced · ",
        (f"{totals.failed:,} failed ", "bold red" if totals.failed else ""),
    )
    return _justified(left, right, width)


def _events(happenings: Sequence[Happening], count: int, width: int) -> list[Text]:
    lines = [_event(happening, width) for happening in happenings[:count]]
    return lines + [Text("")] * (count - len(lines))


def _event(happening: Happening, width: int) -> Text:
    line = Text(no_wrap=True)
    line.append(f" {happening.at.astimezone():%H:%M:%S}  ", style="dim")
    if happening.judgement is None:
        line.append(_cut(happening.trouble, width - len(line)), style="bold red")
        return line
    seen, decision = happening.judgement.resource, happening.judgement.decision
    line.append(_cut(seen.id, 18).ljust(19))
    if happening.outcome is not Outcome.CONFIRMED:
        line.append(f"{happening.outcome}: ", style="bold red")
    line.append(decision.reason, style=_REASON_STYLE[decision.reason])
    generations = f"generation {seen.generation}, observed {seen.observed_generation} "
    if width - line.cell_len >= len(generations) + 2:
        line.append(generations.rjust(width - line.cell_len), style="dim")
    line.truncate(width, overflow="ellipsis")
    return line


def _hints(hints: Sequence[Hint], width: int) -> list[Text]:
    if not hints:
        return []
    longest = max(len(hint.command) for hint in hints)
    lines = [Text(" try next", style="bold")]
    for hint in hints:
        line = Text(no_wrap=True)
        line.append(_cut(f" {hint.command.ljust(longest)}", width), style="cyan")
        line.append(_cut(f"  {hint.purpose}", max(width - len(line), 0)), style="dim")
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


def _duration(duration: timedelta) -> str:
    """As short as it can be said: 4s, 12m, 3h."""
    seconds = max(int(duration.total_seconds()), 0)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
