"""Checks regularly whether the API server enforces the policy that limits sidecars.

The policy and its binding are read every ten seconds. That needs the permission to get two objects by name; a
watch would need more. `core.drift.admission` judges them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from sentinel.core.drift import admission
from sentinel.drift.operator import policy
from sentinel.ports.clock import Clock
from sentinel.ports.kube import KubeApi, KubeError, KubeKind, KubeObject, KubeUnavailable, ObjectNotFound
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log

INTERVAL: Final = timedelta(seconds=10)
MAX_REFUSALS: Final = 3
"""Refused reads in a row after which the policy counts as not enforced. An API server that has just started
refuses everything for some seconds, because it does not know any Role yet. That must not cost a cluster its
sidecar."""


class AdmissionCheck:
    """Reads the policy and its binding at an interval."""

    def __init__(
        self,
        api: KubeApi,
        *,
        on_change: Callable[[], None],
        clock: Clock,
        log: Log,
        interval: timedelta = INTERVAL,
    ) -> None:
        """`on_change` is called when the policy comes to be enforced or no longer is."""
        self._api = api
        self._on_change = on_change
        self._clock = clock
        self._log = log
        self._interval = interval
        self._expected = policy.policy()
        self._is_known = False
        self._problem: str | None = "the admission policy has not been read yet"
        self._refusals = 0

    @property
    def is_known(self) -> bool:
        """Whether the policy was read at least once. Until then, sidecars are neither deployed nor removed."""
        return self._is_known

    @property
    def problem(self) -> str | None:
        """Why the policy is not enforced; None if it is."""
        return self._problem

    async def refresh(self) -> None:
        """Read the policy now. If the API server is unavailable or refuses it for a short time, what is known
        stays."""
        try:
            problem = admission.problem(
                policy=await self._get(policy.POLICY),
                binding=await self._get(policy.BINDING),
                expected=self._expected,
            )
        except KubeUnavailable as error:
            self._log.warning("policy.not_read", error=error, retry_in=self._interval)
            return
        except KubeError as error:
            self._refusals += 1
            if self._refusals < MAX_REFUSALS:
                self._log.warning("policy.not_read", error=error, retry_in=self._interval)
                return
            problem = f"the admission policy cannot be read: {error}"
        else:
            self._refusals = 0
        has_changed = not self._is_known or problem != self._problem
        self._is_known, self._problem = True, problem
        if has_changed:
            if problem is None:
                self._log.info("policy.enforced", policy=policy.NAME)
            else:
                self._log.warning("policy.not_enforced", policy=policy.NAME, error=problem)
            self._on_change()

    async def run(self, stopping: Stopping) -> None:
        """Read the policy again and again until stopped."""
        while not await stopping.interrupts(self._clock.sleep(self._interval)):
            await self.refresh()

    async def _get(self, kind: KubeKind) -> KubeObject | None:
        try:
            return await self._api.get(kind, policy.NAME)
        except ObjectNotFound:
            return None
