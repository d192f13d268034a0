"""`sentinel apply`: what is created, changed and left unchanged, and the diff that is shown first."""

from __future__ import annotations

import asyncio
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
SECOND_REFUSED = "{kind: Cluster, name: one}\n---\n{kind: Cluster, name: two, labels: {a b: c}}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "fleet.yaml"


async def apply_text(fleet: ServedFleet, file: Path, text: str, *options: str) -> tuple[int, str, str]:
    """Apply a file with this text; return exit code, stdout and stderr."""
    await asyncio.to_thread(file.write_text, text)
    return await fleet.run(apply, "-f", file, *options)


async def only_resource(fleet: ServedFleet, plural: str = "clusters") -> Any:
    (item,) = (await fleet.get(plural))["items"]
    return item


async def test_a_missing_resource_is_created_after_a_diff(fleet: ServedFleet, file: Path) -> None:
    code, out, err = await apply_text(fleet, file, CLUSTER)

    created = await only_resource(fleet)
    assert (code, err) == (0, "")
    assert (created["name"], created["labels"]) == ("one", {"region": "us-east"})
    assert created["spec"] == {"replicas": 3, "network": {"cidr": "10.0.0.0/16", "ports": [80, 443]}}
    lines = out.splitlines()
    assert lines[0] == "create clusters/one"
    assert "+  replicas: 3" in lines
    assert lines[-1] == f"created clusters/{created['id']} (one)"


async def test_applying_again_changes_nothing(fleet: ServedFleet, file: Path) -> None:
    await apply_text(fleet, file, CLUSTER)
    before = await only_resource(fleet)

    code, out, _ = await fleet.run(apply, "-f", file)

    assert (code, out) == (0, f"unchanged clusters/{before['id']} (one)\n")
    assert await only_resource(fleet) == before
    assert not any(each.startswith("PATCH") for each in fleet.requests)


async def test_a_resource_that_differs_is_changed_and_keys_are_removed(fleet: ServedFleet, file: Path) -> None:
    await fleet.create(
        id="c1",
        labels={"region": "us-east", "old": "yes"},
        spec={"replicas": 2, "network": {"cidr": "10.0.0.0/16", "mtu": 1500, "ports": [80]}, "debug": True},
    )

    code, out, _ = await apply_text(fleet, file, CLUSTER)

    changed = await only_resource(fleet)
    assert code == 0
    assert changed["labels"] == {"region": "us-east"}
    assert changed["spec"] == {"replicas": 3, "network": {"cidr": "10.0.0.0/16", "ports": [80, 443]}}
    lines = out.splitlines()
    assert lines[0] == "change clusters/c1 (one)"
    assert {"-  old: 'yes'", "-  replicas: 2", "+  replicas: 3", "-  debug: true"} <= set(lines)
    assert lines[-1] == "changed clusters/c1 (one): generation 2"


async def test_labels_that_the_file_does_not_mention_stay(fleet: ServedFleet, file: Path) -> None:
    await fleet.create(id="c1", labels={"a": "b"}, spec={"replicas": 2})

    await apply_text(fleet, file, "{plural: clusters, name: one, spec: {replicas: 3}}")

    assert ((await only_resource(fleet))["labels"], (await only_resource(fleet))["spec"]) == (
        {"a": "b"},
        {"replicas": 3},
    )


async def test_a_dry_run_shows_the_diff_and_writes_nothing(fleet: ServedFleet, file: Path) -> None:
    await fleet.create(id="c1", spec={"replicas": 2})

    code, out, _ = await apply_text(fleet, file, f"{CLUSTER}---\n{CLUSTER.replace('one', 'two')}", "--dry-run")

    assert code == 0
    assert "change clusters/c1 (one)" in out
    assert "create clusters/two" in out
    assert out.splitlines()[-1] == "dry run: 2 of 2 resources would be written"
    assert all(each.startswith("GET") for each in fleet.requests)


async def test_parents_and_children_are_applied_from_one_file(fleet: ServedFleet, file: Path) -> None:
    text = (
        "{kind: Cluster, name: one}\n"
        "---\n{kind: NodePool, name: pool, parent: one, spec: {size: 3}}\n"
        "---\n{kind: Machine, name: m, parent: pool}\n"
    )

    first, out, _ = await apply_text(fleet, file, text, "--output", "json")
    second, again, _ = await apply_text(fleet, file, text, "--output", "json")

    assert (first, second) == (0, 0)
    assert [each["action"] for each in decoded(out)["resources"]] == ["create"] * 3
    assert [each["action"] for each in decoded(again)["resources"]] == ["none"] * 3
    pool = await only_resource(fleet, "nodepools")
    assert pool["owner_references"]["id"] == (await only_resource(fleet))["id"]
    assert (await only_resource(fleet, "machines"))["owner_references"]["id"] == pool["id"]


