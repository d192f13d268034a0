"""Selectors: one meaning on the wire, on the client and in names."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.selector import LabelMatch, Selector, SelectorParam

US_EAST = LabelMatch("region", "us-east")
PRODUCTION = LabelMatch("environment", "production")

words = st.text(min_size=1, max_size=8)
matches = st.builds(LabelMatch, words, words)
selectors = st.builds(Selector, st.lists(matches, max_size=4).map(tuple))


def test_no_requirement_selects_everything() -> None:
    everything = Selector()

    assert not everything
    assert everything.matches({})
    assert everything.matches({"region": "us-east"})


def test_a_label_with_another_value_is_not_selected() -> None:
    assert not Selector((US_EAST,)).matches({"region": "us-west"})


def test_a_missing_label_is_not_selected() -> None:
    assert not Selector((US_EAST,)).matches({"environment": "production"})


def test_every_requirement_must_hold() -> None:
    both = Selector((US_EAST, PRODUCTION))

    assert both
    assert both.matches({"region": "us-east", "environment": "production", "tier": "gold"})
    assert not both.matches({"region": "us-east", "environment": "staging"})


def test_the_labels_parameter_keeps_the_order_of_the_file() -> None:
    selector = Selector((US_EAST, PRODUCTION))

    assert selector.as_parameter(SelectorParam.LABELS) == "region=us-east,environment=production"


def test_the_search_parameter_is_an_expression() -> None:
    selector = Selector((US_EAST, PRODUCTION))

    parameter = selector.as_parameter(SelectorParam.SEARCH)

    assert parameter == "labels.region='us-east' and labels.environment='production'"


def test_a_quote_in_a_search_is_doubled() -> None:
    selector = Selector((LabelMatch("owner", "o'brien's"),))

    assert selector.as_search_parameter() == "labels.owner='o''brien''s'"


def test_a_shard_is_named_after_its_sorted_labels() -> None:
    assert Selector((US_EAST, PRODUCTION)).shard == "environment=production,region=us-east"


def test_the_shard_without_requirements_is_all() -> None:
    assert Selector().shard == "all"


@given(selectors, st.randoms())
def test_the_order_of_requirements_changes_neither_shard_nor_selection(selector: Selector, random: Random) -> None:
    shuffled = list(selector.requirements)
    random.shuffle(shuffled)
    other = Selector(tuple(shuffled))
    labels = {match.label: match.value for match in selector.requirements}

    assert other.shard == selector.shard
    assert other.matches(labels) == selector.matches(labels)


@given(selectors, st.dictionaries(words, words))
def test_more_requirements_never_select_more(selector: Selector, labels: dict[str, str]) -> None:
    narrower = Selector((*selector.requirements, US_EAST))

    if narrower.matches(labels):
        assert selector.matches(labels)
