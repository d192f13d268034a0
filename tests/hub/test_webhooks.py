"""Webhooks: every event arrives at least once, signed, whatever the server and the hub go through."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sentinel.drivers.rest.retries import NO_RETRIES
from sentinel.drivers.task_http import TaskHttp
from sentinel.hub import webhooks
from sentinel.hub.webhooks import Webhook, read_secret
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.ports.hub_store import HubEventType, HubTransaction
from sentinel.ports.task_http import HttpClient
from sentinel.ports.webhook_store import Delivery
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import get_logger
from sentinel.runtime.secrets import Secret
from sentinel.testing.clock import ManualClock
from sentinel.testing.database import Fault
from sentinel.testing.task_http import FakeHttp, SentRequest
from tests.support.databases import backends
from tests.support.databases.backends import MemoryBackend
from tests.support.http.scripted_server import ReceivedRequest, ScriptedResponse, ScriptedServer

URL = "https://hooks.example/t0ken?key=hunter2"
SECRET = b"s3cret"
SECOND = timedelta(seconds=1)


class Recorder:
    """A `WebhookObserver`."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.failures: list[Delivery] = []

    def webhook_started(self, name: str) -> None:
        """Not recorded."""

    def webhook_delivered(self, name: str) -> None:
        self.told.append("delivered")

    def webhook_failed(self, name: str, delivery: Delivery) -> None:
        self.told.append("dead" if delivery.failed_time else "failed")
        self.failures.append(delivery)

    def webhook_missed(self, name: str, events: int) -> None:
        self.told.append(("missed", events))

    def webhook_pending(self, name: str, count: int) -> None:
        """Not recorded."""


class World:
    """A database, a server that takes events, and hubs that send them."""

    def __init__(self, folder: Path) -> None:
        self.faults: list[Fault] = []
        self.backend: MemoryBackend = backends.memory(faults=self._fault)
        self.clock = ManualClock()
        self.http = FakeHttp()
        self.observer = Recorder()
        self.secret_file = folder / "secret"
        self.secret_file.write_bytes(SECRET + b"\n")

    def _fault(self, call: str) -> Fault | None:
        return self.faults.pop() if self.faults and call in ("copy_events", "remove_delivery") else None

    def hub(
        self,
        holder: str = "hub-1",
        *,
        types: Sequence[HubEventType] = (),
        http: HttpClient | None = None,
        url: str = URL,
    ) -> Webhook:
        """The webhook in one hub."""
        return Webhook(
            name="hooks.example-1",
            url=Secret(url),
            secret_file=self.secret_file,
            types=types,
            holder=holder,
            events=self.backend.hub,
            store=self.backend.webhooks,
            http=http or self.http,
            clock=self.clock,
            observer=self.observer,
            log=get_logger("test"),
            jitter=lambda: 0.5,
        )

    async def happen(self, *subjects: str, event_type: HubEventType = HubEventType.INSTANCE_STATE) -> None:
        def work(transaction: HubTransaction) -> None:
            for subject in subjects:
                transaction.append_event(event_type, subject, b'{"id":"x"}', self.clock.now())

        await self.backend.hub.transact(work)

    @property
    def sent(self) -> list[str]:
        """The subjects of the events that were sent."""
        return [body_of(each)["subject"] for each in self.http.requests]


def body_of(request: SentRequest) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(request.body)
    return decoded


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    await made.backend.database.open()
    made.http.answer("POST", URL, status=204)
    yield made
    await made.backend.database.close()


async def test_an_event_is_a_signed_cloud_event(world: World) -> None:
    hook = world.hub()
    await hook.deliver()

    await world.happen("edge-1")
    await hook.deliver()

    [request] = world.http.requests
    seconds = int(world.clock.now().timestamp())
    digest = hmac.new(SECRET, f"{seconds}.".encode() + request.body, hashlib.sha256).hexdigest()
    assert request.headers["Sentinel-Signature"] == f"t={seconds},v1={digest}"
    assert request.headers["Content-Type"] == "application/cloudevents+json"
    body = body_of(request)
    assert (body["type"], body["subject"], body["data"]) == ("sentinel.hub.instance.state", "edge-1", {"id": "x"})
    assert await world.backend.webhooks.count_pending(hook.name) == 0