async def test_a_resource_is_found_by_its_name_within_its_parent(fleet: ServedFleet, file: Path) -> None:
    for parent in ("c1", "c2"):
        await fleet.create(name=parent, id=parent)
        await fleet.create("nodepools", "pool", id=f"{parent}-pool", owner_references={"id": parent})

    code, _, _ = await apply_text(fleet, file, "{kind: NodePool, name: pool, parent: c2, spec: {size: 3}}")

    assert code == 0
    assert (await fleet.get("nodepools/c1-pool"))["spec"] == {}
    assert (await fleet.get("nodepools/c2-pool"))["spec"] == {"size": 3}


async def test_the_output_of_get_can_be_edited_and_applied(fleet: ServedFleet, file: Path) -> None:
    await fleet.create(id="c1", spec={"replicas": 2})
    await fleet.create("nodepools", "pool", id="p1", owner_references={"id": "c1"}, spec={"replicas": 2})

    for arguments in (("clusters",), ("nodepools", "p1")):
        _, fetched, _ = await fleet.run(get, *arguments, "--output", "yaml")
        code, _, err = await apply_text(fleet, file, fetched.replace("replicas: 2", "replicas: 5"))

        assert (code, err) == (0, "")
    assert (
        (await only_resource(fleet))["spec"]
        == (await only_resource(fleet, "nodepools"))["spec"]
        == {"replicas": 5}
    )


async def test_json_from_standard_input_is_applied(fleet: ServedFleet) -> None:
    documents = [
        {"kind": "Cluster", "name": "smile \U0001f600", "spec": {"n": 1.5}},
        {"kind": "Manifest", "name": "m"},
    ]
    text = "\n".join(msgspec.json.encode(each).decode() for each in documents)

    code, _, _ = await fleet.run(apply, "-f", "-", stdin=text)

    assert code == 0
    assert (await only_resource(fleet))["name"] == "smile \U0001f600"
    assert (await only_resource(fleet, "manifests"))["name"] == "m"


async def test_json_output_has_the_patches(fleet: ServedFleet, file: Path) -> None:
    await fleet.create(id="c1", spec={"replicas": 3, "debug": True}, labels={"region": "us-east"})
    text = "{kind: Cluster, name: one, spec: {replicas: 3}}"

    _, dry, _ = await apply_text(fleet, file, text, "--dry-run", "--output", "json")
    _, out, _ = await apply_text(fleet, file, text, "--output", "json")

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


async def test_an_id_in_the_file_creates_and_finds_the_resource(fleet: ServedFleet, file: Path) -> None:
    await apply_text(fleet, file, "{kind: Cluster, name: one, id: c1, spec: {a: 1}}")
    code, out, _ = await fleet.run(apply, "-f", file)

    assert (code, out) == (0, "unchanged clusters/c1 (one)\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{kind: Cluter, name: x}", '2:8: kind: the server has no "Cluter". Did you mean Cluster?'),
        ("{plural: boats, name: x}", "It has clusters, nodepools, machines, manifests"),
        ("{plural: clusters, kind: NodePool, name: x}", "kind: expected the kind of clusters"),
        ("{kind: NodePool, name: x}", "parent: required, but missing; nodepools belong to clusters"),
        (
            "{kind: NodePool, name: x, parent: missing}",
            '2:35: parent: no clusters with the id or name "missing"',
        ),
        ("{kind: Cluster, name: x, parent: c1}", "2:34: parent: expected none"),
        (
            "{kind: Cluster, name: x, owner_references: {id: c1}}",
            "2:49: owner_references.id: expected none",
        ),
        ("{kind: Cluster, name: x, id: c1}", 'got clusters with the name "one"'),
        ("{kind: Cluster, name: going}", "2:23: name: clusters/c3 is being deleted"),
        ("{kind: Cluster, name: x}\n---\n{kind: Cluster, name: x}", "4:23: name: expected each resource once"),
    ],
)
async def test_an_impossible_plan_writes_nothing(fleet: ServedFleet, file: Path, text: str, words: str) -> None:
    await fleet.create(id="c1")
    await fleet.create(name="two", id="c2")
    await fleet.create(name="going", id="c3")
    await fleet.call("DELETE", "clusters/c3")
    for parent in ("c1", "c2"):
        await fleet.create("nodepools", "pool", owner_references={"id": parent})

    code, out, err = await apply_text(fleet, file, f"# a comment\n{text}")

    assert (code, out) == (1, "")
    assert words in err
    assert err.startswith(f"{file}:")
    assert all(each.startswith("GET") for each in fleet.requests)


