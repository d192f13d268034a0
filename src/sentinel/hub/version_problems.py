"""Finds why a version cannot be deployed: errors in its text, such as secrets that the hub does not have.

A version is checked whenever a deployment of it is planned or created, because the outcome can change without
the version: names stop resolving, certificates expire, secrets are deleted.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from sentinel.core.proxy.problem import Problem, Severity
from sentinel.hub.checking import ConfigChecker
from sentinel.ports.hub_store import ConfigVersion


class DeploymentProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a deployment cannot be started. The last five are about the text of the version."""

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


async def find(checker: ConfigChecker, version: ConfigVersion) -> Sequence[DeploymentProblem]:
    """Return why a version cannot be deployed. Raises `Unavailable`."""
    report = await checker.check(version.content)
    return [DeploymentProblem.of_text(each) for each in report.problems if each.severity is Severity.ERROR]