async def test_it_begins_with_what_happens_after_it_was_configured(world: World) -> None:
    await world.happen("before")
    hook = world.hub()
    await hook.deliver()
    await world.happen("after")

    await hook.deliver()

    assert world.sent == ["after"]


async def test_nothing_is_missed_once_its_loop_runs(world: World) -> None:
    hook, stopping = world.hub(), Stopping()
    running = asyncio.create_task(hook.run(stopping))
    await world.clock.until_asleep(1)

    await world.happen("first")
    await world.clock.advance(webhooks.INTERVAL)
    await world.clock.until_asleep(1)

    stopping.request()
    await running
    assert world.sent == ["first"]


async def test_events_between_hubs_and_unwanted_types_are_not_sent(world: World) -> None:
    every, some = world.hub(), world.hub(types=[HubEventType.DEPLOYMENT_STATE])
    await every.deliver()
    await world.happen("private", event_type=HubEventType.INSTANCE_CHANGED)
    await world.happen("state")
    await every.deliver()
    await some.deliver()
    await world.happen("unwanted")
    await world.happen("wanted", event_type=HubEventType.DEPLOYMENT_STATE)

    await some.deliver()

    assert world.sent == ["state", "wanted"]


@pytest.mark.parametrize("status", [199, 300, 302, 400, 410, 500])
async def test_anything_but_success_is_tried_again(world: World, status: int) -> None:
    url = "https://other.example/"
    hook = world.hub(url=url)
    world.http.answer("POST", url, status=status, headers={"location": URL})
    world.http.answer("POST", url, status=202)
    await hook.deliver()
    await world.happen("edge-1")

    await hook.deliver()
    await hook.deliver()
    failed = len(world.http.requests)
    await world.clock.advance(6 * SECOND)
    await hook.deliver()

    assert failed == 1
    assert world.sent == ["edge-1", "edge-1"]
    assert world.observer.told == ["failed", "delivered"]
    assert world.http.requests[0].body == world.http.requests[1].body


async def test_nothing_is_lost_or_secret_while_nobody_answers(world: World) -> None:
    hook = world.hub(url="https://silent.example/t0ken?key=hunter2")
    await hook.deliver()
    await world.happen("one", "two", "three")

    await hook.deliver()

    assert await world.backend.webhooks.count_pending(hook.name) == 3
    assert world.sent == ["one"]
    [failed] = world.observer.failures
    assert "t0ken" not in failed.error
    assert "hunter2" not in failed.error


async def test_after_all_attempts_an_event_is_a_dead_letter(world: World) -> None:
    hook = world.hub(url="https://silent.example/")
    await hook.deliver()
    await world.happen("edge-1")

    for _ in range(webhooks.ATTEMPTS + 5):
        await hook.deliver()
        await world.clock.advance(timedelta(hours=1))

    [dead] = await world.backend.webhooks.dead_letters(after=0, limit=10)
    assert world.observer.told == [*["failed"] * (webhooks.ATTEMPTS - 1), "dead"]
    assert (dead.event.subject, dead.attempts) == ("edge-1", webhooks.ATTEMPTS)
    assert len(world.sent) == webhooks.ATTEMPTS


async def test_a_refused_event_does_not_hold_up_the_next(world: World) -> None:
    url = "https://other.example/"
    hook = world.hub(url=url)
    world.http.answer("POST", url, status=422)
    world.http.answer("POST", url, status=200)
    await hook.deliver()
    await world.happen("bad", "good")

    await hook.deliver()
    await world.clock.advance(2 * SECOND)
    await hook.deliver()

    assert world.sent == ["bad", "good"]


