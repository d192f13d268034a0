"""Lists: pages, walks by cursor, selectors, projections, orders."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.drivers.fleet_api.walking import build_reader
from tests.drivers.fleet_api.walking import walk as walk_fleet
from tests.support.databases import backends
from tests.support.fleet.api_client import ApiClient
from tests.support.fleet.http_client import ROOT, Body
from tests.web.loopback_server import serving

MAX_PAGES = 50
"""A walk with more pages has not ended."""

ORDERS = [
    "",
    *(f"{field}{way}" for field in ("name", "created_time", "updated_time", "id") for way in ("", " desc")),
]


def names(page: Body) -> list[str]:
    return [item["name"] for item in page["items"]]


async def walk(fleet: ApiClient, path: str = "clusters", **query: object) -> list[Body]:
    """Return all pages, following the cursor."""
    pages = [await fleet.get(path, **query)]
    while (after := pages[-1]["next"]) is not None:
        assert len(pages) < MAX_PAGES
        pages.append(await fleet.get(path, after=after, **query))
    return pages


async def create_clusters(fleet: ApiClient, *given: str, seconds: float = 1) -> list[Body]:
    """Create clusters with these names, a second apart."""
    made = []
    for name in given:
        made.append(await fleet.create("clusters", name))
        await fleet.later(seconds)
    return made


# --- Pages -------------------------------------------------------------------------------------------------------


async def test_an_empty_list_is_one_page(fleet: ApiClient) -> None:
    assert await fleet.get("clusters") == {"page": 1, "size": 0, "total": 0, "items": [], "next": None}


async def test_items_are_what_a_get_returns_byte_for_byte(fleet: ApiClient) -> None:
    created = await fleet.call("POST", "clusters", {"name": "a", "spec": {"b": 1, "a": [1.5, None, "ü"]}})

    listed = await fleet.call("GET", "clusters")

    assert created.content in listed.content
    assert listed.json["items"] == [created.json]


async def test_a_page_has_a_hundred_items_by_default(fleet: ApiClient) -> None:
    for number in range(101):
        await fleet.create("clusters", f"c{number}")

    page = await fleet.get("clusters")

    assert (page["page"], page["size"], page["total"], len(page["items"])) == (1, 100, 101, 100)


async def test_size_is_the_number_of_items_returned(fleet: ApiClient) -> None:
    await create_clusters(fleet, "a", "b", "c")

    first, second = await fleet.get("clusters", size=2), await fleet.get("clusters", size=2, page=2)

    assert [(page["page"], page["size"], page["total"]) for page in (first, second)] == [(1, 2, 3), (2, 1, 3)]
    assert names(first) + names(second) == ["a", "b", "c"]
    assert (first["next"] is None, second["next"] is None) == (False, True)


async def test_a_page_beyond_the_end_is_empty_and_has_the_total(fleet: ApiClient) -> None:
    await create_clusters(fleet, "a")

    for number in (2, 1_000_000):
        page = await fleet.get("clusters", page=number)
        assert page == {"page": number, "size": 0, "total": 1, "items": [], "next": None}


async def test_a_full_last_page_has_no_next(fleet: ApiClient) -> None:
    await create_clusters(fleet, "a", "b")

    assert (await fleet.get("clusters", size=2))["next"] is None


@pytest.mark.parametrize("size", [1, 1000])
async def test_a_page_may_have_one_to_a_thousand_items(fleet: ApiClient, size: int) -> None:
    assert (await fleet.get("clusters", size=size))["total"] == 0


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("size", 0),
        ("size", -1),
        ("size", 1001),
        ("size", "ten"),
        ("size", ""),
        ("size", 10**30),
        ("page", 0),
        ("page", -1),
        ("page", "x"),
        ("page", 10**30),
        ("page", 1_000_001),
        ("order", "spec"),
        ("order", "name sideways"),
        ("order", "name,id"),
        ("labels", "="),
        ("labels", "a in b"),
        ("labels", "a=" + "v" * 64),
        ("search", "spec.size='1'"),
        ("search", "name='"),
        ("search", "name='\0'"),
        ("search", "name='x' and " * 500),
        ("fields", ","),
        ("fields", "a..b"),
        ("fields", ".".join("abcdefghi")),
        ("after", "nonsense"),
        ("after", "AAAA"),
        ("after", "x" * 5000),
    ],
)
async def test_an_invalid_parameter_is_named(fleet: ApiClient, parameter: str, value: object) -> None:
    reply = await fleet.send("GET", f"{ROOT}/clusters", query={parameter: value})

    reply.assert_problem(400, parameter)


async def test_unknown_and_repeated_parameters_are_named(fleet: ApiClient) -> None:
    reply = await fleet.send("GET", "/api/hyperfleet/v1/clusters", query=b"label=a&size=1&size=2&searches=x")

    reply.assert_problem(400, "size", "label", "searches")


# --- Large documents ---------------------------------------------------------------------------------------------

LARGE_SPEC = {"padding": "x" * (500 * 1024)}
"""Sixteen of these fit into a page by cursor."""


async def test_a_page_by_cursor_has_at_most_8_mib_of_documents(fleet: ApiClient) -> None:
    for number in range(20):
        await fleet.create("clusters", f"c{number:02}", spec=LARGE_SPEC)

    first = await fleet.get("clusters", size=1, order="name")
    second = await fleet.call("GET", "clusters", size=100, order="name", after=first["next"])
    third = await fleet.get("clusters", size=100, order="name", after=second.json["next"])

    assert (second.json["size"], second.json["page"], second.json["total"]) == (16, 2, 20)
    assert 7 * 2**20 < len(second.content) <= 8 * 2**20 + 1024
    assert names(first) + names(second.json) + names(third) == [f"c{number:02}" for number in range(20)]
    assert third["next"] is None


async def test_a_numbered_page_has_all_of_its_items(fleet: ApiClient) -> None:
    for number in range(20):
        await fleet.create("clusters", f"c{number:02}", spec=LARGE_SPEC)

    whole, numbered = await fleet.get("clusters"), await fleet.get("clusters", page=1, size=19)

    assert (whole["size"], numbered["size"]) == (20, 19)


async def test_a_pulse_reads_pages_that_are_cut_by_their_size(fleet: ApiClient) -> None:
    expected = [f"c{number:02}" for number in range(40)]
    for name in expected:
        await fleet.create("clusters", name, id=name, spec=LARGE_SPEC)

    async with serving(fleet.app) as server:
        reader = build_reader(f"http://{server.address}", page_size=20)
        pages = await walk_fleet(reader)
        await reader.close()

    assert sorted(each.observation.id for page in pages for each in page.resources) == expected


# --- Nested lists ------------------------------------------------------------------------------------------------


async def test_a_nested_list_has_only_children_of_its_parent(fleet: ApiClient) -> None:
    await fleet.create("clusters", "a", id="a")
    await fleet.create("clusters", "b", id="b")
    for parent, name in (("a", "1"), ("b", "2"), ("a", "3")):
        await fleet.create(f"clusters/{parent}/nodepools", name)

    nested, flat = (
        await fleet.get("clusters/a/nodepools", order="name"),
        await fleet.get("nodepools", order="name"),
    )

    assert (names(nested), nested["total"]) == (["1", "3"], 2)
    assert (names(flat), flat["total"]) == (["1", "2", "3"], 3)


async def test_a_list_below_a_missing_parent_is_not_found(fleet: ApiClient) -> None:
    await fleet.create("manifests", "m", id="m")

    for parent in ("missing", "m"):
        (await fleet.call("GET", f"clusters/{parent}/nodepools")).assert_problem(404, code="HYPERFLEET-NTF-001")


async def test_a_nested_list_is_walked_by_cursor(fleet: ApiClient) -> None:
    await fleet.create("clusters", "a", id="a")
    for number in range(5):
        await fleet.create("clusters/a/nodepools", f"n{number}")

    pages = await walk(fleet, "clusters/a/nodepools", size=2, order="name")

    assert [names(page) for page in pages] == [["n0", "n1"], ["n2", "n3"], ["n4"]]


# --- Orders and cursors ------------------------------------------------------------------------------------------


async def test_the_oldest_come_first_by_default(fleet: ApiClient) -> None:
    await create_clusters(fleet, "c", "a", "b")

    assert names(await fleet.get("clusters")) == ["c", "a", "b"]
    assert names(await fleet.get("clusters", order="created_time desc")) == ["b", "a", "c"]


async def test_lists_follow_the_requested_order(fleet: ApiClient) -> None:
    made = await create_clusters(fleet, "b", "c", "a")
    await fleet.call("PATCH", f"clusters/{made[1]['id']}", {"spec": {"x": 1}})

    assert names(await fleet.get("clusters", order="name")) == ["a", "b", "c"]
    assert names(await fleet.get("clusters", order="name asc")) == ["a", "b", "c"]
    assert names(await fleet.get("clusters", order="name desc")) == ["c", "b", "a"]
    assert names(await fleet.get("clusters", order="updated_time")) == ["b", "a", "c"]
    by_id = sorted((each["id"], each["name"]) for each in made)
    assert names(await fleet.get("clusters", order="id")) == [name for _, name in by_id]


@pytest.mark.parametrize("order", ORDERS)
async def test_a_walk_returns_each_item_once_in_every_order(fleet: ApiClient, order: str) -> None:
    # All have the same time, so only the id orders them.
    await create_clusters(fleet, *"hgfedcba", seconds=0)

    pages = await walk(fleet, size=3, order=order)

    assert [page["page"] for page in pages] == [1, 2, 3]
    assert [page["size"] for page in pages] == [3, 3, 2]
    walked = [name for page in pages for name in names(page)]
    assert walked == names(await fleet.get("clusters", order=order))
    assert sorted(walked) == list("abcdefgh")


@pytest.mark.parametrize("order", ORDERS)
async def test_a_walk_returns_all_that_stays_despite_changes(fleet: ApiClient, order: str) -> None:
    made = {}
    for name in "bdfhjl":
        made[name] = await fleet.create("manifests", name)
        await fleet.later(1)
    walked: list[str] = []
    query: dict[str, object] = {"size": 2, "order": order}
    for step in range(MAX_PAGES):
        page = await fleet.get("manifests", **query)
        walked += names(page)
        if page["next"] is None:
            break
        query["after"] = page["next"]
        # Remove listed ones, including the one at the cursor, and insert others on either side of it.
        for name in names(page):
            if name in made:
                await fleet.call("DELETE", f"manifests/{made.pop(name)['id']}")
        if step < 3:
            await fleet.create("manifests", f"a{step}")
            await fleet.create("manifests", f"z{step}")

    assert set(walked) >= set("bdfhjl")
    assert len(set(walked)) == len(walked)


async def test_the_total_is_counted_on_the_first_page(fleet: ApiClient) -> None:
    await create_clusters(fleet, "a", "b", "c")
    first = await fleet.get("clusters", size=2)
    await create_clusters(fleet, "d")

    second = await fleet.get("clusters", size=2, after=first["next"])

    assert (second["total"], names(second)) == (3, ["c", "d"])
    assert (await fleet.get("clusters", size=2, page=2))["total"] == 4


async def test_the_page_size_may_change_during_a_walk(fleet: ApiClient) -> None:
    await create_clusters(fleet, *"abcd")
    first = await fleet.get("clusters", size=1)

    assert names(await fleet.get("clusters", size=3, after=first["next"])) == ["b", "c", "d"]


async def test_fields_may_change_during_a_walk(fleet: ApiClient) -> None:
    await create_clusters(fleet, *"ab")
    first = await fleet.get("clusters", size=1)

    second = await fleet.get("clusters", size=1, after=first["next"], fields="name")

    assert [set(item) for item in second["items"]] == [{"id", "name"}]


@pytest.mark.parametrize(
    ("path", "changed"),
    [
        ("manifests", {}),
        ("clusters", {"order": "name"}),
        ("clusters", {"order": "created_time desc"}),
        ("clusters", {"labels": "a=b"}),
        ("clusters", {"search": "labels.a='b'"}),
        ("nodepools", {}),
    ],
)
async def test_a_cursor_of_another_query_is_rejected(
    fleet: ApiClient, path: str, changed: dict[str, object]
) -> None:
    await create_clusters(fleet, *"ab")
    first = await fleet.get("clusters", size=1)

    reply = await fleet.send("GET", f"{ROOT}/{path}", query={"after": first["next"], **changed})

    reply.assert_problem(400, "after")


async def test_a_cursor_of_another_parent_is_rejected(fleet: ApiClient) -> None:
    for parent in "ab":
        await fleet.create("clusters", parent, id=parent)
        for name in "xy":
            await fleet.create(f"clusters/{parent}/nodepools", name)
    first = await fleet.get("clusters/a/nodepools", size=1)

    (await fleet.call("GET", "clusters/b/nodepools", after=first["next"])).assert_problem(400, "after")
    (await fleet.call("GET", "nodepools", after=first["next"])).assert_problem(400, "after")


async def test_a_truncated_cursor_is_rejected(fleet: ApiClient) -> None:
    await create_clusters(fleet, *"ab")
    after = (await fleet.get("clusters", size=1))["next"]

    for broken in (after[:-3], after[:5], after + "AA", after.swapcase(), f" {after}"):
        (await fleet.call("GET", "clusters", after=broken)).assert_problem(400, "after")


async def test_a_page_with_a_cursor_is_rejected(fleet: ApiClient) -> None:
    await create_clusters(fleet, *"ab")
    after = (await fleet.get("clusters", size=1))["next"]

    (await fleet.call("GET", "clusters", after=after, page=2)).assert_problem(400, "page")


# --- Selectors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("", "abcd"),
        ("region=east", "ab"),
        ("region==east", "ab"),
        ("region!=east", "cd"),
        ("region in (east, west)", "abc"),
        ("region notin (east)", "cd"),
        ("region", "abc"),
        ("!region", "d"),
        ("size>4", "bc"),
        ("size<5", "a"),
        ("region=east,size>4", "b"),
        ("region = east , env", "a"),
        ("env=", ""),
        ("example.com/team=x", "d"),
        ("nobody=has", ""),
    ],
)
async def test_labels_select_in_kubernetes_syntax(fleet: ApiClient, selector: str, expected: str) -> None:
    for name, labels in {
        "a": {"region": "east", "size": "3", "env": "prod"},
        "b": {"region": "east", "size": "10"},
        "c": {"region": "west", "size": "10"},
        "d": {"example.com/team": "x", "size": "many"},
    }.items():
        await fleet.create("clusters", name, labels=labels)

    page = await fleet.get("clusters", labels=selector, order="name")

    assert (names(page), page["total"]) == (list(expected), len(expected))


async def test_a_selection_is_walked_by_cursor(fleet: ApiClient) -> None:
    for number in range(9):
        await fleet.create("clusters", f"c{number}", labels={"parity": "even" if number % 2 == 0 else "odd"})

    pages = await walk(fleet, size=2, labels="parity=even", order="name")

    assert [names(page) for page in pages] == [["c0", "c2"], ["c4", "c6"], ["c8"]]
    assert {page["total"] for page in pages} == {5}


async def test_a_selection_follows_changed_labels(fleet: ApiClient) -> None:
    await fleet.create("clusters", "a", id="a", labels={"region": "east"})
    await fleet.call("PATCH", "clusters/a", {"labels": {"region": "west"}})

    assert (await fleet.get("clusters", labels="region=east"))["total"] == 0
    assert (await fleet.get("clusters", labels="region=west"))["total"] == 1


async def test_an_invalid_selector_gives_the_position(fleet: ApiClient) -> None:
    document = (await fleet.call("GET", "clusters", labels="region=east,,")).assert_problem(400, "labels")

    assert "column 13" in document["detail"]


# --- Fields ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("id", {"id": "a"}),
        ("name", {"id": "a", "name": "one"}),
        ("spec.a.b", {"id": "a", "spec": {"a": {"b": 1}}}),
        ("spec.a.missing,generation", {"id": "a", "spec": {"a": {}}, "generation": 1}),
        ("labels.example.com/x", {"id": "a", "labels": {"example.com/x": "y"}}),
        ("metadata.labels", {"id": "a", "metadata": {"labels": {"example.com/x": "y"}}}),
        (
            "status.phase, status.observed_generation",
            {"id": "a", "status": {"phase": "NotReady", "observed_generation": 0}},
        ),
        ("nothing,such", {"id": "a"}),
    ],
)
async def test_only_the_requested_fields_and_the_id_are_returned(
    fleet: ApiClient, fields: str, expected: Body
) -> None:
    await fleet.create("clusters", "one", id="a", labels={"example.com/x": "y"}, spec={"a": {"b": 1, "c": 2}})

    page = await fleet.get("clusters", fields=fields)

    assert page["items"] == [expected]
    assert (page["page"], page["size"], page["total"], page["next"]) == (1, 1, 1, None)


async def test_fields_are_selected_from_documents_that_the_database_joins(tmp_path: Path) -> None:
    async with ApiClient(backend=backends.sql(f"sqlite:///{tmp_path / 'fleet.db'}")) as fleet:
        await create_clusters(fleet, *"abc")

        page = await fleet.get("clusters", fields="name,generation", size=2)
        empty = await fleet.get("manifests", fields="name")

    assert [set(item) for item in page["items"]] == [{"id", "name", "generation"}] * 2
    assert (names(page), page["size"], page["total"], empty["items"]) == (["a", "b"], 2, 3, [])


async def test_fields_can_select_the_owner_of_a_child(fleet: ApiClient) -> None:
    cluster = await fleet.create("clusters", "one", id="a")
    await fleet.create("clusters/a/nodepools", "x", id="p")

    page = await fleet.get("nodepools", fields="ownerResource.href,owner_references.id")

    assert page["items"] == [
        {"id": "p", "ownerResource": {"href": cluster["href"]}, "owner_references": {"id": "a"}}
    ]


async def test_an_id_inside_the_spec_stays_there(fleet: ApiClient) -> None:
    await fleet.create("clusters", "one", id="a", spec={"id": "other"})

    assert (await fleet.get("clusters", fields="spec.id"))["items"] == [{"id": "a", "spec": {"id": "other"}}]


# --- Other -------------------------------------------------------------------------------------------------------


async def test_deleting_resources_are_listed(fleet: ApiClient) -> None:
    await fleet.create("clusters", "a", id="a")
    await fleet.call("DELETE", "clusters/a")

    page = await fleet.get("clusters")

    assert "deleted_time" in page["items"][0]


async def test_next_is_the_last_member_of_a_list(fleet: ApiClient) -> None:
    reply = await fleet.call("GET", "clusters")

    assert reply.headers["content-type"] == "application/json"
    assert list(msgspec.json.decode(reply.content)) == ["page", "size", "total", "items", "next"]
