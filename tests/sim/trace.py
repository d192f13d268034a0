"""What happened in a simulation, and what should not have.

Whoever checks something reports it here instead of raising: most of the code under test catches what its parts
raise, as a service must, and a violation would be logged and forgotten there.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections import deque
from datetime import datetime
from hashlib import sha256
from typing import Any

from sentinel.runtime.log import Log

_KEPT, _SHOWN = 2000, 80
"""How many of the last events are remembered, and how many of those a violation is shown with."""


class Violation(AssertionError):
    """The simulation has seen something that must never be; the text says what, and how to see it again."""


class Trace:
    """The history of one run: its end for people, and a digest of all of it to tell whether two are the same."""

    def __init__(self, seed: int) -> None:
        loop = asyncio.get_running_loop()
        self.seed = seed
        self.violated: asyncio.Future[Violation] = loop.create_future()
        """The first one."""
        self._time = loop.time
        self._events: deque[tuple[float, str, str, tuple[object, ...]]] = deque(maxlen=_KEPT)
        self._digest = sha256()
        self._step = 0

    def step(self) -> int:
        """A number greater than all before it: what came earlier has a smaller one."""
        self._step += 1
        return self._step

    def note(self, who: str, what: str, *details: object) -> None:
        """Something has happened."""
        event = (self._time(), who, what, details)
        self._events.append(event)
        self._digest.update(repr(event[:3]).encode())

    def violation(self, claim: str, *, about: str = "") -> None:
        """Something must never happen, and has. The first one counts; it is shown with the last events, or with
        the last that mention what it is `about`."""
        self.note("VIOLATION", claim)
        if not self.violated.done():
            self.violated.set_result(Violation(self._told(claim, about)))

    def require(self, is_so: bool, claim: str, *details: object) -> None:
        """A claim about what must be so; `details` say how it is instead."""
        if not is_so:
            self.violation(" ".join((claim, *map(str, details))))

    def fault(self, who: str, error: BaseException) -> None:
        """Somebody has met an error that nothing in a simulation accounts for: it is one of our own."""
        self.note(who, "raises", "".join(traceback.format_exception(error)))
        self.violation(f"{who}: a fault of our own: {error!r}")

    def ended(self, who: str, task: asyncio.Task[Any], *expected: type[Exception]) -> None:
        """A task is over that nobody may be waiting for; it has raised nothing, or something `expected`."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, expected):
            self.fault(who, error)

    def log(self, who: str) -> Log:
        """A log for a part that outlives whatever goes wrong in it: what it did not expect is a violation."""
        logger = logging.Logger(f"simulation.{who}", logging.ERROR)  # noqa: LOG001  # every run has its own
        logger.addHandler(_Alarm(self, who))
        return Log(logger, {})

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def _told(self, claim: str, about: str) -> str:
        lines = [
            f"{at:10.3f}  {who:<14} {what} {' '.join(map(_shown, details))}".rstrip()
            for at, who, what, details in self._events
        ]
        events = [line for line in lines if about in line][-_SHOWN:]
        return (
            f"seed {self.seed}: {claim}\n\nrepeat with: make sim SEEDS={self.seed}\n\n"
            f"the last events{about and f' about {about}'}, by seconds since the start:\n" + "\n".join(events)
        )


class _Alarm(logging.Handler):
    def __init__(self, trace: Trace, who: str) -> None:
        super().__init__()
        self._trace = trace
        self._who = who

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None and record.exc_info[1] is not None:
            self._trace.fault(self._who, record.exc_info[1])


def _shown(detail: object) -> str:
    return detail.isoformat() if isinstance(detail, datetime) else str(detail)
