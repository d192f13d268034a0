"""Files made true: what is created, changed and left alone, and what is shown before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from sentinel.cli.client.apply import apply
from sentinel.cli.client.get import get
from tests.cli.client.serving import ServedFleet, decoded

CLUSTER = """\
kind: Cluster
name: one
labels: {region: us-east}
spec:
  replicas: 3
  network: {cidr: 10.0.0.0/16, ports: [80, 443]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "fleet.yaml"


def write(file: Path, text: str) -> None:
    file.write_text(text)


async def only(fleet: ServedFleet, plural: str = "clusters") -> Any:
    (item,) = (await fleet.get(plural))["items"]
    return item


async def test_what_is_missing_is_created_and_shown_first(fleet: ServedFleet, file: Path) -> None:
    write(file, CLUSTER)

    code, out, err = await fleet.run(apply, "-f", file)

    created = await only(fleet)
    assert (code, err) == (0, "")
    assert (created["name"], created["labels"]) == ("one", {"region": "us-east"})
    assert created["spec"] == {"replicas": 3, "network": {"cidr": "10.0.0.0/16", "ports": [80, 443]}}
    lines = out.splitlines()
    assert lines[0] == "create clusters/one"
    assert "+  replicas: 3" in lines
    assert lines[-1] == f"created clusters/{created['id']} (one)"


async def test_applied_again_nothing_changes(fleet: ServedFleet, file: Path) -> None:
    write(file, CLUSTER)
    await fleet.run(apply, "-f", file)
    before = await only(fleet)

    code, out, _ = await fleet.run(apply, "-f", file)

    assert (code, out) == (0, f"unchanged clusters/{before['id']} (one)\n")
    assert await only(fleet) == before
    assert not any(each.startswith("PATCH") for each in fleet.requests)


async def test_what_differs_is_changed_and_removed_keys_are_removed(fleet: ServedFleet, file: Path) -> None:
    await fleet.create(
        id="c1",
        labels={"region": "us-east", "old": "yes"},
        spec={"replicas": 2, "network": {"cidr": "10.0.0.0/16", "mtu": 1500, "ports": [80]}, "debug": True},
    )
    write(file, CLUSTER)

    code, out, _ = await fleet.run(apply, "-f", file)

    changed = await only(fleet)
    assert code == 0
    assert changed["labels"] == {"region": "us-east"}
    assert changed["spec"] == {"replicas": 3, "network": {"cidr": "10.0.0.0/16", "ports": [80, 443]}}
    lines = out.splitlines()
    assert lines[0] == "change clusters/c1 (one)"
    assert {"-  old: 'yes'", "-  replicas: 2", "+  replicas: 3", "-  debug: true"} <= set(lines)
    assert lines[-1] == "changed clusters/c1 (one): generation 2"


async def test_what_a_file_does_not_mention_stays(fleet: ServedFleet, file: Path) -> None:
    await fleet.create(id="c1", labels={"a": "b"}, spec={"replicas": 2})
    write(file, "{plural: clusters, name: one, spec: {replicas: 3}}")

    await fleet.run(apply, "-f", file)

    assert ((await only(fleet))["labels"], (await only(fleet))["spec"]) == ({"a": "b"}, {"replicas": 3})


async def test_a_dry_run_shows_and_writes_nothing(fleet: ServedFleet, file: Path) -> None:
    await fleet.create(id="c1", spec={"replicas": 2})
    write(file, f"{CLUSTER}---\n{CLUSTER.replace('one', 'two')}")

    code, out, _ = await fleet.run(apply, "-f", file, "--dry-run")

    assert code == 0
    assert "change clusters/c1 (one)" in out
    assert "create clusters/two" in out
    assert out.splitlines()[-1] == "dry run: 2 of 2 resources would be written"
    assert all(each.startswith("GET") for each in fleet.requests)


async def test_a_family_is_applied_from_one_file(fleet: ServedFleet, file: Path) -> None:
    write(
        file,
        "{kind: Cluster, name: one}\n"
        "---\n{kind: NodePool, name: pool, parent: one, spec: {size: 3}}\n"
        "---\n{kind: Machine, name: m, parent: pool}\n",
    )

    first, out, _ = await fleet.run(apply, "-f", file, "--output", "json")
    second, again, _ = await fleet.run(apply, "-f", file, "--output", "json")

    assert (first, second) == (0, 0)
    assert [each["action"] for each in decoded(out)["resources"]] == ["create"] * 3
    assert [each["action"] for each in decoded(again)["resources"]] == ["none"] * 3
    pool = await only(fleet, "nodepools")
    assert pool["owner_references"]["id"] == (await only(fleet))["id"]
    assert (await only(fleet, "machines"))["owner_references"]["id"] == pool["id"]


async def test_a_name_is_looked_for_within_its_parent(fleet: ServedFleet, file: Path) -> None:
    for parent in ("c1", "c2"):
        await fleet.create(name=parent, id=parent)
        await fleet.create("nodepools", "pool", id=f"{parent}-pool", owner_references={"id": parent})
    write(file, "{kind: NodePool, name: pool, parent: c2, spec: {size: 3}}")

    code, _, _ = await fleet.run(apply, "-f", file)

    assert code == 0
    assert (await fleet.get("nodepools/c1-pool"))["spec"] == {}
    assert (await fleet.get("nodepools/c2-pool"))["spec"] == {"size": 3}


async def test_what_was_fetched_can_be_edited_and_applied(fleet: ServedFleet, file: Path) -> None:
    await fleet.create(id="c1", spec={"replicas": 2})
    await fleet.create("nodepools", "pool", id="p1", owner_references={"id": "c1"}, spec={"replicas": 2})

    for arguments in (("clusters",), ("nodepools", "p1")):
        _, fetched, _ = await fleet.run(get, *arguments, "--output", "yaml")
        write(file, fetched.replace("replicas: 2", "replicas: 5"))
        code, _, err = await fleet.run(apply, "-f", file)

        assert (code, err) == (0, "")
    assert (await only(fleet))["spec"] == (await only(fleet, "nodepools"))["spec"] == {"replicas": 5}


async def test_json_and_standard_input_will_do(fleet: ServedFleet) -> None:
    documents = [
        {"kind": "Cluster", "name": "smile \U0001f600", "spec": {"n": 1.5}},
        {"kind": "Manifest", "name": "m"},
    ]
    text = "\n".join(msgspec.json.encode(each).decode() for each in documents)

    code, _, _ = await fleet.run(apply, "-f", "-", stdin=text)

    assert code == 0
    assert (await only(fleet))["name"] == "smile \U0001f600"
    assert (await only(fleet, "manifests"))["name"] == "m"


async def test_for_scripts_the_outcome_has_patches(fleet: ServedFleet, file: Path) -> None:
    await fleet.create(id="c1", spec={"replicas": 3, "debug": True}, labels={"region": "us-east"})
    write(file, "{kind: Cluster, name: one, spec: {replicas: 3}}")

    _, dry, _ = await fleet.run(apply, "-f", file, "--dry-run", "--output", "json")
    _, out, _ = await fleet.run(apply, "-f", file, "--output", "json")

    expected = {
        "action": "change",
        "plural": "clusters",
        "name": "one",
        "id": "c1",
        "generation": 1,
        "patch": {"spec": {"debug": None}},
    }
    assert decoded(dry) == {"dry_run": True, "resources": [expected]}
    assert decoded(out) == {"dry_run": False, "resources": [{**expected, "generation": 2}]}


async def test_an_id_creates_and_finds(fleet: ServedFleet, file: Path) -> None:
    write(file, "{kind: Cluster, name: one, id: c1, spec: {a: 1}}")

    await fleet.run(apply, "-f", file)
    code, out, _ = await fleet.run(apply, "-f", file)

    assert (code, out) == (0, "unchanged clusters/c1 (one)\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{kind: Cluter, name: x}", 'kind: the server has no "Cluter". Did you mean Cluster?'),
        ("{plural: boats, name: x}", "It has clusters, nodepools, machines, manifests"),
        ("{plural: clusters, kind: NodePool, name: x}", "kind: expected the kind of clusters"),
        ("{kind: NodePool, name: x}", "parent: required, but missing; nodepools belong to clusters"),
        ("{kind: NodePool, name: x, parent: nobody}", 'none of the clusters has "nobody" as id or name'),
        ("{kind: Machine, name: x, parent: pool}", "several of the nodepools have"),
        ("{kind: Cluster, name: x, parent: c1}", "parent: expected none"),
        ("{kind: Cluster, name: x, id: c1}", 'got clusters with the name "one"'),
        ("{kind: Cluster, name: going}", "clusters/c3 is being deleted"),
        ("{kind: Cluster, name: x}\n---\n{kind: Cluster, name: x}", 'clusters "x" a second time'),
    ],
)
async def test_a_plan_that_cannot_be_made_writes_nothing(
    fleet: ServedFleet, file: Path, text: str, words: str
) -> None:
    await fleet.create(id="c1")
    await fleet.create(name="two", id="c2")
    await fleet.create(name="going", id="c3")
    await fleet.call("DELETE", "clusters/c3")
    for parent in ("c1", "c2"):
        await fleet.create("nodepools", "pool", owner_references={"id": parent})
    write(file, f"# a comment\n{text}")

    code, out, err = await fleet.run(apply, "-f", file)

    assert (code, out) == (1, "")
    assert words in err
    assert err.startswith(f"{file}:")
    assert all(each.startswith("GET") for each in fleet.requests)


