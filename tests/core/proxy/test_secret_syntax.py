"""The syntax of secrets: where it is allowed, and that a secret has exactly one source."""

from __future__ import annotations

import pytest

from tests.core.proxy.documents import check, errors

LISTENER = """\
system
listeners {
  listener "tls" {
    address "127.0.0.1:8443"
    protocol "https"
    tls {
      %s
    }
  }
}
"""
UPSTREAM = """\
system
listeners { listener "http" { address "127.0.0.1:8080" } }
routes { route "all" { priority "low"; upstream "api" } }
upstreams {
  upstream "api" {
    target "api.internal:443"
    tls {
      %s
    }
  }
}
"""


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (LISTENER, 'cert secret="api-cert"; key secret="api-key"'),
        (LISTENER, 'cert env="API_CERT_PATH"; key vault="secret/data/api/tls#key"'),
        (LISTENER, 'cert-file "/etc/tls.crt"; key env="KEY"'),
        (LISTENER, 'cert secret="a"; key-file "/etc/tls.key"'),
        (LISTENER, 'cert-file "a"; key-file "b"; sni { hostnames "x"; cert secret="a"; key secret="b" }'),
        (UPSTREAM, 'cert secret="api-cert"; key secret="api-key"'),
        (UPSTREAM, 'cert env="API_CERT_PATH"; key vault="secret/data/api/tls#key"'),
        (UPSTREAM, 'sni "x"; insecure-skip-verify #true; client-cert "a"; client-key "b"; ca-cert "c"'),
    ],
)
def test_a_secret_stands_for_a_file(template: str, text: str) -> None:
    assert check(template % text) == []


@pytest.mark.parametrize(
    ("text", "code", "column"),
    [
        ('key secret="a"; cert', "missing", 23),
        ('key secret="a"; cert secret="a" env="B"', "bad-secret", 39),
        ('key secret="a"; cert "a.pem"', "bad-secret", 28),
        ('key secret="a"; cert secret=""', "bad-value", 35),
        ('key secret="a"; cert secret="a b"', "bad-value", 35),
        ('key secret="a"; cert secret=1', "wrong-type", 35),
        ('key secret="a"; cert env="1A"', "bad-value", 32),
        ('key secret="a"; cert vault="secret/data/api"', "bad-value", 34),
        ('key secret="a"; cert vault="#key"', "bad-value", 34),
        ('key secret="a"; cert secert="a"', "missing", 23),
    ],
)
def test_a_bad_source_is_an_error(text: str, code: str, column: int) -> None:
    for template, line in ((LISTENER, 7), (UPSTREAM, 8)):
        (problem,) = errors(check(template % text))

        assert (problem.line, problem.column, problem.code) == (line, column, code)


def test_a_source_that_is_written_twice_is_one_source() -> None:
    assert errors(check(UPSTREAM % 'cert secret="a" secret="b"')) == []


def test_a_certificate_without_a_key_is_an_error_of_its_block() -> None:
    (problem,) = errors(check(LISTENER % 'cert secret="a"'))

    assert (problem.line, problem.code) == (6, "missing")
    assert "key-file" in problem.message


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (LISTENER, 'cert secret="a"; cert-file "b"; key secret="c"'),
        (LISTENER, 'cert secret="a"; key-file "b"; key secret="c"'),
        (UPSTREAM, 'cert secret="a"; client-cert "b"'),
        (UPSTREAM, 'key secret="a"; client-key "b"'),
    ],
)
def test_a_secret_and_a_file_for_the_same_are_an_error(template: str, text: str) -> None:
    assert [problem.code for problem in errors(check(template % text))] == ["conflict"]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ('acme { email "a@b"; domains "a.example" }', []),
        ('acme { email "a@b"; domains "*.a.example" }', ["conflict"]),
        ('acme { email "a@b"; domains 1 "*.a.example"; challenge-type "http" }', ["wrong-type", "conflict"]),
        ('acme { email "a@b"; domains "*.a.example"; challenge-type "dns-01" }', ["missing"]),
        (
            'acme { email "a@b"; domains "*.a"; challenge-type "DNS-01"; '
            'dns-provider { type "hetzner"; credentials-env "TOKEN" } }',
            [],
        ),
        (
            'acme { email "a@b"; domains "*.a"; challenge-type "dns-01"; dns-provider { type "webhook" } }',
            ["missing", "missing"],
        ),
        ('acme { email "a@b"; domains "a"; challenge-type "tls" }', ["unknown-value"]),
        ("acme { }", ["missing", "missing"]),
        (
            'acme { email "a"; domains "b" }; '
            'sni { hostnames "x"; priority-hostnames "y"; cert-file "a"; key-file "b" }',
            ["conflict"],
        ),
    ],
)
def test_certificates_that_are_obtained_need_what_the_proxy_asks_for(text: str, codes: list[str]) -> None:
    assert [problem.code for problem in errors(check(LISTENER % text))] == codes
