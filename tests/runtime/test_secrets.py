"""Which secrets are masked: all that are in use, or were until just now."""

from __future__ import annotations

import pytest

from sentinel.runtime.secrets import KEPT, Redactor
from tests.support.clocks import MonotonicSeconds

MINUTE = 60.0
KEPT_SECONDS = KEPT.total_seconds()
"""For this long, a secret stays masked after its use."""


@pytest.fixture
def seconds() -> MonotonicSeconds:
    return MonotonicSeconds()


@pytest.fixture
def redactor(seconds: MonotonicSeconds) -> Redactor:
    return Redactor(["permanent"], now=seconds)


def masked(redactor: Redactor, *texts: str) -> list[bool]:
    return [redactor.redact(text) == "***" for text in texts]


def test_a_secret_is_forgotten_some_minutes_after_its_last_use(
    redactor: Redactor, seconds: MonotonicSeconds
) -> None:
    redactor.set_in_use("config", ["one-secret"])
    seconds.now += KEPT_SECONDS
    redactor.set_in_use("config", ["two-secret"])
    seconds.now += KEPT_SECONDS - 1
    redactor.set_in_use("config", ["two-secret"])
    assert masked(redactor, "one-secret", "two-secret") == [True, True]

    seconds.now += 1
    redactor.set_in_use("config", ["two-secret"])

    assert masked(redactor, "one-secret", "two-secret", "permanent") == [False, True, True]


def test_a_secret_of_two_users_is_masked_until_both_are_gone(
    redactor: Redactor, seconds: MonotonicSeconds
) -> None:
    redactor.set_in_use("a", ["one-secret"])
    redactor.set_in_use("b", ["one-secret"])
    redactor.set_in_use("a", [])
    seconds.now += KEPT_SECONDS
    redactor.set_in_use("c", ["other-secret"])
    assert masked(redactor, "one-secret") == [True]

    redactor.set_in_use("b", [])
    redactor.set_in_use("c", [])
    assert masked(redactor, "one-secret") == [True]

    seconds.now += KEPT_SECONDS
    redactor.set_in_use("d", [])
    assert masked(redactor, "one-secret") == [False]


def test_a_secret_that_is_used_again_counts_from_its_last_use(
    redactor: Redactor, seconds: MonotonicSeconds
) -> None:
    redactor.set_in_use("config", ["one-secret"])
    redactor.set_in_use("config", [])
    seconds.now += KEPT_SECONDS - 1
    redactor.set_in_use("config", ["one-secret"])
    redactor.set_in_use("config", [])
    seconds.now += 1

    redactor.set_in_use("config", ["other-secret"])

    assert masked(redactor, "one-secret") == [True]


def test_the_password_in_a_url_is_forgotten_with_it(redactor: Redactor, seconds: MonotonicSeconds) -> None:
    redactor.set_in_use("config", ["amqp://user:pass%2Fword@broker"])
    assert masked(redactor, "pass%2Fword", "pass/word") == [True, True]

    redactor.set_in_use("config", [])
    seconds.now += KEPT_SECONDS
    redactor.set_in_use("config", [])

    assert masked(redactor, "pass/word") == [False]


def test_a_permanent_secret_stays_if_a_user_releases_it(redactor: Redactor, seconds: MonotonicSeconds) -> None:
    redactor.set_in_use("config", ["permanent"])
    redactor.set_in_use("config", [])
    seconds.now += KEPT_SECONDS
    redactor.set_in_use("config", ["another"])

    assert masked(redactor, "permanent") == [True]


def test_old_tokens_of_a_client_are_forgotten(redactor: Redactor, seconds: MonotonicSeconds) -> None:
    add = redactor.rotating()
    for number in range(100):
        add("client-key")
        add(f"token-{number:03}")
        seconds.now += MINUTE

    assert masked(redactor, "token-099", "token-093", "token-000", "client-key") == [True, True, False, True]
    assert repr(redactor) == "Redactor(19 secrets)"


def test_clients_do_not_replace_the_tokens_of_each_other(redactor: Redactor, seconds: MonotonicSeconds) -> None:
    redactor.rotating()("first-token")
    add = redactor.rotating()
    for number in range(100):
        add(f"token-{number:03}")
        seconds.now += MINUTE

    assert masked(redactor, "first-token") == [True]
