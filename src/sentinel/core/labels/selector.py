"""Selectors as data: requirements on labels, all of which must hold.

One value serves every place that must agree: the query that asks a server, the database that answers it, the check
of what came back (a server may ignore the query), and the name of the shard in metrics and logs. `matches` is
the reference for every other evaluation. Keys and values are not checked here: `parser` and `match_labels` take
only what Kubernetes takes, `resource_selector` accepts more values.
"""

from __future__ import annotations

from collections.abc import Mapping
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


_IN, _NOT_IN = Operator.IN, Operator.NOT_IN  # a global is found faster than a member of an enumeration


class SelectorParam(StrEnum):
    """The query parameter that a server takes a selector in."""

    LABELS = "labels"
    SEARCH = "search"


class NotSearchable(ValueError):
    """A selector that the language of `search` cannot express."""

    def __init__(self, requirement: Requirement) -> None:
        super().__init__(f'expected a selector of =, !=, in and notin for a search, got "{requirement}"')
        self.requirement = requirement


class Requirement(msgspec.Struct, frozen=True):
    """One requirement; a selector is a conjunction of them."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()
    """Sorted, without repetitions; exactly one, an integer, for `>` and `<`; none for the two of existence."""

    def __str__(self) -> str:
        """In Kubernetes' text: `tier=gold`, `env notin (dev)`, `!x`."""
        match self.operator:
            case Operator.IN if len(self.values) == 1:
                return f"{self.key}={self.values[0]}"
            case Operator.IN | Operator.NOT_IN:
                return f"{self.key} {self.operator} ({','.join(self.values)})"
            case Operator.EXISTS:
                return self.key
            case Operator.NOT_EXISTS:
                return f"!{self.key}"
            case Operator.GREATER | Operator.LESS:
                return f"{self.key}{self.operator}{self.values[0]}"
            case _:
                assert_never(self.operator)


def equality(key: str, value: str) -> Requirement:
    """The label is there and has exactly this value."""
    return Requirement(key, Operator.IN, (value,))


class Selector(msgspec.Struct, frozen=True):
    """Requirements in the order in which they were written; none at all selects everything."""

    requirements: tuple[Requirement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def __str__(self) -> str:
        """In Kubernetes' text: `region=us-east,tier in (gold,silver)`."""
        return ",".join(map(str, self.requirements))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a resource with these labels is selected: every requirement holds."""
        # Once for every resource of every walk: a generator for all(), or a call for each requirement, costs
        # twice as much.
        for requirement in self.requirements:
            value, operator = labels.get(requirement.key), requirement.operator
            if operator is _IN:
                if value not in requirement.values:
                    return False
            elif operator is _NOT_IN:
                if value in requirement.values:
                    return False
            elif not _holds(requirement, value):
                return False
        return True

    def as_parameter(self, parameter: SelectorParam) -> str:
        """The value of this query parameter, not percent-encoded; raises `NotSearchable`."""
        match parameter:
            case SelectorParam.LABELS:
                return self.as_labels_parameter()
            case SelectorParam.SEARCH:
                return self.as_search_parameter()
            case _:
                assert_never(parameter)

    def as_labels_parameter(self) -> str:
        """For servers that take Kubernetes' selector syntax: `region=us-east,environment=production`."""
        return str(self)

    def as_search_parameter(self) -> str:
        """For servers that take a search expression: `labels.region='us-east' and labels.tier='gold'`.

        Raises `NotSearchable`.
        """
        return " and ".join(map(_searched, self.requirements))

    @property
    def shard(self) -> str:
        """A name for the set of requirements, the same in every order: Kubernetes' text, sorted; `all` for
        everything.

        Equalities alone are sorted as texts, as metrics have always named them: `env-2=a` comes before `env=b`.
        Any other selector is sorted by key.
        """
        if all(each.operator is _IN and len(each.values) == 1 for each in self.requirements):
            return ",".join(sorted(map(str, self.requirements))) or "all"
        return ",".join(map(str, sorted(self.requirements, key=lambda each: (each.key, str(each)))))


def as_integer(value: str) -> int | None:
    """The integer that `>` and `<` see in a label's value; None if it is not one, or beyond 64 bits."""
    if not (value.isascii() and value.isdigit() and len(value) <= MAX_NAME):
        return None
    integer = int(value)
    return integer if integer <= _LARGEST_INTEGER else None


def _holds(requirement: Requirement, value: str | None) -> bool:
    """Whether a requirement of existence or of order holds; `matches` has the other two."""
    operator = requirement.operator
    if operator is Operator.EXISTS:
        return value is not None
    if operator is Operator.NOT_EXISTS:
        return value is None
    bound = as_integer(requirement.values[0])
    integer = None if value is None else as_integer(value)
    if integer is None or bound is None:
        return False
    return integer > bound if operator is Operator.GREATER else integer < bound


def _searched(requirement: Requirement) -> str:
    """A missing label fails `=` and `in` in a search and satisfies `!=`, exactly as here."""
    if requirement.operator not in (Operator.IN, Operator.NOT_IN):
        raise NotSearchable(requirement)
    is_in = requirement.operator is Operator.IN
    quoted = ["'" + value.replace("'", "''") + "'" for value in requirement.values]
    if len(quoted) == 1:
        return f"labels.{requirement.key}{'=' if is_in else '!='}{quoted[0]}"
    listed = f"labels.{requirement.key} in ({','.join(quoted)})"
    return listed if is_in else f"not ({listed})"
