"""`sentinel drift`: the sidecar that notices unauthorised changes of a cluster's objects."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import click

from sentinel.cli import options
from sentinel.cli.wiring.drift import build_drift
from sentinel.cli.wiring.kube import build_kube_api, kubeconfig_option
from sentinel.cli.wiring.serve import Assembly, ProbeAddresses, ServiceContext, probe_options, refuse, serve
from sentinel.drift import settings as drift_settings
from sentinel.drift.settings import ClusterIdentity, DriftSettings
from sentinel.runtime import process
from sentinel.runtime.lifecycle.part import SharedResource
from sentinel.runtime.secrets import secrets_in_environment


class _DriftCommands(click.Group):
    """A group that imports a command when it is called, so that the sidecar does not load it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return ["explain"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module("sentinel.cli.drift.explain").explain
        return command


@click.group(cls=_DriftCommands, invoke_without_command=True)
@click.option("--config", type=click.Path(path_type=Path), help="The settings file.")
@kubeconfig_option
@probe_options
@options.set_option
@options.log_options
@click.pass_context
def drift(
    context: click.Context,
    config: Path | None,
    kubeconfig: Path | None,
    probes: ProbeAddresses,
    sets: Sequence[str],
    log_overrides: Mapping[str, str],
) -> int:
    """Watch the objects of a cluster and trigger its operator when another actor changes them.

    The environment names the cluster: POD_NAMESPACE and CLUSTER_NAME are required. The objects are StatefulSets,
    Services and ConfigMaps with the operator's labels, never Secrets. SIGTERM or Ctrl-C writes a pending trigger
    and exits; a second one exits at once.
    """
    if context.invoked_subcommand is not None:
        return process.ExitCode.SUCCESS
    loaded = drift_settings.load(file=config, environ=os.environ, sets=sets, overrides=log_overrides)
    cluster = drift_settings.load_cluster_identity(os.environ)
    if loaded.settings is None or cluster.settings is None:
        return refuse((*loaded.problems, *cluster.problems))
    return serve(
        partial(_assemble, loaded.settings, cluster.settings, kubeconfig),
        name="drift",
        component="drift",
        log=loaded.settings.log,
        secrets=[*(secret.reveal() for secret in loaded.secrets), *secrets_in_environment(os.environ)],
        warnings=loaded.warnings,
        probes=probes,
    )


def _assemble(
    settings: DriftSettings, cluster: ClusterIdentity, kubeconfig: Path | None, context: ServiceContext
) -> Assembly:
    kube = build_kube_api(kubeconfig=kubeconfig, on_secret=context.redactor.rotating())
    return Assembly(
        parts=[lambda: build_drift(settings, cluster=cluster, api=kube.api, context=context)],
        shared=[SharedResource("kubernetes", kube.closing)],
        description={
            "namespace": cluster.namespace,
            "cluster": cluster.name,
            "kinds": [kind.kind for kind in settings.kinds],
            "mode": settings.mode,
            "debounce_window": settings.debounce_window,
            "max_wait": settings.longest_wait,
            "server": kube.server,
        },
    )
