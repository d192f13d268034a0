"""What all parts of one run share: its limits, its telemetry, and how it comes to an end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from sentinel.ports.errors import Misconfigured
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.part import Step
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log
from sentinel.runtime.probes.health import Health
from sentinel.runtime.process import ExitCode

if TYPE_CHECKING:
    from sentinel.runtime.probes.metrics import Metrics

_CLOSING_STEPS = 3


@dataclass(kw_only=True)
class Service:
    """The state of one run."""

    log: Log
    health: Health
    metrics: Metrics | None
    drain_timeout: timedelta
    """How long loops have to end by themselves once they are asked to stop."""
    close_timeout: timedelta
    """For one step of closing; at the end of the run all steps together have no more than three times as long."""
    restart: Backoff | None
    """How a part that failed is built again; without it, a failure ends the run."""
    stopping: Stopping
    jitter: Callable[[], float]
    code: ExitCode = ExitCode.SUCCESS
    startup: str | None = "starting"
    """What startup waits for, as readiness shows it."""
    _close_by: float | None = None
    """On the loop's clock; set when the first step of the last closing begins."""

    def stop(self, **why: object) -> None:
        """Turns readiness off before anything else, so that no more work is sent here, then asks loops to stop."""
        self.health.stop()
        if not self.stopping.requested:
            self.log.info("service.stopping", **why)
            self.stopping.request()

    def fail(self, name: str, error: Exception, *, while_starting: bool) -> None:
        """Ends the run because of this error."""
        is_misconfigured = while_starting and isinstance(error, Misconfigured)
        event = "start.failed" if while_starting else "part.failed"
        if is_misconfigured or (while_starting and isinstance(error, OSError)):
            self.log.error(event, name=name, error=error)
        else:
            self.log.exception(event, name=name, error=error)
        if self.code is ExitCode.SUCCESS:
            self.code = ExitCode.MISCONFIGURED if is_misconfigured else ExitCode.FAILURE
        self.stop(failed=name)

    async def close(self, name: str, step: Step) -> None:
        """Takes one step of closing. Its failure is logged and does not keep later steps from being taken."""
        now = asyncio.get_running_loop().time()
        limit = self.close_timeout.total_seconds()
        if self.stopping.requested:
            self._close_by = self._close_by or now + _CLOSING_STEPS * limit
            limit = min(limit, max(0.0, self._close_by - now))
        try:
            async with asyncio.timeout(limit):
                await step()
        except TimeoutError:
            self.log.warning("close.expired", name=name, after=timedelta(seconds=limit))
        except Exception as error:
            self.log.exception("close.failed", name=name, error=error)
