"""A secret that is planted in a hub is found nowhere but at the agents that need it."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from aiohttp import ClientSession, web

from sentinel.testing.hub_agent import Behavior, HubAgent
from tests.support.hub.planted_secrets import PLANTED, planted_certificate
from tests.support.processes.hub import TIMEOUT, RunningHub, serving

OLD_KEY, NEW_KEY = base64.b64encode(bytes(range(32))), base64.b64encode(bytes(range(32, 64)))
CONTENT = """
system { worker-threads 1 }
listeners {
    listener "web" {
        address "127.0.0.1:8088"
        tls { cert secret="api-cert"; key secret="api-key" }
    }
}
routes { route "health" { matches { path "/health" }; builtin-handler "health" } }
"""
PLAIN = CONTENT.replace('tls { cert secret="api-cert"; key secret="api-key" }', "")
DAMAGED = CONTENT.replace("api-cert", "unused").replace("api-key", "unused")
ROUTES = (
    "secrets",
    "secrets/api-cert",
    "configs",
    "configs/api",
    "configs/api/versions",
    "configs/api/versions/1",
    "configs/api/versions/3",
    "configs/api/versions/2/diff",
    "configs/api/versions/3/diff",
    "instances",
    "instances/edge-1",
    "instances/edge-1/metrics",
    "deployments",
    "audit",
    "webhooks/dead-letters",
)


def database_files(folder: Path) -> bytes:
    """The database with its write-ahead log, as anyone with the disk can read them."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob("hub.db*")))


class Receiver:
    """A webhook's server, and a reader of the stream of events. Keeps all that they get."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.stream = b""
        self._arrived = asyncio.Event()

    async def take(self, request: web.Request) -> web.Response:
        self.bodies.append(repr(request.headers).encode() + await request.read())
        self._arrived.set()
        return web.Response()

    async def read(self, hub: RunningHub) -> None:
        async with ClientSession() as client, client.get(f"{await hub.process.url()}/api/v1/events") as response:
            async for chunk in response.content.iter_any():
                self.stream += chunk
                self._arrived.set()

    async def until(self, text: bytes) -> None:
        """Wait until both have got this."""
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            while text not in self.stream or not any(text in body for body in self.bodies):
                self._arrived.clear()
                await self._arrived.wait()


@asynccontextmanager
async def receiving() -> AsyncIterator[tuple[Receiver, str]]:
    receiver, app = Receiver(), web.Application()
    app.router.add_post("/", receiver.take)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield receiver, f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


def settings_file(folder: Path, webhook: str) -> Path:
    secret, settings = folder / "webhook.secret", folder / "hub.yaml"
    secret.write_text(PLANTED)
    settings.write_text(f"webhooks: [{{url: '{webhook}', secret_file: '{secret}'}}]\n")
    return settings


async def deployed(hub: RunningHub, ids: list[str]) -> str:
    """Deploy version 2 to these instances. Returns the path of the deployment."""
    body = {"config_id": "api", "version": 2, "targets": {"ids": ids}, "rolling": {"batch_delay": "0s"}}
    plan = await hub.call("POST", "deployments?dry_run=true", body)
    assert (plan["problems"], PLANTED in json.dumps(plan)) == ([], False)
    return f"deployments/{(await hub.call('POST', 'deployments', body))['id']}"


@pytest.mark.timeout(600)
async def test_planted_secrets_reach_their_agents_and_nothing_else(tmp_path: Path) -> None:
    key_file, values = tmp_path / "secrets.key", {**planted_certificate(), "unused": PLANTED}
    key_file.write_bytes(OLD_KEY)
    async with AsyncExitStack() as stack:
        receiver, webhook = await stack.enter_async_context(receiving())
        config = ("--config", str(settings_file(tmp_path, webhook)))
        database = f"sqlite:///{tmp_path / 'hub.db'}"
        arguments = (*config, "--secrets-key-file", str(key_file), "--log-level", "debug")
        async with serving(database, *arguments) as hub:
            reading = asyncio.create_task(receiver.read(hub))
            stack.callback(reading.cancel)
            for name, value in values.items():
                await hub.call("PUT", f"secrets/{name}", {"value": value})
            refused = await hub.rest.call("PUT", "/api/v1/secrets/api-cert", {"value": [PLANTED]})
            await hub.save(CONTENT, CONTENT + "// again\n", PLAIN, DAMAGED)
            blocked = await hub.rest.call(
                "POST", "/api/v1/deployments", {"config_id": "api", "version": 4, "targets": {"selector": ""}}
            )
            agents = [
                await stack.enter_async_context(HubAgent(hub.address, f"edge-{number}")) for number in (1, 2, 3)
            ]
            for agent, version in zip(agents, (1, 1, 3), strict=True):
                await agent.register()
                await hub.assign(agent.instance_id, version)
            running = [
                asyncio.create_task(
                    agent.run(Behavior(heartbeat_interval=timedelta(seconds=1), fails=fails, failure="it fails"))
                )
                for agent, fails in zip(agents, ((), ("api@2",), ()), strict=True)
            ]
            for agent in agents:
                await hub.until_instance(agent.instance_id, in_sync=True)
            deployment = await deployed(hub, ["edge-1", "edge-2"])
            await receiver.until(b'"rollback":"completed"')
            fetched, plain = await agents[0].get_config(), await agents[2].get_config()
            with pytest.raises(grpc.aio.AioRpcError) as denied:
                await agents[2].get_config("api@2")
            checked = await hub.call("POST", "configs/validate", {"content": DAMAGED})
            routes = (*ROUTES, deployment, f"{deployment}/instances", f"{deployment}/events")
            answers = [await hub.call("GET", route) for route in routes]
            metrics = (await hub.rest.call("GET", "/metrics")).content
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            stored = database_files(tmp_path)
            assert await hub.process.stop() == 0
        log = json.dumps(hub.process.lines)

        rotated = await fetched_after_restarts(tmp_path, database, config)

    assert dict(fetched.secrets) == {name: values[name].encode() for name in ("api-cert", "api-key")}
    assert rotated == [dict(fetched.secrets)] * 2
    assert denied.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert (plain.version, dict(plain.secrets), blocked.status) == ("api@3", {}, 422)
    assert b"api-cert" in stored
    assert b"hub_agents_online" in metrics
    shown = [json.dumps(answers), json.dumps(checked), str(refused), str(blocked), str(denied.value), log]
    assert not [text[:200] for text in shown if PLANTED in text]
    everything = stored + metrics + receiver.stream + b"".join(receiver.bodies) + plain.SerializeToString()
    assert PLANTED.encode() not in everything + database_files(tmp_path)
    assert len(hub.process.lines) > 5


async def fetched_after_restarts(folder: Path, database: str, config: tuple[str, ...]) -> list[dict[str, bytes]]:
    """Return what an agent fetches from a hub with a new key above the old one, and then with the new one."""
    key_file, found = folder / "secrets.key", []
    for keys in (NEW_KEY + b"\n" + OLD_KEY, NEW_KEY):
        key_file.write_bytes(keys)
        async with (
            serving(database, *config, "--secrets-key-file", str(key_file)) as hub,
            HubAgent(hub.address, "edge-1") as agent,
        ):
            await agent.register()
            found.append(dict((await agent.get_config()).secrets))
            assert await hub.process.stop() == 0
    return found
