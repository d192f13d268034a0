from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from sentinel.core import labels
from sentinel.core.hub import deployment_plan
from sentinel.core.hub.deployment import (
    Canary,
    Count,
    InstanceFacts,
    Regions,
    Request,
    RequestProblem,
    Rolling,
    Strategy,
    TargetOrder,
    Targets,
)
from sentinel.core.hub.deployment_plan import Plan
from sentinel.core.hub.states import State
from tests.core.hub.rollout_driver import SECOND, batches_of, facts, request

PROD = labels.parse("env=prod")
CANARIES = labels.parse("canary=yes")


def named(count: int, state: State = State.ONLINE, **own_labels: str) -> list[InstanceFacts]:
    return [facts(f"e{number:02}", state, labels=own_labels) for number in range(1, count + 1)]


def ids(plan: Plan) -> Sequence[str]:
    return [" ".join(each.instance_id for each in batch) for batch in plan.batches]


def by_selector(strategy: Strategy = Strategy.ROLLING, rolling: Rolling | None = None) -> Request:
    asked = request(strategy=strategy, rolling=rolling)
    return msgspec.structs.replace(asked, targets=Targets(selector=PROD))


def canary(**settings: object) -> Request:
    asked = request(*(f"e{number:02}" for number in range(1, 11)), strategy=Strategy.CANARY, rolling=batches_of(4))
    return msgspec.structs.replace(asked, canary=msgspec.structs.replace(Canary(), **settings))


class TestTargets:
    def test_ids_keep_their_order_and_count_once(self) -> None:
        plan = deployment_plan.plan(request("b", "a", "b"), [facts("a"), facts("b"), facts("c")])

        assert ids(plan) == ["b", "a"]
        assert plan.total == 2

    def test_what_a_selector_matches_is_ordered_by_id(self) -> None:
        fleet = [facts("b", labels={"env": "prod"}), facts("a", labels={"env": "prod"}), facts("c")]

        assert ids(deployment_plan.plan(by_selector(), fleet)) == ["a", "b"]

    @pytest.mark.parametrize("state", [State.UNKNOWN, State.DRAINING, State.REMOVED])
    def test_an_instance_that_leaves_is_no_target(self, state: State) -> None:
        gone = facts("a", state, labels={"env": "prod"})

        selected = deployment_plan.plan(by_selector(), [gone])
        by_id = deployment_plan.plan(request("a"), [gone])

        assert selected.problems == (RequestProblem("targets.selector", "matches no instance"),)
        assert by_id.problems == (RequestProblem("targets.ids", f"instance a is {state}"),)
        assert selected.batches == by_id.batches == ()
        assert selected.estimated_seconds == 0

    def test_an_unknown_id_is_a_problem(self) -> None:
        plan = deployment_plan.plan(request("a", "x"), [facts("a")])

        assert plan.problems == (RequestProblem("targets.ids", "there is no instance x"),)
        assert ids(plan) == ["a"]

    def test_an_offline_instance_is_a_target(self) -> None:
        assert ids(deployment_plan.plan(request("a"), [facts("a", State.OFFLINE)])) == ["a"]


class TestBatches:
    def test_all_at_once_is_one(self) -> None:
        fleet = named(7, env="prod")

        assert ids(deployment_plan.plan(by_selector(Strategy.ALL_AT_ONCE), fleet)) == [
            "e01 e02 e03 e04 e05 e06 e07"
        ]

    def test_seven_by_three(self) -> None:
        plan = deployment_plan.plan(by_selector(rolling=batches_of(3)), named(7, env="prod"))

        assert ids(plan) == ["e01 e02 e03", "e04 e05 e06", "e07"]
        assert plan.canary_batches == 0

    def test_a_percentage_is_of_all_targets(self) -> None:
        rolling = Rolling(batch_size=Count(34, is_percent=True))

        assert ids(deployment_plan.plan(by_selector(rolling=rolling), named(5, env="prod"))) == [
            "e01 e02",
            "e03 e04",
            "e05",
        ]

    @hypothesis.given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 12), st.sampled_from(list(Strategy)))
    def test_every_target_is_in_one_batch(self, total: int, size: int, canaries: int, strategy: Strategy) -> None:
        asked = by_selector(strategy, batches_of(size))
        asked = msgspec.structs.replace(asked, canary=Canary(instances=Count(canaries)))

        plan = deployment_plan.plan(asked, named(total, env="prod"))

        assert sorted(each.instance_id for batch in plan.batches for each in batch) == [
            each.instance_id for each in named(total)
        ]
        if strategy is not Strategy.ALL_AT_ONCE:
            assert all(len(batch) <= size for batch in plan.batches[plan.canary_batches :])


class TestOrder:
    def test_regions_come_one_after_the_other(self) -> None:
        fleet = [
            facts(name, labels={"env": "prod", "region": region})
            for name, region in [("a", "us"), ("b", "eu"), ("c", "us"), ("d", "eu"), ("e", "ap"), ("f", "af")]
        ]
        order = TargetOrder(regions=Regions("region", ("us", "eu")))
        asked = msgspec.structs.replace(by_selector(rolling=batches_of(3)), order=order)

        assert ids(deployment_plan.plan(asked, fleet)) == ["a c", "b d", "f", "e"]

    def test_a_batch_is_spread_over_zones(self) -> None:
        fleet = [
            facts(name, labels={"env": "prod", "zone": zone})
            for name, zone in [("a", "1"), ("b", "1"), ("c", "1"), ("d", "1"), ("e", "2"), ("f", "2")]
        ]
        asked = msgspec.structs.replace(by_selector(rolling=batches_of(3)), order=TargetOrder(spread_by="zone"))

        assert ids(deployment_plan.plan(asked, fleet)) == ["a e b", "c f d"]

    @hypothesis.given(st.lists(st.sampled_from(["1", "2", "3", ""]), min_size=1, max_size=30), st.integers(1, 8))
    def test_a_batch_has_about_its_share_of_every_zone(self, zones: list[str], size: int) -> None:
        fleet = [
            facts(f"e{index:02}", labels={"env": "prod"} | ({"zone": zone} if zone else {}))
            for index, zone in enumerate(zones)
        ]
        asked = msgspec.structs.replace(by_selector(rolling=batches_of(size)), order=TargetOrder(spread_by="zone"))

        plan = deployment_plan.plan(asked, fleet)

        sizes = Counter(zones)
        for batch in plan.batches:
            for zone, count in Counter(each.labels.get("zone", "") for each in batch).items():
                assert count <= len(batch) * sizes[zone] / len(zones) + 2


