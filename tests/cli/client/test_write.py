"""`sentinel create`, `patch`, `delete`, `pause` and `resume`."""

from __future__ import annotations

import asyncio

import pytest
from click import Command

from sentinel.cli.client.write import create, delete, patch, pause, resume
from sentinel.core.access import Identity, Role
from tests.cli.client.serving import ServedFleet, decoded


async def test_a_resource_is_created_from_all_options(fleet: ServedFleet) -> None:
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


async def test_json_output_is_the_created_resource(fleet: ServedFleet) -> None:
    _, out, _ = await fleet.run(create, "clusters", "--name", "one", "--output", "json")

    assert decoded(out) == await fleet.get(f"clusters/{decoded(out)['id']}")


async def test_a_child_is_created_with_its_parent(fleet: ServedFleet) -> None:
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
        (("--labels", "a-"), "a new resource has no labels to remove"),
    ],
)
async def test_invalid_options_are_refused_before_any_request(
    fleet: ServedFleet, arguments: tuple[str, ...], words: str
) -> None:
    code, out, err = await fleet.run(create, "clusters", "--name", "one", *arguments)

    assert (code, out) == (2, "")
    assert words in err
    assert fleet.requests == []


async def test_a_refusal_names_every_field_on_one_line(fleet: ServedFleet) -> None:
    code, _, err = await fleet.run(create, "clusters", "--name", " x ", "--labels", "a b=c")

    assert code == 1
    assert len(err.splitlines()) == 1
    assert "name: expected printable text" in err
    assert "labels.a b: expected" in err


async def test_numbers_are_sent_as_typed(fleet: ServedFleet) -> None:
    code, _, err = await fleet.run(create, "clusters", "--name", "one", "--spec", '{"n": 99999999999999999999}')

    assert code == 1
    assert "spec.n" in err


async def test_a_patch_changes_only_the_keys_that_it_names(fleet: ServedFleet) -> None:
    await fleet.create(id="c1", spec={"a": 1, "b": {"c": 2, "d": 3}}, labels={"x": "1", "y": "2"})

    code, out, _ = await fleet.run(
        patch, "clusters", "c1", "--spec", '{"b": {"c": null}, "e": 5}', "--labels", "x-,z=3"
    )

    assert (code, out) == (0, "changed clusters/c1: generation 2\n")
    changed = await fleet.get("clusters/c1")
    assert changed["spec"] == {"a": 1, "b": {"d": 3}, "e": 5}
    assert changed["labels"] == {"y": "2", "z": "3"}


async def test_a_patch_without_effect_prints_unchanged(fleet: ServedFleet) -> None:
    await fleet.create(id="c1", spec={"a": 1})

    code, out, _ = await fleet.run(patch, "clusters", "c1", "--spec", '{"a": 1}')

    assert (code, out) == (0, "unchanged clusters/c1\n")


async def test_a_patch_without_options_is_wrong_usage(fleet: ServedFleet) -> None:
    code, _, err = await fleet.run(patch, "clusters", "c1")

    assert code == 2
    assert "--spec, --labels" in err


async def test_a_resource_without_required_adapters_is_deleted_at_once(fleet: ServedFleet) -> None:
    await fleet.create("manifests", id="m1")

    code, out, _ = await fleet.run(delete, "manifests", "m1")

    assert (code, out) == (0, "deleted manifests/m1\n")


async def test_a_deletion_that_takes_time_points_to_why(fleet: ServedFleet) -> None:
    await fleet.create(id="c1")

    code, out, _ = await fleet.run(delete, "clusters", "c1")

    assert (code, out) == (0, "deleting clusters/c1; sentinel why c1 shows what it waits for\n")


async def test_delete_can_wait_until_the_resource_is_gone(fleet: ServedFleet) -> None:
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


async def test_a_deletion_that_times_out_prints_what_it_waits_for(fleet: ServedFleet) -> None:
    await fleet.create(id="c1")

    code, out, err = await fleet.run(delete, "clusters", "c1", "--wait", "--timeout", "20ms")

    assert (code, out) == (1, "")
    assert err.splitlines()[-1] == "clusters/c1 is not gone after 0s: waiting for dns, validation"


async def test_pause_and_resume_set_and_clear_the_mark(fleet: ServedFleet) -> None:
    await fleet.create("manifests", id="m1")

    paused = await fleet.run(pause, "m1")
    document = await fleet.get("manifests/m1")
    resumed = await fleet.run(resume, "m1", "--output", "json")

    assert paused == (0, "paused manifests/m1: no events until sentinel resume m1\n", "")
    assert document["paused"] is True
    assert decoded(resumed[1]) == await fleet.get("manifests/m1")
    assert "paused" not in decoded(resumed[1])


async def test_a_token_without_permission_is_refused() -> None:
    async with ServedFleet(identities=[Identity("viewer", Role.VIEWER)]) as fleet:
        forbidden = await fleet.run(create, "clusters", "--name", "one", token="viewer")
        unknown = await fleet.run(create, "clusters", "--name", "one", token="guess")
        without = await fleet.run(create, "clusters", "--name", "one")

    assert [each[0] for each in (forbidden, unknown, without)] == [1, 1, 1]
    assert forbidden[2].startswith("refused (403): ")
    assert unknown[2].endswith("; check SENTINEL_TOKEN\n")
    assert "guess" not in unknown[2]
    assert without[2].endswith("; set SENTINEL_TOKEN\n")


@pytest.mark.parametrize(
    ("command", "arguments"),
    [(patch, ("clusters", "c1", "--spec", '{"a": 2}')), (delete, ("clusters", "c1"))],
)
async def test_changing_a_paused_resource_warns_that_no_event_is_sent(
    fleet: ServedFleet, command: Command, arguments: tuple[str, ...]
) -> None:
    await fleet.create(id="c1")
    await fleet.call("POST", "clusters/c1/pause")

    code, _, err = await fleet.run(command, *arguments)

    assert code == 0
    assert err == "clusters/c1 is paused: no event goes out before sentinel resume c1\n"


async def test_waiting_for_a_paused_resource_warns_first(fleet: ServedFleet) -> None:
    await fleet.create(id="c1")
    await fleet.call("POST", "clusters/c1/pause")

    code, _, err = await fleet.run(delete, "clusters", "c1", "--wait", "--timeout", "100ms")

    assert code == 1
    assert err.startswith("clusters/c1 is paused: no event goes out before sentinel resume c1\n")


async def test_a_paused_resource_deleted_at_once_needs_no_warning(fleet: ServedFleet) -> None:
    await fleet.create("manifests", id="m1")
    await fleet.call("POST", "manifests/m1/pause")

    assert await fleet.run(delete, "manifests", "m1") == (0, "deleted manifests/m1\n", "")
