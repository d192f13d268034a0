"""`sentinel agent`: the process beside a proxy."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import click

from sentinel.agent import settings as agent_settings
from sentinel.agent.settings import AgentSettings
from sentinel.cli import options
from sentinel.cli.wiring.extras import extra
from sentinel.cli.wiring.serve import Assembly, ProbeAddresses, ServiceContext, probe_options, refuse, serve
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.listening import is_loopback
from sentinel.runtime.secrets import secrets_in_environment


@click.command()
@click.option("--config", type=click.Path(path_type=Path), required=True, help="The settings file.")
@probe_options
@options.set_option
@options.log_options
def agent(config: Path, probes: ProbeAddresses, sets: Sequence[str], log_overrides: Mapping[str, str]) -> int:
    """Keep the configuration of a proxy as its hub wants it.

    The agent registers with the hub, applies the version that is assigned to its instance, checks that the proxy
    accepts it and stays healthy, goes back if not, and reports what runs. While the hub is away, the proxy goes
    on as it is. The exit code is 2 if the settings are invalid. SIGTERM or Ctrl-C ends the agent, not the proxy.
    """
    loaded = agent_settings.load(file=config, environ=os.environ, sets=sets, overrides=log_overrides)
    if loaded.settings is None:
        return refuse(loaded.problems)
    return serve(
        partial(_assemble, loaded.settings),
        name="agent",
        component="agent",
        service_name="sentinel-agent",
        log=loaded.settings.log,
        secrets=[*(secret.reveal() for secret in loaded.secrets), *secrets_in_environment(os.environ)],
        warnings=(*loaded.warnings, *_warnings(loaded.settings)),
        probes=probes,
    )


def _warnings(settings: AgentSettings) -> Iterator[str]:
    hub = settings.hub
    host = hub.address.rpartition(":")[0].strip("[]")
    if hub.tls is None and not is_loopback(host):
        yield f"hub.tls: tokens and configurations travel unencrypted to {hub.address}; give hub.tls"
    if hub.tls is None and hub.registration_token is None and hub.registration_token_file is None:
        yield "hub: neither tls nor a registration token is given; only a hub with --insecure takes such an agent"


def _assemble(settings: AgentSettings, context: ServiceContext) -> Assembly:
    with extra("agent", who="sentinel agent"):
        from sentinel.cli.wiring.agent import build_agent
    stopping = Stopping()
    built = build_agent(settings, stop_agent=stopping.request, context=context)
    return Assembly(
        parts=[lambda: built.part],
        stopping=stopping,
        description={
            "instance": built.instance_id,
            "hub": settings.hub.address,
            "tls": settings.hub.tls is not None,
            "config_path": str(settings.proxy.config_path),
            "offline_mode": settings.offline_behavior.mode,
            "max_offline_duration": settings.offline_behavior.max_offline_duration,
        },
    )
