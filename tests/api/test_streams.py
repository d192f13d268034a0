"""Streams of resources: what clients receive, and how they go on."""

from __future__ import annotations

import pytest

from sentinel.core.access import Identity, Role
from tests.support.fleet.api_client import ApiClient
from tests.support.fleet.event_stream import watching
from tests.support.fleet.http_client import ROOT

SYNCED = ("synced", "")


async def test_a_stream_begins_with_every_present_resource(fleet: ApiClient) -> None:
    one = await fleet.create(name="one")
    await fleet.later()
    two = await fleet.create(name="two")

    async with watching(fleet.app) as stream:
        events = await stream.until_synced()

    assert stream.start["status"] == 200
    assert (b"content-type", b"text/event-stream") in stream.start["headers"]
    assert (b"x-accel-buffering", b"no") in stream.start["headers"]
    assert [event.type for event in events] == ["resource.changed", "resource.changed", "resource.synced"]
    assert [event.data for event in events[:2]] == [one, two]
    assert all(event.id for event in events)


async def test_an_empty_stream_is_synced_at_once(fleet: ApiClient) -> None:
    async with watching(fleet.app) as stream:
        assert await stream.take(1) == [SYNCED]


async def test_changes_follow(fleet: ApiClient) -> None:
    async with watching(fleet.app, "manifests") as stream:
        await stream.until_synced()
        created = await fleet.create("manifests", "one")
        first = await stream.next()
        path = f"manifests/{created['id']}"
        patched = (await fleet.call("PATCH", path, {"spec": {"size": 2}})).json
        second = await stream.next()
        await fleet.call("DELETE", path)
        third = await stream.next()

    assert (first.type, first.data) == ("resource.changed", created)
    assert (second.type, second.data) == ("resource.changed", patched)
    assert (third.type, third.data) == ("resource.removed", {"id": created["id"]})


async def test_several_changes_come_as_the_last_of_them(fleet: ApiClient) -> None:
    async with watching(fleet.app, "manifests") as stream:
        start = (await stream.until_synced())[-1].id
    created = await fleet.create("manifests", "one")
    for size in range(3):
        await fleet.call("PATCH", f"manifests/{created['id']}", {"spec": {"size": size}})
    removed = await fleet.create("manifests", "two")
    await fleet.call("DELETE", f"manifests/{removed['id']}")

    async with watching(fleet.app, "manifests", after=start, fields="spec") as stream:
        events = [await stream.next() for _ in range(2)]

    assert [event.data for event in events] == [{"id": created["id"], "spec": {"size": 2}}, {"id": removed["id"]}]


async def test_a_report_changes_the_resource(fleet: ApiClient) -> None:
    cluster = await fleet.create()
    async with watching(fleet.app, fields="status.phase,generation") as stream:
        await stream.until_synced()
        await fleet.reports(f"clusters/{cluster['id']}", "validation", "dns")
        event = await stream.next()
        while event.data["status"]["phase"] != "Ready":
            event = await stream.next()

    assert event.data == {"id": cluster["id"], "generation": 1, "status": {"phase": "Ready"}}


async def test_work_in_progress_is_no_event(fleet: ApiClient) -> None:
    cluster = await fleet.create()
    path = f"clusters/{cluster['id']}"
    await fleet.reports(path, "dns", available="Unknown")
    async with watching(fleet.app) as stream:
        await stream.until_synced()
        await fleet.later()
        await fleet.reports(path, "dns", available="Unknown")
        two = await fleet.create(name="two")

        assert await stream.take(1) == [("changed", two["id"])]


async def test_only_resources_of_the_kind_and_parent_are_streamed(fleet: ApiClient) -> None:
    one, two = await fleet.create(name="one"), await fleet.create(name="two")
    async with (
        watching(fleet.app, f"clusters/{one['id']}/nodepools") as nested,
        watching(fleet.app, "nodepools") as flat,
    ):
        await nested.until_synced()
        await flat.until_synced()
        foreign = await fleet.create(f"clusters/{two['id']}/nodepools", "np")
        own = await fleet.create(f"clusters/{one['id']}/nodepools", "np")

        assert await nested.take(1) == [("changed", own["id"])]
        assert await flat.take(2) == [("changed", foreign["id"]), ("changed", own["id"])]


async def test_a_stream_of_an_unknown_parent_is_not_found(fleet: ApiClient) -> None:
    async with watching(fleet.app, "clusters/absent/nodepools") as stream:
        (await stream.reply()).assert_problem(404)


