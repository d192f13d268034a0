from __future__ import annotations

from datetime import datetime, timedelta

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from sentinel.core.hub import session_token
from sentinel.core.hub.instance import Deregistered, DrainRequested, Instance, Registered
from sentinel.core.hub.session_token import SessionClaims, TokenStatus
from tests.core.hub.instances import START, registered

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
REGISTERED = registered()
REMOVED = registered(DrainRequested(), Deregistered())
CLAIMS = session_token.issue("edge-1", REGISTERED, START, HOUR)


def judge(
    claims: SessionClaims = CLAIMS,
    instance: Instance = REGISTERED,
    *,
    called_id: str = "edge-1",
    now: datetime = START,
) -> TokenStatus:
    return session_token.judge(claims, instance, called_id=called_id, now=now)


def test_a_token_names_the_session_and_its_end() -> None:
    assert (
        SessionClaims(instance_id="edge-1", incarnation=1, session=1, issued=START, expires=START + HOUR) == CLAIMS
    )


def test_its_times_are_whole_seconds() -> None:
    claims = session_token.issue("edge-1", REGISTERED, START + timedelta(microseconds=1_999_999), HOUR)

    assert (claims.issued, claims.expires) == (START + SECOND, START + SECOND + HOUR)


@pytest.mark.parametrize(
    ("now", "verdict"), [(START + HOUR - SECOND, TokenStatus.VALID), (START + HOUR, TokenStatus.EXPIRED)]
)
def test_a_session_ends_when_its_token_expires(now: datetime, verdict: TokenStatus) -> None:
    assert judge(now=now) is verdict


@pytest.mark.parametrize(("seconds", "verdict"), [(60, TokenStatus.VALID), (61, TokenStatus.NOT_YET_VALID)])
def test_a_clock_may_be_a_minute_ahead(seconds: int, verdict: TokenStatus) -> None:
    assert judge(now=START - seconds * SECOND) is verdict


def test_a_second_register_ends_the_first_session() -> None:
    again = registered(Registered())

    assert judge(instance=again) is TokenStatus.ENDED
    assert judge(session_token.issue("edge-1", again, START, HOUR), again) is TokenStatus.VALID


def test_a_new_incarnation_ends_the_sessions_of_the_one_before() -> None:
    reborn = registered(DrainRequested(), Deregistered(), Registered())

    assert reborn.session == REGISTERED.session
    assert judge(instance=reborn) is TokenStatus.ENDED


def test_a_removed_instance_is_named_while_its_token_lives() -> None:
    assert judge(instance=REMOVED) is TokenStatus.REMOVED
    assert judge(instance=REMOVED, now=START + HOUR) is TokenStatus.EXPIRED


def test_an_instance_that_does_not_exist_has_no_session() -> None:
    assert judge(instance=Instance()) is TokenStatus.ENDED


def test_a_session_is_of_one_instance() -> None:
    assert judge(called_id="edge-2") is TokenStatus.OTHER_INSTANCE
    assert judge(called_id="edge-2", instance=REMOVED) is TokenStatus.OTHER_INSTANCE


def test_a_token_that_is_no_longer_good_does_not_tell_whose_it_was() -> None:
    assert judge(called_id="edge-2", now=START + HOUR) is TokenStatus.EXPIRED
    assert judge(called_id="edge-2", instance=registered(Registered())) is TokenStatus.ENDED


@pytest.mark.parametrize(("minutes", "is_due"), [(0, False), (30, False), (31, True), (59, True)])
def test_it_is_renewed_once_less_than_half_of_its_life_is_left(minutes: int, is_due: bool) -> None:
    assert session_token.is_due_for_renewal(CLAIMS, START + timedelta(minutes=minutes)) is is_due


def test_a_renewed_token_does_not_end_the_one_before() -> None:
    later = START + timedelta(minutes=40)
    renewed = session_token.issue("edge-1", REGISTERED, later, HOUR)

    assert judge(renewed, now=later) is judge(now=later) is TokenStatus.VALID
    assert not session_token.is_due_for_renewal(renewed, later)


@hypothesis.given(registers=st.integers(1, 5), other=st.integers(1, 5))
def test_only_the_token_of_the_last_register_is_valid(registers: int, other: int) -> None:
    instance = registered(*[Registered()] * (registers - 1))

    claims = msgspec.structs.replace(CLAIMS, session=other)

    assert (judge(claims, instance) is TokenStatus.VALID) == (registers == other)
