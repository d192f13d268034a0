"""One report of all levels."""

from __future__ import annotations

import pytest

from sentinel.core import kdl
from sentinel.core.proxy.check import check
from sentinel.core.proxy.facts import Facts
from sentinel.core.proxy.problem import Level

VALID = """\
system { worker-threads 4 }
listeners { listener "web" { address "0.0.0.0:8080" } }
routes { route "all" { matches { path-prefix "/" }; upstream "backend" } }
upstreams { upstream "backend" { target "10.0.0.1:80" } }
"""
BROKEN = VALID.replace('"/" }', '"/"; method true }').replace("worker-threads 4", 'worker-threads "4"')


def test_a_valid_configuration_has_no_problems() -> None:
    report = check(kdl.parse(VALID))

    assert report.problems == ()
    assert report.is_valid


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (Level.SYNTAX, [Level.SYNTAX]),
        (Level.SCHEMA, [Level.SCHEMA, Level.SYNTAX]),
        (Level.SEMANTICS, [Level.SCHEMA, Level.SYNTAX]),
    ],
)
def test_what_could_be_read_of_an_invalid_file_is_checked_too(level: Level, expected: list[Level]) -> None:
    report = check(kdl.parse(BROKEN), level=level)

    assert list(dict.fromkeys(problem.level for problem in report.problems)) == expected
    assert not report.is_valid


def test_warnings_do_not_make_a_configuration_invalid() -> None:
    report = check(kdl.parse(VALID.replace('target "', 'load-balancing "ip-hash"; target "')))

    assert [problem.severity.value for problem in report.problems] == ["warning"]
    assert report.is_valid


def test_facts_are_judged_at_level_3_only() -> None:
    tls = 'address "0.0.0.0:8080"; protocol "https"; tls { cert secret="c"; key secret="k" }'
    parsed = kdl.parse(VALID.replace('address "0.0.0.0:8080"', tls))
    facts = Facts(secrets=frozenset(("c",)))

    assert check(parsed, level=Level.SCHEMA, facts=facts).is_valid
    assert [problem.code for problem in check(parsed, facts=facts).problems] == ["missing-secret"]


@pytest.mark.parametrize(
    ("source", "code"), [(b" " * (kdl.MAX_BYTES + 1), "too-large"), ("a".encode("utf-16"), "invalid-utf8")]
)
def test_nothing_is_missing_in_a_file_that_was_not_read(source: bytes, code: str) -> None:
    assert [problem.code for problem in check(kdl.parse(source)).problems] == [code]


def test_warnings_of_the_syntax_are_warnings_of_level_1() -> None:
    report = check(
        kdl.parse(VALID + "limits // http://x\n" + "cache { backend http://x\n }\n"), level=Level.SYNTAX
    )

    assert [(problem.level, problem.severity.value) for problem in report.problems] == [(1, "warning")]
    assert report.is_valid
