"""The audit log: every write has an entry, and no entry contains user data."""

from __future__ import annotations

from sentinel.core.access import Identity, Role
from tests.support.fleet.api_client import ApiClient
from tests.support.fleet.http_client import Body

AUDIT = "/api/v1/audit"
SECRET = "hunter2-in-the-spec"
MAX_PAGES = 20


async def entries(fleet: ApiClient, **query: object) -> list[Body]:
    """Return all entries, oldest first."""
    items: list[Body] = (await fleet.get(AUDIT, size=1000, **query))["items"]
    return items[::-1]


async def make_every_write(fleet: ApiClient) -> None:
    """Make one write of every kind, a second apart."""
    for method, path, body in (
        ("POST", "clusters", {"name": "c", "id": "c", "spec": {"password": SECRET}, "labels": {"l": SECRET}}),
        ("PATCH", "clusters/c", {"spec": {"password": SECRET * 2}}),
        ("POST", "clusters/c/pulse", None),
        ("POST", "clusters/c/pause", None),
        ("POST", "clusters/c/resume", None),
        ("PUT", "clusters/c/statuses", fleet.report("dns", generation=2, data={"secret": SECRET})),
        ("DELETE", "clusters/c", None),
        ("POST", "clusters/c/force-delete", {"reason": "enough"}),
        ("POST", "manifests", {"name": "m", "id": "m"}),
        ("DELETE", "manifests/m", None),
    ):
        reply = await fleet.call(method, path, body)
        assert reply.status < 300, reply
        await fleet.later(1)


async def test_every_write_leaves_an_entry(fleet: ApiClient) -> None:
    await make_every_write(fleet)

    found = [(each["action"], each["kind"], each["resource_id"], each["detail"]) for each in await entries(fleet)]

    assert found == [
        ("create", "Cluster", "c", "generation 1"),
        ("patch", "Cluster", "c", "generation 2"),
        ("pulse", "Cluster", "c", ""),
        ("pause", "Cluster", "c", ""),
        ("resume", "Cluster", "c", ""),
        ("report", "Cluster", "c", "dns"),
        ("delete", "Cluster", "c", "generation 3"),
        ("force-delete", "Cluster", "c", "enough"),
        ("create", "Manifest", "m", "generation 1"),
        ("delete", "Manifest", "m", "generation 2"),
        ("remove", "Manifest", "m", "generation 2"),
    ]


async def test_an_entry_has_actor_address_time_and_request_id() -> None:
    identities = [Identity("ops", Role.OPERATOR), Identity("root", Role.ADMIN)]
    async with ApiClient(identities=identities) as fleet:
        await fleet.later(7)
        await fleet.call("POST", "clusters", {"name": "c"}, token="ops", headers={"X-Request-Id": "req-42"})

        entry = (await fleet.call("GET", AUDIT, token="root")).json["items"][0]

    assert entry.pop("id")
    assert entry.pop("resource_id")
    assert entry == {
        "time": "2025-01-01T00:00:07Z",
        "actor": "ops",
        "role": "operator",
        "address": "127.0.0.1",
        "action": "create",
        "kind": "Cluster",
        "request_id": "req-42",
        "detail": "generation 1",
    }


async def test_a_request_id_is_generated_if_none_is_given(fleet: ApiClient) -> None:
    reply = await fleet.call("POST", "clusters", {"name": "c"})

    assert (await entries(fleet))[0]["request_id"] == reply.headers["x-request-id"]


async def test_writes_of_one_request_share_its_id(fleet: ApiClient) -> None:
    await fleet.create("clusters", "c", id="c")
    await fleet.create("clusters/c/nodepools", "n")
    reply = await fleet.call("DELETE", "clusters/c")

    deletions = await entries(fleet, action="delete")

    assert [entry["request_id"] for entry in deletions] == [reply.headers["x-request-id"]] * 2


