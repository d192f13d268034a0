"""Routes that match the same requests with the same priority."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies as st

from sentinel.core.kdl import parse
from sentinel.core.proxy.problem import Level, Problem, Severity
from sentinel.core.proxy.route_conflicts import check
from tests.support.examples import examples


def conflicts(text: str) -> list[Problem]:
    return list(check(parse(text).document))


def routes(*bodies: str) -> str:
    return "routes {\n" + "".join(f'  route "r{i}" {{ {body} }}\n' for i, body in enumerate(bodies)) + "}\n"


def test_the_second_route_is_reported_and_names_the_first() -> None:
    found = conflicts(routes('matches { path "/a" }', 'matches { path "/a" }'))

    assert found == [
        Problem(
            Level.SEMANTICS,
            Severity.ERROR,
            "same-matches",
            3,
            3,
            "expected other matches or another priority than those of route r0 (line 2),"
            " got the same for route r1",
            'add a match to one of them, or write another priority, such as priority "high"',
        )
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('matches { path "/a"; host "x" }', 'matches { host "x"; path "/a" }'),
        ('matches { path "/a"; path "/a" }', 'matches { path "/a" }'),
        ('matches { path "/a" }', 'priority "normal"; matches { path "/a" }'),
        ('matches { path "/a" }', 'priority 50; matches { path "/a" }'),
        ('priority "high"; matches { path "/a" }', 'priority 0x64; matches { path "/a" }'),
        ('priority "critical"; matches { path "/a" }', 'matches { path "/a" }; priority 1000'),
        ('matches { host "API.example" }', 'matches { host "api.example" }'),
        ('matches { header "X-A" "b" }', 'matches { header "x-a" "b" }'),
        ('matches { header "a" "b" "c" }', 'matches { header "a" "b" "d" }'),
        ('matches { method "get" }', 'matches { method "GET" }'),
        ('matches { path "/a"; cookie "c" }', 'matches { path "/a" }'),
        ('priority "HIGH"; matches { path "/a" }', 'priority "high"; matches { path "/a" }'),
        ('matches { method "GET" "POST" }', 'matches { method "GET" }'),
        ('priority "low"', "priority 10; matches { }"),
        ('matches { path "/a" } // one', 'matches { path #"/a"# }'),
    ],
)
def test_routes_that_mean_the_same_conflict(first: str, second: str) -> None:
    text = routes(f"{first}\n", f"{second}\n")

    assert parse(text).is_valid
    assert [problem.code for problem in conflicts(text)] == ["same-matches"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('matches { path "/a" }', 'matches { path "/b" }'),
        ('matches { path "/a" }', 'matches { path-prefix "/a" }'),
        ('matches { path "/a" }', 'matches { path "/a"; method "GET" }'),
        ('matches { path "/a" }', 'matches { path "/A" }'),
        ('matches { header "a" "b" }', 'matches { header "a" "B" }'),
        ('matches { header "a" }', 'matches { header "a" "b" }'),
        ("matches { header #true }", "matches { header 1 }"),
        ('matches { path "/a" }', 'priority "high"; matches { path "/a" }'),
    ],
)
def test_routes_that_mean_something_else_do_not_conflict(first: str, second: str) -> None:
    assert conflicts(routes(first, second)) == []


@pytest.mark.parametrize(
    "body",
    [
        'priority "urgent"; matches { path "/a" }',
        'priority #true; matches { path "/a" }',
        'priority; matches { path "/a" }',
        "builtin-handler status",
        "matches { path = }",
        '{ x }; matches { path "/a" }',
        'matches { path "/a"; { x } }',
    ],
)
def test_routes_that_the_schema_or_syntax_rejects_are_not_judged(body: str) -> None:
    assert conflicts(routes(body, body)) == []


def test_each_further_route_is_compared_with_the_first() -> None:
    found = conflicts(routes(*['matches { path "/a" }'] * 3))

    assert [problem.line for problem in found] == [3, 4]
    assert all("of route r0 (line 2)" in problem.message for problem in found)


def test_routes_of_different_namespaces_do_not_conflict() -> None:
    same = routes('matches { path "/a" }')

    assert (
        conflicts(f'{same} namespace "a" {{ {same} service "s" {{ {same} }} }}\nnamespace "b" {{ {same} }}') == []
    )
    assert len(conflicts(f'{same}\nnamespace "a" {{ {same} }}\nnamespace "a" {{ {same} }}')) == 1


MATCHES = st.lists(
    st.sampled_from(['path "/a"', 'path "/b"', 'host "x"', 'method "GET"', 'header "a" "b"']),
    min_size=1,
    max_size=4,
)


@hypothesis.given(first=MATCHES, second=MATCHES)
@hypothesis.settings(max_examples=examples(200))
def test_routes_conflict_exactly_if_they_have_the_same_set_of_matches(first: list[str], second: list[str]) -> None:
    found = conflicts(routes(*(f"matches {{ {'; '.join(each)} }}" for each in (first, second))))

    assert bool(found) == (set(first) == set(second))
