"""Errors of level 2: which they are, where they are, and what to write instead."""

from __future__ import annotations

import pytest

from sentinel.core import kdl
from sentinel.core.proxy.problem import Level
from sentinel.core.proxy.validation import check_schema
from tests.core.proxy.documents import check, errors

VALID = """\
system {
}
listeners {
  listener "http" {
    address "127.0.0.1:8080"
  }
}
routes {
  route "all" {
    matches {
      path-prefix "/"
    }
    upstream "api"
  }
}
upstreams {
  upstream "api" {
    target "api.internal:80"
  }
}
"""


def told(text: str) -> list[tuple[int | None, int | None, str]]:
    return [(problem.line, problem.column, problem.code) for problem in errors(check(text))]


def changed(old: str, new: str) -> str:
    assert VALID.count(old) >= 1, old
    return VALID.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", [(1, 1, "missing"), (1, 1, "missing")], id="nothing"),
        pytest.param(changed("system {\n}\n", ""), [(1, 1, "missing")], id="no-system"),
        pytest.param("\n\nsystem\n", [(1, 1, "missing")], id="no-listeners"),
        pytest.param(
            changed('  listener "http" {\n    address "127.0.0.1:8080"\n  }\n', ""),
            [(3, 1, "missing")],
            id="no-listener",
        ),
        pytest.param(changed('    address "127.0.0.1:8080"\n', ""), [(4, 3, "missing")], id="no-address"),
        pytest.param(changed('listener "http"', "listener"), [(4, 3, "missing")], id="no-id"),
        pytest.param(changed('    target "api.internal:80"\n', ""), [(17, 3, "missing")], id="no-target"),
        pytest.param(
            changed('    target "api.internal:80"\n', "    targets {\n    }\n"),
            [(18, 5, "missing")],
            id="no-target-in-targets",
        ),
        pytest.param(
            changed('    matches {\n      path-prefix "/"\n    }\n', ""), [(9, 3, "missing")], id="no-matches"
        ),
        pytest.param(changed('      path-prefix "/"\n', ""), [(10, 5, "missing")], id="no-match"),
        pytest.param(changed('path-prefix "/"', 'path-prefx "/"'), [(10, 5, "missing")], id="no-known-match"),
        pytest.param(VALID + 'upstream "b" { target "b:1" }', [(21, 1, "unknown-block")], id="top-level-upstream"),
        pytest.param(VALID + "\tdatabase { }", [(21, 2, "unknown-block")], id="unknown-block"),
        pytest.param(VALID + 'include "conf.d/*.kdl"', [(21, 1, "include")], id="include"),
        pytest.param(changed("127.0.0.1:8080", "127.0.0.1:65536"), [(5, 13, "bad-port")], id="port-too-high"),
        pytest.param(changed("127.0.0.1:8080", "127.0.0.1:0"), [(5, 13, "bad-port")], id="port-zero"),
        pytest.param(changed("127.0.0.1:8080", "localhost:8080"), [(5, 13, "bad-address")], id="host-to-listen"),
        pytest.param(changed("api.internal:80", "api.internal"), [(18, 12, "bad-address")], id="no-port"),
        pytest.param(
            changed('"api.internal:80"', '"api.internal:80" weight="2"'), [(18, 37, "wrong-type")], id="property"
        ),
        pytest.param(
            changed("  }\n}\nroutes", '  }\n  listener "http" {\n    address "127.0.0.1:81"\n  }\n}\nroutes'),
            [(7, 12, "duplicate-id")],
            id="duplicate-id",
        ),
        pytest.param(
            changed("  }\n}\nroutes", '  }\n  listener "b" {\n    address "127.0.0.1:08080"\n  }\n}\nroutes'),
            [(8, 13, "duplicate-address")],
            id="duplicate-address",
        ),
        pytest.param(changed('upstream "api"', 'upstream "apo"'), [(13, 14, "dangling-reference")], id="dangling"),
        pytest.param(
            changed('upstream "api"', 'upstream "api"\n    static-files {\n      root "/srv"\n    }'),
            [(14, 5, "conflict")],
            id="upstream-and-static-files",
        ),
        pytest.param(
            changed(
                'upstream "api"', 'upstream "api"\n    retry-policy {\n      max-attempts 0\n      x 1\n    }'
            ),
            [(15, 20, "out-of-range"), (16, 7, "unknown-key")],
            id="retry-policy",
        ),
        pytest.param(
            changed('target "api.internal:80"', 'target "a:1"\n    circuit-breaker {\n      x 1\n    }'),
            [(20, 7, "unknown-key")],
            id="circuit-breaker",
        ),
        pytest.param(VALID + 'namespace "n" {\n  x 1\n}', [(22, 3, "unknown-key")], id="namespace"),
        pytest.param(changed("system {", "system {\n  route-cache-size 0"), [(2, 20, "out-of-range")], id="zero"),
        pytest.param(VALID + 'waf {\n  mode "Detection"\n}', [(22, 8, "not-supported")], id="waf"),
        pytest.param('version "0.9"\n' + VALID, [(1, 9, "unsupported-version")], id="older-version"),
        pytest.param("version 1.0\n" + VALID, [(1, 9, "wrong-type")], id="version-without-quotes"),
        pytest.param('version "one"\n' + VALID, [(1, 9, "bad-value")], id="version-without-numbers"),
        pytest.param(VALID + 'cache {\n  backend "Disk"\n}', [(21, 1, "missing")], id="disk-without-path"),
        pytest.param(
            changed('target "api', 'load-balancing 3\n    target "api'), [(18, 20, "wrong-type")], id="balancing"
        ),
        pytest.param(changed('upstream "api"', 'upstream ""'), [(13, 14, "bad-value")], id="empty"),
        pytest.param(
            changed(
                'upstream "api"', "policies {\n      request-headers {\n        set {\n          X-A 1\n}\n}\n}"
            ),
            [(16, 15, "wrong-type")],
            id="header-value",
        ),
        pytest.param(
            changed('path-prefix "/"', "header"), [(11, 7, "missing")], id="only-one-problem-for-two-values"
        ),
        pytest.param(
            changed('upstream "api"', 'upstream "api"\n    inference { model-routing { model "x" } }'),
            [(14, 33, "missing")],
            id="missing-property",
        ),
    ],
)
def test_the_error_is_where_the_mistake_is(text: str, expected: list[tuple[int, int, str]]) -> None:
    assert told(text) == expected


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        (VALID + 'upstream "b" { target "b:1" }', "write it inside upstreams"),
        (VALID + "observabilty { }", "write observability"),
        (changed("api.internal:80", "http://api.internal:80/x"), 'write "api.internal:80"'),
        (changed("127.0.0.1:8080", ":8080"), 'write "0.0.0.0:8080"'),
        (changed('"127.0.0.1:8080"', "9443"), 'write "0.0.0.0:9443"'),
        (changed("127.0.0.1:8080", "localhost:9443"), 'write "127.0.0.1:9443"'),
        (changed("127.0.0.1:8080", "everywhere"), 'write an address such as "127.0.0.1:8080"'),
        (changed("api.internal:80", ":9443"), 'write "127.0.0.1:9443"'),
        (changed("api.internal:80", "-:80"), 'write an address such as "backend.internal:8080"'),
        (changed('upstream "api"', 'priority 3000000000; upstream "api"'), None),
        (changed('upstream "api"', 'priority "5"; upstream "api"'), "write 5"),
        (changed("system {", 'system {\n  worker-threads "4"'), "write 4"),
        (changed("system {", "system {\n  worker-threads 4.0"), "write 4"),
        (changed("system {", "system {\n  worker-threads 4.5"), None),
        (changed("system {", 'system {\n  graceful-shutdown-timeout-secs "2m"'), "write 120"),
        (changed("system {", 'system {\n  graceful-shutdown-timeout-secs "500ms"'), None),
        (changed("system {", "system {\n  graceful-shutdown-timeout-secs -1"), None),
        (changed("system {", 'system {\n  daemon "yes"'), "write #true"),
        (changed("system {", "system {\n  daemon 1"), None),
        (changed("system {", "system {\n  user 1000"), 'write "1000"'),
        (changed("system {", "system {\n  user #true"), "write a string"),
        (VALID + 'limits { max-body-size "10MB" }', "write 10485760"),
        (VALID + "cache { backend 7 }", 'write "memory"'),
        (
            VALID + 'observability { tracing { backend "otlp" { endpoint "localhost" } } }',
            'write "http://host.internal:8080/path"',
        ),
        ("version 1.0\n" + VALID, 'write "1.0"'),
        (changed('upstream "api"', 'upstream "apo"'), 'write "api"'),
        (changed('upstream "api"', 'upstream "elsewhere"'), 'add upstream "elsewhere"'),
        (changed('upstream "api"', f'upstream "{"a" * 100}"'), f'add upstream "{"a" * 58}…'),
        (changed('upstream "api"', 'priority "hihg"; upstream "api"'), 'write "high"'),
        (changed('    address "127.0.0.1:8080"\n', ""), 'write address "127.0.0.1:8080"'),
        (changed('    target "api.internal:80"\n', ""), 'write target "backend.internal:8080" { … }'),
        (
            changed('upstream "api"', 'upstream "api"; inference { model-routing { model "x" } }'),
            'write upstream="…"',
        ),
        (VALID + 'filters { filter "f" { type "agent" } }', "write agent and the id that it refers to"),
        (VALID + 'filters { filter "f" { type "geo" } }', 'write database-path "/path/to/file"'),
        (VALID.replace("system", "sistem", 1), "write system"),
        (changed("system {\n}\n", ""), "write system { … }"),
    ],
)
def test_the_suggestion_is_what_to_write(text: str, suggestion: str | None) -> None:
    first = errors(check(text))[0]

    assert first.suggestion == suggestion


