"""A document for each warning: what the proxy silently ignores, and what it uses instead."""

from __future__ import annotations

import pytest

from sentinel.core.proxy.problem import Severity
from tests.core.proxy.documents import check

VALID = """\
system { }
listeners { listener "http" { address "127.0.0.1:8080" } }
routes { route "all" { matches { path-prefix "/" }; upstream "api" } }
upstreams { upstream "api" { target "api.internal:80" } }
"""


def upstream(text: str) -> str:
    return VALID.replace('target "api.internal:80"', f'target "api.internal:80"; {text}')


def listener(text: str) -> str:
    return VALID.replace('address "127.0.0.1:8080"', f'address "127.0.0.1:8080"; {text}')


def route(text: str) -> str:
    return VALID.replace('upstream "api" }', f'upstream "api"; {text} }}', 1)


@pytest.mark.parametrize(
    ("text", "code", "message", "suggestion"),
    [
        pytest.param(
            upstream('load-balancing "least-connections"'),
            "ignored-value",
            'got "least-connections"; the proxy uses round_robin instead',
            'write "least_connections"',
            id="hyphenated-load-balancing",
        ),
        pytest.param(
            upstream('load-balancing "ip-hash"'),
            "ignored-value",
            "the proxy uses round_robin instead",
            'write "ip_hash"',
            id="hyphenated-ip-hash",
        ),
        pytest.param(
            upstream('load-balancing "fastest"'),
            "ignored-value",
            "the proxy uses round_robin instead",
            None,
            id="unknown-load-balancing",
        ),
        pytest.param(
            upstream("timeouts { connect-secs 5 }"),
            "ignored-key",
            "expected connect, got connect-secs, which the proxy never reads; it uses 10 for connect",
            "write connect 5",
            id="connect-secs",
        ),
        pytest.param(
            upstream("timeouts { read 3; read-secs }"),
            "ignored-key",
            "it uses 3 for read",
            "write read",
            id="read-secs-beside-read",
        ),
        pytest.param(
            upstream("connection-pool { idle-timeout-secs 5 }"),
            "ignored-key",
            "it uses 60 for idle-timeout",
            "write idle-timeout 5",
            id="idle-timeout-secs",
        ),
        pytest.param(
            upstream("connection-pool { max-lifetime-secs 5 }"),
            "ignored-key",
            "it has no max-lifetime",
            "write max-lifetime 5",
            id="max-lifetime-secs",
        ),
        pytest.param(
            listener('tls { cert-file "c"; key-file "k" }'),
            "ignored-key",
            "expected protocol https in a listener with tls, got http; the proxy speaks plain HTTP there",
            'write protocol "https"',
            id="tls-without-protocol",
        ),
        pytest.param(
            listener('protocol "http"; tls { cert-file "c"; key-file "k" }'),
            "ignored-key",
            "the proxy speaks plain HTTP there",
            'write protocol "https"',
            id="tls-with-http",
        ),
        pytest.param(
            listener('protocol "https"; tls { cert-file "c"; key-file "k"; client-auth #true }'),
            "ignored-value",
            "expected ca-file where client-auth is #true, got none; the proxy asks no client for a certificate",
            'write ca-file "/path/to/file"',
            id="client-auth-without-ca",
        ),
        pytest.param(
            upstream('tls { client-cert "c" }'),
            "ignored-key",
            "expected client-key or key beside client-cert, got none; the proxy ignores client-cert",
            'write client-key "/path/to/file"',
            id="client-cert-without-key",
        ),
        pytest.param(
            upstream('tls { key secret="k" }'),
            "ignored-key",
            "expected client-cert or cert beside key, got none; the proxy ignores key",
            'write client-cert "/path/to/file"',
            id="key-without-cert",
        ),
        pytest.param(
            VALID + 'observability { metrics { address "0.0.0.0:8080" } }',
            "duplicate-address",
            'got "0.0.0.0:8080", which is taken on line 2; the proxy cannot serve metrics',
            "write another port",
            id="metrics-at-a-listener",
        ),
        pytest.param(
            VALID.replace("8080", "9090") + "observability { metrics }",
            "duplicate-address",
            'got "0.0.0.0:9090", which is taken on line 2',
            "write another port",
            id="metrics-by-default-at-a-listener",
        ),
        pytest.param(
            VALID + "limits { max-header-size-bytes 4096 }",
            "ignored-key",
            "it uses 8192 for max-header-size",
            "write max-header-size 4096",
            id="max-header-size-bytes",
        ),
        pytest.param(
            VALID + "limits { max-body-size-bytes 1 }",
            "ignored-key",
            "it uses 10485760 for max-body-size",
            "write max-body-size 1",
            id="max-body-size-bytes",
        ),
        pytest.param(
            route("policies { timeout-secs 3 }"),
            "ignored-key",
            "got timeout-secs, which the proxy never reads; it uses the timeouts of the upstream",
            "write timeouts in the upstream",
            id="policies-timeout-secs",
        ),
        pytest.param(
            route('policies { failure-mode "closed" }'),
            "ignored-key",
            "it uses the failure-mode of each agent",
            "write failure-mode in the agent",
            id="policies-failure-mode",
        ),
        pytest.param(
            route('policies { max-body-size "10MB" }'),
            "ignored-key",
            "it uses the max-body-size of limits",
            "write max-body-size in limits",
            id="policies-max-body-size",
        ),
        pytest.param(
            route("policies { rate-limit { requests-per-second 5 } }"),
            "ignored-key",
            "it uses no limit but those of its filters",
            "write a filter of type rate-limit",
            id="policies-rate-limit",
        ),
        pytest.param(
            route("circuit-breaker { failure-threshold 5 }"),
            "ignored-key",
            "it uses the circuit-breaker of the upstream",
            "write circuit-breaker in the upstream",
            id="route-circuit-breaker",
        ),
        pytest.param(
            route("websocket { enabled #true }"),
            "ignored-key",
            "got a block, which the proxy never reads; it uses #false",
            "write websocket #true",
            id="websocket-block",
        ),
        pytest.param(
            VALID.replace('path-prefix "/"', 'method "GET" "POST" "PUT"'),
            "ignored-argument",
            'the proxy uses "GET" and ignores "POST"',
            "write a route for each method",
            id="second-method",
        ),
        pytest.param(
            VALID.replace("system { }", "system { worker-threads 2 4 }"),
            "ignored-argument",
            "expected 1 value after worker-threads, got 2; the proxy uses 2 and ignores 4",
            "remove what is ignored",
            id="second-value",
        ),
        pytest.param(
            upstream("timeouts { connect 5 read 10 }"),
            "ignored-argument",
            'expected 1 value after connect, got 3; the proxy uses 5 and ignores "read"',
            "write ; before read, or start a new line",
            id="second-key-on-a-line",
        ),
        pytest.param(
            VALID.replace('target "api.internal:80"', 'target "api.internal:80" weight 2'),
            "ignored-argument",
            'the proxy uses "api.internal:80" and ignores "weight"',
            "write weight=2",
            id="property-without-equals",
        ),
        pytest.param(
            VALID.replace('target "api.internal:80"', 'target "api.internal:80" weight'),
            "ignored-argument",
            'the proxy uses "api.internal:80" and ignores "weight"',
            "remove what is ignored",
            id="name-of-a-property",
        ),
        pytest.param(
            VALID.replace("system { }", 'system "main"'),
            "ignored-argument",
            'expected no value after system, got "main", which the proxy ignores',
            "write what belongs to it between { and }",
            id="value-of-a-block",
        ),
        pytest.param(
            VALID.replace("system { }", "system { wroker-threads 2 }"),
            "unknown-key",
            "got wroker-threads, which the proxy ignores; it uses 0 for worker-threads",
            "write worker-threads",
            id="misspelled-key",
        ),
        pytest.param(
            VALID.replace("system { }", "system { worker-threads: 2; worker-threads 3 }"),
            "unknown-key",
            "got worker-threads:, which the proxy ignores; it uses 3 for worker-threads",
            "write worker-threads",
            id="key-with-a-colon",
        ),
        pytest.param(
            VALID.replace("system { }", "system { pid_file 2 }"),
            "unknown-key",
            "got pid_file, which the proxy ignores",
            "write pid-file",
            id="misspelled-key-without-a-default",
        ),
        pytest.param(
            VALID.replace("system { }", "system { colour 2 }"),
            "unknown-key",
            "got colour, which the proxy ignores",
            "remove it",
            id="unknown-key",
        ),
        pytest.param(
            VALID.replace("system { }", 'system { worker-threads 2 { } ; user "a" { b 1 } }'),
            "unknown-key",
            "expected no block after user, got b, which the proxy ignores",
            "remove the block",
            id="block-of-a-value",
        ),
        pytest.param(
            route("agents { }"),
            "unknown-key",
            "got agents, which the proxy ignores",
            None,
            id="unknown-child-of-a-route",
        ),
        pytest.param(
            VALID.replace('target "api.internal:80"', 'target "api.internal:80" wieght=3'),
            "unknown-key",
            "expected address= or weight= after target, got wieght=, which the proxy ignores",
            "write weight=",
            id="misspelled-property",
        ),
        pytest.param(
            VALID.replace('{ address "127.0.0.1:8080" }', 'protocol="http" { address "127.0.0.1:8080" }'),
            "unknown-key",
            "expected no property after listener, got protocol=",
            'write it between { and }: protocol "http"',
            id="property-instead-of-a-child",
        ),
        pytest.param(
            VALID + 'agents { agent "a" { type "auth"; unix-socket "/run/a.sock" } }',
            "unknown-key",
            "got type, which the proxy ignores",
            'write type="auth" on the line of agent',
            id="child-instead-of-a-property",
        ),
        pytest.param(
            VALID + 'agents { agent "a" { transport "unix_socket" { path "/x" }; unix-socket "/run/a.sock" } }',
            "ignored-key",
            "got transport, which the proxy never reads",
            "write unix-socket, grpc or http",
            id="transport-of-2025",
        ),
        pytest.param(
            VALID + 'filters { filter "f" { type "cors"; max-rps 5 } }',
            "ignored-key",
            "expected max-rps only where type is rate-limit; the proxy ignores it here",
            "remove it",
            id="key-of-another-filter",
        ),
        pytest.param(
            VALID.replace("system { }", "server { }"),
            "deprecated",
            "expected system, got its former name server, which the proxy still reads",
            "write system",
            id="server",
        ),
        pytest.param(
            upstream("timeouts { read 3; read 4 }"),
            "repeated",
            "the proxy uses only the first one",
            "remove one of them",
            id="key-twice",
        ),
        pytest.param(
            VALID + "system { }",
            "repeated",
            "expected system once, got it on line 1, too; the proxy uses only the last one",
            "remove one of them",
            id="block-twice",
        ),
        pytest.param(
            VALID.replace("upstreams {", 'upstreams { upstream "api" { address "a:1" };'),
            "duplicate-id",
            'got "api", which is taken on line 4; the proxy uses the last one',
            "rename or remove one of them",
            id="upstream-twice-in-one-block",
        ),
        pytest.param(
            VALID + 'filters { filter "f" { type "cors" }; filter "f" { type "log" } }',
            "duplicate-id",
            "the proxy uses the last one",
            "rename or remove one of them",
            id="filter-twice-in-one-block",
        ),
        pytest.param(
            VALID + 'upstreams { upstream "spare" { target "spare.internal:80" } }',
            "unused",
            'expected a route to use the upstream "spare", got none',
            "write upstream in a route, or remove it",
            id="unused-upstream",
        ),
        pytest.param(
            VALID + 'routes { route "none" { matches { path "/none" } } }',
            "no-handler",
            "expected upstream, static-files or builtin-handler in a route, got none",
            "write upstream with the id of an upstream",
            id="route-without-a-handler",
        ),
        pytest.param(
            'schema-version "1.1"\n' + VALID,
            "newer-version",
            'expected version 1.0 of the schema, got "1.1"; the proxy reads it as 1.0',
            'write "1.0"',
            id="newer-version",
        ),
    ],
)
def test_the_warning_names_what_the_proxy_does(text: str, code: str, message: str, suggestion: str | None) -> None:
    (problem,) = check(text)

    assert (problem.severity, problem.code) == (Severity.WARNING, code)
    assert message in problem.message
    assert suggestion is None or problem.suggestion == suggestion


def test_the_document_of_these_tests_has_no_problem() -> None:
    assert check(VALID) == []


@pytest.mark.parametrize(
    "text",
    [
        listener('protocol "https"; tls { cert-file "c"; key-file "k"; client-auth #true; ca-file "ca" }'),
        listener('protocol "https"; tls { cert-file "c"; key-file "k"; client-auth #false }'),
        upstream('tls { client-cert "c"; key secret="k" }'),
        VALID + 'observability { metrics { address "127.0.0.1:8080"; enabled #false } }',
        VALID + 'observability { metrics { address "127.0.0.2:8080" } }',
        VALID + "observability { metrics { enabled #true } }",
    ],
)
def test_what_the_proxy_uses_is_no_warning(text: str) -> None:
    assert check(text) == []


@pytest.mark.parametrize("address", ["", '"x"', "5"])
def test_a_bad_address_of_metrics_is_one_problem(address: str) -> None:
    (problem,) = check(VALID + f"observability {{ metrics {{ address {address} }} }}")

    assert problem.severity is Severity.ERROR
