"""An event loop on virtual time: hours of a service's life in milliseconds, the same way every time.

    @simulated
    async def test_an_hour_passes() -> None:
        clock = SimulatedClock()
        await asyncio.sleep(3600)
        assert clock.now() == START + timedelta(hours=1)

Whenever nothing is ready to run, time jumps to the next timer. Sleeps, `asyncio.timeout`, task groups, queues
and `call_later` are asyncio's own and behave as they always do; only waiting is free. Where nothing is ready
and no timer is set, no test would ever end by itself: that is reported as a `Deadlock` naming who waits where.

Tasks that are ready at the same moment run in the order in which they became so, as asyncio has it. A program must
not depend on that, for in production it is the network that decides; `loop.run(scenario(), order=Random(7))` makes
it a matter of chance, another one for each seed and always the same for one.

There is no I/O and there are no threads. Data on its way through a socket is neither ready nor a timer, so that
a jump past it would fire timeouts at random; a simulation talks to fakes in memory instead.
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

_MOST_TURNS = 1_000_000
"""Turns of the loop within one instant; past that, something spins without ever waiting for time to pass."""


class Deadlock(RuntimeError):
    """Nothing can happen any more: every task waits, and no timer is set."""


class Livelock(RuntimeError):
    """Tasks keep running and time stands still, for ever."""


class SimulatedLoop(base_events.BaseEventLoop):
    """asyncio's loop with its clock and its selector replaced; `run` is the usual way to use it."""

    _ready: deque[asyncio.Handle]  # the base class's own, of which its types say nothing

    def __init__(
        self, start: datetime = START, *, order: Random | None = None, most_turns: int = _MOST_TURNS
    ) -> None:
        super().__init__()
        if start.tzinfo is None:
            self.close()
            raise ValueError(f"start: expected an aware datetime, got {start.isoformat()}")
        self.start = start.astimezone(UTC)
        self._elapsed = 0.0
        self._home = threading.get_ident()
        self._turns = 0
        self._order = order
        self._most_turns = most_turns
        # A timer is due when it is less than this ahead. The real clock's nanosecond is lost in a float once
        # months have passed, and no timer would ever be due again.
        self._clock_resolution = 1e-7
        # The base class asks its selector what to wait for; here, that is the moment to move time.
        self._selector = self

    def time(self) -> float:
        return self._elapsed

    def now(self) -> datetime:
        """The virtual moment, in UTC."""
        return self.start + timedelta(seconds=self._elapsed)

    def select(self, timeout: float | None) -> list[object]:
        """What the base class calls once a turn: 0 if something is ready, None if nothing ever will be."""
        if timeout is None:
            raise Deadlock(_who_waits(self))
        if timeout > 0:
            self._elapsed += timeout
            self._turns = 0
            return []
        self._turns += 1
        if self._turns > self._most_turns:
            self._turns = 0  # the tasks that are left may still be cancelled
            raise Livelock(f"{self._most_turns:,} turns of the loop without time moving; {_who_waits(self)}")
        if self._order is not None and len(self._ready) > 1:
            ready = list(self._ready)
            self._order.shuffle(ready)
            self._ready.clear()
            self._ready.extend(ready)
        return []

    def call_soon_threadsafe(  # type: ignore[override]  # typed with variadics that add nothing here
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if threading.get_ident() != self._home:
            _refuse("a call from another thread")
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]  # it never returns what the base class promises
        self, executor: Any, func: Callable[..., object], *args: Any
    ) -> NoReturn:
        _refuse("run_in_executor (asyncio.to_thread, name resolution)")

    async def create_connection(self, *args: Any, **options: Any) -> NoReturn:
        _refuse("create_connection")

    async def create_server(self, *args: Any, **options: Any) -> NoReturn:
        _refuse("create_server")

    async def create_datagram_endpoint(self, *args: Any, **options: Any) -> NoReturn:
        _refuse("create_datagram_endpoint")

    def _process_events(self, events: list[object]) -> None:
        """Nothing comes from outside."""


class SimulatedClock:
    """A verified fake of `ports.Clock` that follows the simulated loop it is used on."""

    def now(self) -> datetime:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, SimulatedLoop):
            raise RuntimeError("a SimulatedClock works only inside sentinel.testing.loop.run")
        return loop.now()

    async def sleep(self, duration: timedelta) -> None:
        await asyncio.sleep(duration.total_seconds())


def run(coroutine: Coroutine[Any, Any, T], *, start: datetime = START, order: Random | None = None) -> T:
    """Runs `coroutine` to its end on virtual time, and whatever it left behind to its cancellation.

    With `order`, chance decides who goes first among those who are ready at the same moment.
    """
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(start, order=order)) as runner:
        return runner.run(coroutine)


def simulated(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Make a coroutine function a plain one that runs on virtual time; use it as a decorator of tests."""

    @wraps(function)
    def on_virtual_time(*args: P.args, **kwargs: P.kwargs) -> T:
        return run(function(*args, **kwargs))

    return on_virtual_time


def _refuse(what: str) -> NoReturn:
    raise RuntimeError(f"a simulated loop has no I/O and no threads, and got {what}; use a fake in memory")


def _who_waits(loop: SimulatedLoop) -> str:
    waiting = sorted(f"{task.get_name()} at {_where(task)}" for task in asyncio.all_tasks(loop))
    return f"at {loop.now().isoformat()} waiting without a timer: {'; '.join(waiting) or 'no task at all'}"


def _where(task: asyncio.Task[Any]) -> str:
    """The innermost line of a task that is not asyncio's own, which `get_stack` does not reach through awaits,
    and what is awaited there."""
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
