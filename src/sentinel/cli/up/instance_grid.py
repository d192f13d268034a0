"""The proxy instances in the live view: as many in a line as fit, those that need attention first."""

from __future__ import annotations

from collections import Counter
from typing import Final, assert_never

from rich.text import Text

from sentinel.cli.up.dashboard_state import InstancesState
from sentinel.core.hub.states import State
from sentinel.hub.instance_documents import InstanceDocument
from sentinel.runtime.settings.report import printable

_GAP: Final = 3
_MAX_VERSION: Final = 24


def draw(state: InstancesState, *, width: int, max_lines: int) -> list[Text]:
    """Return a heading and at most `max_lines` lines; nothing if there are no instances."""
    if not state.total:
        return []
    shown = sorted(state.instances, key=lambda each: (_urgency(each), _natural(each.id)))
    labels = [_label(each) for each in shown]
    label_width = max(map(len, labels))
    state_width = max(len(each.state) for each in shown)
    versions = [_version(each) for each in shown]
    cell_width = 2 + label_width + 1 + state_width + 1 + max(map(len, versions))
    columns = max((width - 1 + _GAP) // (cell_width + _GAP), 1)
    capacity = columns * max_lines
    lines = [_heading(state, width)]
    is_cut = state.total > capacity
    if is_cut:
        shown = shown[: columns * (max_lines - 1)]
    cells = [
        _cell(instance, label.ljust(label_width), state_width, version, cell_width)
        for instance, label, version in zip(shown, labels, versions, strict=False)
    ]
    for start in range(0, len(cells), columns):
        line = Text(" ", no_wrap=True)
        line.append_text(Text(" " * _GAP).join(cells[start : start + columns]))
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    if is_cut:
        lines.append(Text(f"   … and {state.total - len(shown)} more", style="dim"))
    return lines


def _heading(state: InstancesState, width: int) -> Text:
    counts = Counter(each.state for each in state.instances)
    differing = sum(not each.in_sync for each in state.instances)
    parts = [f"{counts[each]} {each}" for each in State if counts[each]]
    if differing:
        parts.append(f"{differing} out of sync")
    heading = Text(f" instances ({state.total})  ", style="bold", no_wrap=True)
    heading.append(" · ".join(parts), style="not bold dim")
    heading.truncate(width, overflow="ellipsis")
    return heading


def _cell(instance: InstanceDocument, label: str, state_width: int, version: str, width: int) -> Text:
    mark, style = _mark(instance)
    cell = Text(no_wrap=True)
    cell.append(mark, style=style)
    cell.append(f" {label} ")
    cell.append(instance.state.ljust(state_width), style="" if instance.state is State.ONLINE else style)
    cell.append(f" {version}", style="" if instance.in_sync else "yellow")
    cell.append(" " * max(width - cell.cell_len, 0))
    return cell


def _mark(instance: InstanceDocument) -> tuple[str, str]:
    match instance.state:
        case State.ONLINE:
            return ("●", "green") if instance.in_sync else ("○", "yellow")
        case State.DEPLOYING | State.DRAINING | State.UNKNOWN:
            return "○", "yellow"
        case State.DEGRADED | State.OFFLINE:
            return "✕", "red"
        case State.REMOVED:
            return "✕", "dim"
        case _:
            assert_never(instance.state)


def _label(instance: InstanceDocument) -> str:
    """The id, and the zone if there is one."""
    zone = instance.labels.get("zone")
    return printable(instance.id if zone is None else f"{instance.id}/{zone}")


def _version(instance: InstanceDocument) -> str:
    """What runs, and what should if that is something else."""
    running = "" if instance.current is None else instance.current.version
    if instance.in_sync:
        text = running or instance.assigned or "-"
    elif running == instance.assigned:
        text = f"{running} changed"
    else:
        text = f"{running or 'none'} → {instance.assigned}"
    text = printable(text)
    return text if len(text) <= _MAX_VERSION else f"{text[: _MAX_VERSION - 1]}…"


def _urgency(instance: InstanceDocument) -> int:
    if instance.state in (State.DEGRADED, State.OFFLINE):
        return 0
    return 1 if not instance.in_sync or instance.state is not State.ONLINE else 2


def _natural(text: str) -> tuple[str, int, str]:
    """Sort edge-10 after edge-9."""
    stem = text.rstrip("0123456789")
    number = text[len(stem) :]
    return (stem, int(number or 0), text)
