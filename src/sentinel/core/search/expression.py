"""Searches as data: comparisons joined by "and" and "or".

There is no "not": a comparison is either true or false, also for a missing label, so the parser moves every
negation into the comparisons. `matches` is the reference for the databases, which evaluate searches in SQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias, assert_never

import msgspec

from sentinel.core.fleet.documents import ResourceDocument

CONDITIONS = "status.conditions."
GENERATION = "generation"


class FieldKind(StrEnum):
    """Where the value of a field is found."""

    LABEL = "label"
    ATTRIBUTE = "attribute"
    """In what `attributes` returns."""
    NAME = "name"
    ID = "id"


class Field(msgspec.Struct, frozen=True):
    """What a comparison reads."""

    kind: FieldKind
    key: str = ""
    """The key of the label or attribute; empty for name and id."""


class Comparison(msgspec.Struct, frozen=True, tag="comparison"):
    """Whether a field has one of these values. A field that a resource does not have has none of them."""

    field: Field
    values: tuple[str, ...]
    """Sorted and unique."""
    is_negated: bool = False


class AllOf(msgspec.Struct, frozen=True, tag="all"):
    """Whether every operand holds."""

    operands: tuple[Expression, ...]


class AnyOf(msgspec.Struct, frozen=True, tag="any"):
    """Whether at least one operand holds."""

    operands: tuple[Expression, ...]


Expression: TypeAlias = Comparison | AllOf | AnyOf


class Searchable(Protocol):
    """The values that a search reads from a resource."""

    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> Mapping[str, str]: ...

    @property
    def attributes(self) -> Mapping[str, str]: ...


def attributes(document: ResourceDocument) -> dict[str, str]:
    """Return the searchable values of a resource besides id, name and labels, by the name of the field."""
    found = {CONDITIONS + condition.type: condition.status.value for condition in document.status.conditions}
    return {GENERATION: str(document.generation), **found}


def matches(expression: Expression, resource: Searchable) -> bool:
    """Whether a search selects this resource."""
    match expression:
        case Comparison(field, values, is_negated):
            return (_value(field, resource) in values) is not is_negated
        case AllOf(operands):
            return all(matches(each, resource) for each in operands)
        case AnyOf(operands):
            return any(matches(each, resource) for each in operands)
        case _:
            assert_never(expression)


def conjuncts(expression: Expression | None) -> tuple[Expression, ...]:
    """Return expressions that all have to hold. Without a search there are none."""
    if expression is None:
        return ()
    return expression.operands if isinstance(expression, AllOf) else (expression,)


def negated(expression: Expression) -> Expression:
    """Return the opposite, by De Morgan's laws."""
    if isinstance(expression, Comparison):
        return Comparison(expression.field, expression.values, not expression.is_negated)
    operands = [negated(each) for each in expression.operands]
    return any_of(operands) if isinstance(expression, AllOf) else all_of(operands)


def all_of(operands: Sequence[Expression]) -> Expression:
    """Join by "and". Nested conjunctions become one, so that a database sees every condition at once."""
    flat = [one for each in operands for one in (each.operands if isinstance(each, AllOf) else (each,))]
    return flat[0] if len(flat) == 1 else AllOf(tuple(flat))


def any_of(operands: Sequence[Expression]) -> Expression:
    """Join by "or". Nested disjunctions become one."""
    flat = [one for each in operands for one in (each.operands if isinstance(each, AnyOf) else (each,))]
    return flat[0] if len(flat) == 1 else AnyOf(tuple(flat))


def _value(field: Field, resource: Searchable) -> str | None:
    match field.kind:
        case FieldKind.LABEL:
            return resource.labels.get(field.key)
        case FieldKind.ATTRIBUTE:
            return resource.attributes.get(field.key)
        case FieldKind.NAME:
            return resource.name
        case FieldKind.ID:
            return resource.id
        case _:
            assert_never(field.kind)
