"""How many examples a property test tries: few in `make test`, all in `make properties`."""

from __future__ import annotations

import hypothesis
from hypothesis import HealthCheck

QUICK, THOROUGH = "quick", "thorough"
_QUICK_SHARE = 5


def register_profiles() -> None:
    """Register both profiles and load the quick one, which `--hypothesis-profile` replaces.

    Neither has a deadline: the duration of an example depends on the load of the machine.
    """
    for name, count in ((QUICK, 20), (THOROUGH, 100)):
        hypothesis.settings.register_profile(
            name, max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        )
    hypothesis.settings.load_profile(QUICK)


def examples(thorough: int) -> int:
    """Return this number, or a fifth of it in `make test`."""
    if hypothesis.settings.get_current_profile_name() == THOROUGH:
        return thorough
    return max(1, thorough // _QUICK_SHARE)