def test_all_problems_are_of_level_2_and_in_order() -> None:
    problems = check('version "0.1"\nlisteners { x }\nfoo\nsystem { daemon 1; user 1 }')

    assert {problem.level for problem in problems} == {Level.SCHEMA}
    places = [(problem.line, problem.column) for problem in problems]
    assert places == sorted(places)
    assert len(places) == 6


def test_two_listeners_on_one_line_still_clash() -> None:
    text = 'listeners { listener "a" { address "[::1]:80" }; listener "b" { address "[0::1]:80" } }; system'

    assert told(text) == [(1, 73, "duplicate-address")]


def test_a_low_priority_route_needs_no_match() -> None:
    for priority in ('"low"', '"LOW"', "10"):
        text = changed('    matches {\n      path-prefix "/"\n    }\n', f"    priority {priority}\n")

        assert told(text) == []


def test_a_misspelled_type_of_a_filter_is_the_only_problem() -> None:
    text = VALID + 'filters { filter "f" { type "rate-limt"; max-rps 5 } }'

    assert [problem.code for problem in check(text)] == ["unknown-value"]


def test_a_firewall_that_is_off_is_accepted() -> None:
    assert check(VALID + 'waf { mode "OFF" }') == []


@pytest.mark.parametrize(
    ("listening", "taken"),
    [
        ("0.0.0.0:8080", True),
        ("127.0.0.1:8080", True),
        ("127.0.0.2:8080", False),
        ("0.0.0.0:8081", False),
        ("[::]:8080", False),
    ],
)
def test_an_address_of_all_interfaces_takes_its_port(listening: str, taken: bool) -> None:
    text = changed("  }\n}\nroutes", f'  }}\n  listener "b" {{\n    address "{listening}"\n  }}\n}}\nroutes')

    assert told(text) == ([(8, 13, "duplicate-address")] if taken else [])


