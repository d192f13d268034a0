"""Compiles the expressions of a kinds file."""

from __future__ import annotations

from collections.abc import Sequence

from sentinel.cli.wiring.extras import extra
from sentinel.core.fleet.expressions import ConditionRule, Expression, ExpressionError


def compile_expression(rule: ConditionRule, text: str) -> Expression | Sequence[ExpressionError]:
    """Compile an expression. The library is loaded with the first one, because most kinds files have none."""
    with extra("api", who=f"an expression for `{rule}`"):
        from sentinel.drivers.cel import compile_expression as compile_cel
    return compile_cel(rule, text)
