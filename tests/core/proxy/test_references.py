"""Ids and references: scopes, exports, and what is reported of them."""

from __future__ import annotations

import pytest

from sentinel.core.proxy.problem import Severity
from tests.core.proxy.documents import check

HEAD = 'system\nlisteners { listener "http" { address "127.0.0.1:8080" } }\n'


def told(text: str) -> list[tuple[str, int | None, str]]:
    return [(problem.severity.value, problem.line, problem.code) for problem in check(HEAD + text)]


def upstream(name: str) -> str:
    return f'upstreams {{ upstream "{name}" {{ target "{name}.internal:80" }} }}'


def route(name: str, rest: str) -> str:
    return f'routes {{ route "{name}" {{ matches {{ path "/{name}" }}; {rest} }} }}'


@pytest.mark.parametrize(
    "rest",
    [
        'upstream "a"',
        'builtin-handler "health"; shadow { upstream "a" }',
        'builtin-handler "health"; fallback { fallback-upstream "a" { provider "openai" } }',
        'builtin-handler "health"; inference { model-routing { model "m" upstream="a" } }',
        'builtin-handler "health"; inference { model-routing { default-upstream "a" } }',
    ],
)
def test_an_upstream_is_used_by_whatever_names_it(rest: str) -> None:
    assert told(f"{upstream('a')}\n{route('r', rest)}") == []
    assert ("error", 4, "dangling-reference") in told(f"{upstream('b')}\n{route('r', rest)}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f'{upstream("a")}\nnamespace "n" {{ {route("r", "upstream a")} }}', [], id="global"),
        pytest.param(f'namespace "n" {{ {upstream("a")}; {route("r", "upstream a")} }}', [], id="own"),
        pytest.param(
            f'namespace "n" {{ {upstream("a")}; service "s" {{ {route("r", "upstream a")} }} }}',
            [],
            id="namespace-of-a-service",
        ),
        pytest.param(
            f'namespace "n" {{ service "s" {{ {upstream("a")}; {route("r", "upstream a")} }} }}',
            [],
            id="service",
        ),
        pytest.param(
            f'namespace "n" {{ {upstream("a")}; exports {{ upstreams "a" }} }}\n{route("r", "upstream a")}',
            [],
            id="export",
        ),
        pytest.param(
            f'namespace "n" {{ {upstream("a")} }}\n{route("r", "upstream n:a")}',
            [],
            id="qualified",
        ),
        pytest.param(
            f'namespace "n" {{ service "s" {{ {upstream("a")} }} }}\n{route("r", "upstream n:s:a")}',
            [],
            id="qualified-by-service",
        ),
        pytest.param(
            f'namespace "n" {{ {upstream("a")} }}\n{route("r", "upstream a")}',
            [("warning", 3, "unused"), ("error", 4, "dangling-reference")],
            id="not-exported",
        ),
        pytest.param(
            f'namespace "n" {{ {upstream("a")}; service "s" {{ {upstream("b")} }}; {route("r", "upstream b")} }}',
            [("error", 3, "dangling-reference"), ("warning", 3, "unused"), ("warning", 3, "unused")],
            id="of-a-service-inside",
        ),
        pytest.param(
            f'{upstream("a")}\n{route("r", "upstream a")}\nnamespace "n" {{ exports {{ upstreams "a" }} }}',
            [("error", 5, "dangling-reference")],
            id="export-of-a-global",
        ),
        pytest.param(
            f"{route('r', 'upstream n:x')}",
            [("error", 3, "dangling-reference")],
            id="qualified-and-missing",
        ),
    ],
)
def test_names_are_looked_up_as_the_proxy_does(text: str, expected: list[tuple[str, int, str]]) -> None:
    assert sorted(told(text)) == sorted(expected)


def test_filters_and_agents_are_looked_up() -> None:
    text = (
        'agents { agent "a" { grpc "localhost:50051" } }\n'
        'filters { filter "f" { type "agent"; agent "a" }; filter "g" { type "agent"; agent "b" } }\n'
        + route("r", 'builtin-handler "health"; filters "f" "h"')
    )

    assert told(text) == [("error", 4, "dangling-reference"), ("error", 5, "dangling-reference")]


@pytest.mark.parametrize("kind", ["redirect", "url-rewrite"])
def test_a_route_with_a_filter_that_answers_needs_no_upstream(kind: str) -> None:
    text = f'filters {{ filter "f" {{ type "{kind}"; anything 1 }} }}\n' + route("r", 'filters "f"')

    assert told(text) == []


