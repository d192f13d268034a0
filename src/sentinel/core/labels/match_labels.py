"""Read a Kubernetes `LabelSelector` object: `matchLabels` and `matchExpressions`.

It is validated as Kubernetes does, and all errors are reported at once, each with its path. The object has no `>`
and `<`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from sentinel.core.labels.selector import Operator, Requirement, Selector, equality
from sentinel.core.labels.syntax import excerpt, key_problem, value_problem

_OPERATORS: Final[Mapping[str, Operator]] = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.NOT_EXISTS,
}


class MatchExpression(msgspec.Struct, frozen=True):
    """One entry of `matchExpressions`, not validated."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class InvalidMatch(ValueError):
    """A label selector that Kubernetes would reject."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{path}: {message}" for path, message in problems))
        self.problems = tuple(problems)
        """Paths, such as `matchExpressions[0].operator`, and error messages."""


def from_match_labels(
    match_labels: Mapping[str, str], match_expressions: Sequence[MatchExpression] = ()
) -> Selector:
    """Return the selector for both members. Raises `InvalidMatch`."""
    problems = [
        (f"matchLabels.{excerpt(key)}", problem)
        for key, value in match_labels.items()
        if (problem := key_problem(key) or value_problem(value))
    ]
    requirements = [equality(key, value) for key, value in match_labels.items()]
    for number, expression in enumerate(match_expressions):
        found = [(f"matchExpressions[{number}].{path}", problem) for path, problem in _problems(expression)]
        problems += found
        if not found:
            requirements.append(_requirement(expression))
    if problems:
        raise InvalidMatch(problems)
    return Selector(tuple(requirements))


def _problems(expression: MatchExpression) -> Iterator[tuple[str, str]]:
    if problem := key_problem(expression.key):
        yield "key", problem
    operator = _OPERATORS.get(expression.operator)
    if operator is None:
        yield "operator", f'expected one of {", ".join(_OPERATORS)}, got "{excerpt(expression.operator)}"'
    elif operator in (Operator.EXISTS, Operator.NOT_EXISTS):
        if expression.values:
            yield "values", f"expected none for {expression.operator}, got {len(expression.values)}"
    elif not expression.values:
        yield "values", f"expected at least one for {expression.operator}, got none"
    for number, value in enumerate(expression.values):
        if problem := value_problem(value):
            yield f"values[{number}]", problem


def _requirement(expression: MatchExpression) -> Requirement:
    operator, values = _OPERATORS[expression.operator], tuple(sorted(set(expression.values)))
    return Requirement(expression.key, operator, values, is_set=operator is Operator.IN and len(values) == 1)
