"""The pieces of a service: parts that run, and resources that they share.

A component's `build_x(settings, shared)` returns a `Part`: its loops, checks and metrics, but no listener and no
signal handler. So a command can run any combination of parts in one process, under one lifecycle.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.probes.health import HealthCheck

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

Loop: TypeAlias = Callable[[Stopping], Coroutine[Any, Any, None]]
Hook: TypeAlias = Callable[[], Awaitable[object]]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A component that is built and ready to run."""

    name: str
    """Unique in a run; used in logs and readiness. A dynamic part uses the name it was added with instead."""
    loops: Sequence[Loop]
    """Each runs until it is asked to stop."""
    checks: Mapping[str, HealthCheck] = {}
    """Readiness checks. A check fails until its first success."""
    liveness: Mapping[str, HealthCheck] = {}
    """Liveness checks: problems that a restart of the process would fix."""
    registry: CollectorRegistry | None = None
    start: Hook | None = None
    """Awaited before the loops start. If it fails, the part has failed. Cancelled if the part has to stop."""
    close: Hook | None = None
    """Awaited after the loops have ended, and after `start` has failed or was cancelled."""
    is_finite: bool = False
    """Whether its loops may return on their own. A run ends successfully when all its parts have returned."""


PartFactory: TypeAlias = Callable[[], "Part | Awaitable[Part]"]


class SharedResource(msgspec.Struct, frozen=True):
    """A resource that parts share: entered before the first part is built, exited after the last is closed."""

    name: str
    context: Callable[[], AbstractAsyncContextManager[object]]


class _Openable(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...


def shared_resource(name: str, resource: _Openable) -> SharedResource:
    """Share something that has `open` and `close`, such as a `ports.Publisher`."""

    @asynccontextmanager
    async def context() -> AsyncIterator[None]:
        try:
            await resource.open()
            yield
        finally:
            await resource.close()

    return SharedResource(name, context)
