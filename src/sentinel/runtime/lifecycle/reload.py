"""Reloading on request, as SIGHUP asks of a service that can."""

from __future__ import annotations

import asyncio

from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.runtime.lifecycle.part import Step
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log


class Reload:
    """Runs `step` once for any number of requests that came before it began, never twice at the same time.

    A reload that fails is logged and the service goes on as before; the next request tries again.
    """

    def __init__(self, step: Step, *, log: Log) -> None:
        self._step = step
        self._log = log
        self._requested = asyncio.Event()

    def request(self) -> None:
        """Asks for a reload; one that is under way is followed by another."""
        self._requested.set()

    async def run(self, stopping: Stopping) -> None:
        """Serves requests until the service stops. A reload that is under way then is given up."""
        while not await stopping.interrupts(self._requested.wait()):
            self._requested.clear()
            if await stopping.interrupts(self._reload()):
                return

    async def _reload(self) -> None:
        self._log.info("service.reloading")
        try:
            await self._step()
        except (Misconfigured, Unavailable, OSError) as error:
            self._log.error("reload.failed", error=error)
        except Exception as error:
            self._log.exception("reload.failed", error=error)
        else:
            self._log.info("service.reloaded")
