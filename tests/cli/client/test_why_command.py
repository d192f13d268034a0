"""`sentinel why` against a real API."""

from __future__ import annotations

from datetime import timedelta

from sentinel.cli.client.why import why
from sentinel.core.pulse.decision import Policy
from tests.cli.client.serving import ServedFleet, decoded


async def test_each_unfinished_adapter_is_listed_with_its_message(fleet: ServedFleet) -> None:
    await fleet.create(id="c1")
    since = (await fleet.later(5)).isoformat().replace("+00:00", "Z")
    await fleet.reports("clusters/c1", "validation")
    await fleet.reports("clusters/c1", "dns", available="False")

    code, out, _ = await fleet.run(why, "c1", "--output", "json")

    body = decoded(out)
    assert code == 0
    assert set(body) == {"id", "ready", "waiting_for", "next_pulse"}
    assert (body["id"], body["ready"]) == ("c1", False)
    (wait,) = body["waiting_for"]
    assert (wait["adapter"], wait["reason"], wait["message"]) == ("dns", "Said", "as it is")
    assert wait["since"] <= since
    assert body["next_pulse"]


async def test_work_in_progress_replaces_the_precondition_that_was_met(fleet: ServedFleet) -> None:
    await fleet.create(id="c1")
    created = fleet.clock.now().isoformat().replace("+00:00", "Z")
    await fleet.reports("clusters/c1", "dns", available="False")
    await fleet.later(5)
    await fleet.reports("clusters/c1", "validation")
    body = fleet.report("dns", available="Unknown")
    body["conditions"][1] |= {"reason": "InProgress", "message": "zone is being created"}
    assert (await fleet.call("PUT", "clusters/c1/statuses", body)).status == 204

    _, text, _ = await fleet.run(why, "c1")
    _, out, _ = await fleet.run(why, "c1", "--output", "json")

    assert ": InProgress – zone is being created" in text
    assert decoded(out)["waiting_for"] == [
        {"adapter": "dns", "reason": "InProgress", "message": "zone is being created", "since": created}
    ]


async def test_adapters_that_never_reported_are_listed(fleet: ServedFleet) -> None:
    await fleet.create(id="c1")

    _, out, _ = await fleet.run(why, "c1", "--output", "json")

    assert [(each["adapter"], each["reason"]) for each in decoded(out)["waiting_for"]] == [
        ("dns", "NotReported"),
        ("validation", "NotReported"),
    ]


async def test_the_servers_policy_is_used_unless_an_option_overrides_it() -> None:
    policy = Policy(max_age_not_ready=timedelta(days=36_500), max_age_ready=timedelta(days=1))
    async with ServedFleet(policies={"clusters": policy}) as fleet:
        await fleet.create(id="c1")
        await fleet.reports("clusters/c1", "validation")
        await fleet.reports("clusters/c1", "dns", available="False")

        _, by_server, _ = await fleet.run(why, "c1")
        _, by_option, _ = await fleet.run(why, "c1", "--max-age-not-ready", "1s")

    assert "(max age 36500d)" in by_server
    assert "next pulse due now, and every 1s until it is answered" in by_option


async def test_a_ready_resource_waits_for_nothing(fleet: ServedFleet) -> None:
    await fleet.create(id="c1")
    await fleet.reports("clusters/c1", "validation", "dns")

    code, text, _ = await fleet.run(why, "c1")
    _, out, _ = await fleet.run(why, "c1", "--output", "json")

    assert code == 0
    assert text.startswith("Cluster one: ready for ")
    assert decoded(out) | {"next_pulse": None} == {
        "id": "c1",
        "ready": True,
        "waiting_for": [],
        "next_pulse": None,
    }


async def test_a_paused_resource_has_no_next_pulse(fleet: ServedFleet) -> None:
    await fleet.create(id="c1")
    await fleet.call("POST", "clusters/c1/pause")

    _, text, _ = await fleet.run(why, "c1")
    _, out, _ = await fleet.run(why, "c1", "--output", "json")

    assert text.splitlines()[-1] == "paused: no events are sent for it until it is resumed"
    assert (decoded(out)["next_pulse"], decoded(out)["paused"]) == (None, True)


async def test_a_deletion_lists_adapters_and_children(fleet: ServedFleet) -> None:
    await fleet.create(id="c1")
    await fleet.create("nodepools", "pool", id="p1", owner_references={"id": "c1"})
    await fleet.call("DELETE", "clusters/c1")
    await fleet.reports("clusters/c1", "dns", generation=2, finalized=True)

    _, text, _ = await fleet.run(why, "c1")
    _, child, _ = await fleet.run(why, "p1", "--output", "json")
    _, out, _ = await fleet.run(why, "c1", "--output", "json")

    assert "waiting for validation to finalize for " in text
    assert "waiting for 1 child to be deleted" in text
    assert decoded(child)["deleting"] is True
    body = decoded(out)
    assert (body["deleting"], body["children"]) == (True, 1)
    assert [each["adapter"] for each in body["waiting_for"]] == ["validation"]


async def test_the_policy_can_be_given_by_options(fleet: ServedFleet) -> None:
    await fleet.create(id="c1")
    await fleet.reports("clusters/c1", "validation", "dns")

    _, text, _ = await fleet.run(why, "c1", "--max-age-ready", "876000h")
    code, _, err = await fleet.run(why, "c1", "--max-age-ready", "soon")

    assert text.splitlines()[-1].startswith("next check in ")
    assert code == 2
    assert '"soon"' in err


async def test_an_unknown_id_exits_1(fleet: ServedFleet) -> None:
    code, out, err = await fleet.run(why, "missing", "--output", "json")

    assert (code, out) == (1, "")
    assert err == 'no resource with the id or name "missing"\n'


async def test_with_pulse_on_progress_the_next_pulse_follows_progress(fleet: ServedFleet) -> None:
    await fleet.create(id="c1")
    await fleet.reports("clusters/c1", "validation")
    await fleet.reports("clusters/c1", "dns", available="False")

    _, without, _ = await fleet.run(why, "c1")
    _, following, _ = await fleet.run(why, "c1", "--pulse-on-progress")

    assert without.splitlines()[-1].endswith(": max age expired (not ready)")
    assert following.splitlines()[-1].endswith(": adapter progressed")


async def test_an_invalid_id_is_refused_before_any_request(fleet: ServedFleet) -> None:
    code, out, err = await fleet.run(why, "a\nb")

    assert (code, out) == (2, "")
    assert 'such as the id of a resource, got "a\\nb"' in err
    assert fleet.requests == []
