"""`sentinel operator`: a pulse for each SentinelConfig in Kubernetes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import click
import msgspec

from sentinel.cli import options
from sentinel.cli.wiring.kube import build_kube_api, kubeconfig_option, namespace_option
from sentinel.cli.wiring.operator import build_operator
from sentinel.cli.wiring.serve import Assembly, ProbeAddresses, ServiceContext, probe_options, refuse, serve
from sentinel.runtime.lifecycle.dynamic_parts import DynamicParts
from sentinel.runtime.lifecycle.part import SharedResource
from sentinel.runtime.secrets import secrets_in_environment
from sentinel.runtime.settings import loader
from sentinel.runtime.settings.log import LogSettings


class OperatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the operator itself. Everything else is in SentinelConfigs."""

    log: LogSettings = msgspec.field(default_factory=LogSettings)
    """Logging."""


@click.command()
@click.option("--config", "name", metavar="NAME", default="", help="Run only the SentinelConfig of this name.")
@namespace_option("SentinelConfigs")
@kubeconfig_option
@click.option(
    "--leader-elect",
    is_flag=True,
    help="Elect a leader for each SentinelConfig, so that of several replicas only one publishes.",
)
@probe_options
@options.log_options
def operator(
    name: str,
    namespace: str | None,
    kubeconfig: Path | None,
    leader_elect: bool,
    probes: ProbeAddresses,
    log_overrides: Mapping[str, str],
) -> int:
    """Run a pulse for each SentinelConfig in a namespace.

    A SentinelConfig that is created, changed or deleted takes effect at once. Its status says whether it runs, and
    why not. Without --config, every SentinelConfig of the namespace runs. With --leader-elect, replicas that are
    not the leader poll without publishing and take over when the leader is gone.
    """
    loaded = loader.load(OperatorSettings, environ=os.environ, overrides=log_overrides)
    if loaded.settings is None:
        return refuse(loaded.problems)
    return serve(
        partial(_assemble, name=name, namespace=namespace, kubeconfig=kubeconfig, elects_leaders=leader_elect),
        name="operator",
        component="operator",
        log=loaded.settings.log,
        secrets=secrets_in_environment(os.environ),
        probes=probes,
    )


def _assemble(
    context: ServiceContext,
    *,
    name: str,
    namespace: str | None,
    kubeconfig: Path | None,
    elects_leaders: bool,
) -> Assembly:
    parts = DynamicParts()
    kube = build_kube_api(kubeconfig=kubeconfig, on_secret=context.redactor.rotating())
    namespace = namespace or kube.namespace
    return Assembly(
        parts=[
            lambda: build_operator(
                api=kube.api,
                namespace=namespace,
                name=name,
                elects_leaders=elects_leaders,
                parts=parts,
                context=context,
            )
        ],
        shared=[SharedResource("kubernetes", kube.closing)],
        dynamic=parts,
        description={
            "namespace": namespace,
            "config": name or "all",
            "server": kube.server,
            "leader_election": elects_leaders,
        },
        has_large_bodies=True,
    )
