"""Builds the part of an agent that applies configurations."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sentinel.agent.applier import Applier
from sentinel.agent.proxy_actions import ProxyActions
from sentinel.agent.secret_values import SecretValues
from sentinel.agent.settings import AgentSettings
from sentinel.drivers.proxy_control.control import LocalProxy
from sentinel.drivers.state_dir import FolderState
from sentinel.drivers.vault import VaultReader
from sentinel.ports.clock import Clock
from sentinel.ports.errors import Misconfigured
from sentinel.ports.state_dir import StateDirFailure
from sentinel.runtime.log import Log
from sentinel.runtime.secrets import Secret
from sentinel.version import __version__

_USER_AGENT = f"sentinel-agent/{__version__}"


class BuiltApplier(msgspec.Struct, frozen=True):
    """An applier, and what is closed with it."""

    applier: Applier
    instance_id: str
    proxy: LocalProxy
    vault: VaultReader | None

    async def close(self) -> None:
        await self.proxy.close()
        if self.vault is not None:
            await self.vault.close()


def build_applier(settings: AgentSettings, *, environ: Mapping[str, str], clock: Clock, log: Log) -> BuiltApplier:
    """Build the applier of an agent. `environ` is for secrets with `env=` and for Vault.

    Raises `Misconfigured` if no id can be made, or the address of Vault is invalid.
    """
    proxy_settings, health = settings.proxy, settings.proxy.health
    state_dir = FolderState(settings.state_dir, log=log)
    proxy = LocalProxy(
        config_path=proxy_settings.config_path,
        test_command=proxy_settings.test_command,
        pid_file=proxy_settings.reload.pid_file,
        reload_command=proxy_settings.reload.command,
        restart_command=proxy_settings.restart.command,
        stop_command=proxy_settings.stop_command,
        health_url=proxy_settings.health_url,
        health_timeout=health.timeout,
        environ=environ,
        user_agent=_USER_AGENT,
    )
    vault = _vault(environ)
    applier = Applier(
        actions=ProxyActions(
            proxy=proxy,
            state_dir=state_dir,
            secrets=SecretValues(environ=environ, read_vault=None if vault is None else vault.read),
            interval=health.interval,
            clock=clock,
        ),
        state_dir=state_dir,
        attempts=health.attempts,
        clock=clock,
        log=log,
    )
    return BuiltApplier(applier, settings.instance.id or _made_id(state_dir), proxy, vault)


def _made_id(state_dir: FolderState) -> str:
    try:
        return state_dir.instance_id()
    except StateDirFailure as failure:
        raise Misconfigured(f"{failure}; give instance.id, or make state_dir writable") from failure


def _vault(environ: Mapping[str, str]) -> VaultReader | None:
    address, token = environ.get("VAULT_ADDR", ""), environ.get("VAULT_TOKEN", "")
    if not address or not token:
        return None
    return VaultReader(
        address=address, token=Secret(token), namespace=environ.get("VAULT_NAMESPACE", ""), user_agent=_USER_AGENT
    )