async def test_one_resource_is_streamed_without_the_others(fleet: ApiClient) -> None:
    one, two = await fleet.create("manifests", "one"), await fleet.create("manifests", "two")
    path, other = f"manifests/{one['id']}", f"manifests/{two['id']}"
    async with watching(fleet.app, path) as stream:
        present = await stream.until_synced()
        await fleet.call("PATCH", other, {"spec": {"size": 2}})
        patched = (await fleet.call("PATCH", path, {"spec": {"size": 3}})).json
        changed = await stream.next()
        await fleet.call("DELETE", other)
        await fleet.call("DELETE", path)
        removed = await stream.next()

    assert [event.data for event in present] == [one, {}]
    assert (changed.type, changed.data) == ("resource.changed", patched)
    assert (removed.type, removed.data) == ("resource.removed", {"id": one["id"]})


async def test_the_stream_of_one_resource_goes_on_after_its_removal(fleet: ApiClient) -> None:
    one, two = await fleet.create("manifests", "one"), await fleet.create("manifests", "two")
    path = f"manifests/{one['id']}"
    async with watching(fleet.app, path) as stream:
        start = (await stream.until_synced())[-1].id
    await fleet.call("PATCH", f"manifests/{two['id']}", {"spec": {"size": 2}})
    await fleet.call("DELETE", path)

    async with watching(fleet.app, path, after=start) as resumed:
        gone = await resumed.take(1)
        await fleet.create("manifests", "again", id=one["id"])
        back = await resumed.take(1)

    assert (gone, back) == ([("removed", one["id"])], [("changed", one["id"])])


async def test_an_interrupted_stream_of_one_resource_begins_again(fleet: ApiClient) -> None:
    one = await fleet.create("manifests", "one")
    async with watching(fleet.app, f"manifests/{one['id']}") as stream:
        first = (await stream.next()).id

    async with watching(fleet.app, f"manifests/{one['id']}", after=first) as resumed:
        assert await resumed.take(2) == [("changed", one["id"]), SYNCED]


async def test_a_nested_resource_is_streamed_below_its_parent_alone(fleet: ApiClient) -> None:
    one, two = await fleet.create(name="one"), await fleet.create(name="two")
    child = await fleet.create(f"clusters/{one['id']}/nodepools", "np")

    async with watching(fleet.app, f"clusters/{one['id']}/nodepools/{child['id']}") as stream:
        assert await stream.take(2) == [("changed", child["id"]), SYNCED]
    async with watching(fleet.app, f"clusters/{two['id']}/nodepools/{child['id']}") as stream:
        (await stream.reply()).assert_problem(404)


async def test_a_stream_of_one_resource_is_checked_before_it_begins(fleet: ApiClient) -> None:
    one = await fleet.create()

    async with watching(fleet.app, "clusters/absent") as stream:
        (await stream.reply()).assert_problem(404)
    async with watching(fleet.app, f"manifests/{one['id']}") as stream:
        (await stream.reply()).assert_problem(404)
    async with watching(fleet.app, f"clusters/{one['id']}", statuses="true") as stream:
        (await stream.reply()).assert_problem(400, "statuses")
    async with watching(fleet.app, f"clusters/{one['id']}", after="nonsense") as stream:
        (await stream.reply()).assert_problem(410)


async def test_a_resource_that_no_longer_matches_is_removed(fleet: ApiClient) -> None:
    gold = await fleet.create(name="one", labels={"tier": "gold"})
    other = await fleet.create(name="two", labels={"tier": "lead"})
    async with watching(fleet.app, labels="tier=gold") as stream:
        present = await stream.take(2)
        await fleet.call("PATCH", f"clusters/{other['id']}", {"spec": {"n": 1}})
        await fleet.call("PATCH", f"clusters/{gold['id']}", {"labels": {"tier": "lead"}})
        await fleet.call("PATCH", f"clusters/{other['id']}", {"labels": {"tier": "gold"}})
        following = await stream.take(2)

    assert present == [("changed", gold["id"]), SYNCED]
    assert following == [("removed", gold["id"]), ("changed", other["id"])]


async def test_a_client_goes_on_after_every_event(fleet: ApiClient) -> None:
    ids = [(await fleet.create("manifests", f"m-{number}"))["id"] for number in range(2)]
    async with watching(fleet.app, "manifests") as stream:
        events = await stream.until_synced()
        for name in ("m-2", "m-3"):
            ids.append((await fleet.create("manifests", name))["id"])
            events.append(await stream.next())

    for index, event in enumerate(events):
        known = {each.resource_id for each in events[: index + 1] if each.type != "resource.synced"}
        async with watching(fleet.app, "manifests", after=event.id) as resumed:
            while known != set(ids):
                known.add((await resumed.next()).data.get("id", ids[0]))


async def test_going_on_repeats_nothing_after_the_last_event(fleet: ApiClient) -> None:
    await fleet.create("manifests", "one")
    async with watching(fleet.app, "manifests") as stream:
        await stream.until_synced()
        await fleet.create("manifests", "two")
        last = await stream.next()

    async with watching(fleet.app, "manifests", after=last.id) as resumed:
        three = await fleet.create("manifests", "three")

        assert await resumed.take(1) == [("changed", three["id"])]


