"""What a process owns: its signals, its event loop, and its way out.

Leaving has to work when something else does not: a task that ignores its cancellation, a thread stuck in a
name lookup, a loop that no longer turns. None of them may keep a process that was told to go.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from enum import IntEnum
from types import FrameType
from typing import Any, NoReturn

from sentinel.runtime.log import Log, flush_logs

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Each ends a service; SIGHUP, which a closing terminal sends, asks a service that can to reload instead."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT = 32 * 1024 * 1024
"""The most that glibc takes; what is larger comes from the kernel each time."""
_EXIT_TIMEOUT = timedelta(seconds=2)
_FAREWELL = timedelta(milliseconds=500)
_THREADS = "sentinel-blocking"
_KILLED = 128
"""Added to a signal's number, this is the exit code of what it ended."""


class ExitCode(IntEnum):
    """What the process ends with."""

    SUCCESS = 0
    FAILURE = 1
    MISCONFIGURED = 2


def tune_memory() -> None:
    """For a server that answers with large bodies: called once, when everything is loaded.

    glibc gives every large block back to the kernel, which hands out fresh pages for the next: faulting them in
    costs more than filling them. And what is loaded by now stays, so no collection need look at it again.
    """
    with suppress(OSError, AttributeError):  # another C library, which has other habits
        mallopt = ctypes.CDLL(None).mallopt
        for parameter in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
            mallopt(parameter, _KEPT)
    gc.collect()
    gc.freeze()


def main(service: Coroutine[Any, Any, int], *, log: Log, exit_timeout: timedelta = _EXIT_TIMEOUT) -> int:
    """Runs a service, such as `runner.run(...)`, on an event loop of its own; returns its exit code.

    Tasks and threads that outlive the service have `exit_timeout` to end before they are abandoned.
    """
    executor = ThreadPoolExecutor(thread_name_prefix=_THREADS)
    try:
        with asyncio.Runner() as runner:
            runner.get_loop().set_default_executor(executor)
            code = runner.run(_run_and_tidy_up(service, log, exit_timeout))
            # The loop would join these threads however long they take.
            executor.shutdown(wait=False, cancel_futures=True)
            _await_threads(code, log, exit_timeout)
            return code
    except KeyboardInterrupt:  # before the service had taken charge of signals, or after
        return _KILLED + signal.SIGINT
    except SystemExit as error:
        # None of ours calls it. In a task it tears the loop down, and without a word nobody would know why.
        log.exception("process.exited", message="a task has called sys.exit", code=error.code, error=error)
        raise


async def _run_and_tidy_up(service: Coroutine[Any, Any, int], log: Log, exit_timeout: timedelta) -> int:
    code = await service
    leftovers = asyncio.all_tasks() - {asyncio.current_task()}
    for task in leftovers:
        task.cancel()
    if leftovers:
        _, stuck = await asyncio.wait(leftovers, timeout=exit_timeout.total_seconds())
        if stuck:
            names = sorted(task.get_name() for task in stuck)
            exit_now(code, lambda: log.warning("process.abandoned", tasks=names))
    return code


def _await_threads(code: int, log: Log, exit_timeout: timedelta) -> None:
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(_THREADS)]
    for thread in threads:
        thread.join(exit_timeout.total_seconds() / len(threads))
    stuck = sorted(thread.name for thread in threads if thread.is_alive())
    if stuck:
        exit_now(code, lambda: log.warning("process.abandoned", threads=stuck))


def exit_now(code: int, say: Callable[[], None]) -> NoReturn:
    """Ends the process here and now, after a last word if it can be had quickly.

    The word is said by another thread, because this one may hold, or wait for, what writing a log line takes.
    """

    def farewell() -> None:
        say()
        flush_logs()
        with suppress(OSError, ValueError):
            sys.stdout.flush()

    speaker = threading.Thread(target=farewell, daemon=True)
    speaker.start()
    speaker.join(_FAREWELL.total_seconds())
    os._exit(code)


@contextmanager
def handle_signals(
    handled: Collection[signal.Signals],
    on_first: Callable[[signal.Signals], None],
    *,
    on_hangup: Callable[[], None] | None = None,
    log: Log,
) -> Iterator[None]:
    """Calls `on_first` at the first of these signals; the second one ends the process on the spot.

    With `on_hangup`, SIGHUP calls that every time and counts as neither. Without it SIGHUP may be the first, but
    never the second: the kernel and the shell each send one when a terminal closes. Where it is ignored at the
    start, as under `nohup`, it stays so in either case.
    These are Python's own handlers, not the event loop's: a loop that is stuck would see neither signal.
    """
    loop = asyncio.get_running_loop()
    has_come = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal has_come
        received = signal.Signals(number)
        if received is signal.SIGHUP and on_hangup is not None:
            loop.call_soon_threadsafe(on_hangup)
            return
        if has_come:
            if received is signal.SIGHUP:
                return
            exit_now(_KILLED + number, lambda: log.warning("process.killed", signal=received.name))
        has_come = True
        loop.call_soon_threadsafe(on_first, received)

    ignored = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else set()
    previous = {number: signal.signal(number, handle) for number in handled if number not in ignored}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler or signal.SIG_DFL)
