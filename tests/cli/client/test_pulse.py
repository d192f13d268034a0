"""`sentinel pulse`: requesting an event, and waiting for the adapters."""

from __future__ import annotations

import asyncio

from sentinel.cli.client.pulse import pulse
from tests.cli.client.serving import ServedFleet, decoded


async def test_an_event_is_requested(fleet: ServedFleet) -> None:
    await fleet.create(id="c1")

    code, out, _ = await fleet.run(pulse, "c1")

    assert (code, out) == (0, "requested an event for clusters/c1\n")
    assert "pulse_requested_time" in await fleet.get("clusters/c1")


async def test_wait_ends_when_every_required_adapter_has_reported_since(fleet: ServedFleet) -> None:
    await fleet.create(id="c1")
    await fleet.reports("clusters/c1", "validation", "dns")
    await fleet.later(60)

    waiting = asyncio.create_task(fleet.run(pulse, "c1", "--wait"))
    await fleet.until("GET /api/hyperfleet/v1/clusters/c1/statuses 200")
    await fleet.later(1)
    await fleet.reports("clusters/c1", "validation")
    await fleet.until("GET /api/hyperfleet/v1/clusters/c1/statuses 200", times=3)
    await fleet.reports("clusters/c1", "dns", available="False")
    code, out, err = await waiting

    assert (code, out) == (0, "clusters/c1: validation, dns answered; it is not ready\n")
    assert err.splitlines()[0] == "0 of 2 adapters have answered, waiting for validation, dns"
    assert "1 of 2 adapters have answered, waiting for dns" in err.splitlines()


async def test_json_output_is_the_resource_after_the_wait(fleet: ServedFleet) -> None:
    await fleet.create("nodepools", "pool", id="p1", owner_references={"id": (await fleet.create())["id"]})

    waiting = asyncio.create_task(fleet.run(pulse, "p1", "--wait", "--output", "json"))
    await fleet.until("/pulse 202")
    await fleet.reports("nodepools/p1", "validation")
    code, out, _ = await waiting

    assert code == 0
    assert decoded(out)["status"]["phase"] == "Ready"


async def test_a_report_of_work_in_progress_does_not_end_the_wait(fleet: ServedFleet) -> None:
    await fleet.create("nodepools", "pool", id="p1", owner_references={"id": (await fleet.create())["id"]})
    await fleet.reports("nodepools/p1", "validation")
    await fleet.later(60)

    waiting = asyncio.create_task(fleet.run(pulse, "p1", "--wait", "--timeout", "300ms"))
    await fleet.until("/pulse 202")
    await fleet.later(1)
    await fleet.reports("nodepools/p1", "validation", available="Unknown")
    code, out, err = await waiting

    assert (code, out) == (1, "")
    assert err.splitlines()[-1].endswith("0 of 1 adapters have answered, waiting for validation")


async def test_a_paused_resource_is_not_waited_for(fleet: ServedFleet) -> None:
    await fleet.create(id="c1")
    await fleet.call("POST", "clusters/c1/pause")

    code, _, err = await fleet.run(pulse, "c1", "--wait")

    assert code == 1
    assert err == "clusters/c1 is paused: the event goes out after sentinel resume c1\n"


async def test_a_resource_without_required_adapters_is_not_waited_for(fleet: ServedFleet) -> None:
    await fleet.create("manifests", id="m1")

    code, out, _ = await fleet.run(pulse, "m1", "--wait")

    assert code == 0
    assert out == "requested an event for manifests/m1; it has no required adapters\n"


async def test_an_unknown_resource_is_refused(fleet: ServedFleet) -> None:
    code, _, err = await fleet.run(pulse, "missing", "--wait")

    assert code == 1
    assert "missing" in err