class TestCanaries:
    def test_they_are_the_first_batch_and_the_rest_follows_by_rolling(self) -> None:
        plan = deployment_plan.plan(canary(instances=Count(20, is_percent=True)), named(10))

        assert ids(plan) == ["e01 e02", "e03 e04 e05 e06", "e07 e08 e09 e10"]
        assert plan.canary_batches == 1

    def test_each_step_has_as_many_as_are_missing(self) -> None:
        steps = (Count(3), Count(30, is_percent=True), Count(2), Count(5))

        plan = deployment_plan.plan(canary(instances=Count(1), steps=steps), named(10))

        assert ids(plan) == ["e01", "e02 e03", "e04 e05", "e06 e07 e08 e09", "e10"]
        assert plan.canary_batches == 3

    def test_percentages_are_of_all_targets_also_in_steps_and_after_them(self) -> None:
        asked = canary(instances=Count(1), steps=(Count(11, is_percent=True),))
        asked = msgspec.structs.replace(asked, rolling=Rolling(batch_size=Count(50, is_percent=True)))

        plan = deployment_plan.plan(asked, named(10))

        assert ids(plan) == ["e01", "e02", "e03 e04 e05 e06 e07", "e08 e09 e10"]

    def test_no_batch_after_them_has_two_regions(self) -> None:
        fleet = [
            facts(f"e{number:02}", labels={"region": "eu" if number < 5 else "us"}) for number in range(1, 11)
        ]
        order = TargetOrder(regions=Regions("region", ("us", "eu")))
        asked = msgspec.structs.replace(canary(instances=Count(3)), order=order)

        plan = deployment_plan.plan(asked, fleet)

        assert ids(plan) == ["e05 e06 e07", "e08 e09 e10", "e01 e02 e03 e04"]

    def test_a_selector_names_them(self) -> None:
        fleet = named(10)
        fleet[4], fleet[8] = (facts(name, labels={"canary": "yes"}) for name in ("e05", "e09"))

        plan = deployment_plan.plan(canary(selector=CANARIES, steps=(Count(3),)), fleet)

        assert ids(plan)[:2] == ["e05 e09", "e01"]
        assert plan.canary_batches == 2

    def test_a_selector_that_matches_no_target_is_a_problem(self) -> None:
        plan = deployment_plan.plan(canary(selector=CANARIES), named(10))

        assert plan.problems == (RequestProblem("canary.instances", "the selector matches no target"),)
        assert plan.canary_batches == 0

    def test_connected_instances_are_taken_first(self) -> None:
        fleet = [*named(2, State.OFFLINE), *named(10)[2:]]

        plan = deployment_plan.plan(canary(instances=Count(1)), fleet)

        assert ids(plan)[:2] == ["e03", "e01 e02 e04 e05"]

    def test_all_targets_may_be_canaries(self) -> None:
        plan = deployment_plan.plan(canary(instances=Count(99)), named(10))

        assert (len(plan.batches), plan.canary_batches) == (1, 1)


class TestEstimate:
    def test_all_at_once_takes_as_long_as_one_instance(self) -> None:
        plan = deployment_plan.plan(by_selector(Strategy.ALL_AT_ONCE), named(7, env="prod"))

        assert plan.estimated_seconds == 5

    def test_it_counts_batches_delays_and_the_time_to_be_healthy(self) -> None:
        rolling = Rolling(batch_size=Count(3), batch_delay=30 * SECOND, min_healthy_time=timedelta(seconds=10))

        plan = deployment_plan.plan(by_selector(rolling=rolling), named(7, env="prod"))

        assert plan.estimated_seconds == 3 * (5 + 10) + 2 * 30

    def test_a_canary_is_followed_by_its_duration_instead_of_a_delay(self) -> None:
        asked = msgspec.structs.replace(canary(instances=Count(2)), rolling=batches_of(4, delay=7 * SECOND))

        plan = deployment_plan.plan(asked, named(10))

        assert plan.estimated_seconds == 3 * 5 + 5 * 60 + 7


class TestRetry:
    def test_it_is_for_some_of_the_targets_in_their_order(self) -> None:
        asked = by_selector()

        again = deployment_plan.retry_request(asked, [facts("b"), facts("a")])

        assert again == msgspec.structs.replace(asked, targets=Targets(ids=("b", "a")))

    def test_canaries_are_selected_again(self) -> None:
        asked = canary(selector=CANARIES)
        targets = [*named(3), facts("e04", labels={"canary": "yes"})]

        plan = deployment_plan.plan(deployment_plan.retry_request(asked, targets), targets)

        assert ids(plan) == ["e04", "e01 e02 e03"]

    def test_canaries_that_succeeded_are_replaced_by_others(self) -> None:
        targets = named(3)

        plan = deployment_plan.plan(deployment_plan.retry_request(canary(selector=CANARIES), targets), targets)

        assert ids(plan) == ["e01", "e02 e03"]
        assert plan.problems == ()
