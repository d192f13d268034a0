"""Serves probes and metrics from a thread with an event loop of its own.

A probe has to respond while the service's own loop stands still: it says so then, instead of timing out like an
unreachable process. Health checks and metrics are therefore read by this thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Self

from sentinel.runtime.log import Log, handle_loop_exception
from sentinel.runtime.probes.health import Health
from sentinel.runtime.probes.listener import Listener
from sentinel.runtime.probes.loop_watch import LoopWatch

_CHECK = "event_loop"


class ProbeThread:
    """Serves these listeners while its context is entered, and watches the loop on which it was entered."""

    def __init__(self, listeners: Sequence[Listener], *, health: Health, log: Log) -> None:
        """`health` gets a check of the loop."""
        self._listeners = listeners
        self._health = health
        self._log = log
        self._started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        """Used on the thread's loop only."""

    async def __aenter__(self) -> Self:
        """Raises `ListenError`."""
        watch = LoopWatch(log=self._log)
        self._health.add(readiness={_CHECK: watch.problem}, liveness={_CHECK: watch.problem})
        # A daemon: it must not keep the process if the service ends without leaving this context.
        threading.Thread(target=self._run, args=(watch,), name="sentinel-probes", daemon=True).start()
        await asyncio.wrap_future(self._started)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._stopping.set)
            await asyncio.wrap_future(self._ended)
        self._health.remove(_CHECK)

    def _run(self, watch: LoopWatch) -> None:
        try:
            asyncio.run(self._serve(watch))
        except BaseException as error:
            if self._started.done():
                self._log.exception("probes.failed", error=error)
            else:
                self._started.set_exception(error)
        finally:
            self._ended.set_result(None)

    async def _serve(self, watch: LoopWatch) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(handle_loop_exception)
        async with AsyncExitStack() as stack:
            for listener in self._listeners:
                await stack.enter_async_context(listener)
            self._loop = loop
            watching = asyncio.create_task(watch.run(), name="loop watch")
            stack.callback(watching.cancel)
            self._started.set_result(None)
            await self._stopping.wait()
