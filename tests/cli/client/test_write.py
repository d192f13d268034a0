"""One change to one resource: what is sent, what is said, and what is refused before anything is sent."""

from __future__ import annotations

import asyncio

import pytest
from click import Command

from sentinel.cli.client.write import create, delete, patch, pause, resume
from sentinel.core.access import Identity, Role
from tests.cli.client.serving import ServedFleet, decoded


async def test_a_resource_is_created_with_all_that_was_given(fleet: ServedFleet) -> None:
    code, out, err = await fleet.run(
        create,
        "clusters",
        *("--name", "one", "--id", "c1", "--spec", '{"replicas": 3}', "--labels", "region=us-east, tier=,"),
    )

    assert (code, out, err) == (0, "created clusters/c1\n", "")
    created = await fleet.get("clusters/c1")
    assert (created["name"], created["spec"], created["labels"]) == (
        "one",
        {"replicas": 3},
        {"region": "us-east", "tier": ""},
    )


async def test_for_scripts_what_was_created_is_printed(fleet: ServedFleet) -> None:
    _, out, _ = await fleet.run(create, "clusters", "--name", "one", "--output", "json")

    assert decoded(out) == await fleet.get(f"clusters/{decoded(out)['id']}")


async def test_a_child_is_created_below_its_parent(fleet: ServedFleet) -> None:
    await fleet.create(id="c1")

    code, _, _ = await fleet.run(create, "nodepools", "--name", "pool", "--parent", "c1", "--id", "p1")

    assert code == 0
    assert (await fleet.get("clusters/c1/nodepools/p1"))["owner_references"]["id"] == "c1"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--spec", '{"a": 1,\n "b" 2}'), "line 2, column 6"),
        (("--spec", "[1]"), "expected a JSON object"),
        (("--spec", '{"a": NaN}'), "NaN is not JSON"),
        (("--spec", "[" * 100_000), "expected JSON"),
        (("--labels", "region"), '"region"'),
        (("--labels", "=x"), '"=x"'),
        (("--labels", "a=1,a=2"), '"a" a second time'),
        (("--labels", "a-"), "there is nothing to remove it from"),
    ],
)
async def test_what_cannot_be_meant_is_refused_before_anything_is_sent(
    fleet: ServedFleet, arguments: tuple[str, ...], words: str
) -> None:
    code, out, err = await fleet.run(create, "clusters", "--name", "one", *arguments)

    assert (code, out) == (2, "")
    assert words in err
    assert fleet.requests == []


async def test_a_refusal_names_every_field_in_one_line(fleet: ServedFleet) -> None:
    code, _, err = await fleet.run(create, "clusters", "--name", " x ", "--labels", "a b=c")

    assert code == 1
    assert len(err.splitlines()) == 1
    assert "name: expected printable text" in err
    assert "labels.a b: expected" in err


async def test_numbers_reach_the_server_as_they_were_typed(fleet: ServedFleet) -> None:
    code, _, err = await fleet.run(create, "clusters", "--name", "one", "--spec", '{"n": 99999999999999999999}')

    assert code == 1
    assert "spec.n" in err


async def test_a_patch_changes_what_it_names_and_nothing_else(fleet: ServedFleet) -> None:
    await fleet.create(id="c1", spec={"a": 1, "b": {"c": 2, "d": 3}}, labels={"x": "1", "y": "2"})

    code, out, _ = await fleet.run(
        patch, "clusters", "c1", "--spec", '{"b": {"c": null}, "e": 5}', "--labels", "x-,z=3"
    )

    assert (code, out) == (0, "changed clusters/c1: generation 2\n")
    changed = await fleet.get("clusters/c1")
    assert changed["spec"] == {"a": 1, "b": {"d": 3}, "e": 5}
    assert changed["labels"] == {"y": "2", "z": "3"}


async def test_a_patch_that_changes_nothing_says_so(fleet: ServedFleet) -> None:
    await fleet.create(id="c1", spec={"a": 1})

    code, out, _ = await fleet.run(patch, "clusters", "c1", "--spec", '{"a": 1}')

    assert (code, out) == (0, "clusters/c1 is so already\n")


async def test_a_patch_of_nothing_is_bad_usage(fleet: ServedFleet) -> None:
    code, _, err = await fleet.run(patch, "clusters", "c1")

    assert code == 2
    assert "--spec, --labels" in err


