"""Names in the place of ids."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from click import Command

from sentinel.cli.client.apply import apply
from sentinel.cli.client.get import get
from sentinel.cli.client.pulse import pulse
from sentinel.cli.client.watch import watch
from sentinel.cli.client.why import why
from sentinel.cli.client.write import create, delete, patch, pause, resume
from tests.cli.client.serving import ServedFleet, decoded, run
from tests.support.http.loopback import LoopbackServer


@pytest.mark.parametrize(
    ("command", "arguments", "output"),
    [
        (get, ("clusters", "tokyo"), "tokyo"),
        (patch, ("clusters", "tokyo", "--spec", '{"a": 1}'), "changed clusters/c1"),
        (delete, ("clusters", "tokyo"), "deleting clusters/c1"),
        (why, ("tokyo",), "Cluster tokyo: not ready"),
        (pulse, ("tokyo",), "requested an event for clusters/c1"),
        (pause, ("tokyo",), "paused clusters/c1"),
        (resume, ("tokyo",), "resumed clusters/c1"),
    ],
)
async def test_a_name_may_be_given_instead_of_an_id(
    fleet: ServedFleet, command: Command, arguments: tuple[str, ...], output: str
) -> None:
    await fleet.create(name="tokyo", id="c1")
    await fleet.create(name="paris", id="c2")

    code, out, err = await fleet.run(command, *arguments)

    assert (code, err) == (0, "")
    assert output in out
    assert "c2" not in out


async def test_json_output_by_name_is_that_of_the_id(fleet: ServedFleet) -> None:
    await fleet.create(name="tokyo", id="c1")

    by_name = await fleet.run(get, "clusters", "tokyo", "--output", "json")

    assert by_name == await fleet.run(get, "clusters", "c1", "--output", "json")
    assert decoded(by_name[1]) == await fleet.get("clusters/c1")


async def test_waiting_commands_follow_the_id_that_the_name_had(fleet: ServedFleet) -> None:
    await fleet.create(name="tokyo", id="c1")
    pulsing = asyncio.create_task(fleet.run(pulse, "tokyo", "--wait"))
    await fleet.until("/clusters/c1/statuses 200")
    await fleet.reports("clusters/c1", "validation", "dns")
    pulsed = await pulsing
    deleting = asyncio.create_task(fleet.run(delete, "clusters", "tokyo", "--wait"))
    await fleet.until("/resources/c1/waiting 200", times=2)
    await fleet.reports("clusters/c1", "validation", "dns", generation=2, finalized=True)

    assert pulsed[:2] == (0, "clusters/c1: validation, dns answered; it is ready\n")
    assert (await deleting)[:2] == (0, "deleted clusters/c1\n")


async def test_watch_finds_a_name_once_and_then_follows_the_id(fleet: ServedFleet) -> None:
    await fleet.create(name="tokyo", id="c1")

    fleet.has_streams = False
    watching = asyncio.create_task(fleet.run(watch, "clusters", "tokyo", "--interval", "10ms", "--output", "json"))
    await fleet.until("GET /api/hyperfleet/v1/clusters/c1 304")
    await fleet.call("DELETE", "clusters/c1")
    await fleet.reports("clusters/c1", "validation", "dns", generation=2, finalized=True)
    code, out, _ = await watching

    changes = [decoded(line) for line in out.splitlines()]
    assert code == 0
    assert (changes[0]["change"], changes[-1]["change"]) == ("added", "deleted")
    assert all(list(each) == ["change", "resource"] for each in changes)
    assert {each["resource"]["id"] for each in changes} == {"c1"}
    assert sum("clusters/tokyo" in each for each in fleet.requests) == 1


async def test_an_id_wins_over_a_name(fleet: ServedFleet) -> None:
    await fleet.create(name="c2", id="c1")
    await fleet.create(name="other", id="c2")

    _, out, _ = await fleet.run(get, "clusters", "c2", "--output", "json")

    assert decoded(out)["name"] == "other"


async def test_a_name_that_cannot_be_an_id_is_found(fleet: ServedFleet) -> None:
    for resource_id, name in (("c1", "a/b"), ("c2", "it's ..")):
        await fleet.create(name=name, id=resource_id)

        _, out, _ = await fleet.run(get, "clusters", name, "--output", "json")

        assert decoded(out)["id"] == resource_id


async def test_a_name_of_several_resources_exits_2_with_the_candidates(fleet: ServedFleet) -> None:
    await fleet.create(name="pool", id="c1")
    await fleet.create("nodepools", "pool", id="p1", owner_references={"id": "c1"})

    code, out, err = await fleet.run(pause, "pool")

    assert (code, out) == (2, "")
    assert err.splitlines() == [
        'several resources have the name "pool"; give the id of one:',
        "ID  KIND      PARENT",
        "c1  Cluster   -",
        "p1  NodePool  c1",
    ]


async def test_a_kind_limits_the_candidates(fleet: ServedFleet) -> None:
    for parent in ("c1", "c2"):
        await fleet.create(name="pool" if parent == "c1" else "other", id=parent)
        await fleet.create("nodepools", "pool", id=f"{parent}-pool", owner_references={"id": parent})

    unique = await fleet.run(get, "clusters", "pool", "--output", "json")
    code, _, err = await fleet.run(delete, "nodepools", "pool")

    assert decoded(unique[1])["id"] == "c1"
    assert code == 2
    assert [line.split()[0] for line in err.splitlines()[2:]] == ["c1-pool", "c2-pool"]


async def test_at_most_20_candidates_are_shown(fleet: ServedFleet) -> None:
    for number in range(22):
        await fleet.create(name=f"cluster {number}", id=f"c{number}")
        await fleet.create("nodepools", "pool", owner_references={"id": f"c{number}"})

    code, _, err = await fleet.run(why, "pool")

    assert code == 2
    assert len(err.splitlines()) == 2 + 20 + 1
    assert err.splitlines()[-1] == "and more"


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        (why, ("nothing",), 'no resource with the id or name "nothing"'),
        (why, ("../x",), 'no resource with the id or name "../x"'),
        (delete, ("clusters", "pool"), 'no clusters with the id or name "pool"'),
        (get, ("clusters", "nothing", "--watch"), 'no clusters with the id or name "nothing"'),
        (create, ("nodepools", "--name", "x", "--parent", "no"), 'no clusters with the id or name "no"'),
    ],
)
async def test_a_name_that_nothing_has_exits_1(
    fleet: ServedFleet, command: Command, arguments: tuple[str, ...], words: str
) -> None:
    await fleet.create(id="c1")
    await fleet.create("nodepools", "pool", owner_references={"id": "c1"})

    assert await fleet.run(command, *arguments) == (1, "", f"{words}\n")
    assert all(each.startswith("GET") for each in fleet.requests)


async def test_the_parent_may_be_given_by_name(fleet: ServedFleet, tmp_path: Path) -> None:
    await fleet.create(name="tokyo", id="c1")
    await fleet.create("manifests", "tokyo", id="m1")
    file = tmp_path / "pool.yaml"
    file.write_text("{kind: NodePool, name: b, id: p2, owner_references: {id: tokyo}}")

    created = await fleet.run(create, "nodepools", "--name", "a", "--id", "p1", "--parent", "tokyo")
    applied = await fleet.run(apply, "-f", file)

    assert (created[0], applied[0]) == (0, 0)
    assert (await fleet.get("clusters/c1/nodepools"))["total"] == 2


async def test_a_child_without_parent_asks_for_the_option(fleet: ServedFleet) -> None:
    code, out, err = await fleet.run(create, "nodepools", "--name", "x")

    assert (code, out) == (2, "")
    assert err == "--parent: required, but missing: nodepools belong to clusters; give the id or name of one"


async def test_a_parent_of_a_kind_without_one_is_wrong_usage(fleet: ServedFleet) -> None:
    code, _, err = await fleet.run(create, "clusters", "--name", "x", "--parent", "y")
    unknown = await fleet.run(create, "cluster", "--name", "x", "--parent", "y")

    assert (code, err) == (2, "--parent: expected none, because clusters have no parent")
    assert unknown[0] == 1
    assert "Did you mean clusters?" in unknown[2]


class ListServer(LoopbackServer):
    """A server with 1200 clusters that are found by id and listed; `search` is honored, ignored or refused.

    With `paged`, the first page of a search is empty and the second has the match.
    """

    def __init__(self, search: str) -> None:
        super().__init__()
        self._search = search
        self.lists: list[dict[str, str]] = []

    def make_runner(self) -> web.BaseRunner:
        return web.ServerRunner(web.Server(self._respond))

    async def _respond(self, request: web.BaseRequest) -> web.Response:
        query = dict(request.query)
        last = request.path.rsplit("/", 1)[-1]
        if last != "clusters":
            number = last.removeprefix("c")
            if not number.isdecimal():
                return web.json_response({"status": 404, "title": "Not Found"}, status=404)
            return web.json_response(self._document(int(number)))
        self.lists.append(query)
        if "search" in query and self._search == "refused":
            return web.json_response({"status": 400, "title": "unknown parameter"}, status=400)
        numbers = range(1200)
        begin, size = int(query.get("after") or 0), int(query["size"])
        page = numbers[begin : begin + size]
        following = str(begin + size) if begin + size < len(numbers) else None
        if "search" in query and self._search != "ignored":
            page = range(1100, 1101) if begin or self._search == "honored" else range(0)
            following = "600" if not begin and self._search == "paged" else None
        items = [self._document(each) for each in page]
        return web.json_response({"total": len(numbers), "items": items, "next": following})

    @staticmethod
    def _document(number: int) -> dict[str, object]:
        time = "2026-01-01T00:00:00Z"
        return {
            "id": f"c{number}",
            "name": f"cluster {number}",
            "kind": "Cluster",
            "href": f"/api/hyperfleet/v1/clusters/c{number}",
            "labels": {},
            "metadata": {"name": f"cluster {number}", "labels": {}},
            "spec": {},
            "generation": 1,
            "created_time": time,
            "updated_time": time,
            "created_by": "x",
            "updated_by": "x",
            "status": {
                "phase": "NotReady",
                "observed_generation": 0,
                "last_updated_time": time,
                "last_transition_time": time,
                "conditions": [],
            },
        }


@pytest.mark.parametrize(("search", "lists"), [("honored", 1), ("paged", 2), ("ignored", 3), ("refused", 3)])
async def test_a_server_without_search_is_asked_for_all_names(search: str, lists: int) -> None:
    async with ListServer(search) as server:
        code, out, err = await run(get, "clusters", "cluster 1100", "--output", "json", "--server", server.url)

    assert (code, err) == (0, "")
    assert decoded(out)["id"] == "c1100"
    assert len(server.lists) == lists
    assert server.lists[0]["search"] == "name='cluster 1100'"
    assert all(each["fields"] == "name,kind,owner_references" for each in server.lists)


async def test_quotes_in_a_name_are_doubled_in_the_search() -> None:
    async with ListServer("refused") as server:
        code, _, _ = await run(get, "clusters", "it's", "--server", server.url)

    assert code == 1
    assert server.lists[0]["search"] == "name='it''s'"