async def test_a_refusal_ends_the_command_with_the_number_not_applied(fleet: ServedFleet, file: Path) -> None:
    text = f"{SECOND_REFUSED}---\n{CLUSTER.replace('one', 'three')}"

    code, out, err = await apply_text(fleet, file, text)

    assert code == 1
    assert out.splitlines()[-1].startswith("created clusters/")
    assert err.startswith(f"{file}:3:42: labels.a b: expected")
    assert err.splitlines()[-1] == "clusters/two: 2 of 3 not applied"


async def test_every_refused_field_is_shown_at_its_line(fleet: ServedFleet, file: Path) -> None:
    text = "{kind: Manifest, name: m}\n---\nkind: Cluster\nname: ' x '\nlabels:\n  a/b.c: ok\n  a b: c\n"

    code, _, err = await apply_text(fleet, file, text)

    assert code == 1
    assert [line.partition(": expected")[0] for line in err.splitlines()] == [
        f"{file}:4:7: name",
        f"{file}:7:8: labels.a b",
        "clusters/ x : 1 of 2 not applied",
    ]


async def test_a_refusal_without_fields_is_shown_at_its_document(fleet: ServedFleet, file: Path) -> None:
    await fleet.create("manifests", "other", id="m1")
    fleet.before_patch = lambda: fleet.call("DELETE", "clusters/c1")
    await fleet.create(id="c1")

    code, _, err = await apply_text(fleet, file, "# one\n---\nkind: Cluster\nname: one\nspec: {a: 1}\n")

    assert code == 1
    assert err.startswith(f"{file}:3:1: : it was changed after the plan was made")


async def test_an_ambiguous_parent_exits_2_with_the_candidates(fleet: ServedFleet, file: Path) -> None:
    for parent in ("c1", "c2"):
        await fleet.create(name=parent, id=parent)
        await fleet.create("nodepools", "pool", id=f"{parent}-pool", owner_references={"id": parent})

    code, out, err = await apply_text(fleet, file, "kind: Machine\nname: x\nparent: pool\n")

    assert (code, out) == (2, "")
    assert err.splitlines() == [
        f'{file}:3:9: parent: several nodepools have the name "pool"; give the id of one:',
        "ID       KIND      PARENT",
        "c1-pool  NodePool  c1",
        "c2-pool  NodePool  c2",
    ]
    assert all(each.startswith("GET") for each in fleet.requests)


async def test_a_concurrent_change_is_not_overwritten(fleet: ServedFleet, file: Path) -> None:
    await fleet.create(id="c1", spec={"replicas": 2})
    fleet.before_patch = lambda: fleet.call("PATCH", "clusters/c1", {"spec": {"urgent": True}})

    code, _, err = await apply_text(fleet, file, "{kind: Cluster, name: one, spec: {replicas: 3}}")

    assert code == 1
    assert "it was changed after the plan was made; apply again" in err
    assert (await only_resource(fleet))["spec"] == {"replicas": 2, "urgent": True}


async def test_an_invalid_file_exits_2_before_any_request(fleet: ServedFleet, file: Path) -> None:
    code, out, err = await apply_text(fleet, file, "kind: Cluster\nname: one\nspcc: {}\n")

    assert (code, out) == (2, "")
    assert err == f"{file}:3:1: spcc: unknown key; did you mean spec?\n"
    assert fleet.requests == []


async def test_with_json_output_the_diff_goes_to_stderr(fleet: ServedFleet, file: Path) -> None:
    code, out, err = await apply_text(fleet, file, CLUSTER, "--output", "json")

    assert code == 0
    assert decoded(out)["resources"][0]["action"] == "create"
    assert err.splitlines()[0] == "create clusters/one"
    assert "+  replicas: 3" in err.splitlines()


async def test_with_json_output_a_refusal_still_prints_what_was_written(fleet: ServedFleet, file: Path) -> None:
    code, out, err = await apply_text(fleet, file, SECOND_REFUSED, "--output", "json")

    assert code == 1
    assert [(each["action"], each["name"]) for each in decoded(out)["resources"]] == [("create", "one")]
    assert err.splitlines()[-1] == "clusters/two: 1 of 2 not applied"


async def test_changing_a_paused_resource_warns_that_no_event_is_sent(fleet: ServedFleet, file: Path) -> None:
    await fleet.create(name="one", id="c1")
    await fleet.call("POST", "clusters/c1/pause")

    code, _, err = await apply_text(fleet, file, CLUSTER)

    assert code == 0
    assert err == "clusters/c1 is paused: no event goes out before sentinel resume c1\n"