async def test_a_resource_that_no_adapter_holds_is_deleted_at_once(fleet: ServedFleet) -> None:
    await fleet.create("manifests", id="m1")

    code, out, _ = await fleet.run(delete, "manifests", "m1")

    assert (code, out) == (0, "deleted manifests/m1\n")


async def test_a_resource_on_its_way_out_is_said_to_be(fleet: ServedFleet) -> None:
    await fleet.create(id="c1")

    code, out, _ = await fleet.run(delete, "clusters", "c1")

    assert (code, out) == (0, "deleting clusters/c1; sentinel why c1 says what it waits for\n")


async def test_a_deletion_can_be_waited_for(fleet: ServedFleet) -> None:
    await fleet.create(id="c1")
    await fleet.create("nodepools", "pool", id="p1", owner_references={"id": "c1"})

    deleting = asyncio.create_task(fleet.run(delete, "clusters", "c1", "--wait"))
    await fleet.until("/resources/c1/waiting 200")
    await fleet.reports("nodepools/p1", "validation", generation=2, finalized=True)
    await fleet.until("/resources/c1/waiting 200", times=3)
    await fleet.reports("clusters/c1", "validation", "dns", generation=2, finalized=True)
    code, out, err = await deleting

    assert (code, out) == (0, "deleted clusters/c1\n")
    assert err.splitlines()[0] == "waiting for dns, validation, 1 child"
    assert "waiting for dns, validation" in err.splitlines()


async def test_a_deletion_that_takes_too_long_fails_and_says_what_it_waits_for(fleet: ServedFleet) -> None:
    await fleet.create(id="c1")

    code, out, err = await fleet.run(delete, "clusters", "c1", "--wait", "--timeout", "20ms")

    assert (code, out) == (1, "")
    assert err.splitlines()[-1] == "clusters/c1 is not gone after 0s: waiting for dns, validation"


async def test_pause_and_resume(fleet: ServedFleet) -> None:
    await fleet.create("manifests", id="m1")

    paused = await fleet.run(pause, "m1")
    document = await fleet.get("manifests/m1")
    resumed = await fleet.run(resume, "m1", "--output", "json")

    assert paused == (0, "paused manifests/m1: no events until sentinel resume m1\n", "")
    assert document["paused"] is True
    assert decoded(resumed[1]) == await fleet.get("manifests/m1")
    assert "paused" not in decoded(resumed[1])


async def test_who_may_not_write_is_told_so() -> None:
    async with ServedFleet(identities=[Identity("viewer", Role.VIEWER)]) as fleet:
        forbidden = await fleet.run(create, "clusters", "--name", "one", token="viewer")
        unknown = await fleet.run(create, "clusters", "--name", "one", token="guess")
        without = await fleet.run(create, "clusters", "--name", "one")

    assert [each[0] for each in (forbidden, unknown, without)] == [1, 1, 1]
    assert forbidden[2].startswith("refused (403): ")
    assert unknown[2].endswith("; is SENTINEL_TOKEN still right?\n")
    assert "guess" not in unknown[2]
    assert without[2].endswith("; set SENTINEL_TOKEN\n")


@pytest.mark.parametrize(
    ("command", "arguments"),
    [(patch, ("clusters", "c1", "--spec", '{"a": 2}')), (delete, ("clusters", "c1"))],
)
async def test_whoever_changes_a_paused_resource_is_told_that_nobody_hears_of_it(
    fleet: ServedFleet, command: Command, arguments: tuple[str, ...]
) -> None:
    await fleet.create(id="c1")
    await fleet.call("POST", "clusters/c1/pause")

    code, _, err = await fleet.run(command, *arguments)

    assert code == 0
    assert err == "clusters/c1 is paused: no event goes out before sentinel resume c1\n"


async def test_waiting_for_a_paused_resource_to_go_says_why_it_does_not(fleet: ServedFleet) -> None:
    await fleet.create(id="c1")
    await fleet.call("POST", "clusters/c1/pause")

    code, _, err = await fleet.run(delete, "clusters", "c1", "--wait", "--timeout", "100ms")

    assert code == 1
    assert err.startswith("clusters/c1 is paused: no event goes out before sentinel resume c1\n")


async def test_a_paused_resource_that_goes_at_once_is_gone_without_a_word(fleet: ServedFleet) -> None:
    await fleet.create("manifests", id="m1")
    await fleet.call("POST", "manifests/m1/pause")

    assert await fleet.run(delete, "manifests", "m1") == (0, "deleted manifests/m1\n", "")
