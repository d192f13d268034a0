"""Selectors as data: requirements on labels, all of which must hold.

The same value is used for the query to a server, for the database, for checking a response (a server may ignore
the query), and for the name of the shard in metrics and logs. `matches` is the reference for every other
evaluation. Keys and values are not validated here: `parser` and `match_labels` accept what Kubernetes accepts,
`resource_selector` accepts more values.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import assert_never

import msgspec

from sentinel.core.labels.syntax import MAX_NAME

_MAX_INTEGER = 2**63 - 1


class Operator(StrEnum):
    """The operator of a requirement."""

    IN = "in"
    """The label exists and its value is one of these; `=` and `==` with one value."""
    NOT_IN = "notin"
    """The label does not exist or its value is not one of these; `!=` with one value."""
    EXISTS = "exists"
    NOT_EXISTS = "!"
    GREATER = ">"
    """The label exists and its value is an integer greater than this one; see `as_integer`."""
    LESS = "<"
    """The label exists and its value is an integer less than this one."""


_IN, _NOT_IN = Operator.IN, Operator.NOT_IN  # a global is faster than an enum member


class Requirement(msgspec.Struct, frozen=True):
    """One requirement of a selector."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()
    """Sorted and unique; exactly one integer for `>` and `<`; empty for the two operators of existence."""
    is_set: bool = False
    """Whether a single value was written as a set: `tier in (gold)`. It means the same as `tier=gold`, but
    Kubernetes shows it as it was written."""

    def __str__(self) -> str:
        """Return the Kubernetes text form: `tier=gold`, `env notin (dev)`, `!x`."""
        match self.operator:
            case Operator.IN if self.is_equality:
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

    @property
    def is_equality(self) -> bool:
        """Whether it is written as `tier=gold`."""
        return self.operator is _IN and len(self.values) == 1 and not self.is_set

    @property
    def normalized(self) -> Requirement:
        """The requirement, whichever way it was written. Two that mean the same are equal."""
        return msgspec.structs.replace(self, is_set=False) if self.is_set else self


def equality(key: str, value: str) -> Requirement:
    """Return the requirement that the label has exactly this value."""
    return Requirement(key, Operator.IN, (value,))


class SelectorParam(StrEnum):
    """The query parameter for a selector."""

    LABELS = "labels"
    SEARCH = "search"


class NotSearchable(ValueError):
    """A selector that cannot be expressed as `search`."""

    def __init__(self, requirement: Requirement) -> None:
        super().__init__(f'expected a selector of =, !=, in and notin for a search, got "{requirement}"')
        self.requirement = requirement


class Selector(msgspec.Struct, frozen=True):
    """Requirements in the order in which they were written. Without any, it selects everything."""

    requirements: tuple[Requirement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def __str__(self) -> str:
        """Return the Kubernetes text form: `region=us-east,tier in (gold,silver)`."""
        return ",".join(map(str, self.requirements))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels meet every requirement."""
        # Runs for every resource of every walk. A generator for all(), or a call per requirement, would take twice
        # as long.
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
        """Return the value of this query parameter, not percent-encoded. Raises `NotSearchable`."""
        match parameter:
            case SelectorParam.LABELS:
                return self.as_labels_parameter()
            case SelectorParam.SEARCH:
                return self.as_search_parameter()
            case _:
                assert_never(parameter)

    def as_labels_parameter(self) -> str:
        """Return the value for servers with Kubernetes syntax: `region=us-east,environment=production`.

        A single value is an equality, which servers without sets understand, too.
        """
        return ",".join(str(each.normalized) for each in self.requirements)

    def as_search_parameter(self) -> str:
        """Return the value for servers with search expressions: `labels.region='us-east' and labels.tier='gold'`.

        Raises `NotSearchable`.
        """
        return " and ".join(map(_search_expression, self.requirements))

    @property
    def normalized(self) -> frozenset[Requirement]:
        """The requirements, in whichever order and way they were written. Selectors with equal ones select the
        same."""
        return frozenset(each.normalized for each in self.requirements)

    @property
    def shard(self) -> str:
        """The Kubernetes text form with sorted requirements; `all` for an empty selector.

        A selector of equalities only is sorted by the text of its requirements, so that metric labels stay stable:
        `env-2=a` comes before `env=b`. Any other selector is sorted by key, see `shard_by_key`.
        """
        if all(each.is_equality for each in self.requirements):
            return ",".join(sorted(map(str, self.requirements))) or "all"
        return self.shard_by_key

    @property
    def shard_by_key(self) -> str:
        """The Kubernetes text form with requirements sorted by key; `all` for an empty selector."""
        by_key = sorted(self.requirements, key=lambda each: (each.key, str(each)))
        return ",".join(map(str, by_key)) or "all"


def as_integer(value: str) -> int | None:
    """Return a label's value as `>` and `<` compare it; None if it is not an integer of at most 64 bits."""
    if not (value.isascii() and value.isdigit() and len(value) <= MAX_NAME):
        return None
    integer = int(value)
    return integer if integer <= _MAX_INTEGER else None


def _holds(requirement: Requirement, value: str | None) -> bool:
    """Whether a requirement of existence or order holds. `matches` handles the other operators."""
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


def _search_expression(requirement: Requirement) -> str:
    """Return the search expression. Missing labels mean the same there: they fail `=` and `in`, and meet `!=`."""
    if requirement.operator not in (Operator.IN, Operator.NOT_IN):
        raise NotSearchable(requirement)
    is_in = requirement.operator is Operator.IN
    quoted = ["'" + value.replace("'", "''") + "'" for value in requirement.values]
    if len(quoted) == 1:
        return f"labels.{requirement.key}{'=' if is_in else '!='}{quoted[0]}"
    listed = f"labels.{requirement.key} in ({','.join(quoted)})"
    return listed if is_in else f"not ({listed})"
