"""`sentinel adapter` with tasks that block, and with exceptions that quote secrets."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aio_pika
import msgspec

from sentinel.core.json import Json
from tests.support.brokers.rabbitmq import TIMEOUT, Inbox
from tests.support.http.scripted_server import (
    ReceivedRequest,
    ScriptedResponse,
    ScriptedServer,
    document,
    problem,
)
from tests.support.loop.processes import AdapterProcess

ROOT = "/api/hyperfleet/v1"
SECRET = "sw0rdfish"
ADAPTER = """\
import json
import os
import urllib.request

from sentinel.adapter import Adapter, Done

mine = Adapter("mine")


def wait_for(name):
    urllib.request.urlopen(os.environ["HELD_URL"] + name, timeout=60).read()


@mine.task(kinds=["Cluster"])
async def blocks_the_loop(cluster, context):
    wait_for(cluster.id)
    return Done()


@mine.task(kinds=["Workload"])
def blocks_its_thread(workload, context):
    if workload.id == "held":
        wait_for(workload.id)
    return Done(f"status {context.run(context.http.get(os.environ['HELD_URL'] + 'open')).status}")


@mine.task(kinds=["Manifest"])
async def quotes_secrets(manifest, context):
    body = {"user": "u", "password": "sw0rdfish", "api_key": "sw0rdfish"}
    context.log.info("login", request=body, token="sw0rdfish")
    try:
        raise ValueError(f"rejected {body!r}, Authorization: Custom sw0rdfish")
    except ValueError as error:
        raise ConnectionError(f"https://u:sw0rdfish@dns/ with {json.dumps(body)} token=sw0rdfish") from error
