"""Whether a target gets requests: after some failures in a row no more, after some successes in a row again."""

from __future__ import annotations

import msgspec

from sentinel.core.proxy.model import HealthCheck


class TargetHealth(msgspec.Struct, frozen=True):
    """What the checks of a target said so far. A target is healthy until checks say otherwise."""

    is_healthy: bool = True
    streak: int = 0
    """How many checks in a row disagree with `is_healthy`."""


def observe(health: TargetHealth, *, succeeded: bool, check: HealthCheck) -> TargetHealth:
    """Return the health after one more check."""
    if succeeded is health.is_healthy:
        return TargetHealth(health.is_healthy)
    threshold = check.healthy_threshold if succeeded else check.unhealthy_threshold
    if health.streak + 1 >= threshold:
        return TargetHealth(succeeded)
    return TargetHealth(health.is_healthy, health.streak + 1)
