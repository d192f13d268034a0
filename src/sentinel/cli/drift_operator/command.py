"""`sentinel drift-operator`: keeps the objects of OpenBaoClusters as they are wanted."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import click

from sentinel.cli import options
from sentinel.cli.wiring.drift_operator import build_drift_operator
from sentinel.cli.wiring.kube import kubeconfig_option, namespace_option, serve_operator
from sentinel.cli.wiring.serve import ProbeAddresses, probe_options
from sentinel.runtime.settings.report import quoted
from sentinel.version import __version__

_NAME: Final = r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?"
_MAX_NAME: Final = 253


def _check_name(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if value and (len(value) > _MAX_NAME or re.fullmatch(_NAME, value) is None):
        raise click.BadParameter(f"expected the name of a ConfigMap, got {quoted(value)}")
    return value


@click.command()
@namespace_option("OpenBaoClusters")
@kubeconfig_option
@click.option(
    "--sidecar-config",
    metavar="NAME",
    default="",
    callback=_check_name,
    help="A ConfigMap in the namespace. All sidecars read its key config.yaml as their settings.",
)
@probe_options
@options.log_options
def drift_operator(
    namespace: str | None,
    kubeconfig: Path | None,
    sidecar_config: str,
    probes: ProbeAddresses,
    log_overrides: Mapping[str, str],
) -> int:
    """Keep the objects of each OpenBaoCluster in a namespace as they are wanted.

    A cluster with spec.sentinel gets a sidecar, `sentinel drift`, if the API server enforces the admission policy
    that limits it. When the sidecar reports drift, certificates and infrastructure are restored at once; upgrades
    and backups wait for the normal pass that follows. OPERATOR_VERSION is the tag of the sidecar's image, by
    default the version of this program.
    """
    version = os.environ.get("OPERATOR_VERSION", "").strip() or __version__
    return serve_operator(
        partial(build_drift_operator, operator_version=version, sidecar_config=sidecar_config),
        name="drift-operator",
        kubeconfig=kubeconfig,
        namespace=namespace,
        probes=probes,
        log_overrides=log_overrides,
        description={"version": version},
    )
