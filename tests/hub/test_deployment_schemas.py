"""What is read from the body of a new deployment."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

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
)
from sentinel.core.labels import parse
from sentinel.hub.deployment_schemas import NewDeployment, to_request
from sentinel.web import decoding
from sentinel.web.errors import Unprocessable
from sentinel.web.problem import FieldError, Problem

MINIMAL: dict[str, Any] = {"config_id": "edge", "version": 2, "targets": {"ids": ["a"]}, "strategy": "canary"}
FULL: dict[str, Any] = {
    "config_id": "edge",
    "version": 2,
    "targets": {"selector": "tier=web"},
    "strategy": "canary",
    "offline": "fail",
    "queue": True,
    "order": {"spread_by": "zone", "regions": {"label": "region", "values": ["eu", "us"]}},
    "progress_deadline": "2h",
    "rolling": {
        "batch_size": "25%",
        "batch_delay": "1m30s",
        "failure_threshold": 3,
        "min_healthy_time": "10s",
        "max_unavailable": "50%",
    },
    "canary": {
        "instances": {"selector": "zone=a"},
        "duration": "10m",
        "interval": "20s",
        "min_requests": 0,
        "success_criteria": [{"metric": "latency_p99_ms", "max": 250, "max_vs_baseline": 1.5}],
        "steps": [5, "50%"],
    },
}
SECOND = timedelta(seconds=1)


def read(body: dict[str, Any]) -> Request:
    return to_request(decoding.decode(msgspec.json.encode(body), NewDeployment))


def with_member(path: str, value: object) -> dict[str, Any]:
    """Return the smallest body with one more member."""
    body: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(MINIMAL))
    *parents, name = path.split(".")
    parent = body
    for each in parents:
        parent = parent.setdefault(each, {})
    parent[name] = value
    return body


def errors_of(body: dict[str, Any]) -> dict[str, str]:
    try:
        read(body)
    except (Unprocessable, Problem) as refusal:
        return {each.field: each.message for each in refusal.errors if isinstance(each, FieldError)}
    return {}


def test_the_defaults_are_those_of_the_core() -> None:
    expected = Request(config_id="edge", version=2, targets=Targets(ids=("a",)), strategy=Strategy.CANARY)

    assert read(MINIMAL) == expected
    without_strategy = {name: value for name, value in MINIMAL.items() if name != "strategy"}
    assert read(without_strategy).strategy is Strategy.ROLLING


def test_every_field_is_read() -> None:
    assert read(FULL) == Request(
        config_id="edge",
        version=2,
        targets=Targets(selector=parse("tier=web")),
        strategy=Strategy.CANARY,
        offline=OfflinePolicy.FAIL,
        queue=True,
        order=TargetOrder(spread_by="zone", regions=Regions("region", ("eu", "us"))),
        progress_deadline=7_200 * SECOND,
        rolling=Rolling(
            batch_size=Count(25, is_percent=True),
            batch_delay=90 * SECOND,
            failure_threshold=Count(3),
            min_healthy_time=10 * SECOND,
            max_unavailable=Count(50, is_percent=True),
        ),
        canary=Canary(
            selector=parse("zone=a"),
            duration=600 * SECOND,
            interval=20 * SECOND,
            min_requests=0,
            success_criteria=(Criterion(metric=Metric.LATENCY_P99_MS, max=250, max_vs_baseline=1.5),),
            steps=(Count(5), Count(50, is_percent=True)),
        ),
    )


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("config", "edge", "config"),
        ("targets.labels", "a=b", "targets.labels"),
        ("rolling.batchsize", 2, "rolling.batchsize"),
        ("canary.instances", {"label": "a"}, "canary.instances.label"),
        ("order", {"zone": "a"}, "order.zone"),
        ("version", 0, "version"),
        ("version", "2", "version"),
        ("strategy", "blue_green", "strategy"),
        ("rolling.batch_size", 0, "rolling.batch_size"),
        ("rolling.batch_size", -1, "rolling.batch_size"),
        ("rolling.batch_size", 2**40, "rolling.batch_size"),
        ("rolling.batch_size", 1.5, "rolling.batch_size"),
        ("rolling.batch_size", "0%", "rolling.batch_size"),
        ("rolling.batch_size", "101%", "rolling.batch_size"),
        ("rolling.batch_size", "2", "rolling.batch_size"),
        ("rolling.failure_threshold", "x", "rolling.failure_threshold"),
        ("rolling.max_unavailable", 0, "rolling.max_unavailable"),
        ("rolling.batch_delay", "30", "rolling.batch_delay"),
        ("rolling.batch_delay", 30, "rolling.batch_delay"),
        ("rolling.batch_delay", "-1s", "rolling.batch_delay"),
        ("rolling.min_healthy_time", "9000h", "rolling.min_healthy_time"),
        ("progress_deadline", "0s", "progress_deadline"),
        ("canary.instances", "10", "canary.instances"),
        ("canary.instances", {"selector": "a in"}, "canary.instances.selector"),
        ("canary.duration", "0s", "canary.duration"),
        ("canary.interval", "soon", "canary.interval"),
        ("canary.min_requests", -1, "canary.min_requests"),
        ("canary.steps", [1, "x"], "canary.steps[1]"),
        ("canary.success_criteria", [{"metric": "cpu", "max": 1}], "canary.success_criteria[0].metric"),
        ("canary.success_criteria", [{"metric": "error_rate"}], "canary.success_criteria[0]"),
        ("canary.success_criteria", [{"metric": "error_rate", "max": 5}], "canary.success_criteria[0]"),
        ("order.regions", {"label": ""}, "order.regions.label"),
        ("targets", {}, "targets"),
        ("targets", {"ids": []}, "targets"),
        ("targets", {"ids": ["a"], "selector": "a=b"}, "targets"),
        ("targets", {"selector": "a=("}, "targets.selector"),
        ("config_id", "a/b", "config_id"),
    ],
)
def test_a_bad_field_is_named(path: str, value: object, field: str) -> None:
    assert list(errors_of(with_member(path, value))) == [field]


def test_no_targets_are_refused_like_empty_ones() -> None:
    body = {name: value for name, value in MINIMAL.items() if name != "targets"}

    assert errors_of(body) == {"targets": "expected either ids or a selector"}


def test_all_values_that_are_wrong_are_reported_together() -> None:
    body = with_member("rolling", {"batch_size": "x", "batch_delay": "y"}) | {"progress_deadline": "z"}

    assert errors_of(body) == {
        "progress_deadline": 'expected a duration such as 30s, got "z"',
        "rolling.batch_size": 'expected a number from 1 on or a percentage such as "25%", got "x"',
        "rolling.batch_delay": 'expected a duration such as 30s, got "y"',
    }
