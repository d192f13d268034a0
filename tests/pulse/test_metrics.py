"""The metric series of several pulses in one process: claiming and releasing them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from sentinel.ports.errors import Misconfigured
from sentinel.pulse.telemetry import DuplicatePulse, PulseMetrics, PulseSeries
from sentinel.runtime.probes.metrics import Metrics


class ScrapedMetrics:
    """The pulses' metrics, and the values that a scrape would show."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.pulses = PulseMetrics(self.registry)

    def claim(self, shard: str = "all", resource_type: str = "clusters") -> PulseSeries:
        return self.pulses.claim(shard=shard, resource_type=resource_type)

    def value(self, name: str, shard: str = "all", resource_type: str = "clusters", **labels: str) -> float | None:
        labels |= {"shard": shard, "resource_type": resource_type}
        return self.registry.get_sample_value(f"hyperfleet_sentinel_{name}", labels)

    def labels(self) -> set[tuple[str, str]]:
        """The shard and resource type of every series."""
        return {
            (sample.labels["shard"], sample.labels["resource_type"])
            for family in self.registry.collect()
            for sample in family.samples
        }


@pytest.fixture
def process() -> ScrapedMetrics:
    return ScrapedMetrics()


def test_pulses_share_families_and_count_separately(process: ScrapedMetrics) -> None:
    east, west = process.claim("region=us-east"), process.claim("region=us-west")
    metrics = Metrics(component="test")
    metrics.add(process.registry)

    east.published.inc(3)
    west.published.inc(4)

    exposition = metrics.render()[0].decode()
    assert exposition.count("# TYPE hyperfleet_sentinel_events_published_total counter") == 1
    assert process.value("events_published_total", "region=us-east") == 3
    assert process.value("events_published_total", "region=us-west") == 4


@pytest.mark.parametrize("other", [("all", "nodepools"), ("region=us-east", "clusters")])
def test_one_equal_label_is_not_a_duplicate(process: ScrapedMetrics, other: tuple[str, str]) -> None:
    process.claim("all", "clusters")

    assert process.claim(*other).shard == other[0]


def test_a_second_pulse_with_equal_labels_is_rejected(process: ScrapedMetrics) -> None:
    first = process.claim("region=us-east")
    first.published.inc()

    with pytest.raises(DuplicatePulse) as caught:
        process.claim("region=us-east")

    assert str(caught.value) == (
        "expected one pulse for each resource type and selector, got two for clusters (region=us-east);"
        " change one selector, or remove one of the two"
    )
    assert isinstance(caught.value, Misconfigured)
    assert process.value("events_published_total", "region=us-east") == 1


def test_release_removes_the_series_of_that_pulse_only(process: ScrapedMetrics) -> None:
    east = process.claim("region=us-east")
    process.claim("region=us-west")
    for broker_type in ("rabbitmq", "gcp-pubsub"):
        east.broker_errors(broker_type)

    east.release()

    assert process.labels() == {("region=us-west", "clusters")}


def test_released_labels_can_be_claimed_again_and_start_at_zero(process: ScrapedMetrics) -> None:
    first = process.claim()
    first.published.inc(5)
    first.release()

    second = process.claim()

    assert process.value("events_published_total") == 0
    second.published.inc()
    first.published.inc()  # the ended pulse still counts
    assert process.value("events_published_total") == 1


def test_releasing_twice_does_not_affect_the_next_pulse(process: ScrapedMetrics) -> None:
    first = process.claim()
    first.release()
    process.claim()

    first.release()

    assert process.value("events_published_total") == 0
    with pytest.raises(DuplicatePulse):
        process.claim()


def test_reloads_and_failed_loads_are_counted(process: ScrapedMetrics) -> None:
    series = process.claim()

    series.reloaded()
    for _ in range(2):
        series.load_failed()

    assert process.value("config_reloads_total") == 1
    assert process.value("api_errors_total", operation="config_load") == 2
    assert process.value("api_errors_total", operation="fetch_resources") == 0


def test_errors_are_counted_by_broker_type(process: ScrapedMetrics) -> None:
    series = process.claim()
    series.broker_errors("rabbitmq").inc(2)

    series.broker_errors("gcp-pubsub").inc()
    series.broker_errors("rabbitmq").inc()

    assert process.value("broker_errors_total", broker_type="rabbitmq") == 3
    assert process.value("broker_errors_total", broker_type="gcp-pubsub") == 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["clusters", "nodepools"])), max_size=20))
def test_exactly_the_series_of_running_pulses_exist(changes: list[tuple[str, str]]) -> None:
    process = ScrapedMetrics()
    running: dict[tuple[str, str], PulseSeries] = {}

    for labels in changes:  # stop the pulse if it runs, else start it
        if labels in running:
            running.pop(labels).release()
        else:
            running[labels] = process.claim(*labels)

        assert process.labels() == running.keys()
