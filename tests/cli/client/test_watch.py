"""`sentinel watch`: changes as they happen."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import click
import msgspec
import pytest
from aiohttp import web

from sentinel.cli.client.get import get
from sentinel.cli.client.watch import ChangeType, changes, watch
from tests.cli.client.serving import ServedFleet, decoded
from tests.support.http.event_stream_server import EventStreamServer, Script, StreamConnection, event, resource
from tests.support.processes.service import ServiceProcess

FAST = ("--interval", "10ms")


def test_changes_are_in_list_order_with_deletions_last() -> None:
    before = {"a": b'{"v":1}', "b": b'{"v":1}', "c": b'{"v":1}'}
    now = {"d": b'{"v":1}', "b": b'{"v":2}', "c": b'{"v":1}'}

    found = [(event.change, bytes(event.resource)) for event in changes(before, now)]

    assert found == [
        (ChangeType.ADDED, b'{"v":1}'),
        (ChangeType.MODIFIED, b'{"v":2}'),
        (ChangeType.DELETED, b'{"v":1}'),
    ]


async def test_one_resource_is_polled_until_it_is_gone(fleet: ServedFleet) -> None:
    fleet.has_streams = False
    await fleet.create(id="c1")
    one = "GET /api/hyperfleet/v1/clusters/c1"

    watching = asyncio.create_task(fleet.run(watch, "clusters", "c1", *FAST))
    await fleet.until(f"{one} 304")
    await fleet.reports("clusters/c1", "validation")
    await fleet.until(f"{one} 200", times=2)
    await fleet.reports("clusters/c1", "dns")
    await fleet.until(f"{one} 200", times=3)
    await fleet.call("DELETE", "clusters/c1")
    await fleet.until(f"{one} 200", times=4)
    await fleet.reports("clusters/c1", "validation", "dns", generation=2, finalized=True)
    code, out, err = await watching

    assert (code, err) == (0, "")
    header, *rows = out.splitlines()
    assert header.startswith("NAME")
    assert [row.split()[2] for row in rows][:3] == ["no", "no", "yes"]
    assert rows[0].endswith("validation, dns")
    assert rows[1].endswith("dns")
    assert rows[-1].startswith("one")
    assert rows[-1].endswith("gone")


async def watch_manifest(
    fleet: ServedFleet, *options: str, method: str, path: str = "", body: object = None
) -> tuple[int, str]:
    """Poll a manifest while one request changes it and another deletes it; return exit code and stdout."""
    fleet.has_streams = False
    await fleet.create("manifests", id="m1")
    watching = asyncio.create_task(fleet.run(watch, "manifests", "m1", *FAST, *options))
    await fleet.until("GET /api/hyperfleet/v1/manifests/m1 200")
    await fleet.call(method, f"manifests/m1{path}", body)
    await fleet.until("GET /api/hyperfleet/v1/manifests/m1 200", times=2)
    await fleet.call("DELETE", "manifests/m1")
    code, out, _ = await watching
    return code, out


async def test_a_change_that_no_column_shows_prints_no_row(fleet: ServedFleet) -> None:
    code, out = await watch_manifest(fleet, method="POST", path="/pulse")

    assert code == 0
    assert len(out.splitlines()) == 3


async def test_json_output_is_a_line_for_each_change(fleet: ServedFleet) -> None:
    code, out = await watch_manifest(fleet, "--output", "json", method="PATCH", body={"spec": {"a": 1}})

    events = [decoded(line) for line in out.splitlines()]
    assert code == 0
    assert [(event["change"], event["resource"]["spec"]) for event in events] == [
        ("added", {}),
        ("modified", {"a": 1}),
        ("deleted", {"a": 1}),
    ]


async def test_polling_continues_after_the_server_was_down(fleet: ServedFleet) -> None:
    fleet.has_streams = False
    await fleet.create("manifests", id="m1")

    watching = asyncio.create_task(fleet.run(watch, "manifests", "m1", *FAST, "--output", "yaml"))
    await fleet.until("/manifests/m1 304")
    await fleet.drop_one_request()
    await fleet.call("DELETE", "manifests/m1")
    code, out, err = await watching

    assert code == 0
    assert out.count("---\n") == 2
    assert err.endswith("trying again until Ctrl-C\n")


@asynccontextmanager
async def watching_one(fleet: ServedFleet, *arguments: str) -> AsyncIterator[ServiceProcess]:
    """Watch a resource as JSON by its stream: where that is lost, nothing is polled before the test is over."""
    command = ("watch", *arguments, "--output", "json", "--interval", "1h")
    async with ServiceProcess(command, environ={"SENTINEL_SERVER": fleet.url}) as watching:
        yield watching


def says(*expected: tuple[str, int]) -> Callable[[str], bool]:
    """Whether exactly these changes were printed, each with its generation."""
    return lambda text: [(change, generation) for change, _, generation in printed(text)] == list(expected)


async def test_one_resource_is_streamed_until_it_is_gone(fleet: ServedFleet) -> None:
    await fleet.create(id="c1")
    async with watching_one(fleet, "clusters", "c1") as watching:
        await watching.until_output(says(("added", 1)))
        await fleet.create(name="other")
        await fleet.call("PATCH", "clusters/c1", {"spec": {"a": 1}})
        await watching.until_output(says(("added", 1), ("modified", 2)))
        await fleet.call("DELETE", "clusters/c1")
        deleting = (("added", 1), ("modified", 2), ("modified", 3))
        await watching.until_output(says(*deleting))
        await fleet.reports("clusters/c1", "validation", "dns", generation=3, finalized=True)
        code = await watching.exit_code()

    changes = printed(watching.stdout.decode())
    assert (code, watching.stderr.decode()) == (0, "")
    assert changes[-1][0] == "deleted"
    assert {each for _, each, _ in changes} == {"c1"}
    await fleet.until("GET /api/hyperfleet/v1/clusters/c1 200", times=2)  # the first, and the stream
    assert sum(request.startswith("GET") and "clusters/c1" in request for request in fleet.requests) == 2


async def test_one_resource_is_streamed_by_its_name(fleet: ServedFleet) -> None:
    await fleet.create("manifests", "mine", id="m1")
    async with watching_one(fleet, "manifests", "mine") as watching:
        await watching.until_output(says(("added", 1)))
        await fleet.call("DELETE", "manifests/m1")

        assert await watching.exit_code() == 0

    assert says(("added", 1), ("deleted", 1))(watching.stdout.decode())


async def test_the_stream_of_one_resource_continues_after_the_server_was_down(fleet: ServedFleet) -> None:
    await fleet.create("manifests", id="m1")
    async with watching_one(fleet, "manifests", "m1") as watching:
        await watching.until_output(says(("added", 1)))
        await fleet.until_streaming()
        await fleet.drop_one_request()
        await fleet.call("PATCH", "manifests/m1", {"spec": {"a": 1}})
        await watching.until_output(says(("added", 1), ("modified", 2)))
        await fleet.call("DELETE", "manifests/m1")

        assert await watching.exit_code() == 0

    assert watching.stderr.endswith(b"trying again until Ctrl-C\n")


async def test_a_resource_that_goes_while_the_server_is_down_is_gone(fleet: ServedFleet) -> None:
    await fleet.create("manifests", id="m1")
    async with watching_one(fleet, "manifests", "m1") as watching:
        await watching.until_output(says(("added", 1)))
        await fleet.until_streaming()
        await fleet.drop_one_request(meanwhile=lambda: fleet.call("DELETE", "manifests/m1"))

        assert await watching.exit_code() == 0

    assert says(("added", 1), ("deleted", 1))(watching.stdout.decode())


@pytest.mark.parametrize("arguments", [("clusters", "missing"), ("nothing",)])
@pytest.mark.parametrize("command", [(watch,), (get, "--watch")])
async def test_watching_something_that_does_not_exist_fails(
    fleet: ServedFleet, command: tuple[click.Command, str], arguments: tuple[str, ...]
) -> None:
    code, out, err = await fleet.run(*command, *arguments)

    assert (code, out) == (1, "")
    assert err


async def test_a_selector_with_an_id_is_wrong_usage(fleet: ServedFleet) -> None:
    code, _, _ = await fleet.run(watch, "clusters", "one", "-l", "a=b")

    assert code == 2


def printed(text: str) -> list[tuple[str, str, int]]:
    """The changes that were printed: what happened, the id, and the generation."""
    events = [decoded(line) for line in text.splitlines()]
    return [(each["change"], each["resource"]["id"], each["resource"]["generation"]) for each in events]


def listing(*resources: dict[str, object]) -> bytes:
    return msgspec.json.encode({"items": resources, "total": len(resources), "page": 1, "next": None})


class WatchedServer(EventStreamServer):
    """A server with a scripted list and scripted streams."""

    def __init__(self, listed: bytes, *scripts: Script) -> None:
        self.lists = 0

        async def respond(connection: StreamConnection) -> web.StreamResponse:
            if "watch=true" not in connection.path:
                self.lists += 1
                body = b'{"items":[]}' if connection.path.endswith("/kinds") else listed
                return web.Response(body=body, content_type="application/json")
            script = pending.pop(0) if len(pending) > 1 else pending[0]
            return await script(connection)

        pending = list(scripts)
        super().__init__(respond)


async def watch_stream(
    server: WatchedServer, *arguments: str, until: Callable[[str], bool]
) -> tuple[int, str, str]:
    """Watch clusters as JSON until this was printed, then end with Ctrl-C."""
    command = ("watch", "clusters", "--output", "json", *arguments)
    async with server, ServiceProcess(command, environ={"SENTINEL_SERVER": server.url}) as watching:
        await watching.until_output(until)
        code = await watching.stop(signal.SIGINT)
    return code, watching.stdout.decode(), watching.stderr.decode()


async def test_a_stream_is_followed_and_resumed_and_begun_again() -> None:
    def responds_gone(connection: StreamConnection) -> Awaitable[web.StreamResponse]:
        return asyncio.sleep(0, web.Response(status=410))

    server = WatchedServer(
        listing(resource("a"), resource("b")),
        lambda connection: connection.send_and_break(
            event("changed", {"labels": {}, **resource("a")}),  # the same, written differently
            event("changed", resource("b")),
            event("synced", {}, "1"),
            event("changed", resource("a", 2), "2"),
            event("removed", {"id": "unknown"}, "3"),
            event("removed", {"id": "b"}, "4"),
        ),
        responds_gone,
        lambda connection: connection.send_and_hold(event("changed", resource("c")), event("synced", {}, "9")),
    )

    code, out, err = await watch_stream(
        server,
        until=lambda text: printed(text.rpartition("\n")[0])[-2:] == [("deleted", "a", 1), ("deleted", "b", 1)],
    )

    assert (code, err) == (0, "")
    assert printed(out)[:4] == [("added", "a", 1), ("added", "b", 1), ("modified", "a", 2), ("deleted", "b", 1)]
    assert ("added", "c", 1) in printed(out)
    assert [each.last_event_id for each in server.connections if "watch=true" in each.path] == [None, "4", None]


async def test_a_server_without_streams_is_polled() -> None:
    def lists(connection: StreamConnection) -> Awaitable[web.StreamResponse]:
        return asyncio.sleep(0, web.Response(body=b'{"items":[]}', content_type="application/json"))

    server = WatchedServer(listing(resource("a")), lists)

    command = ("watch", "clusters", "--output", "json", "--interval", "10ms")
    async with server, ServiceProcess(command, environ={"SENTINEL_SERVER": server.url}) as watching:
        async with asyncio.timeout(90):
            while server.lists < 5:  # noqa: ASYNC110  # the server has no signal
                await asyncio.sleep(0.01)
        code = await watching.stop(signal.SIGINT)

    assert code == 0
    assert printed(watching.stdout.decode()) == [("added", "a", 1)]
