"""A kind with conditions by expression: a mirror in three regions, of which two are enough."""

from __future__ import annotations

from sentinel.api.kinds import Kinds
from sentinel.cli.wiring.expressions import compile_expression
from sentinel.core.fleet.documents import KindRules
from tests.support.fleet.api_client import ApiClient

SUCCEEDED = "i.conditions.exists(c, c.type == 'Available' && c.status == 'True')"
ANY_TWO = f"self.items.filter(i, {SUCCEEDED}).size() >= 2"
TWO_CURRENT = f"self.items.filter(i, i.observed_generation == generationN && {SUCCEEDED}).size() >= 2"


def mirrors(available: str = ANY_TWO, ready: str = TWO_CURRENT) -> Kinds:
    kind = KindRules("mirrors", "Mirror", "", ("europe", "asia", "america"), available, ready)
    return Kinds((kind,), compile_expression=compile_expression)


async def report_failure_of_america(fleet: ApiClient) -> None:
    """Create the mirror m and report on it, from all regions."""
    await fleet.create("mirrors", "m", id="m")
    await fleet.later()
    await fleet.reports("mirrors/m", "europe", "asia")
    await fleet.reports("mirrors/m", "america", available="False")
