"""Deployments as users see them."""

from __future__ import annotations

from typing import Any

import msgspec

from sentinel.core.hub.analysis import Finding, Outcome, Verdict
from sentinel.core.hub.deployment import (
    Canary,
    Count,
    Criterion,
    Metric,
    Regions,
    Request,
    Rolling,
    Strategy,
    TargetOrder,
    Targets,
)
from sentinel.core.hub.rollout_state import Analyse, Analysed, Rollout
from sentinel.core.labels import parse
from sentinel.hub import deployment_documents
from sentinel.hub.deployment_documents import DeploymentDocument
from sentinel.ports.rollout_store import DeploymentRecord
from tests.core.hub.rollout_driver import MINUTE, SECOND, Driver, facts, of_type, request


def shown(rollout: Rollout, asked: Request) -> Any:
    record = DeploymentRecord(
        request=asked,
        created_by="ada",
        rollout=rollout,
        batches=len(rollout.batches),
        counts=rollout.counts,
    )
    document = deployment_documents.document(record)
    encoded = deployment_documents.encode(document)
    assert deployment_documents.encode(msgspec.json.decode(encoded, type=DeploymentDocument)) == encoded
    return msgspec.json.decode(encoded)


def test_the_request_is_shown_with_all_its_defaults() -> None:
    asked = request("a", "b")

    document = shown(Driver(asked).rollout, asked)

    assert document["targets"] == {"ids": ["a", "b"]}
    assert document["order"] == {"spread_by": "", "regions": None}
    assert document["rolling"] == {
        "batch_size": 1,
        "batch_delay": "30s",
        "failure_threshold": 1,
        "min_healthy_time": "0s",
        "max_unavailable": None,
    }
    assert document["canary"] == {
        "instances": "10%",
        "duration": "5m",
        "interval": "30s",
        "min_requests": 100,
        "success_criteria": [{"metric": "error_rate", "max": 0.05}],
        "steps": [],
    }


def test_what_a_user_chose_is_shown_as_it_was_written() -> None:
    asked = Request(
        config_id="api",
        version=2,
        targets=Targets(selector=parse("zone in (a,b)")),
        strategy=Strategy.CANARY,
        order=TargetOrder(spread_by="zone", regions=Regions("region", ("eu", "us"))),
        progress_deadline=90 * MINUTE,
        rolling=Rolling(batch_size=Count(25, is_percent=True), max_unavailable=Count(2)),
        canary=Canary(
            selector=parse("tier=test"),
            success_criteria=(Criterion(metric=Metric.LATENCY_P99_MS, max_vs_baseline=1.5),),
            steps=(Count(5), Count(50, is_percent=True)),
        ),
    )
    fleet = [facts("a", labels={"zone": "a", "tier": "test"}), facts("b", labels={"zone": "b"})]

    document = shown(Driver(asked, fleet).rollout, asked)

    assert document["targets"] == {"selector": "zone in (a,b)"}
    assert document["order"] == {
        "spread_by": "zone",
        "regions": {"label": "region", "values": ["eu", "us"]},
    }
    assert document["progress_deadline"] == "1h30m"
    assert (document["rolling"]["batch_size"], document["rolling"]["max_unavailable"]) == ("25%", 2)
    assert document["canary"]["instances"] == {"selector": "tier=test"}
    assert document["canary"]["steps"] == [5, "50%"]


def test_counts_and_batches_follow_the_rollout() -> None:
    asked = request("a", "b", "c")
    driver = Driver(asked)

    before = shown(driver.rollout, asked)
    driver.start()
    sent = shown(driver.rollout, asked)
    driver.complete("a")
    delayed = shown(driver.rollout, asked)

    assert (before["state"], before["batch"], before["stage"]) == ("pending", {"position": 0, "total": 3}, None)
    assert (sent["batch"]["position"], sent["stage"], sent["next_batch_time"]) == (1, "batch", None)
    assert sent["counts"] == {"pending": 1, "waiting": 2}
    assert (delayed["stage"], delayed["next_batch_time"]) == ("delay", "2026-03-01T12:00:30Z")


def test_a_row_names_what_it_left() -> None:
    driver = Driver(request("a", "b"))
    driver.start()

    sent, waiting = (
        deployment_documents.row_event("d", driver.rollout.rows[name], driver.rollout.to) for name in "ab"
    )

    assert msgspec.to_builtins(sent) == {
        "instance_id": "a",
        "batch": 1,
        "from": "api@1",
        "to": "api@2",
        "state": "pending",
        "message": "",
        "updated_time": "2026-03-01T12:00:00Z",
        "deployment_id": "d",
    }
    assert (waiting.from_, waiting.to, waiting.state) == (None, "api@2", "waiting")


def test_the_numbers_of_the_canaries_stay_after_the_end() -> None:
    asked = request("a", "b", strategy=Strategy.CANARY, canary=Canary(instances=Count(1)))
    driver = Driver(asked)
    driver.start()
    driver.complete("a")
    unseen = shown(driver.rollout, asked)["analysis"]
    [question] = of_type(driver.wait(30 * SECOND), Analyse)
    finding = Finding(metric=Metric.ERROR_RATE, value=0.4, limit=0.05)

    driver.do(
        Analysed(
            question.until, Verdict(outcome=Outcome.FAILED, reason="too bad", requests=500, findings=(finding,))
        )
    )

    assert (unseen["outcome"], unseen["extensions"], unseen["ends"]) == (None, 0, "2026-03-01T12:05:00Z")
    failed = shown(driver.rollout, asked)
    assert (failed["state"], failed["stage"], failed["reason"]) == ("failed", None, "canary analysis: too bad")
    assert failed["analysis"] == {
        "outcome": "failed",
        "reason": "too bad",
        "requests": 500,
        "findings": [{"metric": "error_rate", "value": 0.4, "limit": 0.05, "baseline": None, "violated": True}],
        "since": None,
        "ends": None,
        "extensions": None,
    }
