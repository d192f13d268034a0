from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from sentinel.core.hub import analysis
from sentinel.core.hub.analysis import Finding, Outcome, Verdict
from sentinel.core.hub.deployment import Canary, Criterion, Metric
from sentinel.core.hub.metrics_samples import Metrics, Sample

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
ERRORS = Criterion(metric=Metric.ERROR_RATE, max=0.05)
ERRORS_VS_BASELINE = Criterion(metric=Metric.ERROR_RATE, max_vs_baseline=2)
P50 = Criterion(metric=Metric.LATENCY_P50_MS, max=100)
P99 = Criterion(metric=Metric.LATENCY_P99_MS, max=500)


def sample(second: int, total: int, failed: int = 0, *, p50: float = 10, p99: float = 100) -> Sample:
    return Sample(
        START + second * SECOND,
        Metrics(requests_total=total, requests_failed=failed, latency_p50_ms=p50, latency_p99_ms=p99),
    )


def steady(requests: int, failed: int = 0, *, p50: float = 10, p99: float = 100) -> Sequence[Sample]:
    """Return the samples of an instance that answers so many requests from the beginning to the end."""
    return [
        sample(30 * part, 1000 + requests * part // 10, 50 + failed * part // 10, p50=p50, p99=p99)
        for part in range(11)
    ]


def judge(
    *canaries: Sequence[Sample],
    criteria: Sequence[Criterion] = (ERRORS,),
    baseline: Sequence[Sequence[Sample]] = (),
    min_requests: int = 100,
    until: int = 300,
) -> Verdict:
    return analysis.judge(
        criteria,
        min_requests=min_requests,
        canaries={f"c{index}": samples for index, samples in enumerate(canaries)},
        baseline={f"b{index}": samples for index, samples in enumerate(baseline)},
        since=START,
        until=START + until * SECOND,
        max_gap=90 * SECOND,
    )


class TestErrorRate:
    @pytest.mark.parametrize(
        ("failed", "outcome"), [(0, Outcome.SUCCESS), (10, Outcome.SUCCESS), (11, Outcome.FAILED)]
    )
    def test_a_value_above_the_limit_fails(self, failed: int, outcome: Outcome) -> None:
        assert judge(steady(200, failed)).outcome is outcome

    def test_it_is_that_of_all_canaries_together(self) -> None:
        verdict = judge(steady(900), steady(100, 50))

        assert verdict.findings == (Finding(metric=Metric.ERROR_RATE, value=0.05, limit=0.05),)
        assert verdict.outcome is Outcome.SUCCESS
        assert verdict.requests == 1000

    def test_the_reason_names_criterion_value_and_limit(self) -> None:
        assert judge(steady(100, 25)).reason == "error_rate 0.25 is above 0.05"

    def test_counters_that_begin_again_are_not_negative(self) -> None:
        restarted = [sample(0, 1000, 900), sample(100, 1100, 905), sample(200, 50, 1), sample(300, 150, 2)]

        verdict = judge(restarted)

        assert verdict.requests == 100 + 50 + 100
        assert verdict.findings[0].value == pytest.approx(7 / 250)

    def test_a_restart_hides_no_errors(self) -> None:
        restarted = [sample(0, 1000, 20), sample(90, 1000, 20), sample(180, 300, 30), sample(270, 300, 30)]

        verdict = judge(restarted)

        assert (verdict.outcome, verdict.reason) == (Outcome.FAILED, "error_rate 0.1 is above 0.05")

    def test_what_happened_before_or_after_the_window_does_not_count(self) -> None:
        samples = [sample(-30, 0), sample(0, 500, 500), sample(90, 700, 501), sample(120, 900, 701)]

        verdict = judge(samples, until=90)

        assert (verdict.outcome, verdict.requests) == (Outcome.SUCCESS, 200)


class TestLatency:
    def test_each_is_compared_with_its_own_limit(self) -> None:
        verdict = judge(steady(100, p50=101, p99=501), criteria=(P50, P99))

        assert verdict.outcome is Outcome.FAILED
        assert verdict.reason == "latency_p50_ms 101 is above 100; latency_p99_ms 501 is above 500"

    def test_a_sample_counts_by_the_requests_since_the_one_before(self) -> None:
        samples = [
            sample(0, 0, p99=9000),
            sample(100, 300, p99=100),
            sample(200, 300, p99=0),
            sample(300, 400, p99=500),
        ]

        verdict = judge(samples, criteria=(P99,))

        assert verdict.findings[0].value == pytest.approx((300 * 100 + 100 * 500) / 400)


class TestBaseline:
    def test_the_limit_is_a_ratio_to_the_mean_of_the_untouched(self) -> None:
        baseline = [steady(1000, 10), steady(100, 3)]

        verdict = judge(steady(1000, 41), criteria=(ERRORS_VS_BASELINE,), baseline=baseline)

        finding = verdict.findings[0]
        assert finding.baseline == pytest.approx((0.01 + 0.03) / 2)
        assert finding.limit == pytest.approx(0.04)
        assert verdict.outcome is Outcome.FAILED
        assert verdict.reason == "error_rate 0.041 is above 0.04 (baseline 0.02)"

    def test_a_value_at_the_ratio_is_within(self) -> None:
        verdict = judge(steady(1000, 40), criteria=(ERRORS_VS_BASELINE,), baseline=[steady(1000, 20)])

        assert verdict.outcome is Outcome.SUCCESS
        assert str(verdict.findings[0]) == "error_rate 0.04 is within 0.04 (baseline 0.02)"

    @pytest.mark.parametrize("baseline", [[], [[]], [steady(0)], [[sample(0, 1)]]])
    def test_none_is_inconclusive(self, baseline: Sequence[Sequence[Sample]]) -> None:
        verdict = judge(steady(1000), criteria=(ERRORS_VS_BASELINE,), baseline=baseline)

        assert verdict.outcome is Outcome.INCONCLUSIVE
        assert verdict.reason == "no untouched instance to compare with has had requests"

    def test_none_is_needed_for_absolute_limits(self) -> None:
        assert judge(steady(1000)).outcome is Outcome.SUCCESS

    def test_untouched_instances_without_requests_are_not_in_the_mean(self) -> None:
        verdict = judge(steady(1000, 30), criteria=(ERRORS_VS_BASELINE,), baseline=[steady(1000, 20), steady(0)])

        assert verdict.findings[0].baseline == pytest.approx(0.02)

    def test_both_limits_of_a_criterion_hold(self) -> None:
        both = Criterion(metric=Metric.ERROR_RATE, max=0.01, max_vs_baseline=10)

        assert judge(steady(1000, 20), criteria=(both,), baseline=[steady(1000, 20)]).outcome is Outcome.FAILED
        assert judge(steady(1000, 9), criteria=(both,), baseline=[steady(1000, 0)]).outcome is Outcome.FAILED
        assert judge(steady(1000, 9), criteria=(both,), baseline=[steady(1000, 1)]).outcome is Outcome.SUCCESS


class TestTooLittleData:
    def test_fewer_requests_than_needed_are_inconclusive_even_if_all_failed(self) -> None:
        verdict = judge(steady(60, 60), steady(39, 39))

        assert verdict == Verdict(
            outcome=Outcome.INCONCLUSIVE, reason="99 requests, at least 100 needed", requests=99
        )

    def test_as_many_as_needed_are_enough(self) -> None:
        assert judge(steady(60), steady(40)).outcome is Outcome.SUCCESS

    def test_no_requests_are_inconclusive_even_if_none_are_needed(self) -> None:
        verdict = judge(steady(0), criteria=(P99,), min_requests=0)

        assert verdict.outcome is Outcome.INCONCLUSIVE
        assert verdict.reason == "0 requests, at least 1 needed"

    def test_no_canary_is_inconclusive(self) -> None:
        assert judge().outcome is Outcome.INCONCLUSIVE

    @pytest.mark.parametrize(
        "samples",
        [
            [],
            [sample(100, 5000)],
            [sample(91, 0), sample(180, 0), sample(260, 0), sample(300, 1000)],
            [sample(0, 0), sample(90, 0), sample(180, 0), sample(209, 1000)],
            [sample(0, 0), sample(90, 0), sample(181, 0), sample(260, 1000)],
        ],
    )
    def test_a_canary_without_metrics_is_inconclusive(self, samples: Sequence[Sample]) -> None:
        verdict = judge(steady(1000), samples)

        assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, "metrics are missing of c1")

    def test_a_canary_may_miss_three_heartbeats(self) -> None:
        samples = [sample(90, 0), sample(180, 500), sample(210, 1000)]

        assert judge(samples).outcome is Outcome.SUCCESS

    def test_a_violation_counts_although_data_is_missing(self) -> None:
        assert judge(steady(1000, 500), []).outcome is Outcome.FAILED

    def test_without_criteria_there_is_nothing_to_know(self) -> None:
        assert judge(criteria=()).outcome is Outcome.SUCCESS


