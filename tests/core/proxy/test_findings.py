"""The number of problems and the time for suggestions are bounded, and no verdict is lost by that."""

from __future__ import annotations

from sentinel.core.proxy.findings import MAX_PROBLEMS
from sentinel.core.proxy.problem import Severity
from tests.core.proxy.documents import check, errors

HEAD = 'listeners { listener "http" { address "127.0.0.1:8080" } }\n'


def test_problems_beyond_the_limit_are_counted() -> None:
    problems = check(HEAD + "system {\n" + "colour 1\n" * (MAX_PROBLEMS + 5) + "}")

    assert len(problems) == MAX_PROBLEMS + 1
    assert (problems[-1].code, problems[-1].severity) == ("too-many-problems", Severity.WARNING)
    assert "5 more" in problems[-1].message


def test_warnings_do_not_crowd_out_an_error() -> None:
    problems = check(HEAD + "system {\n" + "colour 1\n" * (MAX_PROBLEMS + 5) + "daemon 1\n}")

    assert [problem.code for problem in errors(problems)] == ["wrong-type"]


def test_names_are_compared_only_so_often() -> None:
    count = 1_500
    upstreams = "".join(f'upstream "backend{number}" {{ address "h:1" }}\n' for number in range(count))
    routes = "".join(
        f'route "r{number}" {{ priority 10; upstream "bakend{number}" }}\n' for number in range(count)
    )

    found = errors(check(f"system\n{HEAD}upstreams {{\n{upstreams}}}\nroutes {{\n{routes}}}"))

    assert found[0].suggestion == 'write "backend0"'
    assert found[-2].suggestion == 'add upstream "bakend999"'
    assert len(found) == MAX_PROBLEMS + 1
    assert f"{count - MAX_PROBLEMS} more" in found[-1].message


def test_an_invisible_character_is_shown() -> None:
    (problem,) = check(HEAD + "system { worker-threads \u200b4 }")

    assert 'got "\\u{200b}4"' in problem.message
