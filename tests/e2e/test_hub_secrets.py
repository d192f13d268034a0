"""A secret that is planted in a hub is found nowhere but at the agent that needs it."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from sentinel.testing.hub_agent import HubAgent
from tests.support.processes.hub import serving

PLANTED = "pl4nted-hunter2"
CONTENT = """
system { worker-threads 2 }
listeners {
    listener "web" {
        address "127.0.0.1:8088"
        tls { cert secret="api-cert"; key secret="api-key" }
    }
}
routes { route "health" { matches { path "/health" }; builtin-handler "health" } }
"""
ROUTES = (
    "secrets",
    "secrets/api-cert",
    "configs",
    "configs/api",
    "configs/api/versions",
    "configs/api/versions/1",
    "configs/api/versions/2/diff",
    "instances",
    "instances/edge-1",
    "instances/edge-1/metrics",
    "deployments",
    "audit",
    "webhooks/dead-letters",
)


def database_files(folder: Path) -> bytes:
    """The database with its write-ahead log, as anybody reads them who has the disk."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob("hub.db*")))


async def test_a_planted_secret_reaches_its_agent_and_nothing_else(tmp_path: Path) -> None:
    key_file = tmp_path / "secrets.key"
    key_file.write_bytes(base64.b64encode(bytes(range(32))))
    names = {"api-cert": f"cert-{PLANTED}", "api-key": f"key-{PLANTED}", "unused": f"unused-{PLANTED}"}
    arguments = ("--secrets-key-file", str(key_file), "--log-level", "debug")

    async with serving(f"sqlite:///{tmp_path / 'hub.db'}", *arguments) as hub:
        for name, value in names.items():
            await hub.call("PUT", f"secrets/{name}", {"value": value})
        refused = await hub.rest.call("PUT", "/api/v1/secrets/api-cert", {"value": [PLANTED]})
        await hub.save(CONTENT, CONTENT + "// again\n")
        async with HubAgent(hub.address, "edge-1") as agent, HubAgent(hub.address, "edge-2") as other:
            for each in (agent, other):
                await each.register()
                await each.heartbeat()
            await hub.assign("edge-1", 2)
            fetched = await agent.get_config()
        checked = await hub.call("POST", "configs/validate", {"content": CONTENT})
        plan = await hub.rest.call(
            "POST",
            "/api/v1/deployments?dry_run=true",
            {"config_id": "api", "version": 2, "targets": {"ids": ["edge-2"]}, "strategy": "rolling"},
        )
        answers = [await hub.call("GET", route) for route in ROUTES]
        metrics = (await hub.rest.call("GET", "/metrics")).content
        stored = database_files(tmp_path)
        assert await hub.process.stop() == 0
        log = json.dumps(hub.process.lines)

    assert dict(fetched.secrets) == {name: names[name].encode() for name in ("api-cert", "api-key")}
    assert b"api-cert" in stored
    assert b"hub_agents_online" in metrics
    shown = [json.dumps(answers), json.dumps(checked), str(refused), str(plan), log]
    assert not [text[:200] for text in shown if PLANTED in text]
    assert PLANTED.encode() not in stored + metrics
    assert PLANTED.encode() not in database_files(tmp_path)
    assert len(hub.process.lines) > 5
