"""Conditions by expression: the rules that a kind defines in place of the built-in ones.

A kinds file may give a kind an expression for `Available`, for `Ready`, or for both. This module defines what an
expression gets and returns. A driver knows the language and compiles it, so an expression is a callable here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TypeAlias

import msgspec

from sentinel.core.fleet.documents import AVAILABLE, AdapterStatus, ConditionStatus


class ConditionRule(StrEnum):
    """The rules that an expression can replace, by their keys in a kinds file."""

    AVAILABLE = "available"
    READY = "ready"


class ExpressionInput(msgspec.Struct, frozen=True, kw_only=True):
    """What an expression is evaluated on."""

    items: Sequence[AdapterStatus]
    """The report of every required adapter, sorted by adapter. None is missing or `Unknown`."""
    generation: int
    """The generation of the resource. For `available`, it may be an earlier one: see `aggregate`."""
    is_available: bool = False
    """What the rule for `available` says of the same reports. Only an expression for `ready` can use it."""


class EvaluationFailure(msgspec.Struct, frozen=True):
    """An expression could not be evaluated, or its value is not a boolean. It counts as False."""

    message: str
    """The cause, without any value from a report. It becomes part of the condition's message."""


Expression: TypeAlias = Callable[[ExpressionInput], bool | EvaluationFailure]
"""A compiled expression. It never raises."""


class ExpressionError(msgspec.Struct, frozen=True):
    """A syntax or type error in an expression."""

    message: str
    line: int = 1
    """The position in the text of the expression."""
    column: int = 1


CompileExpression: TypeAlias = Callable[[ConditionRule, str], Expression | Sequence[ExpressionError]]
"""Compiles the text of an expression, or returns all its errors."""


class ConditionExpressions(msgspec.Struct, frozen=True):
    """The compiled expressions of a kind. None: the built-in rule."""

    available: Expression | None = None
    ready: Expression | None = None


def as_of(status: AdapterStatus, generation: int) -> AdapterStatus:
    """Return the report as it counts for a generation at which the resource was available.

    An adapter that has reported another generation since then was not the reason for `Available` to become False
    at this one. So it counts as available there. The rest of its report is the latest.
    """
    if status.observed_generation == generation:
        return status
    conditions = tuple(
        msgspec.structs.replace(each, status=ConditionStatus.TRUE) if each.type == AVAILABLE else each
        for each in status.conditions
    )
    return msgspec.structs.replace(status, observed_generation=generation, conditions=conditions)
