"""Checks a configuration up to a level: the syntax, the schema, and whether it can work."""

from __future__ import annotations

from typing import Final

import msgspec

from sentinel.core import kdl
from sentinel.core.proxy.facts import Facts
from sentinel.core.proxy.findings import Code
from sentinel.core.proxy.problem import Level, Problem, Severity, syntax_problems
from sentinel.core.proxy.schema.types import Fault
from sentinel.core.proxy.semantics import check_semantics
from sentinel.core.proxy.validation import check_schema

_TYPE: Final = frozenset((Fault.TYPE,))
_ANY: Final = frozenset((*Fault, Code.DANGLING_REFERENCE, Code.IGNORED_VALUE))
_OF_VALUES: Final[dict[str, frozenset[str]]] = {
    kdl.Code.BARE_KEYWORD: _ANY,
    kdl.Code.UNKNOWN_KEYWORD: _ANY,
    kdl.Code.NEEDS_QUOTES: _TYPE,
    kdl.Code.NUMBER_TOO_LONG: _ANY,
    kdl.Code.COMMENT_IN_URL: _ANY,
    kdl.Code.COMMA_IN_TEXT: _ANY,
    kdl.Code.QUOTES_IN_TEXT: _ANY,
}
"""The problems of the syntax in a value, and those of the schema that are the same mistake."""


class Report(msgspec.Struct, frozen=True):
    """Everything that is wrong with a configuration."""

    problems: tuple[Problem, ...]
    """Ordered by position."""

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
        found = _each_once(found, check_schema(parsed.document))
    if level >= Level.SEMANTICS:
        found += check_semantics(parsed.document, facts or Facts())
    return Report(tuple(sorted(found, key=_place)))


def _each_once(syntax: list[Problem], schema: list[Problem]) -> list[Problem]:
    """Return the problems of both levels, and a mistake that both found once.

    A bare `true` is not KDL, and what it is taken for may not have the type of its key. Then the syntax says what
    is wrong, and the schema what to write instead, because only it knows the type. A comma or a comment inside a
    value is not an error of the syntax, but explains one of the schema. So do quotes that KDL takes for letters:
    it also takes the words between them for several values.
    """
    found = {(each.line, each.column): each for each in syntax if each.code in _OF_VALUES}
    others = [each for each in syntax if each.code not in _OF_VALUES]
    quoted = {each.line for each in syntax if each.code == kdl.Code.QUOTES_IN_TEXT}
    for problem in schema:
        if problem.line in quoted and problem.code == Code.IGNORED_ARGUMENT:
            continue
        place = (problem.line, problem.column)
        same = found.get(place)
        if same is None or problem.code not in _OF_VALUES[same.code]:
            others.append(problem)
        elif same.severity is Severity.ERROR:
            found[place] = _explained(same, problem)
        else:
            found[place] = msgspec.structs.replace(problem, message=same.message, suggestion=same.suggestion)
    return [*found.values(), *others]


def _explained(syntax: Problem, schema: Problem) -> Problem:
    """Return a problem of a value that is not KDL and would have the wrong type, with what to write instead."""
    if syntax.code == kdl.Code.BARE_KEYWORD:
        here = "" if schema.suggestion is None else f"; here, {schema.suggestion}"
        return msgspec.structs.replace(syntax, suggestion=f"{syntax.suggestion}{here}")
    if schema.suggestion is None and syntax.code == kdl.Code.NEEDS_QUOTES:
        # Quotes would make it KDL, but still not a value of this type.
        return msgspec.structs.replace(syntax, message=schema.message, suggestion=None)
    return msgspec.structs.replace(syntax, suggestion=schema.suggestion or syntax.suggestion)


def _place(problem: Problem) -> tuple[int, int, Level]:
    return problem.line or 0, problem.column or 0, problem.level
