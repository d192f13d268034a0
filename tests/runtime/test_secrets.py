"""Which secrets are masked: all that are in use, or were until just now."""

from __future__ import annotations

import pytest

from sentinel.runtime.secrets import KEPT, Redactor

MINUTE = 60.0


class Seconds:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now

    def pass_kept(self) -> None:
        """Let the time pass for which a secret stays masked after its use."""
        self.now += KEPT.total_seconds()


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def redactor(seconds: Seconds) -> Redactor:
    return Redactor(["permanent"], now=seconds)


def masked(redactor: Redactor, *texts: str) -> list[bool]:
    return [redactor.redact(text) == "***" for text in texts]


def test_a_secret_is_forgotten_some_minutes_after_its_last_use(redactor: Redactor, seconds: Seconds) -> None:
    redactor.set_in_use("config", ["one-secret"])
    seconds.pass_kept()
    redactor.set_in_use("config", ["two-secret"])
    seconds.now += KEPT.total_seconds() - 1
    redactor.set_in_use("config", ["two-secret"])
    assert masked(redactor, "one-secret", "two-secret") == [True, True]

    seconds.now += 1
    redactor.set_in_use("config", ["two-secret"])

    assert masked(redactor, "one-secret", "two-secret", "permanent") == [False, True, True]


def test_a_secret_of_two_users_is_masked_until_both_are_gone(redactor: Redactor, seconds: Seconds) -> None:
    redactor.set_in_use("a", ["one-secret"])
    redactor.set_in_use("b", ["one-secret"])
    redactor.set_in_use("a", [])
    seconds.pass_kept()
    redactor.set_in_use("c", ["other-secret"])
    assert masked(redactor, "one-secret") == [True]

    redactor.set_in_use("b", [])
    redactor.set_in_use("c", [])
    assert masked(redactor, "one-secret") == [True]

    seconds.pass_kept()
    redactor.set_in_use("d", [])
    assert masked(redactor, "one-secret") == [False]


def test_a_secret_that_is_used_again_counts_from_its_last_use(redactor: Redactor, seconds: Seconds) -> None:
    redactor.set_in_use("config", ["one-secret"])
    redactor.set_in_use("config", [])
    seconds.now += KEPT.total_seconds() - 1
    redactor.set_in_use("config", ["one-secret"])
    redactor.set_in_use("config", [])
    seconds.now += 1

    redactor.set_in_use("config", ["other-secret"])

    assert masked(redactor, "one-secret") == [True]


def test_the_password_in_a_url_is_forgotten_with_it(redactor: Redactor, seconds: Seconds) -> None:
    redactor.set_in_use("config", ["amqp://user:pass%2Fword@broker"])
    assert masked(redactor, "pass%2Fword", "pass/word") == [True, True]

    redactor.set_in_use("config", [])
    seconds.pass_kept()
    redactor.set_in_use("config", [])

    assert masked(redactor, "pass/word") == [False]


def test_a_permanent_secret_stays_if_a_user_releases_it(redactor: Redactor, seconds: Seconds) -> None:
    redactor.set_in_use("config", ["permanent"])
    redactor.set_in_use("config", [])
    seconds.pass_kept()
    redactor.set_in_use("config", ["another"])

    assert masked(redactor, "permanent") == [True]


def test_old_tokens_of_a_client_are_forgotten(redactor: Redactor, seconds: Seconds) -> None:
    add = redactor.rotating()
    for number in range(100):
        add("client-key")
        add(f"token-{number:03}")
        seconds.now += MINUTE

    assert masked(redactor, "token-099", "token-093", "token-000", "client-key") == [True, True, False, True]
    assert repr(redactor) == "Redactor(19 secrets)"


def test_clients_do_not_replace_the_tokens_of_each_other(redactor: Redactor, seconds: Seconds) -> None:
    redactor.rotating()("first-token")
    add = redactor.rotating()
    for number in range(100):
        add(f"token-{number:03}")
        seconds.now += MINUTE

    assert masked(redactor, "first-token") == [True]
