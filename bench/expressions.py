"""Conditions by expression: CPU per evaluation, and per aggregation with and without expressions.

    python -m bench.expressions [--rounds N] [--output json]

The expressions are the specification's, over the reports of three adapters. CPU time of this process, the minimum
of several rounds, because other load only adds to it. `bench.api` measures whole reports.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from bench.budget import Budget, table
from bench.command_line import DEFAULT_ROUNDS, main
from sentinel.core.fleet import aggregate, reports
from sentinel.core.fleet.aggregate import AggregationInput
from sentinel.core.fleet.documents import AdapterStatus, Report
from sentinel.core.fleet.expressions import ConditionExpressions, ConditionRule, Expression, ExpressionInput
from sentinel.drivers.cel import compile_expression
from tests.support.fleet.http_client import report

AVAILABLE = (
    "self.items.all(i, i.observed_generation == self.items[0].observed_generation && "
    "i.conditions.exists(c, c.type == 'Available' && c.status == 'True'))"
)
READY = "available && self.items.all(i, i.observed_generation == generationN)"
BUDGET = 150.0
"""CPU microseconds of both expressions: a report evaluates each once, and has a millisecond."""

_ADAPTERS = ("dns", "provision", "validation")
_REPETITIONS = 2_000


class ExpressionFigures(msgspec.Struct, frozen=True):
    """CPU microseconds."""

    available: float
    ready: float
    built_in_aggregation: float
    """By the built-in rules."""
    aggregation: float
    """The same, by expressions."""

    @property
    def both(self) -> float:
        return self.available + self.ready


def measure(*, rounds: int = DEFAULT_ROUNDS) -> ExpressionFigures:
    """Evaluate and aggregate the same reports repeatedly, in turns."""
    statuses = _statuses()
    given = ExpressionInput(items=statuses, generation=1, is_available=True)
    available, ready = _compiled(ConditionRule.AVAILABLE, AVAILABLE), _compiled(ConditionRule.READY, READY)
    assert available(given) is ready(given) is True
    built_in = AggregationInput(
        generation=1, updated_time=datetime.now(UTC), required=_ADAPTERS, statuses=statuses
    )
    by_expression = msgspec.structs.replace(built_in, expressions=ConditionExpressions(available, ready))
    previous = aggregate.aggregate(built_in, previous=None, at=built_in.updated_time)
    assert aggregate.aggregate(by_expression, previous=None, at=built_in.updated_time) == previous
    return ExpressionFigures(
        *_minima(
            (
                lambda: available(given),
                lambda: ready(given),
                lambda: aggregate.aggregate(built_in, previous=previous, at=built_in.updated_time),
                lambda: aggregate.aggregate(by_expression, previous=previous, at=built_in.updated_time),
            ),
            rounds,
        )
    )


def budgets(figures: ExpressionFigures) -> list[Budget]:
    return [Budget("conditions by expression: CPU of both expressions", figures.both, "µs", BUDGET)]


def section(figures: ExpressionFigures) -> list[str]:
    """Return the section of the performance page."""
    costs = {
        "the expression for `available`": figures.available,
        "the expression for `ready`": figures.ready,
        "an aggregation by the built-in rules": figures.built_in_aggregation,
        "an aggregation by both expressions": figures.aggregation,
    }
    return [
        "\n## Conditions by expression\n",
        f"CPU of the specification's two expressions over {len(_ADAPTERS)} reports, compiled once.\n",
        *table(("what", "CPU"), ((what, f"{microseconds:.1f} µs") for what, microseconds in costs.items())),
    ]


def _statuses() -> tuple[AdapterStatus, ...]:
    bodies = [msgspec.json.encode(report(adapter, data={"replicas": 3})) for adapter in _ADAPTERS]
    return tuple(reports.apply(msgspec.json.decode(body, type=Report), None) for body in bodies)


def _compiled(rule: ConditionRule, text: str) -> Expression:
    expression = compile_expression(rule, text)
    assert callable(expression), expression
    return expression


def _minima(works: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, measured in zip(works, seconds, strict=True):
            start = time.process_time()
            for _ in range(_REPETITIONS):
                work()
            measured.append(time.process_time() - start)
    return [min(measured) / _REPETITIONS * 1e6 for measured in seconds]


if __name__ == "__main__":
    sys.exit(main("expressions", __doc__, measure, budgets, section, rounds=DEFAULT_ROUNDS))
