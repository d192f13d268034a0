"""Looks up many names at once, within limits.

The system's resolver blocks and cannot be cancelled, so each lookup has a thread. A lookup that nobody waits for
any more keeps its place among those that run at once until it ends; otherwise a dead name server would collect
threads without limit.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Final, TypeAlias

import msgspec

from sentinel.core.proxy import addresses
from sentinel.core.proxy.facts import Outcome, Resolution
from sentinel.runtime.blocking import run_in_thread

Lookup: TypeAlias = Callable[[str], Sequence[str]]
"""Returns the IP addresses of a name. Blocks; raises OSError or ValueError if there are none."""

_INVALID_NAME: Final = "not a valid host name"
_NO_SUCH_NAME: Final = frozenset((socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)))


class Limits(msgspec.Struct, frozen=True):
    """How much one call may do."""

    names: int = 256
    """More are not tried."""
    at_once: int = 8
    """Lookups that run at the same time, of all calls together."""
    time: timedelta = timedelta(seconds=5)
    """For all names of a call together, and for all certificates or keys."""
    files: int = 256
    """Certificates or keys; more are not read."""


class Resolver:
    """Looks up names with the system's resolver, or with what a test gives it."""

    def __init__(self, *, limits: Limits, lookup: Lookup) -> None:
        self._limits = limits
        self._lookup = lookup
        self._slots = asyncio.Semaphore(limits.at_once)

    async def resolve(self, hosts: Collection[str]) -> dict[str, Resolution]:
        """Return an answer for each name. A name that is there twice is looked up once."""
        answers = {host: _known(host) or Resolution(Outcome.NOT_TRIED) for host in hosts}
        waiting = deque([host for host in answers if _known(host) is None][: self._limits.names])

        async def work() -> None:
            while waiting and loop.time() < deadline:
                try:
                    async with asyncio.timeout_at(deadline):
                        await self._slots.acquire()
                except TimeoutError:
                    return
                if waiting:
                    host = waiting.popleft()
                    answers[host] = await self._answer(host, deadline)
                else:
                    self._slots.release()

        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limits.time.total_seconds()
        async with asyncio.TaskGroup() as workers:
            for _ in range(min(len(waiting), self._limits.at_once)):
                workers.create_task(work())
        return answers

    async def _answer(self, host: str, deadline: float) -> Resolution:
        """Look up a name. The caller has a slot, which is free again when the thread ends."""
        thread = run_in_thread(lambda: _judge(host, self._lookup), name="name lookup")
        thread.add_done_callback(self._release)
        try:
            async with asyncio.timeout_at(deadline):
                return await asyncio.shield(thread)
        except TimeoutError:
            return Resolution(Outcome.FAILED, f"no answer within {self._limits.time.total_seconds():g}s")

    def _release(self, thread: asyncio.Future[Resolution]) -> None:
        self._slots.release()
        if not thread.cancelled():
            thread.exception()  # if nobody waits any more, asyncio would log that nobody looked at it


def system_lookup(host: str) -> list[str]:
    """Return the addresses that the system knows for a name."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def _known(host: str) -> Resolution | None:
    """Return what is known without a lookup."""
    if not host.isprintable():  # the system's resolver would ask for what is before a NUL
        return Resolution(Outcome.FAILED, _INVALID_NAME)
    if addresses.is_forbidden(host):
        return Resolution(Outcome.FORBIDDEN)
    return Resolution(Outcome.USABLE) if addresses.is_ip_address(host) else None


def _judge(host: str, lookup: Lookup) -> Resolution:
    try:
        found = lookup(host)
    except socket.gaierror as error:
        return Resolution(Outcome.FAILED, _reason(error))
    except OSError as error:
        return Resolution(Outcome.FAILED, error.strerror or type(error).__name__)
    except ValueError:  # a label that is empty or too long
        return Resolution(Outcome.FAILED, _INVALID_NAME)
    if not found:
        return Resolution(Outcome.FAILED, "it has no addresses")
    return Resolution(Outcome.FORBIDDEN if addresses.are_forbidden(found) else Outcome.USABLE)


def _reason(error: socket.gaierror) -> str:
    if error.errno in _NO_SUCH_NAME:
        return "no such name"
    if error.errno == socket.EAI_AGAIN:
        return "the name server does not answer"
    return error.strerror or "the lookup failed"