@st.composite
def counters(draw: st.DrawFn) -> Sequence[Sample]:
    """Draw the samples of a proxy that restarts now and then, and answers with errors, or not."""
    total = failed = 0
    samples = []
    for second in range(0, 301, 30):
        if draw(st.integers(0, 9)) == 0:
            total = failed = 0
        requests = draw(st.integers(0, 50))
        total, failed = total + requests, failed + draw(st.integers(0, requests))
        if draw(st.integers(0, 9)):
            samples.append(sample(second, total, failed, p99=draw(st.floats(0, 2000))))
    return samples


@hypothesis.given(st.lists(counters(), max_size=4), st.integers(0, 300))
def test_it_is_a_success_only_if_all_was_measured_and_nothing_violated(
    canaries: list[Sequence[Sample]], min_requests: int
) -> None:
    criteria = (*Canary().success_criteria, P99)

    verdict = judge(*canaries, criteria=criteria, min_requests=min_requests)

    if verdict.outcome is Outcome.SUCCESS:
        assert verdict.requests >= max(min_requests, 1)
        assert len(verdict.findings) == len(criteria)
        assert all(len(samples) >= 2 for samples in canaries)
    assert (verdict.outcome is Outcome.FAILED) == any(finding.is_violated for finding in verdict.findings)
    assert (verdict.reason == "") == (verdict.outcome is Outcome.SUCCESS)
    assert msgspec.json.decode(msgspec.json.encode(verdict), type=Verdict) == verdict
