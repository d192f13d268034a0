"""What could not be read is not missing: a fault of level 1 causes none of level 2."""

from __future__ import annotations

import pytest

from sentinel.core import kdl
from sentinel.core.proxy.check import check
from sentinel.core.proxy.problem import Level, Problem
from sentinel.core.proxy.validation import check_schema

VALID = """\
schema-version "1.0"
system {
    worker-threads 2
}
listeners {
    listener "https" {
        address "127.0.0.1:8443"
        protocol "https"
        default-route "all"
        namespace "shop"
        tls {
            sni {
                cert-file "/etc/sni.crt"
                key-file "/etc/sni.key"
            }
            cert secret="cert"
            key-file "/etc/tls.key"
        }
    }
}
agents {
    agent "auth" {
        unix-socket path="/run/auth.sock"
    }
}
filters {
    filter "auth" {
        type "agent"
        agent "auth"
    }
}
routes {
    route "all" {
        matches {
            path-prefix "/"
        }
        upstream "api"
        filters "auth"
        policies {
            request-headers {
                set {
                    X-A "1"
                }
            }
        }
    }
}
upstreams {
    upstream "api" {
        target "api.internal:80" weight=2
        target {
            address "api.internal:81"
        }
    }
}
cache {
    backend "disk"
    disk-path "/var/cache"
}
namespace "shop" {
    routes {
        route "cart" {
            matches {
                host "shop.example"
            }
            upstream "api"
        }
    }
}
"""
LINES = VALID.splitlines()


def check_damaged(lines: list[str]) -> list[Problem]:
    parsed = kdl.parse("\n".join(lines))
    assert not parsed.is_valid
    return check_schema(parsed.document)


def test_the_document_of_these_tests_has_no_problem() -> None:
    assert check_schema(kdl.parse(VALID).document) == []


@pytest.mark.parametrize("number", range(len(LINES) + 1))
def test_a_node_that_cannot_be_read_causes_no_other_problem(number: int) -> None:
    assert check_damaged([*LINES[:number], "= 1", *LINES[number:]]) == []


@pytest.mark.parametrize("number", [number for number, line in enumerate(LINES) if line.strip() == "}"])
def test_a_brace_that_is_missing_causes_no_other_problem(number: int) -> None:
    assert check_damaged([*LINES[:number], *LINES[number + 1 :]]) == []


@pytest.mark.parametrize("number", range(len(LINES) + 1))
def test_a_brace_too_many_causes_no_other_problem(number: int) -> None:
    assert check_damaged([*LINES[:number], "}", *LINES[number:]]) == []


@pytest.mark.parametrize("quote", [at for at, char in enumerate(VALID) if char == '"'])
def test_a_quote_that_is_missing_is_one_problem(quote: int) -> None:
    report = check(kdl.parse(VALID[:quote] + VALID[quote + 1 :]))

    assert [(problem.level, problem.code) for problem in report.problems] == [(Level.SYNTAX, "unclosed-string")]


@pytest.mark.parametrize("disallowed", [b"\x01", b"\xff\xfe", "\ufeff".encode(), "\u200e".encode()])
def test_a_disallowed_character_is_one_problem_anywhere(disallowed: bytes) -> None:
    text = VALID.encode()
    for at in range(1, len(text) + 1):
        report = check(kdl.parse(text[:at] + disallowed + text[at:]))

        assert [problem.level for problem in report.problems] == [Level.SYNTAX], text[:at]


@pytest.mark.parametrize("brace", [at for at, char in enumerate(VALID) if char in "{}"])
def test_a_wrong_brace_is_one_problem(brace: int) -> None:
    for wrong in ("[", "(", "{{") if VALID[brace] == "{" else ("]", ")"):
        report = check(kdl.parse(VALID[:brace] + wrong + VALID[brace + 1 :]))

        assert [(problem.level, problem.code) for problem in report.problems] == [(Level.SYNTAX, "wrong-brace")]


@pytest.mark.parametrize(
    ("line", "damaged"),
    [
        ("        address", "        address ="),
        ('        agent "auth"', "        agent [auth"),
        ('        upstream "api"', "        upstream )"),
        ('    upstream "api" {', "    upstream [ {"),
        ('    route "all" {', "    route =all {"),
        ('            cert secret="cert"', "            cert secret="),
        ('        unix-socket path="/run/auth.sock"', "        unix-socket path=/run"),
        ('namespace "shop" {', "namespace = {"),
        ('            path-prefix "/"', "            = 1"),
        ('                host "shop.example"', "                host )"),
    ],
)
def test_a_value_that_cannot_be_read_causes_no_other_problem(line: str, damaged: str) -> None:
    number = next(number for number, text in enumerate(LINES) if text.startswith(line))

    assert check_damaged([*LINES[:number], damaged, *LINES[number + 1 :]]) == []


def test_an_upstream_is_not_unused_where_a_reference_cannot_be_read() -> None:
    head = ["system", 'listeners { listener "a" { address "127.0.0.1:1" } }']
    upstreams = 'upstreams { upstream "u" { target "x:1" } }'

    assert (
        check_damaged(
            [*head, upstreams, "routes {", '  route "r" {', '    priority "low"', "    upstream )", "} }"]
        )
        == []
    )


def test_nothing_is_dangling_where_an_id_cannot_be_read() -> None:
    head = ["system", 'listeners { listener "a" { address "127.0.0.1:1" } }']
    routes = 'routes { route "r" { priority "low"; upstream "u" } }'

    assert check_damaged([*head, routes, "upstreams {", '  upstream "u { target x:1 }', "}"]) == []


def test_a_block_in_the_wrong_place_is_not_judged() -> None:
    head = ["system", 'listeners { listener "a" { address "127.0.0.1:1" } }', "routes {", '  route "r" {']
    lines = [*head, '    upstream "u" {', '      target "x:1"', "    }", "  }"]

    assert check_damaged(lines) == []


def test_what_could_be_read_is_still_checked() -> None:
    lines = [
        line.replace("worker-threads 2", 'worker-threads "2"').replace("weight=2", "weight=true") for line in LINES
    ]

    assert [problem.code for problem in check_damaged(lines)] == ["wrong-type", "wrong-type"]
