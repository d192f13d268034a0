"""What a service is made of: parts that run, and things they share.

A component's `build_x(settings, shared)` returns a `Part`: its loops, checks and metrics, but no listener and no
signal handler. So any command can run any mixture of parts, in one process or in many, under one lifecycle.
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
Step: TypeAlias = Callable[[], Awaitable[object]]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A component, built and ready to run; what `build_x(settings, shared)` returns."""

    name: str
    """As logs and readiness call it; no two parts of a run have the same. A part that is added while the service
    runs goes by the name that it was added with."""
    loops: Sequence[Loop]
    """Each runs until it is asked to stop."""
    checks: Mapping[str, HealthCheck] = {}
    """Readiness: what is wrong, or None. A check begins as trouble and clears with the first success."""
    liveness: Mapping[str, HealthCheck] = {}
    """What a restart of the process would mend, or None."""
    registry: CollectorRegistry | None = None
    start: Step | None = None
    """Before the loops begin; its failure is the part's."""
    close: Step | None = None
    """After the loops have ended; also where `start` failed."""
    is_finite: bool = False
    """Its loops may return by themselves. A run whose parts have all returned is over, with success."""


PartFactory: TypeAlias = Callable[[], "Part | Awaitable[Part]"]


class Shared(msgspec.Struct, frozen=True):
    """Something parts share: entered before any of them is built, left after the last is closed."""

    name: str
    context: Callable[[], AbstractAsyncContextManager[object]]


class _Openable(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...


def shared_resource(name: str, thing: _Openable) -> Shared:
    """Shares something that has `open` and `close`, such as a `ports.Publisher`."""

    @asynccontextmanager
    async def context() -> AsyncIterator[None]:
        try:
            await thing.open()
            yield
        finally:
            await thing.close()

    return Shared(name, context)
