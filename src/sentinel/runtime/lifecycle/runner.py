"""Runs a service: starts in order, runs, drains, closes in reverse.

A command hands over what its parts share (listeners, a broker, a database) and a factory for each part. The
lifecycle alone owns signals, and decides when things start and end:

* Shared things are opened in order, then the parts are built and started in order. Parts may also be added and
  removed while the service runs (`dynamic_parts`), and a part may be a child process (`child_process`).
* Each part's loops run in their own task group. A loop that fails - and returning early is failing - takes its
  part with it. Without `restart` the run then ends with exit code 1. With it, that part alone is closed and built
  again after a wait that grows, and shows in readiness meanwhile.
* At the first signal readiness goes off, and every loop is asked to stop and has until the end of `drain` to do
  so; what is left then is cancelled. Parts, then shared things, are closed in reverse order, each within a limit.
  Exit code 0. A second signal ends the process on the spot, with 128 + its number.
* SIGHUP is such a signal, unless the service can reload: then it asks for that (`on_reload`).
* `Misconfigured`, raised while opening or starting, is exit code 2: trying again would not help.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from sentinel.runtime import process
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.dynamic_parts import DynamicParts
from sentinel.runtime.lifecycle.part import PartFactory, Shared, Step
from sentinel.runtime.lifecycle.reload import Reload
from sentinel.runtime.lifecycle.running_parts import RunningParts
from sentinel.runtime.lifecycle.service import Service
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.lifecycle.supervisor import Supervisor
from sentinel.runtime.log import Log, handle_loop_exception
from sentinel.runtime.probes.health import Health

if TYPE_CHECKING:
    from sentinel.runtime.probes.metrics import Metrics

DRAIN_TIMEOUT = timedelta(seconds=20)
"""Leaves a third of Kubernetes' usual grace period for closing."""
CLOSE_TIMEOUT = timedelta(seconds=3)
"""For one step of closing; all steps together have no more than three times as long."""


async def run(
    *,
    parts: Sequence[PartFactory],
    shared: Sequence[Shared] = (),
    dynamic: DynamicParts | None = None,
    log: Log,
    health: Health | None = None,
    metrics: Metrics | None = None,
    drain_timeout: timedelta = DRAIN_TIMEOUT,
    close_timeout: timedelta = CLOSE_TIMEOUT,
    restart: Backoff | None = None,
    on_reload: Step | None = None,
    stopping: Stopping | None = None,
    signals: Collection[signal.Signals] = process.SIGNALS,
    jitter: Callable[[], float] = random.random,
) -> int:
    """Runs a service until a signal, a failure, or the end of its finite parts; returns its exit code.

    Parts are added to and removed from the run through `dynamic`. Loops have `drain` to end, and then each step of
    closing has `closing`. `health` and `metrics` are kept true for the listeners that show them.
    With `on_reload`, SIGHUP calls it once the service has started: never twice at the same time, and an exception
    is logged. Without it SIGHUP stops the service.
    `stopping` is for a caller that ends the run by other means than a signal; `signals` is empty where the process
    belongs to someone else.
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
    reload = None if on_reload is None else Reload(on_reload, log=log)
    asyncio.get_running_loop().set_exception_handler(handle_loop_exception)
    with process.handle_signals(
        signals,
        lambda number: service.stop(signal=number.name),
        on_hangup=None if reload is None else reload.request,
        log=log,
    ):
        service.health.add(readiness={"startup": lambda: service.startup})
        async with AsyncExitStack() as stack:
            await _open(service, shared, stack)
            if not service.stopping.requested:
                running = RunningParts(service)
                async with (dynamic or DynamicParts()).within(service, running):
                    await _run_parts(service, running, parts, reload)
            service.stop()
        log.info("service.stopped", code=service.code)
        return service.code


async def _open(service: Service, shared: Sequence[Shared], stack: AsyncExitStack) -> None:
    async def enter(one: Shared) -> None:
        context = one.context()
        await context.__aenter__()
        stack.push_async_callback(service.close, one.name, lambda: context.__aexit__(None, None, None))

    for one in shared:
        service.startup = f"opening {one.name}"
        try:
            if await service.stopping.interrupts(enter(one)):
                return
        except Exception as error:
            service.fail(one.name, error, while_starting=True)


async def _run_parts(
    service: Service, running: RunningParts, factories: Sequence[PartFactory], reload: Reload | None
) -> None:
    try:
        if await _start(service, running, factories):
            async with _reloading(service, reload):
                await service.stopping.interrupts(running.all_done())
        service.stop()
        await running.drain(running.in_order)
    finally:  # also where the run itself is cancelled
        service.stop()
        await running.close(running.in_order)


async def _start(service: Service, running: RunningParts, factories: Sequence[PartFactory]) -> bool:
    """Starts the parts one after the other; False where the service was asked to stop meanwhile."""
    parts = [
        Supervisor(
            build,
            service=service,
            name=f"part {number}",
            adopts_name=True,
            # Decided by what the command runs, never by what is added later: names of checks are for ever.
            qualifies_checks=len(factories) > 1,
            restart=service.restart,
        )
        for number, build in enumerate(factories, 1)
    ]
    for part in parts:
        service.startup = f"starting {part.name}"
        running.start(part)
        await service.stopping.interrupts(part.attempted.wait())
        if service.stopping.requested:
            return False
    service.startup = None
    service.log.info("service.started", parts=[part.name for part in parts])
    return True


@asynccontextmanager
async def _reloading(service: Service, reload: Reload | None) -> AsyncIterator[None]:
    if reload is None:
        yield
        return
    task = asyncio.create_task(reload.run(service.stopping), name="reload")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task}, timeout=service.close_timeout.total_seconds())
