"""Why the hub refuses a deployment, for people: each field, and each place in the text of the version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import UNSET

from sentinel.cli.client.session import fail
from sentinel.core.counted import counted
from sentinel.drivers.rest.errors import RequestRejected
from sentinel.hub.version_problems import DeploymentProblem
from sentinel.runtime.process import ExitCode


class _Refusal(msgspec.Struct, frozen=True):
    """The part of a problem document that says what is wrong."""

    errors: Sequence[DeploymentProblem] = ()


def explain(rejected: RequestRejected, version: str) -> ExitCode:
    """Print the refusal of a deployment of `version`; return the exit code."""
    try:
        errors = msgspec.json.decode(rejected.body, type=_Refusal).errors
    except msgspec.MsgspecError:
        errors = ()
    if not errors:
        return fail(str(rejected))
    for line in problem_lines(errors, version):
        fail(line)
    return fail(f"not started: {counted(len(errors), 'problem')}")


def problem_lines(problems: Sequence[DeploymentProblem], version: str) -> Iterator[str]:
    """Yield a line for each problem: the field of the request, or the place in the text of the version."""
    for problem in problems:
        place, code = problem.field, ""
        if problem.code is not UNSET:
            code = f" [{problem.code}]"
            place = version
            if isinstance(problem.line, int):
                place += f":{problem.line}:{problem.column}"
        suggestion = f"; {problem.suggestion}" if problem.suggestion is not UNSET else ""
        yield f"{place}: {problem.message}{code}{suggestion}" if place else problem.message
