"""Runs a blocking function in a thread of its own.

asyncio's default executor has few threads, which name lookups use, too. A function that never returns would keep
one of them forever. A thread of its own costs a tenth of a millisecond and concerns nobody else.

A thread cannot be cancelled. At exit the process waits a moment for these threads and then abandons them
(`process.main`).
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from sentinel.runtime.process import THREAD_PREFIX

T = TypeVar("T")


def run_in_thread(function: Callable[[], T], *, name: str) -> asyncio.Future[T]:
    """Call the function in a new thread, with the context variables of the caller.

    Cancelling the future has no effect on the thread. An exception of the function becomes the future's.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(set_outcome: Callable[[], None]) -> None:
        if not done.done():
            set_outcome()

    def run() -> None:
        try:
            set_outcome = partial(done.set_result, context.run(function))
        except BaseException as error:
            set_outcome = partial(done.set_exception, error)
        with suppress(RuntimeError):  # the loop is closed, so nobody waits any more
            loop.call_soon_threadsafe(settle, set_outcome)

    try:
        threading.Thread(target=run, name=f"{THREAD_PREFIX} {name}", daemon=True).start()
    except RuntimeError as error:  # the system has no more threads
        done.set_exception(error)
    return done
