"""`sentinel hub deployments`: what it prints, and what it changes."""

from __future__ import annotations

import asyncio
import re

import pytest

from sentinel.cli.hub.client import HubApiClient
from sentinel.cli.hub.deploy import wait
from sentinel.cli.options import OutputFormat
from sentinel.core.hub.rollout_state import ReportedState
from sentinel.core.hub.versions import VersionName
from tests.cli.hub.served_hub import ServedHub
from tests.hub.rest.rest_hub import VALID, WITH_OTHER_ROUTE
from tests.hub.rest.running_rollouts import deployment_id
from tests.support.hub.store_records import instance

ID = deployment_id(1)


@pytest.fixture
async def fleet(hub: ServedHub) -> ServedHub:
    """A deployment to the first of two instances has begun."""
    await hub.push("edge", VALID, WITH_OTHER_ROUTE)
    await hub.add(*(instance(name, assigned=VersionName("edge", 1)) for name in "ab"))
    await hub.deploy("edge", 2, ids=["a", "b"])
    return hub


async def test_the_list_shows_how_far_each_is(fleet: ServedHub) -> None:
    await fleet.rollouts.report(ID, ReportedState.FAILED, "a")

    code, output, _ = await fleet.run("deployments", "list")
    failed = await fleet.read("deployments", "list", "--state", "failed")
    running = await fleet.read("deployments", "list", "--state", "running")

    header, row = (re.split("  +", line) for line in output.splitlines())
    assert code == 0
    assert header[:5] == ["ID", "VERSION", "STRATEGY", "STATE", "ROLLBACK"]
    assert row[:8] == [ID, "edge@2", "rolling", "failed", "running", "1/2", "0/2", "1"]
    assert row[-1] == "1 of 2 instances failed"
    assert ([each["id"] for each in failed["items"]], running["items"]) == ([ID], [])


async def test_one_is_printed_with_its_instances(fleet: ServedHub) -> None:
    code, output, _ = await fleet.run("deployments", "get", ID)
    found = await fleet.read("deployments", "get", ID)

    assert code == 0
    assert "   ● a  pending          edge@1 → edge@2\n" in output
    assert "\x1b" not in output
    assert found == (await fleet.call("GET", f"deployments/{ID}")).json


@pytest.mark.parametrize(
    ("action", "expected"),
    [("pause", "paused"), ("abort", "aborted"), ("rollback", "aborted, its rollback is running")],
)
async def test_an_action_says_what_became_of_it(fleet: ServedHub, action: str, expected: str) -> None:
    code, output, _ = await fleet.run("deployments", action, ID)

    assert (code, output) == (0, f"deployment {ID} is {expected}\n")


async def test_a_paused_one_is_resumed(fleet: ServedHub) -> None:
    await fleet.run("deployments", "pause", ID)

    assert (await fleet.read("deployments", "resume", ID))["state"] == "running"


async def test_an_action_in_the_wrong_state_is_exit_1(fleet: ServedHub) -> None:
    code, _, errors = await fleet.run("deployments", "promote", ID)

    assert (code, errors) == (1, "refused (409): only a canary that is being watched can be promoted\n")


async def test_a_retry_names_the_new_deployment(fleet: ServedHub) -> None:
    await fleet.rollouts.report(ID, ReportedState.FAILED, "a")
    await fleet.rollouts.report(ID, ReportedState.ROLLED_BACK, "a")

    code, output, _ = await fleet.run("deployments", "retry", ID)

    assert (code, output) == (0, f"deployment {deployment_id(2)} is running\n")


async def test_a_rollback_by_hand_is_awaited(fleet: ServedHub) -> None:
    await fleet.run("deployments", "abort", ID)
    await fleet.rollouts.report(ID, ReportedState.COMPLETED, "a")

    async def go_back() -> None:
        async with asyncio.timeout(60):
            await fleet.rollouts.was_rolled_back.wait()
        await fleet.rollouts.report(ID, ReportedState.ROLLED_BACK, "a")

    (code, output, _), _ = await asyncio.gather(fleet.run("deployments", "rollback", ID, "--wait"), go_back())

    assert (code, output.splitlines()[-1][9:]) == (0, "rollback completed")


async def test_one_that_is_over_is_watched_once(fleet: ServedHub) -> None:
    await fleet.rollouts.report(ID, ReportedState.FAILED, "a", message="no")
    await fleet.rollouts.report(ID, ReportedState.ROLLED_BACK, "a")

    code, output, _ = await fleet.run("deployments", "watch", ID)
    unknown = await fleet.run("deployments", "watch", "x")

    assert (code, output.splitlines()[-1][9:]) == (1, "rollback completed")
    assert (unknown[0], "404" in unknown[2]) == (1, True)


async def test_ending_the_wait_says_that_the_deployment_goes_on(
    fleet: ServedHub, capsys: pytest.CaptureFixture[str]
) -> None:
    async with fleet.connection() as connection:
        waiting = asyncio.create_task(wait(HubApiClient(connection), ID, OutputFormat.TABLE))
        await fleet.until_streaming()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    assert f"the deployment {ID} goes on" in capsys.readouterr().err
    assert (await fleet.rollouts.get(ID)).rollout.state == "running"
