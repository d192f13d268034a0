"""`sentinel drift-operator`: keeps the objects of OpenBaoClusters as they are wanted."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import click
import msgspec

from sentinel.cli import options
from sentinel.cli.wiring.drift_operator import build_drift_operator
from sentinel.cli.wiring.kube import build_kube_api, kubeconfig_option, namespace_option
from sentinel.cli.wiring.serve import Assembly, ProbeAddresses, ServiceContext, probe_options, refuse, serve
from sentinel.runtime.lifecycle.part import SharedResource
from sentinel.runtime.secrets import secrets_in_environment
from sentinel.runtime.settings import loader
from sentinel.runtime.settings.log import LogSettings
from sentinel.runtime.settings.report import quoted
from sentinel.version import __version__

_NAME: Final = r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?"
_MAX_NAME: Final = 253


class DriftOperatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the operator itself. Everything else is in OpenBaoClusters."""

    log: LogSettings = msgspec.field(default_factory=LogSettings)
    """Logging."""


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
    loaded = loader.load(DriftOperatorSettings, environ=os.environ, overrides=log_overrides)
    if loaded.settings is None:
        return refuse(loaded.problems)
    version = os.environ.get("OPERATOR_VERSION", "").strip() or __version__
    return serve(
        partial(
            _assemble,
            namespace=namespace,
            kubeconfig=kubeconfig,
            version=version,
            sidecar_config=sidecar_config,
        ),
        name="drift-operator",
        component="drift-operator",
        log=loaded.settings.log,
        secrets=secrets_in_environment(os.environ),
        probes=probes,
    )


def _assemble(
    context: ServiceContext,
    *,
    namespace: str | None,
    kubeconfig: Path | None,
    version: str,
    sidecar_config: str,
) -> Assembly:
    kube = build_kube_api(kubeconfig=kubeconfig, on_secret=context.redactor.rotating())
    namespace = namespace or kube.namespace
    return Assembly(
        parts=[
            lambda: build_drift_operator(
                api=kube.api,
                namespace=namespace,
                operator_version=version,
                sidecar_config=sidecar_config,
                context=context,
            )
        ],
        shared=[SharedResource("kubernetes", kube.closing)],
        description={"namespace": namespace, "server": kube.server, "version": version},
        has_large_bodies=True,
    )