async def test_a_refusal_ends_it_and_says_how_much_is_left(fleet: ServedFleet, file: Path) -> None:
    write(
        file,
        "{kind: Cluster, name: one}\n---\n{kind: Cluster, name: two, labels: {a b: c}}\n---\n"
        + CLUSTER.replace("one", "three"),
    )

    code, out, err = await fleet.run(apply, "-f", file)

    assert code == 1
    assert out.splitlines()[-1].startswith("created clusters/")
    assert err.startswith(f"{file}:3: clusters/two: refused (400): labels.a b: ")
    assert err.rstrip().endswith("(2 of 3 not applied)")


async def test_what_somebody_else_has_changed_meanwhile_is_not_undone(fleet: ServedFleet, file: Path) -> None:
    await fleet.create(id="c1", spec={"replicas": 2})
    write(file, "{kind: Cluster, name: one, spec: {replicas: 3}}")
    fleet.before_patch = lambda: fleet.call("PATCH", "clusters/c1", {"spec": {"urgent": True}})

    code, _, err = await fleet.run(apply, "-f", file)

    assert code == 1
    assert "somebody has changed it since the plan was made; apply again" in err
    assert (await only(fleet))["spec"] == {"replicas": 2, "urgent": True}


async def test_a_file_that_will_not_do_ends_with_2_before_anything_is_asked(
    fleet: ServedFleet, file: Path
) -> None:
    write(file, "kind: Cluster\nname: one\nspcc: {}\n")

    code, out, err = await fleet.run(apply, "-f", file)

    assert (code, out) == (2, "")
    assert err == f"{file}:1: spcc: unknown key; did you mean spec?\n"
    assert fleet.requests == []


