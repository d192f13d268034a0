"""Of several SentinelConfigs for the same resources, the oldest runs, or one that keeps running."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.labels import equality
from sentinel.core.operator.duplicates import Claim, holder

NOW = datetime(2025, 10, 21, 12, 0, tzinfo=UTC)
_claims = st.builds(
    Claim,
    created=st.integers(0, 3).map(lambda n: NOW + timedelta(seconds=n)),
    name=st.text("ab", min_size=1, max_size=3),
    resource_type=st.sampled_from(("clusters", "nodepools")),
    shard=st.just("region"),
    requirements=st.sampled_from((frozenset(), frozenset({equality("region", "us-east")}))),
)


@given(st.lists(_claims, min_size=1, unique_by=lambda claim: claim.name))
def test_each_shard_has_exactly_one_holder(claims: list[Claim]) -> None:
    holders = [claim for claim in claims if holder(claim, claims) == claim]

    assert len(holders) == len({claim.shard_key for claim in claims})
    assert {claim.shard_key for claim in holders} == {claim.shard_key for claim in claims}


@given(st.lists(_claims, min_size=1, unique_by=lambda claim: claim.name))
def test_no_claim_of_the_same_shard_is_older_than_the_holder(claims: list[Claim]) -> None:
    held = holder(claims[0], claims)

    assert held.shard_key == claims[0].shard_key
    assert all(held.created <= claim.created for claim in claims if claim.shard_key == held.shard_key)


@given(st.lists(_claims, min_size=1, unique_by=lambda claim: claim.name))
def test_a_pulse_that_goes_on_keeps_its_shard(claims: list[Claim]) -> None:
    kept = msgspec.structs.replace(claims[0], is_kept=True)

    for claim in claims[1:]:
        expected = kept if claim.shard_key == kept.shard_key else holder(claim, claims[1:])
        assert holder(claim, [kept, *claims[1:]]) == expected


def test_the_name_decides_between_equal_ages() -> None:
    first, second = (Claim(NOW, name, "clusters", "all", frozenset()) for name in ("a", "b"))

    assert holder(second, [first]) == first
    assert holder(first, [second]) == first
