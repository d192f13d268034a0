"""Lists with a search, as clients of the public API send them."""

from __future__ import annotations

import pytest

from sentinel.core.labels import Selector, SelectorParam, equality
from tests.drivers.fleet_api.walking import build_reader, walk
from tests.support.fleet.api_client import ApiClient
from tests.support.fleet.http_client import ROOT, Body
from tests.web.loopback_server import serving

CLUSTERS = {
    "a": {"region": "east", "env": "prod"},
    "b": {"region": "east"},
    "c": {"region": "west", "example.com/team": "x"},
    "it's": {},
}


@pytest.fixture
async def clusters(fleet: ApiClient) -> ApiClient:
    """Four clusters. The first is ready, and the second has a second generation."""
    for name, labels in CLUSTERS.items():
        await fleet.create("clusters", name, labels=labels, id=f"id-{name[0]}")
        await fleet.later()
    await fleet.reports("clusters/id-a", "validation", "dns")
    await fleet.call("PATCH", "clusters/id-b", {"spec": {"size": 2}})
    return fleet


def names(page: Body) -> list[str]:
    return [item["name"] for item in page["items"]]


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ("", ["a", "b", "c", "it's"]),
        ("labels.region='east'", ["a", "b"]),
        ("labels.region = 'east' and labels.env = 'prod'", ["a"]),
        ("labels.region!='east'", ["c", "it's"]),
        ("labels.region in ('east', 'west')", ["a", "b", "c"]),
        ("NOT labels.region IN ('east')", ["c", "it's"]),
        ("labels.env='prod' OR labels.example.com/team='x'", ["a", "c"]),
        ("labels.region='east' and not (labels.env='prod' or name='c')", ["b"]),
        ("name='it''s'", ["it's"]),
        ("id in ('id-a','id-c','absent')", ["a", "c"]),
        ("generation=1", ["a", "c", "it's"]),
        ("generation != 1", ["b"]),
        ("status.conditions.Ready='True'", ["a"]),
        ("status.conditions.Ready='False' and labels.region='east'", ["b"]),
        ("status.conditions.Absent!='True' and name!='a'", ["b", "c", "it's"]),
        ("labels.non_existing_label='value'", []),
    ],
)
async def test_a_search_selects_what_it_describes(clusters: ApiClient, search: str, expected: list[str]) -> None:
    page = await clusters.get("clusters", search=search)

    assert (names(page), page["total"], page["size"]) == (expected, len(expected), len(expected))


@pytest.mark.parametrize(
    "field", ["spec.size", "kind", "labels", "status.conditions.Ready.reason", "LABELS.region"]
)
async def test_an_unknown_field_is_named_with_its_column(fleet: ApiClient, field: str) -> None:
    reply = await fleet.call("GET", "clusters", search=f"name='a' and {field}='x'")

    document = reply.assert_problem(400, "search")
    assert f'unknown field "{field}"' in document["detail"]
    assert "column 14" in document["errors"][0]["message"]


async def test_the_connectivity_check_of_the_public_sentinel_succeeds(fleet: ApiClient) -> None:
    await fleet.create("clusters", "a")

    reply = await fleet.send(
        "GET", f"{ROOT}/clusters", query=b"search=labels.non_existing_label%3D%27value%27&size=1"
    )

    assert (reply.status, reply.json["total"], reply.json["items"]) == (200, 0, [])


async def test_a_search_combines_with_every_other_parameter(clusters: ApiClient) -> None:
    search = "status.conditions.Ready='False'"

    ordered = await clusters.get("clusters", search=search, order="name desc", fields="name")
    selected = await clusters.get("clusters", search=search, labels="region")
    second = await clusters.get("clusters", search=search, page=2, size=2)

    assert ordered["items"] == [{"id": f"id-{name[0]}", "name": name} for name in ("it's", "c", "b")]
    assert names(selected) == ["b", "c"]
    assert (names(second), second["total"], second["next"]) == (["it's"], 3, None)


async def test_a_search_selects_among_the_children_of_a_parent(clusters: ApiClient) -> None:
    for parent in ("id-a", "id-b"):
        for name in ("x", "y"):
            await clusters.create(f"clusters/{parent}/nodepools", name, labels={"role": name})

    nested = await clusters.get("clusters/id-a/nodepools", search="labels.role='y' or name='absent'")
    flat = await clusters.get("nodepools", search="labels.role='y'")

    assert (names(nested), nested["total"]) == (["y"], 1)
    assert flat["total"] == 2


async def test_a_walk_continues_with_the_same_search_only(clusters: ApiClient) -> None:
    first = await clusters.get("clusters", search="labels.region='east' and name!='x'", size=1)
    after = first["next"]

    same = await clusters.get("clusters", search="labels.region = 'east'  AND not name = 'x'", size=1, after=after)
    other = await clusters.call("GET", "clusters", search="labels.region='east' and name!='y'", after=after)
    none = await clusters.call("GET", "clusters", after=after)

    assert (names(first), names(same), same["next"]) == (["a"], ["b"], None)
    other.assert_problem(400, "after")
    none.assert_problem(400, "after")


async def test_a_pulse_that_sends_a_search_fetches_only_its_shard(fleet: ApiClient) -> None:
    production = {"region": "us-east", "environment": "production"}
    for number in range(5):
        await fleet.create("clusters", f"in-{number}", id=f"in-{number}", labels=production)
        await fleet.create("clusters", f"out-{number}", labels=production | {"environment": "staging"})
        await fleet.later()
    selector = Selector((equality("region", "us-east"), equality("environment", "production")))

    async with serving(fleet.app) as server:
        reader = build_reader(f"http://{server.address}", selector=selector, selector_param=SelectorParam.SEARCH)
        pages = await walk(reader)
        await reader.close()

    # Pages of two: a server that ignored the search would need five pages for its ten clusters.
    assert [[each.observation.id for each in page.resources] for page in pages] == [
        ["in-0", "in-1"],
        ["in-2", "in-3"],
        ["in-4"],
    ]
