"""The shipped alert rules, evaluated on what the operator's metrics say while objects drift."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from tests.drift.operator.alert_rules import AlertRule, Group, Scrape
from tests.drift.operator.database_world import World, database_world

ROOT = Path(__file__).parents[3]
(DOCUMENT,) = yaml.safe_load_all(
    (ROOT / "deploy" / "manifests" / "drift-operator" / "prometheus" / "alerts.yaml").read_text()
)
RULES = [AlertRule(rule) for group in DOCUMENT["spec"]["groups"] for rule in group["rules"]]
DETECTED, REPEATS, NOT_CORRECTED = "OpenBaoDriftDetected", "OpenBaoDriftRepeats", "OpenBaoDriftNotCorrected"


class Prometheus:
    """Scrapes the metrics of one operator every minute."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._scrapes: list[Scrape] = []

    def scrape(self, count: int = 1) -> None:
        for _ in range(count):
            self._scrapes.append(Scrape(self.world.registry, timedelta(minutes=len(self._scrapes))))

    async def drift(self, *, failing: str = "") -> None:
        """Let the operator find a new trigger for the same resource, then scrape."""
        self.world.failing = failing
        self.world.annotate(f"2026-11-18T09:00:{len(self._scrapes):02}Z")
        await self.world.reconciler.run(self.world.target, is_policy_enforced=True)
        self.scrape()

    def firing(self) -> dict[str, list[Group]]:
        found = {rule.name: rule.firing(self._scrapes) for rule in RULES}
        return {name: groups for name, groups in found.items() if groups}


@pytest.fixture
async def prometheus(tmp_path: Path) -> AsyncIterator[Prometheus]:
    """Has scraped an object without drift for an hour."""
    async with database_world(tmp_path, prefix="openbao_") as world:
        prometheus = Prometheus(world)
        world.reconciler.add(world.target.reference)
        prometheus.scrape(60)
        yield prometheus


def test_the_rules_are_about_metrics_that_exist(prometheus: Prometheus) -> None:
    known = {name for name, _ in Scrape(prometheus.world.registry, timedelta(0)).samples}

    assert [rule.name for rule in RULES] == [DETECTED, REPEATS, NOT_CORRECTED]
    assert {rule.metric for rule in RULES} <= known


def test_nothing_fires_without_drift(prometheus: Prometheus) -> None:
    assert prometheus.firing() == {}


async def test_the_first_drift_of_a_kind_is_alerted_for_some_minutes(prometheus: Prometheus) -> None:
    await prometheus.drift()

    first = prometheus.firing()
    prometheus.scrape(10)

    assert first == {DETECTED: [("default", "db", "Service")]}
    assert prometheus.firing() == {}


async def test_drift_that_is_not_corrected_is_alerted_until_it_is(prometheus: Prometheus) -> None:
    fired = []
    for _ in range(11):
        await prometheus.drift(failing="infra")
        fired.append(NOT_CORRECTED in prometheus.firing())
    await prometheus.drift()

    assert fired == [False] * 10 + [True]
    assert NOT_CORRECTED not in prometheus.firing()


async def test_a_trigger_that_was_removed_by_hand_is_not_alerted(prometheus: Prometheus) -> None:
    await prometheus.drift(failing="infra")
    prometheus.scrape(10)
    fired = NOT_CORRECTED in prometheus.firing()

    prometheus.world.failing = ""
    prometheus.world.clear_annotations()
    await prometheus.world.reconciler.run(prometheus.world.target, is_policy_enforced=True)
    prometheus.scrape()

    assert fired
    assert NOT_CORRECTED not in prometheus.firing()


async def test_an_outage_is_not_drift_that_repeats(prometheus: Prometheus) -> None:
    for _ in range(20):
        await prometheus.drift(failing="infra")
    await prometheus.drift()

    assert REPEATS not in prometheus.firing()


async def test_drift_that_returns_after_each_correction_repeats(prometheus: Prometheus) -> None:
    fired = []
    for _ in range(11):
        await prometheus.drift()
        fired.append(REPEATS in prometheus.firing())

    assert fired == [False] * 10 + [True]
