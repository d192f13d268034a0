"""Selectors as data: requirements on labels, all of which must hold.

A database can evaluate them; `matches` says in plain code what such an evaluation must amount to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import assert_never

import msgspec

from sentinel.core.labels.syntax import MAX_NAME

_LARGEST_INTEGER = 2**63 - 1


class Operator(StrEnum):
    """What a requirement says of a label."""

    IN = "in"
    """The label is there, and its value is one of these; `=` and `==` with one value."""
    NOT_IN = "notin"
    """The label is not there, or its value is none of these; `!=` with one value."""
    EXISTS = "exists"
    NOT_EXISTS = "!"
    GREATER = ">"
    """The label is there, and its value is an integer greater than this one; see `as_integer`."""
    LESS = "<"
    """The label is there, and its value is an integer less than this one."""


class Requirement(msgspec.Struct, frozen=True):
    """One requirement; a selector is a conjunction of them."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()
    """Sorted, without repetitions; exactly one, an integer, for `>` and `<`; none for the two of existence."""


def matches(requirements: Sequence[Requirement], labels: Mapping[str, str]) -> bool:
    """Whether a resource with these labels is selected: every requirement holds."""
    return all(_holds(requirement, labels.get(requirement.key)) for requirement in requirements)


def as_integer(value: str) -> int | None:
    """The integer that `>` and `<` see in a label's value, None for a value that is none, or beyond 64 bits."""
    if not (value.isascii() and value.isdigit() and len(value) <= MAX_NAME):
        return None
    integer = int(value)
    return integer if integer <= _LARGEST_INTEGER else None


def _holds(requirement: Requirement, value: str | None) -> bool:
    match requirement.operator:
        case Operator.IN:
            return value in requirement.values
        case Operator.NOT_IN:
            return value not in requirement.values
        case Operator.EXISTS:
            return value is not None
        case Operator.NOT_EXISTS:
            return value is None
        case Operator.GREATER | Operator.LESS:
            bound = as_integer(requirement.values[0])
            integer = None if value is None else as_integer(value)
            if integer is None or bound is None:
                return False
            return integer > bound if requirement.operator is Operator.GREATER else integer < bound
        case _:
            assert_never(requirement.operator)
