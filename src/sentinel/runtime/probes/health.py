"""Liveness and readiness, computed from the checks of the service's parts.

Liveness is whether a restart would help, so it covers only our own loops. Readiness is whether the service does
its job now, so it covers an unreachable API or broker. A process that restarted whenever a dependency failed
would only make things worse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TypeAlias

import msgspec

from sentinel.runtime.log_format import describe

HealthCheck: TypeAlias = Callable[[], str | None]
"""Returns the problem, or None. It uses what is already known and does no I/O. The probes' thread calls it while
the service runs, so it reads a value that may change only once."""


class HealthStatus(StrEnum):
    OK = "ok"
    ERROR = "error"


class CheckStatus(msgspec.Struct, frozen=True):
    """The result of one check."""

    status: HealthStatus
    message: str = ""


class HealthReport(msgspec.Struct, frozen=True):
    """The body of a probe's response."""

    status: HealthStatus
    checks: Mapping[str, CheckStatus]

    @property
    def is_ok(self) -> bool:
        return self.status is HealthStatus.OK

    def encode(self) -> bytes:
        """Encode as JSON."""
        return msgspec.json.encode(self)


class Health:
    """The checks of a running service. The lifecycle adds those of a part when it runs and removes them when it
    fails. During shutdown the service is alive and not ready, whatever its checks return."""

    def __init__(self, *, redact: Callable[[str], str] = str) -> None:
        self._redact = redact
        self._readiness: dict[str, HealthCheck] = {}
        self._liveness: dict[str, HealthCheck] = {}
        self._is_stopping = False

    def add(
        self,
        *,
        readiness: Mapping[str, HealthCheck] | None = None,
        liveness: Mapping[str, HealthCheck] | None = None,
    ) -> None:
        """Add checks, replacing those of the same names."""
        self._readiness.update(readiness or {})
        self._liveness.update(liveness or {})

    def has(self, name: str) -> bool:
        """Whether a check has this name."""
        return name in self._readiness or name in self._liveness

    def remove(self, *names: str) -> None:
        """Remove checks, if they exist."""
        for name in names:
            self._readiness.pop(name, None)
            self._liveness.pop(name, None)

    def stop(self) -> None:
        """Turn readiness off."""
        self._is_stopping = True

    def liveness(self) -> HealthReport:
        """Whether a restart would help. Loops that have ended during shutdown are not a reason for one."""
        return self._report({} if self._is_stopping else self._liveness)

    def readiness(self) -> HealthReport:
        """Whether the service does its job."""
        if self._is_stopping:
            return self._report({"shutdown": lambda: "shutting down"})
        return self._report(self._readiness)

    def _report(self, checks: Mapping[str, HealthCheck]) -> HealthReport:
        # A copy: parts come and go while the probes' thread is here.
        results = {name: self._run(check) for name, check in dict(checks).items()}
        is_ok = all(result.status is HealthStatus.OK for result in results.values())
        return HealthReport(HealthStatus.OK if is_ok else HealthStatus.ERROR, results)

    def _run(self, check: HealthCheck) -> CheckStatus:
        try:
            problem = check()
        except Exception as error:  # a bug in one check must not break the probe
            problem = f"the check failed: {describe(error)}"
        if problem is None:
            return CheckStatus(HealthStatus.OK)
        return CheckStatus(HealthStatus.ERROR, self._redact(problem))
