"""`sentinel operator`: a pulse for each SentinelConfig in Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import click

from sentinel.cli import options
from sentinel.cli.wiring.kube import kubeconfig_option, namespace_option, serve_operator
from sentinel.cli.wiring.operator import build_operator
from sentinel.cli.wiring.serve import ProbeAddresses, probe_options
from sentinel.runtime.lifecycle.dynamic_parts import DynamicParts


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
    parts = DynamicParts()
    return serve_operator(
        partial(build_operator, name=name, elects_leaders=leader_elect, parts=parts),
        name="operator",
        kubeconfig=kubeconfig,
        namespace=namespace,
        probes=probes,
        log_overrides=log_overrides,
        description={"config": name or "all", "leader_election": leader_elect},
        dynamic=parts,
    )
