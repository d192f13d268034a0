from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from sentinel.core import labels
from sentinel.core.hub import deployment
from sentinel.core.hub.deployment import (
    Canary,
    Count,
    Criterion,
    Metric,
    OfflinePolicy,
    Regions,
    Request,
    Rolling,
    Strategy,
    TargetOrder,
    Targets,
    parse_count,
)
from tests.core.hub.rollout_driver import NO_DELAY, SECOND, request

SOME = labels.parse("zone=a")
VALID = request("a")


def fields_of(asked: Request) -> Sequence[str]:
    return [problem.field for problem in deployment.problems(asked)]


def changed(**changes: Any) -> Request:
    return msgspec.structs.replace(VALID, **changes)


class TestDefaults:
    def test_a_request_has_those_of_the_api(self) -> None:
        assert VALID.offline is OfflinePolicy.LATER
        assert not VALID.queue
        assert VALID.progress_deadline is None
        assert VALID.order == TargetOrder(spread_by="", regions=None)

    def test_rolling_has_those_of_the_api(self) -> None:
        rolling = Rolling()

        assert (str(rolling.batch_size), str(rolling.failure_threshold)) == ("1", "1")
        assert (rolling.batch_delay, rolling.min_healthy_time) == (30 * SECOND, NO_DELAY)
        assert rolling.max_unavailable is None

    def test_a_canary_has_those_of_the_api(self) -> None:
        canary = Canary()

        assert (str(canary.instances), canary.selector, canary.steps) == ("10%", None, ())
        assert (canary.duration, canary.interval) == (timedelta(minutes=5), 30 * SECOND)
        assert canary.min_requests == 100
        assert canary.success_criteria == (Criterion(metric=Metric.ERROR_RATE, max=0.05),)


class TestCounts:
    @pytest.mark.parametrize("value", [1, 7, "1%", "25%", "100%"])
    def test_a_number_or_a_percentage_is_read(self, value: int | str) -> None:
        count = parse_count(value)

        assert str(count) == str(value)

    @pytest.mark.parametrize("value", [0, -1, "", "3", "0%", "101%", "05%", "1.5%", "%", " 5%", "5 %", "٣%"])
    def test_anything_else_is_not(self, value: int | str) -> None:
        assert parse_count(value) is None

    @pytest.mark.parametrize(("percent", "total", "expected"), [(10, 1, 1), (25, 5, 2), (29, 100, 29), (34, 3, 2)])
    def test_a_percentage_is_rounded_up(self, percent: int, total: int, expected: int) -> None:
        assert Count(percent, is_percent=True).of(total) == expected

    def test_a_number_is_the_same_of_any_total(self) -> None:
        assert Count(7).of(3) == 7

    @hypothesis.given(st.integers(1, 100), st.integers(1, 10_000))
    def test_a_percentage_of_some_is_at_least_one_and_at_most_all(self, percent: int, total: int) -> None:
        share = Count(percent, is_percent=True).of(total)

        assert 1 <= share <= total
        assert share - 1 < total * percent / 100 <= share or math.isclose(share, total * percent / 100)


class TestProblems:
    @pytest.mark.parametrize("strategy", list(Strategy))
    def test_a_valid_request_has_none(self, strategy: Strategy) -> None:
        assert deployment.problems(changed(strategy=strategy, targets=Targets(selector=SOME))) == []

    @pytest.mark.parametrize("targets", [Targets(), Targets(ids=("a",), selector=SOME)])
    def test_targets_are_ids_or_a_selector(self, targets: Targets) -> None:
        assert fields_of(changed(targets=targets)) == ["targets"]

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("config_id", "a@b"),
            ("version", 0),
            ("version", 2**31),
            ("progress_deadline", NO_DELAY),
        ],
    )
    def test_a_wrong_field_is_named(self, field: str, value: object) -> None:
        assert fields_of(changed(**{field: value})) == [field]

    @pytest.mark.parametrize("field", ["batch_delay", "min_healthy_time"])
    def test_a_duration_of_rolling_is_not_negative(self, field: str) -> None:
        rolling = msgspec.structs.replace(Rolling(), **{field: -SECOND})

        assert fields_of(changed(rolling=rolling)) == [f"rolling.{field}"]

    @pytest.mark.parametrize("field", ["duration", "interval"])
    def test_a_duration_of_a_canary_is_positive(self, field: str) -> None:
        canary = msgspec.structs.replace(Canary(), **{field: NO_DELAY})

        assert fields_of(changed(canary=canary)) == [f"canary.{field}"]

    def test_a_minimum_of_requests_is_not_negative(self) -> None:
        assert fields_of(changed(canary=Canary(min_requests=-1))) == ["canary.min_requests"]
        assert fields_of(changed(canary=Canary(min_requests=0))) == []

    @pytest.mark.parametrize(
        "criterion",
        [
            Criterion(metric=Metric.ERROR_RATE),
            Criterion(metric=Metric.ERROR_RATE, max=1.1),
            Criterion(metric=Metric.ERROR_RATE, max=-0.1),
            Criterion(metric=Metric.LATENCY_P50_MS, max=math.nan),
            Criterion(metric=Metric.LATENCY_P99_MS, max=5, max_vs_baseline=math.inf),
        ],
    )
    def test_a_wrong_criterion_is_named_by_its_position(self, criterion: Criterion) -> None:
        canary = Canary(success_criteria=(Criterion(metric=Metric.LATENCY_P50_MS, max=500), criterion))

        assert fields_of(changed(canary=canary)) == ["canary.success_criteria[1]"]

    def test_an_error_rate_may_be_many_times_the_baseline(self) -> None:
        criterion = Criterion(metric=Metric.ERROR_RATE, max_vs_baseline=2)

        assert fields_of(changed(canary=Canary(success_criteria=(criterion,)))) == []

    def test_regions_need_a_label(self) -> None:
        assert fields_of(changed(order=TargetOrder(regions=Regions("")))) == ["order.regions.label"]
        assert fields_of(changed(order=TargetOrder(regions=Regions("region")))) == []
