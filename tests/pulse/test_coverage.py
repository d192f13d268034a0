"""Gaps and overlaps between selectors, and suggestions to close the gaps."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.labels import Selector, equality
from sentinel.ports.fleet import FetchError, FleetPage
from sentinel.pulse.coverage import (
    ConfigMatches,
    ConfigSelector,
    Coverage,
    CoverageResult,
    Overlap,
    Suggestion,
    find_coverage,
)
from sentinel.testing import loop
from sentinel.testing.fleet import FakeFleet


def selector(**labels: str) -> Selector:
    return Selector(tuple(equality(label, value) for label, value in labels.items()))


def fleet_of(resources: Mapping[str, Mapping[str, str]]) -> FakeFleet:
    fleet = FakeFleet(page_size=1000)
    for resource_id, labels in resources.items():
        fleet.put(resource_id, labels=labels)
    return fleet


def result_for(fleet: FakeFleet, *selectors: Selector) -> CoverageResult:
    configs = [ConfigSelector(f"{n}.yaml", each) for n, each in enumerate(selectors)]
    return loop.run(find_coverage(configs, fleet=fleet))


def coverage(resources: Mapping[str, Mapping[str, str]], *selectors: Selector) -> Coverage:
    return result_for(fleet_of(resources), *selectors).coverage


def selector_of(suggestion: Suggestion) -> Selector:
    return selector(**{match.label: match.value for match in suggestion.resource_selector})


def suggested(found: Coverage) -> list[str]:
    return [selector_of(each).shard for each in found.suggestions]


def test_ten_thousand_resources_and_five_configurations_with_known_gaps() -> None:
    regions = ("us-east", "us-west", "eu-west", "eu-north", "asia", "africa")
    resources = {
        f"cls-{n:05}": {"region": regions[n % 6], "tier": "gold" if n % 10 == 0 else "silver"}
        for n in range(10_000)
    }
    selectors = [selector(region=region) for region in regions[:4]] + [selector(tier="gold")]
    gaps = [
        name
        for name, labels in resources.items()
        if labels["region"] in regions[4:] and "silver" in labels.values()
    ]
    overlaps = [
        name for name, labels in resources.items() if labels["region"] in regions[:4] and "gold" in labels.values()
    ]

    found = coverage(resources, *selectors)

    assert found.total == 10_000
    assert found.gaps == gaps
    assert [overlap.id for overlap in found.overlaps] == overlaps
    assert found.overlaps[0] == Overlap("cls-00000", ("0.yaml", "4.yaml"))
    assert found.configs == [
        ConfigMatches("0.yaml", 1667),
        ConfigMatches("1.yaml", 1667),
        ConfigMatches("2.yaml", 1667),
        ConfigMatches("3.yaml", 1667),
        ConfigMatches("4.yaml", 1000),
    ]
    assert suggested(found) == ["region=africa", "region=asia,tier=silver"]
    assert [(each.covers, each.overlaps) for each in found.suggestions] == [(1666, 0), (1333, 0)]
    assert found.unsuggested == 0


def test_an_empty_selector_covers_everything() -> None:
    found = coverage({"a": {}, "b": {"region": "eu"}}, Selector())

    assert (found.total, found.gaps, found.overlaps, found.suggestions) == (2, [], [], [])


def test_gaps_and_overlaps_are_sorted_by_id() -> None:
    found = coverage(
        {"z": {}, "y": {"a": "1", "b": "1"}, "c": {}, "b": {"a": "1", "b": "1"}}, selector(a="1"), selector(b="1")
    )

    assert found.gaps == ["c", "z"]
    assert [overlap.id for overlap in found.overlaps] == ["b", "y"]


def test_the_labels_of_the_gaps_are_sorted_by_frequency() -> None:
    found = coverage(
        {"a": {"region": "eu", "env": "dev"}, "b": {"region": "eu", "env": "prod"}, "c": {"region": "us"}},
        selector(region="us"),
    )

    assert [(each.label, each.value, each.resources) for each in found.gap_labels] == [
        ("region", "eu", 2),
        ("env", "dev", 1),
        ("env", "prod", 1),
    ]


def test_one_selector_is_suggested_if_one_fits() -> None:
    found = coverage({"a": {"region": "eu"}, "b": {"region": "eu"}, "c": {"region": "us"}}, selector(region="us"))

    assert suggested(found) == ["region=eu"]


def test_a_label_of_covered_resources_is_avoided() -> None:
    found = coverage(
        {f"us-{n}": {"region": "us", "env": "prod"} for n in range(9)}
        | {f"eu-{n}": {"region": "eu", "env": "prod"} for n in range(3)}
        | {"asia": {"region": "asia", "env": "prod"}},
        selector(region="us"),
    )

    assert suggested(found) == ["region=eu", "region=asia"]
    assert [each.overlaps for each in found.suggestions] == [0, 0]


def test_a_suggestion_is_narrowed_until_nothing_overlaps() -> None:
    found = coverage(
        {
            "gap-1": {"region": "eu", "env": "prod"},
            "gap-2": {"region": "eu", "env": "prod"},
            "us": {"region": "us", "env": "prod"},
            "dev": {"region": "eu", "env": "dev"},
        },
        selector(region="us"),
        selector(env="dev"),
    )

    assert suggested(found) == ["env=prod,region=eu"]
    assert found.suggestions[0].overlaps == 0


def test_an_unavoidable_overlap_is_counted() -> None:
    found = coverage(
        {"gap": {"env": "prod"}, "us": {"env": "prod", "region": "us"}}, selector(region="us", env="prod")
    )

    assert suggested(found) == ["env=prod"]
    assert (found.suggestions[0].covers, found.suggestions[0].overlaps) == (1, 1)


def test_a_resource_without_labels_gets_no_suggestion() -> None:
    found = coverage({"bare": {}, "us": {"region": "us"}}, selector(region="us"))

    assert (found.suggestions, found.unsuggested) == ([], 1)


def test_a_label_unique_to_each_resource_is_not_suggested() -> None:
    found = coverage({f"cls-{n}": {"serial": f"{n}"} for n in range(100)}, selector(region="us"))

    assert (found.suggestions, found.unsuggested) == ([], 100)


def test_labels_that_settings_would_refuse_are_not_suggested() -> None:
    found = coverage({"odd": {"a b": "1", "list": "x,y", "tab": "\t", "fine": "1"}}, selector(region="us"))

    assert suggested(found) == ["fine=1"]


def test_a_resource_that_occurs_twice_counts_once() -> None:
    class RepeatingFleet(FakeFleet):
        async def walk(self) -> AsyncGenerator[FleetPage, None]:
            for _ in range(2):
                async for page in super().walk():
                    yield page

    fleet = RepeatingFleet()
    fleet.put("gap")

    assert result_for(fleet, selector(region="us")).coverage.gaps == ["gap"]


def test_malformed_items_are_returned_and_not_counted() -> None:
    fleet = fleet_of({"a": {}})
    fleet.put_encoded(b'{"id": 7}')

    found = result_for(fleet, Selector())

    assert found.coverage.total == 1
    assert len(found.malformed) == 1


def test_an_incomplete_walk_raises() -> None:
    fleet = fleet_of({"a": {}})
    fleet.fail("page 1: 500")

    with pytest.raises(FetchError, match="page 1: 500"):
        result_for(fleet, Selector())


labels = st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), max_size=3)


@given(st.lists(labels, max_size=20), st.lists(labels, min_size=1, max_size=3))
def test_every_gap_is_covered_by_a_suggestion_or_unsuggested(
    fleet: Sequence[Mapping[str, str]], selectors: Sequence[Mapping[str, str]]
) -> None:
    resources = {f"cls-{n:02}": each for n, each in enumerate(fleet)}

    found = coverage(resources, *(selector(**each) for each in selectors))

    existing = [selector(**each) for each in selectors]
    extra = [selector_of(each) for each in found.suggestions]
    gaps = [name for name, each in resources.items() if not any(one.matches(each) for one in existing)]
    left = [name for name in gaps if not any(each.matches(resources[name]) for each in extra)]
    assert found.gaps == gaps
    assert len(left) == found.unsuggested
    assert sum(each.covers for each in found.suggestions) + found.unsuggested == len(gaps)
    assert all(not resources[name] for name in left)
