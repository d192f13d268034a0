"""Policies of headers: their form, the names and values that can be sent, and what no policy may change."""

from __future__ import annotations

import pytest

from sentinel.core import kdl
from sentinel.core.proxy.model import HeaderPolicy
from sentinel.core.proxy.problem import Severity
from sentinel.core.proxy.reading import read
from sentinel.core.proxy.unimplemented import unimplemented
from sentinel.core.proxy.validation import check_schema
from tests.core.proxy.documents import check


def document(policy: str, matches: str = 'path-prefix "/"') -> str:
    return (
        'system; listeners { listener "a" { address "127.0.0.1:80" } }\n'
        'upstreams { upstream "u" { target "u:80" } }\n'
        f'routes {{ route "r" {{ matches {{ {matches} }}; upstream "u"; policies {{ request-headers {{\n'
        f"{policy}\n"
        "} } } }"
    )


@pytest.mark.parametrize(
    ("policy", "column", "suggestion"),
    [
        ('set X-A="1"', 5, 'write set { X-A "1" }'),
        ('add X-A="1" X-B=#true', 5, 'write add { X-A "1"; X-B #true }'),
        ('set "X-A" "1"', 5, 'write set { X-A "1" }'),
        ('set "X-A" "1" X-B="2"', 5, 'write set { X-A "1"; X-B "2" }'),
        ('set X-B="2" "X-A" "1"', 5, 'write set { X-A "1"; X-B "2" }'),
        ('rename "X-A: X-B"', 8, 'write rename { X-A "X-B" }'),
        ('set "X-A"', 5, "write set { … }"),
        ('set ":X-A"', 5, "write set { … }"),
        ("set " + " ".join(f'X-{n}="{n}"' for n in range(9)), 5, 'write set { X-0 "0"; X-1 "1"; X-2 "2" }'),
        ('set X-A="1" { X-B "2" }', 5, 'write set { X-A "1" }'),
    ],
)
def test_headers_outside_of_a_block_are_one_warning(policy: str, column: int, suggestion: str) -> None:
    (problem,) = check(document(policy))

    assert (problem.severity, problem.code) == (Severity.WARNING, "ignored-argument")
    assert (problem.line, problem.column, problem.suggestion) == (4, column, suggestion)
    assert "which the proxy ignores" in problem.message


@pytest.mark.parametrize("name", ['"X A"', '"X:"', '""', '"Ä"', '"X-A\\n"', '"X(A)"'])
@pytest.mark.parametrize("policy", ['set { {} "1" }', 'add { {} "1" }', 'rename { {} "X" }'])
def test_the_name_of_a_header_is_a_token(policy: str, name: str) -> None:
    (problem,) = check(document(policy.replace("{}", name)))

    assert (problem.severity, problem.code, problem.line) == (Severity.ERROR, "bad-value", 4)
    assert problem.message.startswith("expected a header name without spaces and colons in ")


@pytest.mark.parametrize("policy", ['remove "X-A" "X B"', 'rename { X-A "X B" }'])
def test_names_of_headers_that_are_values_are_tokens_too(policy: str) -> None:
    (problem,) = check(document(policy))

    assert (problem.severity, problem.code) == (Severity.ERROR, "bad-value")


def test_the_name_of_a_header_that_is_matched_is_a_token() -> None:
    (problem,) = check(document("", 'header "X A" "any value\\n"'))

    assert (problem.code, problem.line) == ("bad-value", 3)


def test_a_whole_header_as_a_name_is_one_error_with_its_right_form() -> None:
    (problem,) = check(document('set { "X-A: 1" }'))

    assert (problem.code, problem.suggestion) == ("bad-value", 'write X-A "1"')


@pytest.mark.parametrize("value", ["a\\nb", "a\\rb", "\\u{0}", "\\u{7f}"])
def test_the_value_of_a_header_has_no_line_ends_and_control_characters(value: str) -> None:
    (problem,) = check(document(f'set {{ X-A "{value}" }}'))

    assert (problem.severity, problem.code) == (Severity.ERROR, "bad-value")


@pytest.mark.parametrize("value", ["", "a b", "a\\tb", "é", ":;,="])
def test_other_values_of_headers_are_good(value: str) -> None:
    assert check(document(f'set {{ "x!#$%&\'*+.^_`|~9" "{value}" }}')) == []


def test_a_header_that_cannot_be_read_is_one_problem() -> None:
    parsed = kdl.parse(document('set { "X A" = }'))

    assert len(parsed.problems) == 1
    assert check_schema(parsed.document) == []


UNCHANGEABLE_POLICY = """
    set { content-length "1"; X-A "1" }
    add { Transfer-Encoding chunked }
    rename { Connection X-C; X-D Upgrade; X-E X-F }
    remove "Keep-Alive" "X-G"
"""


def test_no_policy_changes_where_a_message_ends() -> None:
    (route,) = read(kdl.parse(document(UNCHANGEABLE_POLICY)).document).routes

    assert route.request_headers == HeaderPolicy(set=(("X-A", "1"),), rename=(("X-E", "X-F"),), remove=("X-G",))


def test_what_no_policy_changes_is_named() -> None:
    prefix = "routes.route.policies.request-headers."

    found = unimplemented(kdl.parse(document(UNCHANGEABLE_POLICY)).document)

    assert [path.removeprefix(prefix) for path in found] == [
        "set.content-length",
        "add.Transfer-Encoding",
        "rename.Connection",
        "rename.X-D",
        "remove Keep-Alive",
    ]
