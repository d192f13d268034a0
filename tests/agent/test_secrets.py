"""Secrets become files for the proxy, and never appear elsewhere."""

from __future__ import annotations

import msgspec

from sentinel.core.agent.orders import ReportState, Task
from sentinel.core.hub.versions import content_hash
from sentinel.ports.errors import Unavailable
from sentinel.runtime.secret_text import mask_secret_text
from sentinel.testing.loop import simulated
from tests.support.agent.applying import V1, ApplyingAgent, order, task

SOURCE = """
system { worker-threads 1 }
upstreams {
  upstream "a" {
    target "127.0.0.1:1"
    tls {
      cert env="CERT"
      key secret="api-key"
    }
  }
  upstream "b" {
    target "127.0.0.1:1"
    tls {
      cert env="CERT_PATH"
      key vault="secret/data/api/tls#key"
    }
  }
}
"""
PEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
ENVIRON = {"CERT": PEM, "CERT_PATH": "/etc/tls/cert.pem"}


async def read_vault(path: str, field: str) -> bytes:
    assert (path, field) == ("secret/data/api/tls", "key")
    return b"from vault"


def agent_with_secrets() -> ApplyingAgent:
    agent = ApplyingAgent(environ=ENVIRON, read_vault=read_vault)
    agent.secrets = {"api-key": b"from the hub"}
    agent.texts["api@2"] = SOURCE
    return agent


def _assigned(marker: str = "") -> Task:
    return msgspec.structs.replace(task("api@2", marker=marker), hash=content_hash(SOURCE))


def _ordered(deployment_id: str, *, text: str = SOURCE) -> Task:
    return msgspec.structs.replace(order("api@2", deployment_id), hash=content_hash(text))


@simulated
async def test_secrets_are_rendered_as_paths_of_files() -> None:
    agent = agent_with_secrets()
    async with agent.running():
        await agent.apply(_assigned())

        running = await agent.applier.observe()

    stable = agent.state_dir.stable_path
    assert agent.proxy.text is not None
    assert f'client-cert "{stable("env:CERT")}"' in agent.proxy.text
    assert f'client-key "{stable("secret:api-key")}"' in agent.proxy.text
    assert 'client-cert "/etc/tls/cert.pem"' in agent.proxy.text
    values = {path: agent.state_dir.values[file] for path, file in agent.state_dir.links.items()}
    assert values[stable("secret:api-key")] == b"from the hub"
    assert values[stable("vault:secret/data/api/tls#key")] == b"from vault"
    assert values[stable("env:CERT")] == PEM.encode()
    assert running.hash == content_hash(SOURCE)
    assert running.message == ""


@simulated
async def test_a_renewed_secret_is_loaded_without_another_text() -> None:
    agent = agent_with_secrets()
    async with agent.running():
        await agent.apply(_assigned("a1"))
        text, agent.secrets = agent.proxy.text, {"api-key": b"renewed"}
        agent.proxy.calls.clear()

        await agent.apply(_assigned("a2"))

    assert agent.proxy.text == text
    assert "reload" in agent.proxy.calls
    assert b"renewed" in agent.state_dir.values.values()
    assert b"from the hub" not in agent.state_dir.values.values()


@simulated
async def test_a_bad_new_secret_leaves_the_old_one_in_use() -> None:
    agent = agent_with_secrets()
    async with agent.running():
        await agent.apply(_assigned("a1"))
        agent.secrets = {"api-key": b"bad"}
        file = agent.state_dir.stable_path("secret:api-key")
        agent.proxy.is_healthy = lambda running: agent.state_dir.values[agent.state_dir.links[file]] != b"bad"

        await agent.apply(_assigned("a2"))

    assert agent.state_dir.values[agent.state_dir.links[file]] == b"from the hub"
    assert b"bad" not in agent.state_dir.values.values()


@simulated
async def test_a_secret_without_a_value_is_named_and_nothing_changes() -> None:
    agent = agent_with_secrets()
    agent.secrets = {}
    async with agent.running():
        await agent.apply(_ordered("d-1"))

    assert agent.proxy.text == V1
    assert agent.told[-1].state is ReportState.FAILED
    assert agent.told[-1].message == "the hub has not sent the secret api-key"
    assert mask_secret_text(agent.told[-1].message) == agent.told[-1].message


@simulated
async def test_a_vault_that_is_away_is_a_reason() -> None:
    async def away(path: str, field: str) -> bytes:
        raise Unavailable("Vault: connection refused")

    with_vault, without = ApplyingAgent(environ=ENVIRON, read_vault=away), ApplyingAgent(environ=ENVIRON)
    for agent in (with_vault, without):
        agent.secrets, agent.texts["api@2"] = {"api-key": b"x"}, SOURCE
        async with agent.running():
            await agent.apply(_ordered("d-1"))

    assert with_vault.told[-1].message == "Vault: connection refused (vault:secret/data/api/tls#key)"
    assert without.told[-1].message.endswith("which needs them for vault:secret/data/api/tls#key")


@simulated
async def test_a_variable_that_is_missing_is_a_reason() -> None:
    agent = ApplyingAgent(read_vault=read_vault)
    agent.secrets, agent.texts["api@2"] = {"api-key": b"x"}, SOURCE
    async with agent.running():
        await agent.apply(_ordered("d-1"))

    assert agent.told[-1].message == "env:CERT: the agent has no such environment variable"


@simulated
async def test_a_text_that_is_not_kdl_is_left_to_the_proxy() -> None:
    agent = ApplyingAgent()
    agent.texts["api@2"] = "system {"
    agent.proxy.accepts = lambda text: "unclosed brace" if text == "system {" else ""
    async with agent.running():
        await agent.apply(_ordered("d-1", text="system {"))

    assert agent.told[-1].message == "the proxy does not accept it: unclosed brace"


@simulated
async def test_a_token_of_the_agent_is_never_taken_for_a_path() -> None:
    agent = ApplyingAgent(environ={"VAULT_TOKEN": "hvs.secret", "TLS_KEY": "/etc/tls/key.pem"})
    source = SOURCE.replace('env="CERT"', 'env="VAULT_TOKEN"').replace("CERT_PATH", "TLS_KEY")
    agent.secrets, agent.texts["api@2"] = {"api-key": b"x"}, source
    async with agent.running():
        await agent.apply(msgspec.structs.replace(_ordered("d-1"), hash=content_hash(source)))

    assert agent.told[-1].message == "env:VAULT_TOKEN: expected PEM, or an absolute path"


@simulated
async def test_a_secret_that_changes_after_a_deployment_is_loaded() -> None:
    agent = agent_with_secrets()
    async with agent.running():
        await agent.apply(_ordered("d-1"))
        agent.secrets = {"api-key": b"renewed"}

        await agent.apply(_assigned("fetch/api@2/1"))

    assert b"renewed" in agent.state_dir.values.values()
    assert agent.proxy.calls.count("reload") == 2
