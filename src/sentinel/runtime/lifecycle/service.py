"""The state that all parts of one run share: its timeouts, its telemetry, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from sentinel.ports.errors import Misconfigured
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.part import Hook
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log
from sentinel.runtime.probes.health import Health
from sentinel.runtime.process import ExitCode

if TYPE_CHECKING:
    from sentinel.runtime.probes.metrics import Metrics

_TOTAL_CLOSE_TIMEOUTS = 3


@dataclass(kw_only=True)
class Service:
    """The state of one run."""

    log: Log
    health: Health
    metrics: Metrics | None
    drain_timeout: timedelta
    """How long loops have to end once they are asked to stop."""
    close_timeout: timedelta
    """The timeout of one close step. At the end of the run, all steps together have three times as long."""
    restart: Backoff | None
    """The delays before a failed part is built again. Without it, a failure ends the run."""
    stopping: Stopping
    jitter: Callable[[], float]
    exit_code: ExitCode = ExitCode.SUCCESS
    startup: str | None = "starting"
    """The startup step in progress, which readiness shows."""
    _close_deadline: float | None = None
    """On the loop's clock. Set by the first close step after stopping was requested."""

    def stop(self, **reason: object) -> None:
        """Turn readiness off first, so that no more work is sent here, then ask the loops to stop."""
        self.health.stop()
        if not self.stopping.requested:
            self.log.info("service.stopping", **reason)
            self.stopping.request()

    def fail(self, name: str, error: Exception, *, while_starting: bool) -> None:
        """End the run because of this error."""
        is_misconfigured = while_starting and isinstance(error, Misconfigured)
        event = "start.failed" if while_starting else "part.failed"
        if is_misconfigured or (while_starting and isinstance(error, OSError)):
            self.log.error(event, name=name, error=error)
        else:
            self.log.exception(event, name=name, error=error)
        if self.exit_code is ExitCode.SUCCESS:
            self.exit_code = ExitCode.MISCONFIGURED if is_misconfigured else ExitCode.FAILURE
        self.stop(failed=name)

    async def close(self, name: str, hook: Hook) -> None:
        """Run one close step. A failure is logged, so that later steps still run."""
        now = asyncio.get_running_loop().time()
        timeout = self.close_timeout.total_seconds()
        if self.stopping.requested:
            self._close_deadline = self._close_deadline or now + _TOTAL_CLOSE_TIMEOUTS * timeout
            timeout = min(timeout, max(0.0, self._close_deadline - now))
        try:
            async with asyncio.timeout(timeout):
                await hook()
        except TimeoutError:
            self.log.warning("close.expired", name=name, after=timedelta(seconds=timeout))
        except Exception as error:
            self.log.exception("close.failed", name=name, error=error)