async def test_an_interrupted_list_goes_on_and_misses_no_removal(fleet: ApiClient) -> None:
    ids = sorted([(await fleet.create("manifests", f"m-{number}"))["id"] for number in range(205)])
    async with watching(fleet.app, "manifests", fields="id") as stream:
        events = [await stream.next() for _ in range(202)]
    await fleet.call("DELETE", f"manifests/{ids[0]}")

    async with watching(fleet.app, "manifests", after=events[-1].id, fields="id") as resumed:
        rest = await resumed.until_synced()
        following = await resumed.take(1)

    assert {event.resource_id for event in rest[:-1]} <= set(ids[200:])
    assert {event.resource_id for event in (*events, *rest[:-1])} == set(ids)
    assert following == [("removed", ids[0])]


@pytest.mark.parametrize("after", ["garbage", "00000000-999999", "ffffffff-1", "00000000-1~x~y", "00000000-1~9~"])
async def test_an_unreadable_id_is_gone_before_anything_is_sent(fleet: ApiClient, after: str) -> None:
    async with watching(fleet.app, after=after) as stream:
        (await stream.reply()).assert_problem(410)


async def test_an_id_older_than_what_is_kept_is_gone(fleet: ApiClient) -> None:
    async with watching(fleet.app, "manifests") as stream:
        start = (await stream.until_synced())[-1].id
        for number in range(3):
            await fleet.create("manifests", f"m-{number}")
        last = [await stream.next() for _ in range(3)][-1].id
    await fleet.backend.changes.expire(await fleet.later(3600), limit=100)

    async with watching(fleet.app, "manifests", after=start) as stream:
        (await stream.reply()).assert_problem(410)
    async with watching(fleet.app, "manifests", after=last) as stream:
        assert stream.status == 200


@pytest.mark.parametrize(
    ("name", "value"), [("page", "1"), ("after", "x"), ("order", "name"), ("search", "name='a'")]
)
async def test_parameters_of_a_page_are_rejected(fleet: ApiClient, name: str, value: str) -> None:
    reply = await fleet.send("GET", f"{ROOT}/clusters", query={"watch": "true", name: value})

    reply.assert_problem(400, name)


@pytest.mark.parametrize(("name", "value"), [("labels", "=="), ("fields", "a..b"), ("watch", "maybe")])
async def test_invalid_parameters_are_rejected(fleet: ApiClient, name: str, value: str) -> None:
    reply = await fleet.send("GET", f"{ROOT}/clusters", query={"watch": "true", name: value})

    reply.assert_problem(400, name)


async def test_without_watch_a_list_is_a_list(fleet: ApiClient) -> None:
    assert (await fleet.get("clusters", watch="false"))["items"] == []


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.AGENT])
async def test_every_role_that_lists_may_stream(role: Role) -> None:
    adapter = "dns" if role is Role.ADAPTER else ""
    client = ApiClient(identities=[Identity("me", role, adapter=adapter)])
    async with client as fleet, watching(fleet.app, token="me") as stream:
        assert await stream.take(1) == [SYNCED]
        async with watching(fleet.app, "clusters/absent", token="me") as one:
            (await one.reply()).assert_problem(404)


async def test_an_agent_may_not_stream() -> None:
    async with ApiClient(identities=[Identity("me", Role.AGENT)]) as fleet:
        for path in ("clusters", "clusters/absent"):
            async with watching(fleet.app, path, token="me") as stream:
                (await stream.reply()).assert_problem(403)
            async with watching(fleet.app, path) as stream:
                (await stream.reply()).assert_problem(401)


async def test_a_stream_ends_when_its_token_does() -> None:
    client = ApiClient(identities=[Identity("me", Role.VIEWER), Identity("you", Role.VIEWER)])
    async with (
        client as fleet,
        watching(fleet.app, token="me") as ending,
        watching(fleet.app, token="you") as staying,
    ):
        await ending.until_synced()
        await staying.until_synced()

        del fleet.known["me"]

        await ending.wait_for_end()
        assert not staying.has_ended


async def test_metrics_count_streams_and_events(fleet: ApiClient) -> None:
    def value(name: str, **labels: str) -> float | None:
        return fleet.registry.get_sample_value(f"hyperfleet_api_{name}", labels)

    await fleet.create()
    async with watching(fleet.app) as stream:
        await stream.until_synced()
        during = value("streams", kind="Cluster")

    assert (during, value("streams", kind="Cluster")) == (1, 0)
    assert value("stream_events_total", type="resource.changed") == 1
    assert value("stream_events_total", type="resource.synced") == 1
    assert value("streams_cut_off_total", kind="Cluster") == 0