"""


class FakeFleet:
    """An API in which every resource exists, which records reports. It is also what the tasks wait for."""

    def __init__(self) -> None:
        self.reports: dict[str, list[bytes]] = defaultdict(list)
        self.released = asyncio.Event()
        self.held = asyncio.Event()
        """Set when a task waits."""
        self._arrived = asyncio.Condition()

    async def respond(self, request: ReceivedRequest) -> ScriptedResponse:
        path = request.path.partition("?")[0]
        if path.startswith("/held/"):
            if path != "/held/open":
                self.held.set()
                await self.released.wait()
            return ScriptedResponse()
        parts = path.removeprefix(f"{ROOT}/").split("/")
        if request.method == "PUT":
            async with self._arrived:
                self.reports[parts[1]].append(request.body)
                self._arrived.notify_all()
            return document(msgspec.json.decode(request.body), 201)
        if parts[-1] == "statuses" or len(parts) == 1:
            return document({"items": [], "total": 0, "page": 1, "size": 0})
        if len(parts) != 2 or parts[0] == "resources":
            return problem(404, "HYPERFLEET-NTF-000")
        kind = parts[0].removesuffix("s").capitalize()
        return document({"id": parts[1], "kind": kind, "generation": 1, "href": path, "spec": {}})

    async def report(self, resource_id: str) -> str:
        """Wait for the first report on a resource."""
        async with asyncio.timeout(TIMEOUT.total_seconds()), self._arrived:
            await self._arrived.wait_for(lambda: bool(self.reports[resource_id]))
        return self.reports[resource_id][0].decode()


class RunningAdapter:
    def __init__(self, process: AdapterProcess, fleet: FakeFleet, exchange: aio_pika.abc.AbstractExchange) -> None:
        self.process = process
        self.fleet = fleet
        self._exchange = exchange

    async def pulse(self, kind: str, resource_id: str) -> None:
        event: Json = {
            "specversion": "1.0",
            "id": resource_id,
            "source": "test",
            "type": f"com.redhat.hyperfleet.{kind.lower()}.reconcile",
            "subject": resource_id,
            "datacontenttype": "application/json",
            "data": {"resource_id": resource_id, "href": f"{ROOT}/{kind.lower()}s/{resource_id}"},
        }
        message = aio_pika.Message(msgspec.json.encode(event), content_type="application/cloudevents+json")
        await self._exchange.publish(message, routing_key="")


@asynccontextmanager
async def running_adapter(folder: Path, inbox: Inbox, settings: str = "") -> AsyncIterator[RunningAdapter]:
    fleet = FakeFleet()
    (folder / "my_adapter.py").write_text(ADAPTER)
    async with ScriptedServer(fleet.respond) as server:
        file = folder / "adapter.yaml"
        file.write_text(f"task: my_adapter:mine\nhyperfleet_api:\n  endpoint: {server.url}\n{settings}")
        environ = {
            "BROKER_TYPE": "rabbitmq",
            "BROKER_URL": inbox.url,
            "BROKER_EXCHANGE": inbox.exchange,
            "BROKER_SUBSCRIPTION_ID": f"{inbox.queue}-mine",
            "HELD_URL": f"{server.url}/held/",
        }
        async with (
            AdapterProcess(file, environ=environ) as process,
            await aio_pika.connect(inbox.url, timeout=TIMEOUT.total_seconds()) as connection,
        ):
            channel = await connection.channel()
            exchange = await channel.get_exchange(inbox.exchange)
            await process.until_event("broker.connected")
            try:
                yield RunningAdapter(process, fleet, exchange)
            finally:
                fleet.released.set()
                for suffix in ("", "-dead-letters"):
                    await channel.queue_delete(f"{inbox.queue}-mine{suffix}")


async def test_liveness_is_503_while_a_task_blocks_the_event_loop(tmp_path: Path, inbox: Inbox) -> None:
    async with running_adapter(tmp_path, inbox) as adapter:
        process = adapter.process
        before, _ = await process.liveness()
        await adapter.pulse("Cluster", "c1")
        blocked = await process.until_event("event_loop.blocked", timeout=60)
        (liveness, alive), (readiness, _) = await process.liveness(), await process.readiness()
        metrics = await process.metrics_text()
        adapter.fleet.released.set()
        await process.until_event("event_loop.resumed")
        after, _ = await process.liveness()
        report = await adapter.fleet.report("c1")

    assert (before, liveness, readiness, after) == (200, 503, 503, 200)
    assert alive["checks"]["event_loop"]["message"].startswith("the event loop has stood still for 1")
    assert blocked["seconds"] >= 10
    assert any(frame.startswith("my_adapter.py:") for frame in blocked["stack"])
    assert "hyperfleet_adapter_in_flight" in metrics
    assert '"Available","status":"True"' in report


async def test_a_plain_task_blocks_only_its_thread(tmp_path: Path, inbox: Inbox) -> None:
    async with running_adapter(tmp_path, inbox, "concurrency: 2\ntask_timeout: 1h\n") as adapter:
        fleet = adapter.fleet
        await adapter.pulse("Workload", "held")
        await asyncio.wait_for(fleet.held.wait(), TIMEOUT.total_seconds())
        await adapter.pulse("Workload", "other")
        other = await fleet.report("other")
        alive, _ = await adapter.process.liveness()
        during = list(fleet.reports)
        fleet.released.set()
        held = await fleet.report("held")

    assert "status 200" in other
    assert "status 200" in held
    assert (alive, during) == (200, ["other"])


async def test_a_thread_that_outlives_its_timeout_does_not_block_the_exit(tmp_path: Path, inbox: Inbox) -> None:
    async with running_adapter(tmp_path, inbox, "task_timeout: 1s\n") as adapter:
        process, fleet = adapter.process, adapter.fleet
        await adapter.pulse("Workload", "held")
        await asyncio.wait_for(fleet.held.wait(), TIMEOUT.total_seconds())
        timeout = await fleet.report("held")
        alive, _ = await process.liveness()
        code = await process.stop()

    assert "the task did not end within 1s, and its thread still runs" in timeout
    assert (alive, code) == (200, 0)
    assert b"process.abandoned" in process.stderr
    assert len(fleet.reports["held"]) == 1


async def test_a_secret_in_an_exception_reaches_no_report_and_no_log(tmp_path: Path, inbox: Inbox) -> None:
    async with running_adapter(tmp_path, inbox, "log:\n  level: debug\n") as adapter:
        await adapter.pulse("Manifest", "m1")
        report = await adapter.fleet.report("m1")
        await adapter.process.until_event("evaluation.broken")
        await adapter.process.stop()

    assert "ConnectionError: https://u:***@dns/" in report
    output = report + adapter.process.stderr.decode()
    assert "quotes_secrets" in output, "the traceback is logged"
    assert SECRET not in output
