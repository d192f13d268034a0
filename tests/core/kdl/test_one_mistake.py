"""One mistake of a kind that people make is one problem, on its own line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from random import Random
from typing import Final

import pytest

from sentinel.core import kdl
from sentinel.core.kdl import Code

CONFIGURATION: Final = """\
system {
    worker-threads 4
    daemon #false
}
listeners {
    listener "web" {
        address "0.0.0.0:8080"
    }
}
routes {
    // the API
    route "api" {
        matches {
            host "api.example.com"
            path "/api/"
        }
        upstream "backend" // the servers
        retry-policy { max-attempts 3 }
        headers { set { X-A "https"; X-B "1" }; remove "Cookie" "X-Debug" }
    }
}
/* and where they are */
upstreams {
    upstream "backend" {
        target "10.0.0.1:80" weight=3
        interval-secs 10
    }
}
"""

MISTAKES: Final = [
    # as in YAML, JSON, TOML and HCL
    ("worker-threads 4", "worker-threads = 4", Code.BAD_PROPERTY),
    ("worker-threads 4", "worker-threads=4", Code.BAD_PROPERTY),
    ("worker-threads 4", "worker-threads => 4", Code.BAD_PROPERTY),
    ("worker-threads 4", "worker-threads == 4", Code.BAD_PROPERTY),
    ("worker-threads 4", '"worker-threads": 4', Code.BAD_PROPERTY),
    ("worker-threads 4", '"worker-threads":4', Code.BAD_PROPERTY),
    ("worker-threads 4", "worker-threads 4,", Code.UNEXPECTED),
    ("system {", "system = {", Code.BAD_PROPERTY),
    ("{ max-attempts 3 }", "{ max-attempts = 3 }", Code.BAD_PROPERTY),
    ("{ max-attempts 3 }", '{ "max-attempts": 3 }', Code.BAD_PROPERTY),
    ('remove "Cookie" "X-Debug"', 'remove "Cookie", "X-Debug"', Code.UNEXPECTED),
    ('remove "Cookie" "X-Debug"', 'remove ["Cookie", "X-Debug"]', Code.ARRAY),
    ('remove "Cookie" "X-Debug"', "remove [Cookie, X-Debug]", Code.ARRAY),
    ('remove "Cookie" "X-Debug"', 'remove ("Cookie", "X-Debug")', Code.BAD_TYPE),
    ("weight=3", "weight=[3]", Code.ARRAY),
    ("weight=3", "weight==3", Code.BAD_PROPERTY),
    ("weight=3", "weight=", Code.BAD_PROPERTY),
    # words and numbers that need quotes
    ("#false", "false", Code.BARE_KEYWORD),
    ("#false", "#False", Code.UNKNOWN_KEYWORD),
    ("#false", "null", Code.BARE_KEYWORD),
    ("interval-secs 10", "interval-secs 10s", Code.NEEDS_QUOTES),
    ("interval-secs 10", "interval-secs 10%", Code.NEEDS_QUOTES),
    ("interval-secs 10", "interval-secs 1,000", Code.NEEDS_QUOTES),
    ("interval-secs 10", "interval-secs .5", Code.NEEDS_QUOTES),
    ('"0.0.0.0:8080"', "0.0.0.0:8080", Code.NEEDS_QUOTES),
    ('"0.0.0.0:8080"', "[::]:8080", Code.NEEDS_QUOTES),
    ('"/api/"', "/api/", Code.NEEDS_QUOTES),
    ('"/api/"', "/api/*", Code.NEEDS_QUOTES),
    ('"/api/"', "/api/**", Code.NEEDS_QUOTES),
    ('"/api/"', "/api/**/items", Code.NEEDS_QUOTES),
    ('"/api/"', "/*", Code.NEEDS_QUOTES),
    ('"/api/"', "/**", Code.NEEDS_QUOTES),
    ('"/api/"', "conf.d/*.kdl", Code.NEEDS_QUOTES),
    ('"/api/"', "/search?q=a&page=2", Code.NEEDS_QUOTES),
    ('"/api/"', "^/api/v[0-9]+/.*$", Code.NEEDS_QUOTES),
    ('"/api/"', "[a-z]+/x", Code.NEEDS_QUOTES),
    ('"/api/"', "~/api", Code.NEEDS_QUOTES),
    ('"/api/"', "../api", Code.NEEDS_QUOTES),
    ('"/api/"', "C:\\api", Code.NEEDS_QUOTES),
    ('"/api/"', "'/api/'", Code.NEEDS_QUOTES),
    ('"/api/"', "'/api v1/'", Code.NEEDS_QUOTES),
    ('"/api/"', "“/api/”", Code.NEEDS_QUOTES),
    ('"/api/"', "user:p#w@host", Code.NEEDS_QUOTES),
    ('"/api/"', 'env("API")', Code.MISSING_SPACE),
    ('"/api/"', "$(api)", Code.MISSING_SPACE),
    ("worker-threads 4", "worker-threads int(4)", Code.MISSING_SPACE),
    ("worker-threads 4", "worker-threads(4)", Code.MISSING_SPACE),
    ("worker-threads 4", "404", Code.NUMERIC_NAME),
    ("worker-threads 4", "404 { x }", Code.NUMERIC_NAME),
    ('listener "web" {', "listener web/1 {", Code.NEEDS_QUOTES),
    # quotes
    ('host "api.example.com"', 'host "api.example.com', Code.UNCLOSED_STRING),
    ('host "api.example.com"', 'host api.example.com"', Code.UNCLOSED_STRING),
    ('host "api.example.com"', "host \"api.example.com'", Code.UNCLOSED_STRING),
    ('host "api.example.com"', 'host “api.example.com"', Code.UNCLOSED_STRING),
    ('host "api.example.com"', 'host ""api.example.com""', Code.MISSING_SPACE),
    ('host "api.example.com"', 'host"api.example.com"', Code.MISSING_SPACE),
    ('host "api.example.com"', 'host "say "hi" now"', Code.MISSING_SPACE),
    ('host "api.example.com"', 'host \\"api.example.com\\"', Code.BAD_ESCAPE),
    ('host "api.example.com"', 'host "api\\.example"', Code.BAD_ESCAPE),
    ('host "api.example.com"', 'host r"api"', Code.VERSION_1_RAW_STRING),
    ('host "api.example.com"', 'host r"api', Code.UNCLOSED_STRING),
    ('host "api.example.com"', 'host r#"api"', Code.UNCLOSED_STRING),
    ('host "api.example.com"', 'host #"api"', Code.UNCLOSED_STRING),
    ('host "api.example.com"', 'host """api"""', Code.BAD_MULTILINE_STRING),
    ('host "api.example.com"', 'host "api\n.com"', Code.NEWLINE_IN_STRING),
    ('route "api" {', 'route "api {', Code.UNCLOSED_STRING),
    ('route "api" {', 'route api" {', Code.UNCLOSED_STRING),
    ("{ max-attempts 3 }", '{ max-attempts "3 }', Code.UNCLOSED_STRING),
    ('X-A "https"; X-B "1"', 'X-A "https; X-B "1"', Code.UNCLOSED_STRING),
    ('X-A "https"; X-B "1"', 'X-A https"; X-B "1"', Code.UNCLOSED_STRING),
    ('X-A "https"; X-B "1"', 'X-A "https"; X-B "1', Code.UNCLOSED_STRING),
    # comments
    ("// the API", "# don't touch (the API) {", Code.UNEXPECTED),
    ("// the API", "#the API", Code.UNEXPECTED),
    ("// the API", "/ the API", Code.UNEXPECTED),
    ("// the servers", "# the servers", Code.UNEXPECTED),
    ("/* and where they are */", "/* and where they are", Code.UNCLOSED_COMMENT),
    ("/* and where they are */", "/* and /* where they are */", Code.UNCLOSED_COMMENT),
    ("/* and where they are */", "/* and where they are */ */", Code.UNEXPECTED),
    ("/* and where they are */", "*/", Code.UNEXPECTED),
    # braces
    ("system {", "system [", Code.WRONG_BRACE),
    ("system {", "system (", Code.WRONG_BRACE),
    ("system {", "system {{", Code.WRONG_BRACE),
    ("#false\n}", "#false\n},", Code.UNEXPECTED),
    ("#false\n}", "#false\n})", Code.UNEXPECTED),
    ("#false\n}", "#false\n} =", Code.UNEXPECTED),
    ("#false\n}", "#false\n)", Code.WRONG_BRACE),
    ("#false\n}", "#false\n}}", Code.WRONG_BRACE),
    ("{ max-attempts 3 }", "{ max-attempts 3 )", Code.WRONG_BRACE),
    ("system {", "{", Code.MISSING_NAME),
    ("system {", "[system]\nsystem {", Code.MISSING_NAME),
    ("#false\n}", "#false\n} upstreams", Code.MISSING_NEWLINE),
    ("worker-threads 4", "worker-threads(4", Code.BAD_TYPE),
    ("worker-threads 4", "(u8 worker-threads 4", Code.BAD_TYPE),
    ("worker-threads 4", "worker-threads ((u8))4", Code.BAD_TYPE),
    ("worker-threads 4", "worker-threads (u8)", Code.UNEXPECTED),
]


@pytest.mark.parametrize(("written", "mistake", "code"), MISTAKES)
def test_a_mistake_is_one_problem_on_its_line(written: str, mistake: str, code: Code) -> None:
    text = CONFIGURATION.replace(written, mistake, 1)
    first = next(at for at, char in enumerate(text) if char != CONFIGURATION[at])
    line = CONFIGURATION.count("\n", 0, first) + 1

    problems = kdl.parse(text).problems

    assert [(each.code, each.line) for each in problems] == [(code, line)]


@pytest.mark.parametrize(
    ("written", "mistake", "code"), [each for each in MISTAKES if each[0].count("\n") == each[1].count("\n")]
)
def test_without_any_other_node_a_mistake_is_no_more_problems(written: str, mistake: str, code: Code) -> None:
    lines = CONFIGURATION.replace(written, mistake, 1).splitlines()

    for first, last in spans(kdl.parse(CONFIGURATION).document.nodes):
        kept = lines[: first - 1] + lines[last:]

        assert [each.code for each in kdl.parse("\n".join(kept)).problems] in ([code], []), kept


def spans(nodes: Iterable[kdl.Node]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last line of every node of the configuration that has lines of its own."""
    lines = CONFIGURATION.splitlines()
    for node in nodes:
        if lines[node.line - 1].endswith(" {"):
            yield node.line, lines.index(" " * (node.column - 1) + "}", node.line) + 1
            yield from spans(node.children)
        else:
            yield node.line, node.line


ALONE: Final = (Code.WRONG_BRACE, Code.UNCLOSED_STRING)
"""Two of these can look like something else: doubled braces that match, or a string over several lines."""


def test_the_mistakes_of_several_lines_are_reported_together() -> None:
    kept = [each for each in MISTAKES if "*/" not in each[0] and "\n" not in each[0] + each[1]]
    for first, second in Random(17).sample(list(combinations(kept, 2)), 400):  # noqa: S311  # reproducible
        places = [CONFIGURATION.count("\n", 0, CONFIGURATION.index(written)) for written, _, _ in (first, second)]
        if places[0] == places[1] or first[2] is second[2] in ALONE:
            continue
        text = CONFIGURATION.replace(*first[:2], 1).replace(*second[:2], 1)

        found = [(each.line, each.code) for each in kdl.parse(text).problems]

        expected = [(place + 1, each[2]) for place, each in zip(places, (first, second), strict=True)]
        assert found == sorted(expected), text


def test_the_configuration_without_a_mistake_has_no_problem() -> None:
    assert kdl.parse(CONFIGURATION).is_valid
