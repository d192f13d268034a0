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


@pytest.mark.parametrize(
    ("written", "key", "expected"),
    [
        (
            "system { worker-threads 4 }",
            "auto-reload true",
            ("bare-keyword", 'write #true, or "true" if it is a text'),
        ),
        (
            "worker-threads 4",
            "worker-threads true",
            ("bare-keyword", 'write #true, or "true" if it is a text; here, write an integer of at least 0'),
        ),
        (
            "worker-threads 4",
            "worker-threads null",
            ("bare-keyword", 'write #null, or "null" if it is a text; here, write an integer of at least 0'),
        ),
        ("worker-threads 4", "worker-threads inf", ("bare-keyword", 'write #inf, or "inf" if it is a text')),
        ("worker-threads 4", "worker-threads #True", ("unknown-keyword", "write an integer of at least 0")),
        ("worker-threads 4", "auto-reload #True", ("unknown-keyword", "write #true")),
        ("worker-threads 4", "auto-reload #yes", ("unknown-keyword", "write #true")),
        ("worker-threads 4", "graceful-shutdown-timeout-secs 1m", ("needs-quotes", "write 60")),
        ("worker-threads 4", "worker-threads #7", ("unknown-keyword", 'write "#7" if it is a text')),
        (
            '"0.0.0.0:8080"',
            "true",
            (
                "bare-keyword",
                'write #true, or "true" if it is a text; here, write an address such as "127.0.0.1:8080"',
            ),
        ),
        (
            '"10.0.0.1:80"',
            '"10.0.0.1:80" weight=false',
            ("bare-keyword", 'write #false, or "false" if it is a text; here, write an integer of at least 0'),
        ),
        (
            '"0.0.0.0:8080"',
            '"0.0.0.0:8080"; protocol true',
            ("bare-keyword", 'write #true, or "true" if it is a text; here, write one of http, https, h2, h3'),
        ),
    ],
)
def test_a_mistake_of_two_levels_is_reported_once(written: str, key: str, expected: tuple[str, str]) -> None:
    text = VALID.replace(written, f"system {{ {key} }}" if written.startswith("system") else key)

    problems = check(kdl.parse(text)).problems

    assert [(problem.level, problem.code, problem.suggestion) for problem in problems] == [(1, *expected)]


def test_quotes_are_not_suggested_around_what_has_to_be_a_number() -> None:
    (problem,) = check(kdl.parse(VALID.replace("worker-threads 4", "worker-threads 4.5.6"))).problems

    assert (problem.level, problem.code, problem.suggestion) == (1, "needs-quotes", None)
    assert problem.message == 'expected an integer of at least 0 for worker-threads, got "4.5.6"'


def test_two_mistakes_in_one_value_are_two_problems() -> None:
    report = check(kdl.parse(VALID.replace('"0.0.0.0:8080"', "0.0.0.0:99999")))

    assert [problem.code for problem in report.problems] == ["needs-quotes", "bad-port"]


@pytest.mark.parametrize(
    ("written", "instead", "expected"),
    [
        (
            '"0.0.0.0:8080"',
            '"0.0.0.0:8080"; namespace a,',
            ("error", "dangling-reference", 'remove the comma, or write "a," if it is meant'),
        ),
        (
            'upstream "backend" { ',
            'upstream "backend" { load-balancing random,\n',
            ("warning", "ignored-value", 'remove the comma, or write "random," if it is meant'),
        ),
        (
            '"0.0.0.0:8080"',
            "http://x\n",
            ("error", "bad-address", 'write "http://x"'),
        ),
        ('"0.0.0.0:8080"', "'0.0.0.0:8080' ", ("error", "bad-address", 'write "0.0.0.0:8080"')),
        ("worker-threads 4", "user ‘the proxy’", ("warning", "quotes-in-text", 'write "the proxy"')),
    ],
)
def test_what_the_syntax_warns_of_explains_a_problem_of_the_schema(
    written: str, instead: str, expected: tuple[str, str, str]
) -> None:
    problems = check(kdl.parse(VALID.replace(written, instead))).problems

    assert [(problem.severity.value, problem.code, problem.suggestion) for problem in problems] == [expected]
    assert any(word in problems[0].message for word in ("got a comma", "starts a comment", "are letters"))


@pytest.mark.parametrize(
    ("written", "instead", "code"),
    [
        ('upstream "backend" {', "upstream true {", "bare-keyword"),
        ('upstream "backend" {', "upstream 7 {", "wrong-type"),
        ('upstream "backend" {', "upstream {", "missing"),
        ('upstream "backend" {', "upstrem backend {", "unknown-key"),
        ('upstream "backend" {', 'upstream "backends" {', "dangling-reference"),
        ("upstreams {", "upstraems {", "unknown-block"),
        ("listeners {", "listener {", "unknown-block"),
        ("system {", "system: {", "unknown-block"),
        ("worker-threads 4", 'worker-threads int("4")', "missing-space"),
        ('"0.0.0.0:8080"', "[::]:8080 ", "needs-quotes"),
        ('path-prefix "/"', "path-prefix /api/*", "needs-quotes"),
        ("system {", "*/ system {", "unexpected"),
        ('upstreams { upstream "backend" { target "10.0.0.1:80" } }', 'upstream "backend" { }', "unknown-block"),
        ('upstream "backend" }', "upstream null }", "bare-keyword"),
        ('upstream "backend" }', "upstream 7 }", "wrong-type"),
        ('upstream "backend" }', 'upstream "backed" }', "dangling-reference"),
        ('matches { path-prefix "/" }', "matches { path-prefix [/] }", "array"),
        ('matches { path-prefix "/" }', 'matches path-prefix "/" }', "unopened-block"),
        ('listener "web" {', 'listener "web"\n{', "missing-name"),
        ('"0.0.0.0:8080"', "0.0.0.0:8080,", "needs-quotes"),
        ('"10.0.0.1:80" }', '"10.0.0.1:80" },', "unexpected"),
        ('"10.0.0.1:80"', '"10.0.0.1:80" # c\n', "unexpected"),
    ],
)
def test_one_mistake_is_one_problem(written: str, instead: str, code: str) -> None:
    assert written in VALID

    assert [problem.code for problem in check(kdl.parse(VALID.replace(written, instead))).problems] == [code]
