"""What happened in a simulation, and the violations found.

Checkers record violations here instead of raising. Most of the code under test catches exceptions, as a service
must, so a raised violation would be logged and lost.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime
from hashlib import sha256
from typing import Any

from sentinel.runtime.log import Log

_MAX_KEPT, _MAX_SHOWN = 2000, 80
"""How many of the last events are kept, and how many of them a violation shows."""


class Violation(AssertionError):
    """The simulation has found something forbidden. The message says what, and how to repeat it."""


def first_violation(simulate: Callable[[int], object], seeds: Iterable[int]) -> str:
    """Simulate seeds until one has a violation, and return its message; empty if none has."""
    for seed in seeds:
        try:
            simulate(seed)
        except Violation as violation:
            return str(violation)
    return ""


class Trace:
    """The last events of one run, and a digest of all of them."""

    def __init__(self, seed: int) -> None:
        loop = asyncio.get_running_loop()
        self.seed = seed
        self.violated: asyncio.Future[Violation] = loop.create_future()
        """The first violation."""
        self._time = loop.time
        self._events: deque[tuple[float, str, str, tuple[object, ...]]] = deque(maxlen=_MAX_KEPT)
        self._digest = sha256()
        self._step = 0

    def step(self) -> int:
        """Return a number greater than all before it, to compare what came first."""
        self._step += 1
        return self._step

    def note(self, who: str, what: str, *details: object) -> None:
        """Record an event."""
        event = (self._time(), who, what, details)
        self._events.append(event)
        self._digest.update(repr(event[:3]).encode())

    def violation(self, claim: str, *, about: str = "") -> None:
        """Record a violation. The first one is shown with the last events, or with the last that mention
        `about`."""
        self.note("VIOLATION", claim)
        if not self.violated.done():
            self.violated.set_result(Violation(self._message(claim, about)))

    def require(self, is_valid: bool, claim: str, *details: object) -> None:
        """Record a violation unless `is_valid`."""
        if not is_valid:
            self.violation(" ".join((claim, *map(str, details))))

    def unexpected(self, who: str, error: BaseException) -> None:
        """Record an error that no simulated fault explains as a violation."""
        self.note(who, "raises", "".join(traceback.format_exception(error)))
        self.violation(f"{who}: unexpected error: {error!r}")

    def task_ended(self, who: str, task: asyncio.Task[Any], *expected: type[Exception]) -> None:
        """Check that a task that nothing awaits has raised nothing, or one of `expected`."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, expected):
            self.unexpected(who, error)

    def log(self, who: str) -> Log:
        """A log that turns every logged exception into a violation."""
        logger = logging.Logger(f"simulation.{who}", logging.ERROR)  # noqa: LOG001  # every run has its own
        logger.addHandler(_ExceptionHandler(self, who))
        return Log(logger, {})

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def _message(self, claim: str, about: str) -> str:
        lines = [
            f"{at:10.3f}  {who:<14} {what} {' '.join(map(_format, details))}".rstrip()
            for at, who, what, details in self._events
        ]
        events = [line for line in lines if about in line][-_MAX_SHOWN:]
        return (
            f"seed {self.seed}: {claim}\n\nrepeat with: make sim SEEDS={self.seed}\n\n"
            f"the last events{about and f' about {about}'}, by seconds since the start:\n" + "\n".join(events)
        )


class _ExceptionHandler(logging.Handler):
    def __init__(self, trace: Trace, who: str) -> None:
        super().__init__()
        self._trace = trace
        self._who = who

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None and record.exc_info[1] is not None:
            self._trace.unexpected(self._who, record.exc_info[1])


def _format(detail: object) -> str:
    return detail.isoformat() if isinstance(detail, datetime) else str(detail)
