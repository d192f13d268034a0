"""Certificates and keys of a configuration."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sentinel.core.kdl import Place, parse
from sentinel.core.proxy.certificates import EXPIRES_SOON, check, pairs
from sentinel.core.proxy.facts import Certificate, Facts, PrivateKey, Unreadable
from sentinel.core.proxy.problem import Problem, Severity
from sentinel.runtime.secret_text import mask_secret_text

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LISTENER = """\
listeners {
    listener "https" {
        tls {
            cert secret="c"
            key secret="k"
        }
    }
}
"""


def certificate(
    key: str = "1", *, since: datetime = NOW - SECOND, until: datetime = NOW + EXPIRES_SOON, names: str = ""
) -> Certificate:
    return Certificate(since, until, key, tuple(names.split()))


def problems(
    *chain: Certificate, key: str = "1", text: str = LISTENER, now: datetime | None = NOW
) -> list[Problem]:
    facts = Facts(now=now, certificates={"secret:c": chain}, keys={"secret:k": PrivateKey(key)})
    return check(parse(text).document, facts)


def test_a_certificate_in_date_with_its_key_has_no_problems() -> None:
    assert problems(certificate()) == []
    assert problems(certificate(since=NOW)) == []


@pytest.mark.parametrize(
    ("since", "until", "code", "severity", "text"),
    [
        (
            NOW + SECOND,
            NOW + EXPIRES_SOON,
            "certificate-not-yet-valid",
            "error",
            "valid before 2026-05-01 12:00 UTC",
        ),
        (NOW - SECOND, NOW - SECOND, "certificate-expired", "error", "which expired at 2026-05-01 11:59 UTC"),
        (NOW, NOW, "certificate-expires-soon", "warning", "which expires at 2026-05-01 12:00 UTC"),
        (
            NOW,
            NOW + EXPIRES_SOON - SECOND,
            "certificate-expires-soon",
            "warning",
            "for another 30 days, got the secret c",
        ),
    ],
)
def test_dates_are_judged(since: datetime, until: datetime, code: str, severity: str, text: str) -> None:
    [found] = problems(certificate(since=since, until=until))

    assert (found.code, found.severity.value, found.line, found.column) == (code, severity, 4, 25)
    assert text in found.message


def test_every_certificate_of_a_chain_has_to_be_in_date() -> None:
    [found] = problems(certificate(), certificate("2", until=NOW - SECOND))

    assert found.code == "certificate-expired"
    assert "the secret c (certificate 2 of 2)" in found.message


def test_dates_are_not_judged_without_the_time() -> None:
    assert problems(certificate(until=NOW - SECOND), now=None) == []


def test_a_key_of_another_certificate_is_reported_at_the_key() -> None:
    [found] = problems(certificate(), key="2")

    assert (found.code, found.line, found.column) == ("certificate-key-mismatch", 5, 24)
    assert found.message == "expected the key of the secret c, got the secret k, which does not belong to it"
    assert found.suggestion is None


def test_a_chain_in_the_wrong_order_is_recognized_by_its_key() -> None:
    [found] = problems(certificate("2"), certificate("1"))

    assert found.code == "certificate-key-mismatch"
    assert found.suggestion == "the key belongs to a later certificate of the secret c; move that to the start"


def test_what_cannot_be_read_is_reported_once_for_each() -> None:
    facts = Facts(
        certificates={"secret:c": Unreadable("is empty")}, keys={"secret:k": Unreadable("needs a passphrase")}
    )

    found = check(parse(LISTENER + LISTENER).document, facts)

    assert [(each.code, each.line, each.message) for each in found] == [
        ("unreadable-certificate", 4, "expected a certificate in PEM, got the secret c, which is empty"),
        ("unreadable-key", 5, "expected a key in PEM, got the secret k, which needs a passphrase"),
    ]
    assert [mask_secret_text(each.message) for each in found] == [each.message for each in found]


@pytest.mark.parametrize(
    "facts",
    [
        Facts(now=NOW),
        Facts(now=NOW, keys={"secret:k": PrivateKey("2")}),
        Facts(now=NOW, certificates={"secret:c": ()}, keys={"secret:k": PrivateKey("2")}),
        Facts(now=NOW, certificates={"secret:c": (certificate(),)}),
        Facts(now=NOW, certificates={"secret:c": (certificate(),)}, keys={"secret:k": Unreadable("x")}),
    ],
)
def test_what_is_not_known_is_not_judged(facts: Facts) -> None:
    found = check(parse(LISTENER).document, facts)

    assert {each.code for each in found} <= {"unreadable-key"}


@pytest.mark.parametrize(
    ("names", "hostnames", "uncovered"),
    [
        ("a.example b.example", '"a.example" "B.example"', None),
        ("*.example", '"a.example" "*.example"', None),
        ("*.example", '"a.b.example"', "a.b.example"),
        ("a.example", '"b.example" 1', "b.example"),
        ("", '"b.example"', None),
        ("localhost", '"localhost"', None),
        ("a.example", '"a.example"; priority-hostnames "b.example"', "b.example"),
    ],
)
def test_a_certificate_has_the_host_names_it_is_chosen_for(
    names: str, hostnames: str, uncovered: str | None
) -> None:
    text = LISTENER.replace("tls {", f"tls {{ sni {{ hostnames {hostnames};").replace(
        "        }\n", "        }}\n", 1
    )

    found = problems(certificate(names=names), text=text)

    assert parse(text).is_valid
    assert [(each.code, each.severity) for each in found] == (
        [("certificate-name", Severity.WARNING)] if uncovered else []
    )
    assert all(f"expected a certificate for {uncovered}, got the secret c" in each.message for each in found)


def test_a_message_lists_only_a_few_names() -> None:
    text = LISTENER.replace("tls {", 'tls { sni { hostnames "x";').replace("        }\n", "        }}\n", 1)

    [found] = problems(certificate(names="a b c d e"), text=text)

    assert found.message.endswith("which is for a, b, c and 2 more")


def test_certificates_and_keys_are_found_under_each_name_and_place() -> None:
    text = """\
listeners { listener "a" { tls { cert-file "/a.crt"; key env="A"; sni { key-file "/b.key" } } } }
upstreams { upstream "b" { tls { client-cert "/c.crt"; client-key 1; ca-cert "/d.crt"; cert-file "/e" } } }
upstreams { upstream "c" { tls { cert secret=1; cert vault="v#c"; client-cert "/f.crt"; key "/g" } } }
"""

    found = [
        (pair.certificate and pair.certificate.reference, pair.key and pair.key.reference)
        for pair in pairs(parse(text).document)
    ]

    assert found == [
        ("file:/a.crt", "env:A"),
        (None, "file:/b.key"),
        ("file:/c.crt", None),
        ("vault:v#c", None),
    ]


def test_a_file_has_the_place_of_its_path() -> None:
    [pair] = pairs(parse('upstreams { upstream "b" { tls { client-key "/k" } } }').document)

    assert pair.key is not None
    assert pair.key.place == Place(1, 45)