def test_a_filter_that_does_not_answer_is_no_handler() -> None:
    text = 'filters { filter "f" { type "log" } }\n' + route("r", 'filters "f"')

    assert told(text) == [("warning", 4, "no-handler")]


@pytest.mark.parametrize(
    ("listener", "codes"),
    [
        ('default-route "r"', []),
        ('default-route "x"', ["dangling-reference"]),
        ('namespace "n"', []),
        ('namespace "m"', ["dangling-reference"]),
        ("namespace 1", ["wrong-type"]),
        ('namespace "n"; default-route "local"', []),
        ('default-route "local"', ["dangling-reference"]),
    ],
)
def test_a_listener_names_a_route_and_a_namespace(listener: str, codes: list[str]) -> None:
    text = (
        f'system\nlisteners {{ listener "http" {{ address "127.0.0.1:8080"; {listener} }} }}\n'
        + route("r", 'builtin-handler "health"')
        + f'\nnamespace "n" {{ {route("local", "builtin-handler health")} }}'
    )

    assert [problem.code for problem in check(text)] == codes


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"{upstream('a')}\n{upstream('a')}\n{route('r', 'upstream a')}", id="upstream"),
        pytest.param('filters { filter "f" { type "log" } }\nfilters { filter "f" { type "log" } }', id="filter"),
        pytest.param(
            "routes\n" + route("r", "builtin-handler health") + ";" + route("r", "builtin-handler health"),
            id="route",
        ),
        pytest.param(
            'agents\nagents { agent "a" { http "http://a" }; agent "a" { http "http://a" } }', id="agent"
        ),
        pytest.param('namespace "n" { }\nnamespace "n" { }', id="namespace"),
        pytest.param('\nnamespace "n" { service "s" { }; service "s" { } }', id="service"),
    ],
)
def test_an_id_twice_is_an_error_at_the_second(text: str) -> None:
    (problem,) = check(HEAD + text)

    assert (problem.severity, problem.code, problem.line) == (Severity.ERROR, "duplicate-id", 4)


@pytest.mark.parametrize(
    ("block", "body", "expected"),
    [
        ("routes { route", 'priority "low"; builtin-handler "health"', "error"),
        ("agents { agent", 'unix-socket "/run/a"', "error"),
        ("listeners { listener", 'address "127.0.0.2:80"', "error"),
        ("filters { filter", 'type "log"', "warning"),
        ("upstreams { upstream", 'target "a.internal:80"', "warning"),
    ],
)
def test_an_id_twice_in_one_block_is_what_the_proxy_makes_of_it(block: str, body: str, expected: str) -> None:
    _, name = block.split(" { ")
    second = body.replace("127.0.0.2", "127.0.0.3").replace('"low"', "20; matches { path a }")

    found = check(f'{HEAD}{block} "x" {{ {body} }}\n{name} "x" {{ {second} }}\n}}')

    assert [(each.severity.value, each.line) for each in found if each.code == "duplicate-id"] == [(expected, 4)]


def test_the_same_id_in_two_scopes_is_no_duplicate() -> None:
    both = f"{upstream('a')}; {route('r', 'upstream a')}"

    assert told(f'{both}\nnamespace "n" {{ {both} }}') == []


def test_an_exported_upstream_is_used() -> None:
    assert told(f'namespace "n" {{ {upstream("a")}; exports {{ upstreams "a" }} }}') == []


def test_the_namespace_that_was_meant_is_suggested() -> None:
    text = (
        'system\nlisteners { listener "http" { address "127.0.0.1:80"; namespace "shp" } }\nnamespace "shop" { }'
    )
    (problem,) = check(text)

    assert problem.suggestion == 'write "shop"'


def test_long_names_are_not_compared() -> None:
    long = "a" * 70
    text = f"{upstream(long).replace(f'{long}.internal', 'internal')}\n{route('r', f'upstream {long}b')}"
    (problem,) = [problem for problem in check(HEAD + text) if problem.code == "dangling-reference"]

    assert problem.suggestion is not None
    assert problem.suggestion.startswith("add upstream")


def test_a_service_may_have_a_listener_without_an_id() -> None:
    assert told('namespace "n" { service "s" { listener { address "127.0.0.1:8081" } } }') == []
    assert told('namespace "n" { service "s" { listener { address "127.0.0.1:8080" } } }') == [
        ("error", 3, "duplicate-address")
    ]
