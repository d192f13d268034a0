"""Finds what is wrong with a version: errors, which keep it from being deployed, and warnings.

A version is checked whenever a deployment of it is planned or created, because the outcome can change without
the version: names stop resolving, certificates expire, secrets are deleted.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from sentinel.core.proxy.problem import Level, Problem, Severity
from sentinel.hub.checking import ConfigChecker
from sentinel.ports.hub_store import ConfigVersion


class DeploymentProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a deployment cannot be started, or a warning. The last five are about the text of the version."""

    field: str
    message: str
    level: int | UnsetType = UNSET
    code: str | UnsetType = UNSET
    line: int | None | UnsetType = UNSET
    column: int | None | UnsetType = UNSET
    suggestion: str | UnsetType = UNSET

    @classmethod
    def of_text(cls, problem: Problem) -> DeploymentProblem:
        return cls(
            field="version",
            message=problem.message,
            level=problem.level,
            code=problem.code,
            line=problem.line,
            column=problem.column,
            suggestion=UNSET if problem.suggestion is None else problem.suggestion,
        )


class VersionProblems(msgspec.Struct, frozen=True):
    """What is wrong with a version."""

    errors: Sequence[DeploymentProblem]
    """Why it cannot be deployed."""
    warnings: Sequence[DeploymentProblem]
    """Only those of level 3. The others are stored with the version."""


async def find(checker: ConfigChecker, version: ConfigVersion) -> VersionProblems:
    """Check a version. Raises `Unavailable`."""
    found = (await checker.check(version.content)).problems
    errors = [each for each in found if each.severity is Severity.ERROR]
    warnings = [each for each in found if each.severity is Severity.WARNING and each.level is Level.SEMANTICS]
    return VersionProblems(
        [DeploymentProblem.of_text(each) for each in errors],
        [DeploymentProblem.of_text(each) for each in warnings],
    )
