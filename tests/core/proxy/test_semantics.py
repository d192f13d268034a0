"""The check of level 3: what it asks, and what it makes of the answers."""

from __future__ import annotations

from datetime import UTC, datetime

import hypothesis
import pytest
from hypothesis import strategies as st

from sentinel.core.kdl import parse
from sentinel.core.proxy.facts import Facts, Outcome, Questions, Resolution, Resolve, Unreadable
from sentinel.core.proxy.problem import Level, Problem, Severity
from sentinel.core.proxy.semantics import MAX_PROBLEMS, check_semantics, questions
from tests.support.examples import examples

TEXT = """\
listeners {
    listener "https" { tls { cert secret="c"; key secret="k" } }
}
routes {
    route "a" { matches { path "/" }; upstream "one" }
    route "b" { matches { path "/" }; upstream "two" }
}
upstreams {
    upstream "one" {
        target "api.example:80" weight=1
        target address="API.example:81"
        target { address "b.example:80" }
        targets { target "c.example:80"; target { address "10.0.0.1:80" }; other "x.example:80" }
        address "d.example:80"
        target "169.254.169.254:80"
        target "metadata.google.internal:80"
        target 5
        target { address 5 }
        target "no-port"
        tls { cert env="C"; key vault="v#k"; cert secret="unused" }
    }
    upstream "two" { target "b.example:443"; tls { client-cert "/c.crt"; key secret="k" } }
}
"""
DOCUMENT = parse(TEXT).document
FAILED = Resolution(Outcome.FAILED, "no such name")


def upstream(*targets: str) -> str:
    return 'upstreams { upstream "a" {\n' + "".join(f'target "{target}"\n' for target in targets) + "} }"


def resolved(text: str, resolve: Resolve, **hosts: Resolution) -> list[Problem]:
    return check_semantics(parse(text).document, Facts(resolve=resolve, hosts=hosts))


def test_questions_name_everything_once_in_the_order_of_the_text() -> None:
    assert questions(DOCUMENT) == Questions(
        hosts=("api.example", "b.example", "c.example", "d.example"),
        certificates=("secret:c", "env:C", "file:/c.crt"),
        keys=("secret:k", "vault:v#k"),
        secrets=("c", "k", "unused"),
    )


def test_without_facts_only_routes_and_forbidden_addresses_are_judged() -> None:
    found = [problem.code for problem in check_semantics(DOCUMENT, Facts())]

    assert found == ["same-matches", "forbidden-address", "forbidden-address"]


def test_all_problems_are_returned_by_position() -> None:
    facts = Facts(
        now=datetime(2026, 1, 1, tzinfo=UTC),
        resolve=Resolve.ERROR,
        hosts={"d.example": Resolution(Outcome.FAILED, "no such name"), "b.example": Resolution(Outcome.USABLE)},
        certificates={"env:C": Unreadable("is empty")},
        secrets=frozenset({"c"}),
    )

    found = check_semantics(DOCUMENT, facts)

    assert [(problem.line, problem.column, problem.code) for problem in found] == [
        (2, 58, "missing-secret"),
        (6, 5, "same-matches"),
        (14, 17, "unresolved-address"),
        (15, 16, "forbidden-address"),
        (16, 16, "forbidden-address"),
        (20, 24, "unreadable-certificate"),
        (20, 58, "missing-secret"),
    ]
    assert {problem.level for problem in found} == {Level.SEMANTICS}
    assert {problem.severity for problem in found} == {Severity.ERROR}


def test_a_missing_secret_says_how_to_create_it() -> None:
    document = parse('upstreams { upstream "a" { tls { cert secret="x"; key env="x" } } }').document

    [found] = check_semantics(document, Facts(secrets=frozenset()))

    assert found.message == "expected a secret that the hub has, got x"
    assert found.suggestion == "create it: sentinel hub secret set x"


@pytest.mark.parametrize(
    ("resolve", "severity"), [(Resolve.WARN, Severity.WARNING), (Resolve.ERROR, Severity.ERROR)]
)
def test_the_setting_says_how_bad_an_unresolved_address_is(resolve: Resolve, severity: Severity) -> None:
    (found,) = resolved(upstream("a:1", "10.0.0.1:1"), resolve, a=FAILED)

    assert (found.code, found.severity, found.line) == ("unresolved-address", severity, 2)
    assert found.message == "expected an address that resolves, got a: no such name"


def test_addresses_that_are_not_looked_up_are_not_judged() -> None:
    assert resolved(upstream("a:1"), Resolve.OFF, a=FAILED) == []


@pytest.mark.parametrize("resolve", Resolve)
def test_a_forbidden_address_is_an_error_whatever_the_setting_says(resolve: Resolve) -> None:
    targets = upstream("b:1", "169.254.0.1:1", "0xa9fea9fe:1", "[::ffff:169.254.0.1]:1")

    found = resolved(targets, resolve, b=Resolution(Outcome.FORBIDDEN))

    assert [(each.code, each.severity, each.line) for each in found] == [
        ("forbidden-address", Severity.ERROR, line) for line in (2, 3, 4, 5)
    ]
    assert found[0].message == (
        "expected an address that a proxy may contact, got b,"
        " which is link-local or the metadata service of a cloud"
    )


def test_names_beyond_the_limits_are_one_warning() -> None:
    hosts = {host: Resolution(Outcome.NOT_TRIED) for host in ("b", "c")}

    [found] = resolved(upstream("a:1", "b:1", "c:1"), Resolve.ERROR, **hosts)

    assert (found.code, found.severity, found.line) == ("unchecked-address", Severity.WARNING, 3)
    assert "got 2 that were not" in found.message


@pytest.mark.parametrize(
    ("resolve", "severity"), [(Resolve.WARN, Severity.WARNING), (Resolve.ERROR, Severity.ERROR)]
)
def test_problems_beyond_a_thousand_are_counted(resolve: Resolve, severity: Severity) -> None:
    names = [f"h{number}" for number in range(MAX_PROBLEMS + 5)]

    found = resolved(upstream(*(f"{name}:1" for name in names)), resolve, **dict.fromkeys(names, FAILED))

    assert len(found) == MAX_PROBLEMS + 1
    assert (found[-1].code, found[-1].severity, found[-1].line) == (
        "too-many-problems",
        severity,
        MAX_PROBLEMS + 1,
    )
    assert "got 5 more problems after the first 1000" in found[-1].message


OUTCOMES = st.sampled_from(Outcome)


@hypothesis.given(
    outcomes=st.dictionaries(st.sampled_from("abcdefgh"), OUTCOMES), resolve=st.sampled_from(Resolve)
)
@hypothesis.settings(max_examples=examples(100))
def test_a_problem_is_found_exactly_for_known_unusable_names(
    outcomes: dict[str, Outcome], resolve: Resolve
) -> None:
    text = upstream(*(f"{host}:1" for host in "abcdefgh"))
    wrong = {Outcome.FORBIDDEN} if resolve is Resolve.OFF else {Outcome.FAILED, Outcome.FORBIDDEN}
    bad = [host for host, outcome in sorted(outcomes.items()) if outcome in wrong]

    found = resolved(text, resolve, **{host: Resolution(outcome) for host, outcome in outcomes.items()})

    lines = [each.line for each in found if each.code != "unchecked-address"]
    assert lines == ["abcdefgh".index(host) + 2 for host in bad]