async def test_entries_contain_no_spec_label_or_report(fleet: ApiClient) -> None:
    await make_every_write(fleet)

    assert SECRET.encode() not in (await fleet.call("GET", AUDIT, size=1000)).content


async def test_writes_without_effect_have_no_entry(fleet: ApiClient) -> None:
    await fleet.create("clusters", "c", id="c")
    for method, path, body in (
        ("POST", "clusters", {"name": "c"}),
        ("POST", "clusters", {"name": " "}),
        ("PATCH", "clusters/c", {}),
        ("PATCH", "clusters/c", {"spec": 1}),
        ("POST", "clusters/c/statuses", fleet.report("dns", generation=9)),
        ("POST", "clusters/c/statuses", fleet.report("dns", generation=0)),
        ("POST", "clusters/c/force-delete", {"reason": "r"}),
        ("DELETE", "clusters/missing", None),
        ("GET", "clusters/c", None),
    ):
        await fleet.call(method, path, body)

    assert [entry["action"] for entry in await entries(fleet)] == ["create"]


async def test_the_newest_come_first_and_a_cursor_leads_to_the_rest(fleet: ApiClient) -> None:
    await make_every_write(fleet)
    whole = (await fleet.get(AUDIT, size=1000))["items"]

    walked: list[Body] = []
    query: dict[str, object] = {"size": 4}
    sizes = []
    for _ in range(MAX_PAGES):
        page = await fleet.get(AUDIT, **query)
        walked += page["items"]
        sizes.append(page["size"])
        if page["next"] is None:
            break
        query["after"] = page["next"]
        await fleet.later(1)
        await fleet.create("manifests", f"m{len(walked)}")  # newer than the cursor

    assert walked == whole
    assert sizes == [4, 4, 3]
    assert [entry["time"] for entry in whole] == sorted((entry["time"] for entry in whole), reverse=True)


async def test_entries_with_equal_times_keep_their_order(fleet: ApiClient) -> None:
    for number in range(20):
        await fleet.create("manifests", f"m{number}", id=f"m{number}")

    assert [entry["resource_id"] for entry in await entries(fleet)] == [f"m{number}" for number in range(20)]


async def test_entries_are_filtered(fleet: ApiClient) -> None:
    await make_every_write(fleet)

    assert {entry["resource_id"] for entry in await entries(fleet, resource_id="m")} == {"m"}
    assert len(await entries(fleet, action="create")) == 2
    assert len(await entries(fleet, action="create", resource_id="c")) == 1
    assert await entries(fleet, actor="bob") == []
    assert len(await entries(fleet, actor="anonymous")) == 11


async def test_a_cursor_of_another_filter_is_rejected(fleet: ApiClient) -> None:
    await make_every_write(fleet)
    page = await fleet.get(AUDIT, size=1, action="create")

    assert (await fleet.get(AUDIT, size=1, action="create", after=page["next"]))["items"]
    (await fleet.call("GET", AUDIT, size=1, action="delete", after=page["next"])).assert_problem(400, "after")
    (await fleet.call("GET", AUDIT, after="nonsense")).assert_problem(400, "after")


async def test_pages_of_the_audit_are_bounded(fleet: ApiClient) -> None:
    for size in (0, 1001):
        (await fleet.call("GET", AUDIT, size=size)).assert_problem(400, "size")
    (await fleet.call("GET", AUDIT, page=2)).assert_problem(400, "page")


async def test_the_actor_of_a_report_is_the_adapter() -> None:
    identities = [Identity("root", Role.ADMIN), Identity("dns-token", Role.ADAPTER, "dns")]
    async with ApiClient(identities=identities) as fleet:
        await fleet.call("POST", "clusters", {"name": "c", "id": "c"}, token="root")
        await fleet.call("POST", "clusters/c/statuses", fleet.report("dns"), token="dns-token")

        entry = (await fleet.call("GET", AUDIT, token="root")).json["items"][0]

    assert (entry["actor"], entry["role"], entry["detail"]) == ("dns-token", "adapter", "dns")
