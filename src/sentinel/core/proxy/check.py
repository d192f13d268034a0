"""Checks a configuration up to a level: the syntax, the schema, and whether it can work."""

from __future__ import annotations

import msgspec

from sentinel.core import kdl
from sentinel.core.proxy.facts import Facts
from sentinel.core.proxy.problem import Level, Problem, Severity, syntax_problems
from sentinel.core.proxy.semantics import check_semantics
from sentinel.core.proxy.validation import check_schema


class Report(msgspec.Struct, frozen=True):
    """Everything that is wrong with a configuration."""

    problems: tuple[Problem, ...]
    """By position."""

    @property
    def is_valid(self) -> bool:
        """Whether it can be used. Warnings do not forbid that."""
        return all(problem.severity is not Severity.ERROR for problem in self.problems)


def check(parsed: kdl.Parsed, *, level: Level = Level.SEMANTICS, facts: Facts | None = None) -> Report:
    """Return all problems of all levels up to this one.

    What could be read of an invalid document is checked, too, so that people see everything at once. `facts`
    answer `semantics.questions(parsed.document)`; what they do not say is not judged.
    """
    found = syntax_problems(parsed.problems)
    found += syntax_problems(parsed.warnings, Severity.WARNING)
    if level >= Level.SCHEMA:
        found += check_schema(parsed.document)
    if level >= Level.SEMANTICS:
        found += check_semantics(parsed.document, facts or Facts())
    return Report(tuple(sorted(found, key=_place)))


def _place(problem: Problem) -> tuple[int, int, Level]:
    return problem.line or 0, problem.column or 0, problem.level
