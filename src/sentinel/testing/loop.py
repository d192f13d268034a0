"""An event loop on virtual time: simulates hours in milliseconds, deterministically.

    @simulated
    async def test_an_hour_passes() -> None:
        clock = SimulatedClock()
        await asyncio.sleep(3600)
        assert clock.now() == START + timedelta(hours=1)

When nothing is ready to run, time jumps to the next timer. Sleeps, `asyncio.timeout`, task groups, queues and
`call_later` are asyncio's own. If nothing is ready and no timer is set, the test would hang: `Deadlock` is raised
and names each waiting task and its line.

Tasks that are ready at the same time run in the order in which they became ready, as in asyncio. A program must
not depend on that order, because in production the network decides it. `loop.run(coroutine, order=Random(7))`
shuffles it, differently for each seed and always the same for one.

There is no I/O and there are no threads. Data in a socket is neither ready nor a timer, so time would jump past it
and fire timeouts at random. Use in-memory fakes instead.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import base_events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from random import Random
from typing import Any, NoReturn, ParamSpec, TypeVar

from sentinel.testing.clock import START

P = ParamSpec("P")
T = TypeVar("T")

_ASYNCIO = str(Path(asyncio.__file__).parent)

_MAX_TURNS = 1_000_000
"""Loop iterations at one point in time; more than that means that something spins."""


class Deadlock(RuntimeError):
    """Every task waits, and no timer is set."""


class Livelock(RuntimeError):
    """Tasks keep running, but time does not advance."""


class SimulatedLoop(base_events.BaseEventLoop):
    """asyncio's event loop with its clock and its selector replaced. Usually used through `run`."""

    _ready: deque[asyncio.Handle]  # of the base class; missing in its type stubs

    def __init__(
        self, start: datetime = START, *, order: Random | None = None, max_turns: int = _MAX_TURNS
    ) -> None:
        super().__init__()
        if start.tzinfo is None:
            self.close()
            raise ValueError(f"start: expected an aware datetime, got {start.isoformat()}")
        self.start = start.astimezone(UTC)
        self._elapsed = 0.0
        self._owner_thread = threading.get_ident()
        self._turns = 0
        self._order = order
        self._max_turns = max_turns
        # A timer is due when it is less than this ahead. A nanosecond, as in the real loop, would be lost in a
        # float after months of virtual time, and no timer would ever be due again.
        self._clock_resolution = 1e-7
        # The base class calls its selector to wait for events; `select` advances the time instead.
        self._selector = self

    def time(self) -> float:
        return self._elapsed

    def now(self) -> datetime:
        """The virtual time, in UTC."""
        return self.start + timedelta(seconds=self._elapsed)

    def select(self, timeout: float | None) -> list[object]:
        """Called once per iteration. `timeout` is 0 if something is ready, and None if no timer is set."""
        if timeout is None:
            raise Deadlock(_waiting_tasks(self))
        if timeout > 0:
            self._elapsed += timeout
            self._turns = 0
            return []
        self._turns += 1
        if self._turns > self._max_turns:
            self._turns = 0  # the remaining tasks still have to be cancelled
            raise Livelock(f"{self._max_turns:,} turns of the loop without time moving; {_waiting_tasks(self)}")
        if self._order is not None and len(self._ready) > 1:
            ready = list(self._ready)
            self._order.shuffle(ready)
            self._ready.clear()
            self._ready.extend(ready)
        return []

    def call_soon_threadsafe(  # type: ignore[override]  # the base class types it with variadics
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if threading.get_ident() != self._owner_thread:
            _reject("a call from another thread")
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]  # it never returns
        self, executor: Any, func: Callable[..., object], *args: Any
    ) -> NoReturn:
        _reject("run_in_executor (asyncio.to_thread, name resolution)")

    async def create_connection(self, *args: Any, **options: Any) -> NoReturn:
        _reject("create_connection")

    async def create_server(self, *args: Any, **options: Any) -> NoReturn:
        _reject("create_server")

    async def create_datagram_endpoint(self, *args: Any, **options: Any) -> NoReturn:
        _reject("create_datagram_endpoint")

    def _process_events(self, events: list[object]) -> None:
        """Do nothing: there are no I/O events."""


class SimulatedClock:
    """A verified fake of `ports.clock.Clock` that shows the time of the running simulated loop."""

    def now(self) -> datetime:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, SimulatedLoop):
            raise RuntimeError("a SimulatedClock works only inside sentinel.testing.loop.run")
        return loop.now()

    async def sleep(self, duration: timedelta) -> None:
        await asyncio.sleep(duration.total_seconds())


def run(coroutine: Coroutine[Any, Any, T], *, start: datetime = START, order: Random | None = None) -> T:
    """Run `coroutine` to its end on virtual time, then cancel the tasks that it left running.

    With `order`, tasks that are ready at the same time run in random order.
    """
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(start, order=order)) as runner:
        return runner.run(coroutine)


def simulated(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Decorate an asynchronous test so that it runs on virtual time."""

    @wraps(function)
    def on_virtual_time(*args: P.args, **kwargs: P.kwargs) -> T:
        return run(function(*args, **kwargs))

    return on_virtual_time


def _reject(what: str) -> NoReturn:
    raise RuntimeError(f"a simulated loop has no I/O and no threads, got {what}; use an in-memory fake")


def _waiting_tasks(loop: SimulatedLoop) -> str:
    waiting = sorted(f"{task.get_name()} at {_where(task)}" for task in asyncio.all_tasks(loop))
    return f"at {loop.now().isoformat()} waiting without a timer: {'; '.join(waiting) or 'no task at all'}"


def _where(task: asyncio.Task[Any]) -> str:
    """The innermost line of a task outside asyncio, and what it awaits. `get_stack` does not follow awaits."""
    place, waiting_in = "an unknown place", ""
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            waiting_in = frame.f_code.co_qualname
            if not frame.f_code.co_filename.startswith(_ASYNCIO):
                place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return f"{place} in {waiting_in}"
