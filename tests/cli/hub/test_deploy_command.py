"""`sentinel hub deploy`: what it asks of the hub, what it prints, and how it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import click
import pytest

from sentinel.cli.hub.deploy_options import deployment_options, request_body
from sentinel.core.hub.rollout_state import ReportedState
from sentinel.core.hub.versions import VersionName
from sentinel.core.line_diff import unified_diff
from sentinel.core.proxy.facts import Resolve
from tests.cli.hub.served_hub import ServedHub
from tests.hub.rest.rest_hub import VALID, WITH_OTHER_LISTENER, WITH_OTHER_ROUTE
from tests.hub.rest.running_rollouts import deployment_id
from tests.support.hub.store_records import instance

EDGE = VersionName("edge", 2)
ID = deployment_id(1)
UNRESOLVED = VALID + 'upstreams { upstream "api" { target "gone.example:80" } }\n'


@pytest.fixture
async def fleet(hub: ServedHub) -> ServedHub:
    """Two instances that have the first of two versions."""
    await hub.push("edge", VALID, WITH_OTHER_ROUTE)
    await hub.add(*(instance(name, assigned=VersionName("edge", 1), labels={"zone": name}) for name in "ab"))
    return hub


def body(*words: str) -> dict[str, Any]:
    """Return the request that these options make."""

    @click.command
    @deployment_options
    def command(**given: Any) -> int:
        made.update(request_body(EDGE, given))
        return 0

    made: dict[str, Any] = {}
    command.main(list(words), standalone_mode=False)
    return made


def test_what_is_not_given_is_left_to_the_hub() -> None:
    assert body("--instance", "a", "--instance", "b") == {
        "config_id": "edge",
        "version": 2,
        "targets": {"ids": ["a", "b"]},
        "strategy": "rolling",
    }


def test_every_option_is_a_field() -> None:
    words = (
        "--selector zone=a --batch-size 25% --batch-delay 1m --failure-threshold 2 --min-healthy-time 5s"
        " --max-unavailable 3 --canary 10% --canary-duration 2m --canary-interval 10s --canary-step 5"
        " --canary-step 50% --criterion error_rate<=0.01 --criterion latency_p99_ms<=1.5x --min-requests 0"
        " --offline fail --queue --spread-by zone --regions region=eu,us --progress-deadline 1h"
    )

    assert body(*words.split()) == {
        "config_id": "edge",
        "version": 2,
        "targets": {"selector": "zone=a"},
        "strategy": "canary",
        "offline": "fail",
        "queue": True,
        "order": {"spread_by": "zone", "regions": {"label": "region", "values": ["eu", "us"]}},
        "progress_deadline": "1h",
        "rolling": {
            "batch_size": "25%",
            "batch_delay": "1m",
            "failure_threshold": 2,
            "min_healthy_time": "5s",
            "max_unavailable": 3,
        },
        "canary": {
            "instances": "10%",
            "duration": "2m",
            "interval": "10s",
            "min_requests": 0,
            "success_criteria": [
                {"metric": "error_rate", "max": 0.01},
                {"metric": "latency_p99_ms", "max_vs_baseline": 1.5},
            ],
            "steps": [5, "50%"],
        },
    }


@pytest.mark.parametrize(
    ("words", "strategy"),
    [(("--strategy", "all-at-once"), "all_at_once"), (("--canary", "zone=a"), "canary"), ((), "rolling")],
)
def test_the_strategy_follows_from_the_options(words: Sequence[str], strategy: str) -> None:
    assert body("--instance", "a", *words)["strategy"] == strategy


def test_regions_may_follow_in_the_order_of_their_names() -> None:
    assert body("--instance", "a", "--regions", "region")["order"] == {
        "regions": {"label": "region", "values": []}
    }


def test_canaries_are_chosen_by_number_or_labels() -> None:
    def chosen(text: str) -> object:
        return body("--instance", "a", "--canary", text)["canary"]["instances"]

    assert [chosen("2"), chosen("5%"), chosen("zone=a")] == [2, "5%", {"selector": "zone=a"}]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--selector or --instance"),
        (("--instance", "a", "--selector", "b"), "--selector or --instance"),
        (("--instance", "a", "--batch-size", "0"), "25%"),
        (("--instance", "a", "--canary", "200%"), "25%"),
        (("--instance", "a", "--batch-delay", "30"), "30s"),
        (("--instance", "a", "--criterion", "cpu<=1"), "error_rate, latency_p50_ms"),
        (("--instance", "a", "--criterion", "error_rate<1"), "error_rate<=0.01"),
        (("--selector", "a=("), "selector"),
        (("--instance", "a", "--regions", "region="), "region=eu,us"),
        (("--instance", "a", "--strategy", "rolling", "--canary", "2"), "--strategy canary"),
        (("--instance", "a", "--strategy", "all_at_once", "--batch-size", "2"), "one batch"),
        (("--instance", "a", "--plan", "--wait"), "--plan or --wait"),
    ],
)
async def test_wrong_usage_is_exit_2(fleet: ServedHub, words: Sequence[str], message: str) -> None:
    code, _, errors = await fleet.run("deploy", "edge@2", *words)

    assert (code, message in errors) == (2, True)


async def test_a_deployment_is_started(fleet: ServedHub) -> None:
    code, output, errors = await fleet.run("deploy", "edge@2", "--selector", "zone in (a,b)")

    assert (code, output) == (0, f"deployment {ID}: edge@2 to 2 instances in 2 batches, rolling\n")
    assert errors == f"follow it: sentinel hub deployments watch {ID}\n"


async def test_a_plan_shows_batches_the_difference_and_the_time(fleet: ServedHub) -> None:
    words = ("deploy", "edge@2", "--instance", "a", "--instance", "b", "--plan")

    code, output, _ = await fleet.run(*words)
    planned = await fleet.read(*words)

    assert code == 0
    assert output.splitlines() == [
        "BATCH  INSTANCE  FROM    TO",
        "    1  a         edge@1  edge@2",
        "    2  b         edge@1  edge@2",
        "",
        *unified_diff(VALID, WITH_OTHER_ROUTE, before_name="edge@1", after_name="edge@2").splitlines(),
        "",
        "2 instances in 2 batches, about 40s",
    ]
    assert planned["batches"][0] == [{"id": "a", "from": "edge@1", "to": "edge@2"}]
    assert (await fleet.read("deployments", "list"))["items"] == []


async def test_a_plan_says_that_proxies_have_to_restart(fleet: ServedHub) -> None:
    await fleet.push("moved", VALID, WITH_OTHER_LISTENER)
    await fleet.add(instance("c", assigned=VersionName("moved", 1)))

    code, output, _ = await fleet.run("deploy", "moved@2", "--instance", "c", "--plan")

    assert (code, output.splitlines()[-1]) == (0, "proxies have to restart for this change")


async def test_a_plan_warns_of_names_that_do_not_resolve() -> None:
    async with ServedHub(resolve=Resolve.WARN) as hub:
        await hub.push("down", UNRESOLVED)
        await hub.add(instance("a"))

        code, _, errors = await hub.run("deploy", "down@1", "--instance", "a", "--plan")

    assert code == 0
    assert errors.startswith("warning: down@1:13:")


async def test_a_plan_that_would_be_refused_is_exit_1(fleet: ServedHub) -> None:
    await fleet.push("down", UNRESOLVED)

    code, output, errors = await fleet.run("deploy", "down@1", "--instance", "a", "--instance", "x", "--plan")

    assert (code, output.splitlines()[1]) == (1, "    1  a         edge@1  down@1")
    assert errors.startswith("targets.ids: there is no instance x\ndown@1:13:")


async def test_a_refusal_names_fields_and_places(fleet: ServedHub) -> None:
    await fleet.push("down", UNRESOLVED)

    unresolved = await fleet.run("deploy", "down@1", "--instance", "a")
    unknown = await fleet.run("deploy", "edge@2", "--instance", "x")
    missing = await fleet.run("deploy", "edge@7", "--instance", "a")
    forbidden = await fleet.run("deploy", "edge@2", "--instance", "a", token="viewer")

    assert unresolved[0] == 1
    assert unresolved[2].startswith("down@1:13:")
    assert "not started: 1 problem\n" in unresolved[2]
    assert unknown[2] == "targets.ids: there is no instance x\nnot started: 1 problem\n"
    assert (missing[0], "edge@7" in missing[2]) == (1, True)
    assert (forbidden[0], "403" in forbidden[2]) == (1, True)


async def finish(fleet: ServedHub, state: ReportedState, **more: str) -> None:
    """Let both instances end as soon as there is a deployment."""
    async with asyncio.timeout(60):
        await fleet.rollouts.was_created.wait()
    await fleet.rollouts.report(ID, state, "a", "b", **more)
    if state is ReportedState.FAILED:
        await fleet.rollouts.report(ID, ReportedState.ROLLED_BACK, "a", "b")


async def test_waiting_for_a_completed_deployment_is_a_success(fleet: ServedHub) -> None:
    words = ("deploy", "edge@2", "--instance", "a", "--instance", "b", "--batch-size", "2", "--wait")

    (code, output, _), _ = await asyncio.gather(fleet.run(*words), finish(fleet, ReportedState.COMPLETED))

    told = [line[9:] for line in output.splitlines()]
    assert code == 0
    assert told[0] == f"{ID}: edge@2 to 2 instances in 1 batch, rolling"
    assert told[-1] == "completed"


async def test_waiting_for_a_failed_deployment_is_exit_1(fleet: ServedHub) -> None:
    words = ("deploy", "edge@2", "--instance", "a", "--instance", "b", "--batch-size", "2", "--wait")

    (code, output, _), _ = await asyncio.gather(
        fleet.run(*words), finish(fleet, ReportedState.FAILED, message="line 3: unknown directive")
    )

    assert code == 1
    assert "line 3: unknown directive" in output
    assert output.endswith("rollback completed\n")


async def test_the_document_is_the_only_output_for_scripts(fleet: ServedHub) -> None:
    words = ("deploy", "edge@2", "--instance", "a", "--instance", "b", "--batch-size", "2", "--wait")

    (code, output, errors), _ = await asyncio.gather(
        fleet.run(*words, "--output", "json"), finish(fleet, ReportedState.COMPLETED)
    )

    assert code == 0
    assert json.loads(output)["state"] == "completed"
    assert errors.endswith("completed\n")


async def test_waiting_goes_on_while_the_hub_restarts(fleet: ServedHub) -> None:
    words = ("deploy", "edge@2", "--instance", "a", "--instance", "b", "--batch-size", "2", "--wait")

    async def restart() -> None:
        await fleet.until_read()
        await fleet.restart(meanwhile=finish(fleet, ReportedState.COMPLETED))

    (code, output, _), _ = await asyncio.gather(fleet.run(*words), restart())

    assert code == 0
    assert output.endswith("completed\n")
