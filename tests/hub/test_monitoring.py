"""The alert rules and the dashboard that we ship: Prometheus reads them, and they fire on what a hub exports."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml
from prometheus_client import CollectorRegistry

from sentinel.core.hub.deployment import Strategy
from sentinel.core.hub.rollout_state import RolloutState
from sentinel.hub.settings import HubSettings
from sentinel.hub.telemetry import METRICS_PREFIX
from sentinel.ports.hub_store import HubEvent, HubEventType
from sentinel.ports.webhook_store import Delivery
from sentinel.web.metrics import RequestMetrics
from tests.support.fleet.store_records import MOMENT
from tests.support.hub.in_process import SECOND, InProcessHub
from tests.support.missing_service import skip_or_fail

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "sentinel-hub.rules.yaml"
DASHBOARD = DEPLOY / "grafana" / "sentinel-hub.json"
MINUTE = timedelta(minutes=1)

Scrape: TypeAlias = "dict[str, float]"
"""The values of a scrape by series, as Prometheus writes them."""


@pytest.fixture
async def hub() -> AsyncIterator[InProcessHub]:
    async with InProcessHub(settings=HubSettings(expected_agents=2)) as running:
        yield running


def promtool(*words: str | Path) -> None:
    """Run promtool, which has to succeed."""
    if shutil.which("promtool") is None:
        skip_or_fail("promtool is not installed")
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def scrape(registry: CollectorRegistry) -> Scrape:
    """What `/metrics` has, with the labels that Prometheus adds where there are none."""
    found: Scrape = {}
    for family in registry.collect():
        for sample in family.samples:
            labels = {"instance": "hub:8080", "job": "sentinel-hub", **sample.labels}
            shown = ", ".join(f'{name}="{value}"' for name, value in labels.items())
            found[f"{sample.name}{{{shown}}}"] = sample.value
    return found


async def scraped(hub: InProcessHub) -> Scrape:
    registry = hub.built.component.part.registry
    assert registry is not None
    await hub.built.telemetry.refresh()
    return scrape(registry)


def alerts() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def panels() -> list[str]:
    """The queries of the dashboard."""
    found = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"].replace("$__rate_interval", "5m") for panel in found for target in panel["targets"]]


async def go_offline(hub: InProcessHub) -> None:
    agent = await hub.registered()
    await agent.heartbeat()
    await hub.clock.advance(hub.settings.offline_threshold + 10 * SECOND)
    await hub.sweep()


async def fall_behind(hub: InProcessHub) -> None:
    await hub.registered("edge-7")
    await hub.save_versions("api", 'a "1"')
    await hub.assign("api@1", "edge-7")
    await hub.clock.advance(timedelta(minutes=6))


async def fail_a_deployment(hub: InProcessHub) -> None:
    hub.built.telemetry.deployment_ended(Strategy.ROLLING, RolloutState.FAILED, MINUTE)


async def deploy_slowly(hub: InProcessHub) -> None:
    hub.built.telemetry.deployment_ended(Strategy.CANARY, RolloutState.COMPLETED, 11 * MINUTE)


async def deploy_quickly(hub: InProcessHub) -> None:
    hub.built.telemetry.deployment_ended(Strategy.CANARY, RolloutState.COMPLETED, 9 * MINUTE)


async def lose_an_event(hub: InProcessHub) -> None:
    event = HubEvent(number=1, time=MOMENT, type=HubEventType.CONFIG_VERSION, subject="a@1")
    dead = Delivery(webhook="hooks.example-1", event=event, next_time=MOMENT, failed_time=MOMENT)
    hub.built.telemetry.webhook_failed("hooks.example-1", dead)


async def do_nothing(hub: InProcessHub) -> None:
    """A fleet of two agents that are online."""
    for name in ("edge-1", "edge-2"):
        await (await hub.registered(name)).heartbeat()


HUB = {"instance": "hub:8080", "job": "sentinel-hub"}
DEATH = {**HUB, "webhook": "hooks.example-1", "outcome": "dead"}


@pytest.mark.parametrize(
    ("cause", "alert", "labels", "summary"),
    [
        (go_offline, "AgentOffline", HUB, "1 Sentinel agents offline"),
        (fail_a_deployment, "DeploymentFailed", HUB, "Sentinel deployment failed"),
        (fall_behind, "ConfigSyncLag", {**HUB, "instance": "edge-7"}, "Config sync lagging for edge-7"),
        (go_offline, "AgentsMissing", HUB, "Only 0 Sentinel agents online"),
        (
            deploy_slowly,
            "DeploymentSlow",
            {"strategy": "canary", "outcome": "completed"},
            "A canary deployment took more than 10 minutes and is completed",
        ),
        (deploy_quickly, "DeploymentSlow", None, ""),
        (lose_an_event, "WebhookDeadLetter", DEATH, "The webhook hooks.example-1 did not take an event"),
        *((do_nothing, alert, None, "") for alert in alerts()),
    ],
)
async def test_an_alert_fires_on_what_the_hub_exports(
    hub: InProcessHub,
    tmp_path: Path,
    cause: Callable[[InProcessHub], Any],
    alert: str,
    labels: Mapping[str, str] | None,
    summary: str,
) -> None:
    if alert == "WebhookDeadLetter":
        hub.built.telemetry.webhook_started("hooks.example-1")
    before = await scraped(hub)
    await cause(hub)
    after = await scraped(hub)

    fired = []
    if labels is not None:
        severity = alerts()[alert]["labels"]["severity"]
        fired = [{"exp_labels": {**labels, "severity": severity}, "exp_annotations": {"summary": summary}}]
    promtool("test", "rules", rule_test(tmp_path, [before, before, after], alert, fired))


def rule_test(folder: Path, scrapes: Sequence[Scrape], alert: str, fired: Sequence[Any]) -> Path:
    """A test for promtool: a scrape a minute, of which the last repeats for twenty minutes."""
    series = sorted({name for each in scrapes for name in each})
    values = {
        name: " ".join("_" if name not in each else f"{each[name]:g}" for each in [*scrapes, *[scrapes[-1]] * 20])
        for name in series
    }
    file = folder / "test.yaml"
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": text} for name, text in values.items()],
        "alert_rule_test": [{"eval_time": "15m", "alertname": alert, "exp_alerts": list(fired)}],
    }
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}))
    return file


def test_prometheus_reads_the_rules_and_the_example() -> None:
    promtool("check", "rules", RULES)
    promtool("check", "config", DEPLOY / "prometheus" / "prometheus.yaml")


def test_prometheus_reads_every_query_of_the_dashboard(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(panels())]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))

    assert len(rules) >= 12
    promtool("check", "rules", file)


async def test_every_metric_that_is_asked_for_exists(hub: InProcessHub) -> None:
    registry = hub.built.component.part.registry
    assert registry is not None
    RequestMetrics(registry=registry, prefix=METRICS_PREFIX)
    exported = set()
    for family in registry.collect():
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}.get(family.type, ("",))
        exported |= {f"{family.name}{suffix}" for suffix in suffixes}

    queries = [*panels(), *(rule["expr"] for rule in alerts().values())]
    named = {name for query in queries for name in re.findall(r"\bhub_[a-z0-9_]+", query)}

    assert len(named) > 10
    assert named - exported == set()


def test_the_rules_of_the_specification_are_as_written() -> None:
    shown = {name: (rule["expr"], rule.get("for"), rule["labels"]) for name, rule in alerts().items()}

    assert shown["AgentOffline"] == ("hub_agents_offline > 0", "5m", {"severity": "warning"})
    failed = "increase(hub_deployment_failures_total[1h]) > 0"
    assert shown["DeploymentFailed"] == (failed, None, {"severity": "critical"})
    assert shown["ConfigSyncLag"] == ("hub_config_sync_lag_seconds > 300", "5m", {"severity": "warning"})
