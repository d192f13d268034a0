"""Liveness and readiness: two questions, answered from what the parts of a service say about themselves.

Liveness asks whether a restart would help, so it is about our own loops and nothing else. Readiness asks
whether the service does its job now, so it is the place for an unreachable API or broker: a process that
restarted whenever its surroundings were ill would only add to the illness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TypeAlias

import msgspec

from sentinel.runtime.log_format import describe

HealthCheck: TypeAlias = Callable[[], str | None]
"""A check: says what is wrong, or None. It looks at what is known already; it does no I/O."""


class HealthStatus(StrEnum):
    OK = "ok"
    ERROR = "error"


class CheckStatus(msgspec.Struct, frozen=True):
    """One check's answer."""

    status: HealthStatus
    message: str = ""


class HealthReport(msgspec.Struct, frozen=True):
    """The answer to one of the two questions, laid out as it goes over the wire."""

    status: HealthStatus
    checks: Mapping[str, CheckStatus]

    @property
    def is_ok(self) -> bool:
        return self.status is HealthStatus.OK

    def encode(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(self)


class Health:
    """The checks of a running service. The lifecycle adds those of a part when it runs, and forgets them when
    it fails; during shutdown the service is alive and not ready, whatever its checks would say."""

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
        """Asks these from now on, in place of earlier ones of the same names."""
        self._readiness.update(readiness or {})
        self._liveness.update(liveness or {})

    def has(self, name: str) -> bool:
        """Whether a check has this name."""
        return name in self._readiness or name in self._liveness

    def forget(self, *names: str) -> None:
        """Asks these no longer."""
        for name in names:
            self._readiness.pop(name, None)
            self._liveness.pop(name, None)

    def stop(self) -> None:
        """Not ready from now on."""
        self._is_stopping = True

    def liveness(self) -> HealthReport:
        """Whether a restart would help. Loops that have ended on purpose are no reason for one."""
        return self._report({} if self._is_stopping else self._liveness)

    def readiness(self) -> HealthReport:
        """Whether the service does its job."""
        if self._is_stopping:
            return self._report({"shutdown": lambda: "shutting down"})
        return self._report(self._readiness)

    def _report(self, troubles: Mapping[str, HealthCheck]) -> HealthReport:
        checks = {name: self._check(trouble) for name, trouble in troubles.items()}
        is_ok = all(check.status is HealthStatus.OK for check in checks.values())
        return HealthReport(HealthStatus.OK if is_ok else HealthStatus.ERROR, checks)

    def _check(self, trouble: HealthCheck) -> CheckStatus:
        try:
            message = trouble()
        except Exception as error:  # a check that cannot answer is bad news, not the end of the probe
            message = f"the check failed: {describe(error)}"
        return (
            CheckStatus(HealthStatus.OK)
            if message is None
            else CheckStatus(HealthStatus.ERROR, self._redact(message))
        )
