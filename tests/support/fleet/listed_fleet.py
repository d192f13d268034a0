"""A server's list in memory, which changes between requests. A document never returns to an earlier state."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum, auto
from typing import Any, TypeAlias, assert_never

import msgspec
from hypothesis import strategies as st

from sentinel.core.pulse.listing import PageShape


class ChangeKind(StrEnum):
    """What happens to a document. Unless stated otherwise, to an existing one."""

    CREATE = auto()
    """A new document, at one of the ends of the list."""
    DELETE = auto()
    MOVE = auto()
    """To one of the ends of the list."""
    REPORT = auto()
    """A status at the current generation; its time may be in the future."""
    LABEL = auto()
    SPEC = auto()
    PAUSE = auto()
    RESUME = auto()
    REQUEST = auto()
    PROGRESS = auto()
    AHEAD = auto()
    """A status at a generation that the spec has not reached."""
    BREAK = auto()
    """The document is no longer a resource, or is one again."""
    TOUCH = auto()
    """A change that no decision reads."""


Change: TypeAlias = tuple[ChangeKind, int, int]
"""Its kind, which document, and how."""

changes: st.SearchStrategy[Change] = st.tuples(
    # Reports are the usual change. They make resources that are not due, without which nothing is unchanged.
    st.sampled_from([*ChangeKind, *[ChangeKind.REPORT] * 8, ChangeKind.AHEAD]),
    st.integers(0, 30),
    st.integers(0, 5),
)

US_EAST = {"region": "us-east"}
"""The labels of a new document."""
_AGES = (0, 0, 5, 10, 55, -30)
"""How old a status is when it is reported, in seconds."""


class ListedFleet:
    """The list, and the responses to requests for its pages."""

    def __init__(self, *, shape: PageShape, has_conditions: bool, size: int, now: datetime) -> None:
        self._shape = shape
        self._has_conditions = has_conditions
        self._rows: dict[int, dict[str, Any]] = {}
        self._revision = 0
        self._created = 0
        for _ in range(size):
            self.apply((ChangeKind.CREATE, 0, 0), now)
            self.apply((ChangeKind.REPORT, len(self._rows) - 1, 0), now)

    def apply(self, change: Change, now: datetime) -> None:
        kind, slot, how = change
        self._revision += 1
        if kind is ChangeKind.CREATE or not self._rows:
            self._created += 1
            document: dict[str, Any] = {
                "id": f"r{self._created}",
                "kind": "Cluster",
                "generation": 1,
                "labels": US_EAST,
                "status": {},
            }
            self._rows[self._end(how)] = document
        else:
            row = sorted(self._rows)[slot % len(self._rows)]
            document = self._rows[row]
            self._change(kind, row, how, now)
        document["revision"] = self._revision

    def respond(self, query: Mapping[str, str]) -> bytes:
        """Return the page that is requested by `page` or `after`."""
        rows, size, total = sorted(self._rows), int(query["size"]), len(self._rows)
        if self._shape is PageShape.WHOLE:
            return msgspec.json.encode([self._rows[row] for row in rows])
        if "after" in query:
            rows = [row for row in rows if row > int(query["after"])]
        else:
            rows = rows[(int(query["page"]) - 1) * size :]
        page = {"items": [self._rows[row] for row in rows[:size]], "total": total}
        if self._shape is PageShape.CURSOR:
            return msgspec.json.encode({**page, "next": str(rows[size - 1]) if len(rows) > size else None})
        return msgspec.json.encode({**page, "page": int(query["page"])})

    def _end(self, how: int) -> int:
        rows = sorted(self._rows) or [0]
        return rows[-1] + 1 if how % 2 == 0 else rows[0] - 1

    def _change(self, kind: ChangeKind, row: int, how: int, now: datetime) -> None:
        document = self._rows[row]
        match kind:
            case ChangeKind.CREATE | ChangeKind.TOUCH:
                pass
            case ChangeKind.DELETE:
                del self._rows[row]
            case ChangeKind.MOVE:
                del self._rows[row]
                self._rows[self._end(how)] = document
            case ChangeKind.REPORT:
                self._report(document, document["generation"], how, now)
            case ChangeKind.AHEAD:
                self._report(document, document["generation"] + 1, how, now)
            case ChangeKind.LABEL:
                document["labels"] = US_EAST if how % 2 else {}
            case ChangeKind.SPEC:
                document["generation"] += 1
            case ChangeKind.PAUSE | ChangeKind.RESUME:
                document["paused"] = kind is ChangeKind.PAUSE
            case ChangeKind.REQUEST:
                document["pulse_requested_time"] = now.isoformat()
            case ChangeKind.PROGRESS:
                count = document["status"].get("progress_count", 0) + 1
                document["status"] |= {"last_progress_time": now.isoformat(), "progress_count": count}
            case ChangeKind.BREAK:
                document["kind"] = "Cluster" if how % 2 else 7
            case _:
                assert_never(kind)

    def _report(self, document: dict[str, Any], observed: int, how: int, now: datetime) -> None:
        time = (now - timedelta(seconds=_AGES[how])).isoformat()
        is_ready = how > 0
        if self._has_conditions:
            condition = {"status": str(is_ready), "observed_generation": observed, "last_updated_time": time}
            document["status"] |= {"conditions": [{"type": each, **condition} for each in ("Ready", "Available")]}
        else:
            phase = "Ready" if is_ready else "NotReady"
            document["status"] |= {"phase": phase, "observed_generation": observed, "last_updated_time": time}
