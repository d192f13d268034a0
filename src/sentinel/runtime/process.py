"""The process: its signals, its event loop, and its exit.

Exiting has to work even if a task ignores its cancellation, a thread is stuck in a name lookup, or the event
loop is blocked.
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
"""Each stops a service. SIGHUP, which a closing terminal sends, reloads a service that supports it."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MALLOC_THRESHOLD = 32 * 1024 * 1024
"""glibc's maximum. Larger blocks are returned to the kernel every time."""
_EXIT_TIMEOUT = timedelta(seconds=2)
_FLUSH_TIMEOUT = timedelta(milliseconds=500)
THREAD_PREFIX = "sentinel-blocking"
"""The names of threads that the process waits for at exit start with this."""
_SIGNAL_EXIT = 128
"""Added to a signal's number: the exit code of a process that the signal ended."""


class ExitCode(IntEnum):
    """The exit codes of all commands."""

    SUCCESS = 0
    FAILURE = 1
    MISCONFIGURED = 2


def tune_memory() -> None:
    """Tune the allocator and the garbage collector of a service with large bodies. Call once after startup.

    By default glibc returns every large block to the kernel. Faulting in fresh pages for the next one costs more
    than filling them. And loaded modules stay, so garbage collections need not scan them.
    """
    with suppress(OSError, AttributeError):  # not glibc
        mallopt = ctypes.CDLL(None).mallopt
        for parameter in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
            mallopt(parameter, _MALLOC_THRESHOLD)
    gc.collect()
    gc.freeze()


def main(service: Coroutine[Any, Any, int], *, log: Log, exit_timeout: timedelta = _EXIT_TIMEOUT) -> int:
    """Run a service, such as `runner.run(...)`, on a new event loop. Returns its exit code.

    Tasks and threads that outlive the service have `exit_timeout` to end. Then they are abandoned.
    """
    executor = ThreadPoolExecutor(thread_name_prefix=THREAD_PREFIX)
    try:
        with asyncio.Runner() as runner:
            runner.get_loop().set_default_executor(executor)
            code = runner.run(_run_and_cancel_leftovers(service, log, exit_timeout))
            # The loop would join these threads without a timeout.
            executor.shutdown(wait=False, cancel_futures=True)
            _join_threads(code, log, exit_timeout)
            return code
    except KeyboardInterrupt:  # before or after the service handled signals
        return _SIGNAL_EXIT + signal.SIGINT
    except SystemExit as error:
        # Our own code never calls it. In a task it ends the loop, so log the reason.
        log.exception("process.exited", message="a task called sys.exit", code=error.code, error=error)
        raise


async def _run_and_cancel_leftovers(service: Coroutine[Any, Any, int], log: Log, exit_timeout: timedelta) -> int:
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


def _join_threads(code: int, log: Log, exit_timeout: timedelta) -> None:
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(THREAD_PREFIX)]
    for thread in threads:
        thread.join(exit_timeout.total_seconds() / len(threads))
    stuck = sorted(thread.name for thread in threads if thread.is_alive())
    if stuck:
        exit_now(code, lambda: log.warning("process.abandoned", threads=stuck))


def exit_now(code: int, log_reason: Callable[[], None]) -> NoReturn:
    """Log the reason and exit the process immediately.

    Another thread writes the log line, because this one may hold a lock that logging needs.
    """

    def log_and_flush() -> None:
        log_reason()
        flush_logs()
        with suppress(OSError, ValueError):
            sys.stdout.flush()

    thread = threading.Thread(target=log_and_flush, daemon=True)
    thread.start()
    thread.join(_FLUSH_TIMEOUT.total_seconds())
    os._exit(code)


@contextmanager
def handle_signals(
    handled: Collection[signal.Signals],
    on_first: Callable[[signal.Signals], None],
    *,
    on_hangup: Callable[[], None] | None = None,
    log: Log,
) -> Iterator[None]:
    """Call `on_first` at the first of these signals. The second one exits the process immediately.

    With `on_hangup`, SIGHUP calls that instead and does not count. Without it, SIGHUP may be the first signal
    but never the second: the kernel and the shell each send one when a terminal closes. If SIGHUP is ignored at
    startup, as under `nohup`, it stays ignored, except with `on_hangup`: a program that asks for a reload could
    not tell that there was none. These are Python's handlers and not the event loop's, because a blocked loop
    would see no signal.
    """
    loop = asyncio.get_running_loop()
    has_received = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal has_received
        received = signal.Signals(number)
        if received is signal.SIGHUP and on_hangup is not None:
            loop.call_soon_threadsafe(on_hangup)
            return
        if has_received:
            if received is signal.SIGHUP:
                return
            exit_now(_SIGNAL_EXIT + number, lambda: log.warning("process.killed", signal=received.name))
        has_received = True
        loop.call_soon_threadsafe(on_first, received)

    stays_ignored = on_hangup is None and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    ignored = {signal.SIGHUP} if stays_ignored else set()
    previous = {number: signal.signal(number, handle) for number in handled if number not in ignored}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler or signal.SIG_DFL)
