"""A target changes its health only after enough checks in a row."""

from __future__ import annotations

from functools import reduce

from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.proxy.model import HealthCheck
from sentinel.core.proxy.target_health import TargetHealth, observe

CHECK = HealthCheck(healthy_threshold=2, unhealthy_threshold=3)


def after(*results: bool) -> TargetHealth:
    return reduce(
        lambda health, succeeded: observe(health, succeeded=succeeded, check=CHECK), results, TargetHealth()
    )


def test_a_target_is_healthy_until_enough_checks_in_a_row_have_failed() -> None:
    assert after().is_healthy
    assert after(False, False).is_healthy
    assert not after(False, False, False).is_healthy
    assert after(False, False, True, False, False).is_healthy


def test_an_unhealthy_target_needs_enough_successes_in_a_row() -> None:
    assert not after(False, False, False, True).is_healthy
    assert after(False, False, False, True, True).is_healthy
    assert not after(False, False, False, True, False, True).is_healthy


@given(st.lists(st.booleans(), max_size=20))
def test_health_changes_only_at_the_end_of_a_long_enough_row(results: list[bool]) -> None:
    health = TargetHealth()
    for number, succeeded in enumerate(results, 1):
        previous, health = health, observe(health, succeeded=succeeded, check=CHECK)
        if health.is_healthy is not previous.is_healthy:
            needed = CHECK.healthy_threshold if health.is_healthy else CHECK.unhealthy_threshold
            assert results[number - needed : number] == [health.is_healthy] * needed
