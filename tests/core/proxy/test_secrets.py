"""Which secrets a configuration needs."""

from __future__ import annotations

import pytest

from sentinel.core.kdl import Place, parse
from sentinel.core.proxy.secrets import needed_secrets, secret_uses

SEED = """\
listeners {
    listener "https" {
        address "0.0.0.0:443"
        tls {
            cert secret="api-cert"
            sni { hostnames "b.example"; cert env="B_CERT"; key env="B_KEY" }
            key secret="api-key"
        }
    }
}
upstreams {
    upstream "api" {
        target "api:443"
        tls {
            cert env="API_CERT_PATH"
            key vault="secret/data/api/tls#key"
        }
    }
    upstream "again" {
        tls { cert secret="api-cert"; key secret="api-key" }
    }
}
"""


def names(text: str) -> list[str]:
    return [str(needed.reference) for needed in needed_secrets(parse(text).document)]


def upstream(entry: str) -> str:
    return f'upstreams {{ upstream "api" {{ tls {{ {entry} }} }} }}'


def test_secrets_are_listed_once_in_the_order_of_the_text() -> None:
    assert names(SEED) == [
        "secret:api-cert",
        "env:B_CERT",
        "env:B_KEY",
        "secret:api-key",
        "env:API_CERT_PATH",
        "vault:secret/data/api/tls#key",
    ]


def test_a_secret_has_the_place_of_its_first_name() -> None:
    places = [needed.place for needed in needed_secrets(parse(SEED).document)]

    assert places[0] == Place(5, 25)
    assert places[3] == Place(7, 24)


def test_namespaces_and_their_services_need_secrets_too() -> None:
    text = """\
namespace "shop" {
    listeners { listener "a" { tls { cert secret="a"; key secret="b" } } }
    service "checkout" {
        listener { tls { cert secret="c"; key secret="d" } }
        upstreams { upstream "u" { tls { cert secret="e" } } }
        service "no" { listener { tls { cert secret="never" } } }
    }
}
service "no" { listener { tls { cert secret="never" } } }
"""

    assert names(text) == ["secret:a", "secret:b", "secret:c", "secret:d", "secret:e"]


@pytest.mark.parametrize(
    "entry",
    [
        'cert secret="a" env="B"',
        'cert "a.pem" secret="a"',
        'cert secret="a/b"',
        'cert env="A-B"',
        "cert secret=1",
        'cert secret=""',
        'cert secret=" a"',
        'cert secret="a\\nb"',
        'cert vault="secret/data/api"',
        'cert vault="#key"',
        'cert vault="secret/data/api#"',
        'cert vault="secret#a#b"',
    ],
)
def test_what_is_not_a_reference_is_left_out(entry: str) -> None:
    uses = list(secret_uses(parse(upstream(entry)).document))

    assert names(upstream(entry)) == []
    assert [use.reference for use in uses] == [None]
    assert uses[0].place == Place(1, 36)


@pytest.mark.parametrize(
    "text",
    [
        upstream('cert "a.pem"'),
        upstream('client-cert secret="a"'),
        upstream('sni { cert secret="a" }'),
        'upstream "api" { tls { cert secret="a" } }',
        'upstreams { cert secret="a"; upstream "api" { cert secret="a" } }',
        'routes { route "r" { tls { cert secret="a" } } }',
        'listeners { listener "a" { /-tls { cert secret="a" } } }',
    ],
)
def test_only_certificates_and_keys_of_tls_blocks_name_secrets(text: str) -> None:
    assert list(secret_uses(parse(text).document)) == []


@pytest.mark.parametrize(
    "entry", ['cert secret="a" mode="x"', 'cert mode="x" secret="a"', 'cert secret="a" { x }']
)
def test_what_the_proxy_ignores_does_not_hide_a_secret(entry: str) -> None:
    assert names(upstream(entry)) == ["secret:a"]


def test_of_a_repeated_property_the_last_counts() -> None:
    assert names(upstream('cert secret="a" secret="b"')) == ["secret:b"]