async def test_another_hub_goes_on_where_the_first_ended(world: World) -> None:
    first, second = world.hub("hub-1"), world.hub("hub-2")
    await first.deliver()
    await world.happen("one")
    await first.deliver()
    await world.happen("two")
    await second.deliver()
    waiting = list(world.sent)

    await world.clock.advance(webhooks.LEASE + SECOND)
    await second.deliver()

    assert waiting == ["one"]
    assert world.sent == ["one", "two"]


async def test_a_hub_that_stops_hands_over_at_once(world: World) -> None:
    first, second = world.hub("hub-1"), world.hub("hub-2")
    await first.deliver()
    stopping = Stopping()
    stopping.request()
    await world.happen("one")

    await first.run(stopping)
    await second.deliver()

    assert world.sent == ["one"]


async def test_a_lost_answer_of_the_database_repeats_and_loses_nothing(world: World) -> None:
    hook = world.hub()
    await hook.deliver()
    await world.happen("one", "two")
    world.faults += [Fault.AFTER_COMMIT, Fault.BEFORE_COMMIT, Fault.AFTER_COMMIT]

    failures = 0
    for _ in range(6):
        try:
            await hook.deliver()
        except Unavailable:
            failures += 1
        await world.clock.advance(webhooks.LEASE)

    assert failures == 3
    assert list(dict.fromkeys(world.sent)) == ["one", "two"]
    assert await world.backend.webhooks.count_pending(hook.name) == 0


async def test_events_that_were_deleted_unread_are_reported(world: World) -> None:
    hook = world.hub()
    await hook.deliver()
    await world.happen("one", "two")
    await world.clock.advance(timedelta(hours=2))
    await world.happen("three")
    await world.backend.hub.expire_events(world.clock.now() - SECOND, limit=100)

    await hook.deliver()

    assert world.observer.told == [("missed", 2), "delivered"]
    assert world.sent == ["three"]


async def test_a_new_secret_signs_from_the_next_request_on(world: World) -> None:
    hook = world.hub()
    await hook.deliver()
    world.secret_file.write_bytes(b"other\r\n")
    await world.happen("one")
    await hook.deliver()
    world.secret_file.unlink()
    await world.happen("two")
    await hook.deliver()

    for request in world.http.requests:
        signed, _, digest = request.headers["Sentinel-Signature"].partition(",v1=")
        content = signed.removeprefix("t=").encode() + b"." + request.body
        assert digest == hmac.new(b"other", content, hashlib.sha256).hexdigest()
    assert len(world.http.requests) == 2


@pytest.mark.parametrize("content", [None, b"", b"\n", b"x" * 70_000], ids=["missing", "empty", "line", "large"])
def test_a_secret_that_cannot_be_used_is_an_error(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(Misconfigured, match=r"secret: (cannot be read|expected)"):
        read_secret(path)


async def test_over_the_network_no_redirect_is_followed(world: World) -> None:
    def respond(request: ReceivedRequest) -> ScriptedResponse:
        return ScriptedResponse(302, headers={"Location": "/elsewhere"})

    http = TaskHttp(user_agent="test", retries=NO_RETRIES)
    async with ScriptedServer(respond) as server:
        hook = world.hub(http=http, url=f"{server.url}/hook")
        await hook.deliver()
        await world.happen("edge-1")

        await hook.deliver()

        assert server.paths == ["POST /hook"]
        assert server.requests[0].headers["Content-Type"] == "application/cloudevents+json"
    await http.close()
    assert [each.error for each in world.observer.failures] == ["the server responded 302"]


async def test_over_the_network_an_unreachable_server_is_named_by_nothing(world: World) -> None:
    async with ScriptedServer(lambda request: ScriptedResponse(200)) as server:
        url = f"{server.url}/t0ken?key=hunter2"
    http = TaskHttp(user_agent="test", retries=NO_RETRIES)
    hook = world.hub(http=http, url=url)
    await hook.deliver()
    await world.happen("edge-1")

    await hook.deliver()

    await http.close()
    [failed] = world.observer.failures
    assert failed.error.startswith("the server cannot be reached")
    assert "t0ken" not in failed.error
