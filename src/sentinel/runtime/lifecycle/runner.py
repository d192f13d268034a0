"""Runs a service: starts its parts in order, runs them, drains them, and closes them in reverse order.

A command passes what its parts share (listeners, a broker, a database) and a factory for each part. The runner
alone owns signals, and decides when things start and end:

* Shared resources are opened in order, then parts are built and started in order. Parts may also be added and
  removed while the service runs (`dynamic_parts`), and a part may be a child process (`child_process`).
* Each part's loops run in their own task group. A loop that fails or returns early fails its part. Without
  `restart` the run then ends with exit code 1. With it, that part alone is closed and built again with backoff,
  and readiness shows it meanwhile.
* At the first signal readiness turns off and every loop is asked to stop. Loops that still run after
  `drain_timeout` are cancelled. Parts, then shared resources, are closed in reverse order, each within
  `close_timeout`. Exit code 0. A second signal exits the process immediately, with 128 + its number.
* SIGHUP is such a signal, unless `on_reload` is given. Then it reloads.
* `Misconfigured`, raised while opening or starting, is exit code 2: a restart would not help.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.runtime import process
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.dynamic_parts import DynamicParts
from sentinel.runtime.lifecycle.part import Hook, PartFactory, SharedResource
from sentinel.runtime.lifecycle.service import Service
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.lifecycle.supervisor import RunningParts, Supervisor
from sentinel.runtime.log import Log, handle_loop_exception
from sentinel.runtime.probes.health import Health

if TYPE_CHECKING:
    from sentinel.runtime.probes.metrics import Metrics

DRAIN_TIMEOUT = timedelta(seconds=20)
"""Leaves a third of Kubernetes' default grace period for closing."""
CLOSE_TIMEOUT = timedelta(seconds=3)


async def run(
    *,
    parts: Sequence[PartFactory],
    shared: Sequence[SharedResource] = (),
    dynamic: DynamicParts | None = None,
    log: Log,
    health: Health | None = None,
    metrics: Metrics | None = None,
    drain_timeout: timedelta = DRAIN_TIMEOUT,
    close_timeout: timedelta = CLOSE_TIMEOUT,
    restart: Backoff | None = None,
    on_reload: Hook | None = None,
    stopping: Stopping | None = None,
    signals: Collection[signal.Signals] = process.SIGNALS,
    jitter: Callable[[], float] = random.random,
) -> int:
    """Run a service until a signal, a failure, or the end of its finite parts. Returns its exit code.

    Parts are added and removed through `dynamic`. `close_timeout` is for one close step; all steps together have
    three times as long. `health` and `metrics` are kept up to date for the listeners that show them.
    With `on_reload`, SIGHUP calls it once the service has started, never twice at the same time. An exception is
    logged, and the service continues as before.
    `stopping` allows a caller to end the run without a signal. `signals` is empty if the process is not ours.
    """
    service = Service(
        log=log,
        health=health or Health(),
        metrics=metrics,
        drain_timeout=drain_timeout,
        close_timeout=close_timeout,
        restart=restart,
        stopping=stopping or Stopping(),
        jitter=jitter,
    )
    reloader = None if on_reload is None else Reloader(on_reload, log=log)
    asyncio.get_running_loop().set_exception_handler(handle_loop_exception)
    with process.handle_signals(
        signals,
        lambda number: service.stop(signal=number.name),
        on_hangup=None if reloader is None else reloader.request,
        log=log,
    ):
        service.health.add(readiness={"startup": lambda: service.startup})
        async with AsyncExitStack() as stack:
            await _open_shared(service, shared, stack)
            if not service.stopping.requested:
                running = RunningParts(service)
                async with (dynamic or DynamicParts()).bind(service, running):
                    await _run_parts(service, running, parts, reloader)
            service.stop()
        log.info("service.stopped", code=service.exit_code)
        return service.exit_code


async def _open_shared(service: Service, shared: Sequence[SharedResource], stack: AsyncExitStack) -> None:
    async def enter(resource: SharedResource) -> None:
        context = resource.context()
        await context.__aenter__()
        stack.push_async_callback(service.close, resource.name, lambda: context.__aexit__(None, None, None))

    for resource in shared:
        service.startup = f"opening {resource.name}"
        try:
            if await service.stopping.interrupts(enter(resource)):
                return
        except Exception as error:
            service.fail(resource.name, error, while_starting=True)


async def _run_parts(
    service: Service, running: RunningParts, factories: Sequence[PartFactory], reloader: Reloader | None
) -> None:
    try:
        if await _start_parts(service, running, factories):
            async with _reloading(service, reloader):
                await service.stopping.interrupts(running.wait())
        service.stop()
        await running.drain(running.in_order)
    finally:  # also if the run itself is cancelled
        service.stop()
        await running.close(running.in_order)


async def _start_parts(service: Service, running: RunningParts, factories: Sequence[PartFactory]) -> bool:
    """Start the parts one after the other. Returns False if the service was asked to stop meanwhile."""
    parts = [
        Supervisor(
            build,
            service=service,
            name=f"part {number}",
            uses_part_name=True,
            # Depends only on the command's own parts: adding parts later must not rename checks.
            prefixes_checks=len(factories) > 1,
            restart=service.restart,
        )
        for number, build in enumerate(factories, 1)
    ]
    for part in parts:
        service.startup = f"starting {part.name}"
        running.start(part)
        await service.stopping.interrupts(part.first_attempt_done.wait())
        if service.stopping.requested:
            return False
    service.startup = None
    service.log.info("service.started", parts=[part.name for part in parts])
    return True


class Reloader:
    """Reloads once for any number of requests that came before, and never twice at the same time."""

    def __init__(self, reload: Hook, *, log: Log) -> None:
        self._reload = reload
        self._log = log
        self._requested = asyncio.Event()

    def request(self) -> None:
        """Request a reload. If one is in progress, another follows."""
        self._requested.set()

    async def run(self, stopping: Stopping) -> None:
        """Serve requests until the service stops, which cancels a reload in progress."""
        while not await stopping.interrupts(self._requested.wait()):
            self._requested.clear()
            if await stopping.interrupts(self._reload_once()):
                return

    async def _reload_once(self) -> None:
        self._log.info("service.reloading")
        try:
            await self._reload()
        except (Misconfigured, Unavailable, OSError) as error:
            self._log.error("reload.failed", error=error)
        except Exception as error:
            self._log.exception("reload.failed", error=error)
        else:
            self._log.info("service.reloaded")


@asynccontextmanager
async def _reloading(service: Service, reloader: Reloader | None) -> AsyncIterator[None]:
    if reloader is None:
        yield
        return
    task = asyncio.create_task(reloader.run(service.stopping), name="reload")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task}, timeout=service.close_timeout.total_seconds())