@pytest.mark.parametrize("protocol", ["https", "HTTPS", "h2", "h3"])
def test_a_listener_with_tls_needs_a_certificate(protocol: str) -> None:
    (problem,) = check(changed('8080"\n', f'8080"\n    protocol "{protocol}"\n'))

    assert (problem.line, problem.column, problem.code) == (4, 3, "missing")
    assert problem.message == f"expected tls in listener where protocol is {protocol.lower()}, got none"
    assert problem.suggestion == 'write tls { cert-file "/path/to/file"; key-file "/path/to/file" }'


@pytest.mark.parametrize("protocol", ["", "https", "tls"])
def test_a_protocol_that_cannot_be_read_needs_nothing(protocol: str) -> None:
    parsed = kdl.parse(changed('8080"\n', f'8080"\n    protocol {protocol}/\n'))

    assert [problem.code for problem in check_schema(parsed.document)] in ([], ["unknown-value"])


def test_a_bad_pattern_is_an_error_that_says_why() -> None:
    (problem,) = check(changed('path-prefix "/"', 'path-regex "/users/{id}"'))

    assert (problem.line, problem.column, problem.code) == (11, 18, "bad-value")
    assert problem.message == (
        'expected a regular expression for path-regex, got "/users/{id}": {id} is not a repetition such as {2,3}'
    )


@pytest.mark.parametrize(("pattern", "code"), [('""', "bad-value"), ("5", "wrong-type")])
def test_a_pattern_is_a_text_that_is_not_empty(pattern: str, code: str) -> None:
    (problem,) = check(changed('path-prefix "/"', f"path-regex {pattern}"))

    assert problem.code == code


def test_what_takes_an_address_is_named() -> None:
    text = changed("  }\n}\nroutes", '  }\n  listener "b" {\n    address "0.0.0.0:8080"\n  }\n}\nroutes')

    (problem,) = check(text)

    assert problem.message.endswith('got "0.0.0.0:8080", which is taken on line 5 by "127.0.0.1:8080"')


def test_a_value_is_shortened_in_a_message() -> None:
    (problem,) = check(changed("api.internal:80", "x" * 500))

    assert len(problem.message) < 200


def test_a_name_is_shortened_in_a_message() -> None:
    (problem,) = check(VALID + '"' + "\\n" * 500 + '" 1')

    assert len(problem.message) < 200
    assert "\n" not in problem.message