async def test_for_scripts_the_diff_is_shown_beside_the_data(fleet: ServedFleet, file: Path) -> None:
    write(file, CLUSTER)

    code, out, err = await fleet.run(apply, "-f", file, "--output", "json")

    assert code == 0
    assert decoded(out)["resources"][0]["action"] == "create"
    assert err.splitlines()[0] == "create clusters/one"
    assert "+  replicas: 3" in err.splitlines()


async def test_for_scripts_a_refusal_tells_what_was_written_all_the_same(fleet: ServedFleet, file: Path) -> None:
    write(file, "{kind: Cluster, name: one}\n---\n{kind: Cluster, name: two, labels: {a b: c}}\n")

    code, out, err = await fleet.run(apply, "-f", file, "--output", "json")

    assert code == 1
    assert [(each["action"], each["name"]) for each in decoded(out)["resources"]] == [("create", "one")]
    assert err.rstrip().endswith("(1 of 2 not applied)")


async def test_whoever_changes_a_paused_resource_is_told_that_nobody_hears_of_it(
    fleet: ServedFleet, file: Path
) -> None:
    await fleet.create(name="one", id="c1")
    await fleet.call("POST", "clusters/c1/pause")
    write(file, CLUSTER)

    code, _, err = await fleet.run(apply, "-f", file)

    assert code == 0
    assert err == "clusters/c1 is paused: no event goes out before sentinel resume c1\n"
