"""`sentinel get`: lists and single resources, as API bodies and as tables."""

from __future__ import annotations

import msgspec
import pytest

from sentinel.cli.client.get import get
from tests.cli.client.serving import ServedFleet, decoded

SPEC = {"region": "us-east", "nodes": 3}


async def test_json_output_is_the_body_of_the_api(fleet: ServedFleet) -> None:
    await fleet.create(id="one", spec=SPEC, labels={"region": "us-east"})

    code, out, err = await fleet.run(get, "clusters", "one", "--output", "json")

    assert (code, err) == (0, "")
    assert decoded(out) == await fleet.get("clusters/one")


async def test_json_output_of_a_list_is_its_first_page(fleet: ServedFleet) -> None:
    for number in range(101):
        await fleet.create(name=f"c{number}", id=f"c{number}")

    code, out, _ = await fleet.run(get, "clusters", "--output", "json")

    assert code == 0
    assert decoded(out) == await fleet.get("clusters")
    assert decoded(out)["next"]


async def test_all_prints_all_pages_as_one_body(fleet: ServedFleet) -> None:
    for number in range(101):
        await fleet.create("manifests", f"m{number}", id=f"m{number}")

    code, out, _ = await fleet.run(get, "manifests", "--all", "--output", "json", "--order", "name desc")

    body = decoded(out)
    assert code == 0
    assert (body["size"], body["total"], body["next"], len(body["items"])) == (101, 101, None, 101)
    assert body["items"][0]["name"] == "m99"


async def test_yaml_output_has_the_same_content(fleet: ServedFleet) -> None:
    await fleet.create(id="one", spec=SPEC)

    _, out, _ = await fleet.run(get, "clusters", "one", "--output", "yaml")

    assert msgspec.yaml.decode(out) == await fleet.get("clusters/one")


async def test_the_table_shows_states_and_what_each_resource_waits_for(fleet: ServedFleet) -> None:
    await fleet.create(name="ready", id="a")
    await fleet.reports("clusters/a", "validation", "dns")
    await fleet.create(name="waiting", id="b")
    await fleet.reports("clusters/b", "validation")
    await fleet.reports("clusters/b", "dns", available="False")
    await fleet.create(name="changed", id="c")
    await fleet.reports("clusters/c", "validation", "dns")
    await fleet.call("PATCH", "clusters/c", {"spec": SPEC})
    await fleet.call("POST", "clusters/c/pause")
    await fleet.create(name="going", id="d")
    await fleet.call("DELETE", "clusters/d")

    code, out, _ = await fleet.run(get, "clusters")

    lines = out.splitlines()
    assert code == 0
    assert lines[0].split() == ["NAME", "ID", "READY", "AVAILABLE", "GENERATION", "AGE", "WAITING", "FOR"]
    rows = {line.split()[1]: line for line in lines[1:]}
    assert rows["a"].split()[2:5] == ["yes", "yes", "1"]
    assert rows["a"].endswith("-")
    assert rows["b"].split()[2:4] == ["no", "no"]
    assert rows["b"].endswith("dns")
    assert "no, paused" in rows["c"]
    assert "yes (at 1)" in rows["c"]
    assert "2 (1 seen)" in rows["c"]
    assert rows["c"].endswith("validation, dns")
    assert "deleting" in rows["d"]
    assert rows["d"].endswith("adapters to finalize")


async def test_the_table_shows_a_deletion_that_waits_for_children(fleet: ServedFleet) -> None:
    await fleet.create(id="one")
    await fleet.create("nodepools", "pool", owner_references={"id": "one"})
    await fleet.call("DELETE", "clusters/one")
    await fleet.reports("clusters/one", "validation", "dns", generation=2, finalized=True)

    _, out, _ = await fleet.run(get, "clusters", "one")

    assert out.rstrip().endswith("children to be deleted")


async def test_the_table_has_every_page(fleet: ServedFleet) -> None:
    for number in range(1001):
        await fleet.create("manifests", f"m{number}", id=f"m{number}")

    _, out, _ = await fleet.run(get, "manifests")

    assert len(out.splitlines()) == 1002


async def test_the_table_of_an_empty_list_is_a_header(fleet: ServedFleet) -> None:
    code, out, _ = await fleet.run(get, "clusters")

    assert code == 0
    assert len(out.splitlines()) == 1


async def test_selector_and_order_are_passed_to_the_server(fleet: ServedFleet) -> None:
    for name, region in (("a", "eu"), ("b", "us"), ("c", "eu")):
        await fleet.create(name=name, id=name, labels={"region": region})

    _, out, _ = await fleet.run(get, "clusters", "-l", "region in (eu,ap)", "--order", "name desc")

    assert [line.split()[0] for line in out.splitlines()[1:]] == ["c", "a"]


@pytest.mark.parametrize("given", ["cluster", "Cluster", "clusers"])
async def test_an_unknown_plural_gets_a_suggestion(fleet: ServedFleet, given: str) -> None:
    code, out, err = await fleet.run(get, given)

    assert (code, out) == (1, "")
    assert "Did you mean clusters?" in err
    assert "clusters, nodepools, machines, manifests" in err


async def test_an_unknown_id_is_refused_in_one_line(fleet: ServedFleet) -> None:
    code, out, err = await fleet.run(get, "clusters", "missing")

    assert (code, out) == (1, "")
    assert err == 'no clusters with the id or name "missing"\n'


@pytest.mark.parametrize(
    "arguments",
    [
        ("clusters", "-l", "region==,"),
        ("clusters", "one", "--order", "name"),
        ("clusters", "a\nb"),
        ("",),
        ("clusters", "--output", "xml"),
        ("clusters", "--server", "not a url"),
        ("clusters", "--server", "ftp://host"),
        ("clusters", "--server", "http://user:secret@host"),
        ("clusters", "--ca-file", "/nowhere/ca.pem"),
        (),
    ],
)
async def test_wrong_usage_exits_2(fleet: ServedFleet, arguments: tuple[str, ...]) -> None:
    code, out, err = await fleet.run(get, *arguments)

    assert (code, out) == (2, "")
    assert "secret" not in err


async def test_an_invalid_order_is_refused_with_its_field(fleet: ServedFleet) -> None:
    code, _, err = await fleet.run(get, "clusters", "--order", "size")

    assert code == 1
    assert err.startswith("refused (400): order: expected one of ")
    assert len(err.splitlines()) == 1
