"""`sentinel proxy`: the small proxy."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path

import click

from sentinel.cli import options
from sentinel.cli.wiring.proxy import build_proxy
from sentinel.cli.wiring.serve import Assembly, ServiceContext, refuse, serve
from sentinel.core.proxy.model import Configuration
from sentinel.proxy import configuration_file
from sentinel.proxy.configuration_file import LoadedConfiguration
from sentinel.runtime.log import LogFormat, LogLevel
from sentinel.runtime.process import ExitCode
from sentinel.runtime.settings.log import LogSettings

_MARGIN = timedelta(seconds=2)
"""How long it may take to close what is left after the graceful shutdown, and to log that."""


@click.command()
@click.option(
    "-c", "--config", required=True, type=click.Path(path_type=Path), help="The proxy's configuration, in KDL."
)
@click.option(
    "-t", "--test", "is_test", is_flag=True, help="Check the configuration and exit: 0 if it is valid, else 1."
)
@click.option(
    "--port-offset",
    type=click.IntRange(0, configuration_file.MAX_PORT),
    default=0,
    help="Add this number to each port that the configuration listens on, so that several proxies on one machine"
    " can share a configuration.",
)
@click.option(
    "--pid-file",
    type=click.Path(path_type=Path),
    help="Write the process id here instead of to the pid-file of the configuration.",
)
@options.log_options
def proxy(
    config: Path, is_test: bool, port_offset: int, pid_file: Path | None, log_overrides: Mapping[str, str]
) -> int:
    """Run the small proxy: a reverse proxy for HTTP/1.1 that reads the fleet's proxy configuration.

    It is not a product of its own. It exists for trying out agents and rollouts with a real process: it has the
    routes, upstreams, health checks, header policies, static files and builtin handlers of the real proxy, and its
    names of metrics. What it does not implement it names in one warning at the start.

    SIGHUP reads the file again; an invalid file changes nothing, and the log says why. Changes of listeners and of
    the block system need a restart. SIGTERM or Ctrl-C stops it after the requests in progress.
    """
    loaded = configuration_file.load(config, port_offset=port_offset)
    if is_test:
        return _report(config, loaded)
    if loaded.configuration is None:
        return refuse(loaded.problems)
    return serve(
        partial(_assemble, config, loaded, loaded.configuration, port_offset, pid_file),
        name="proxy",
        component="proxy",
        log=LogSettings(
            level=LogLevel(log_overrides.get("log.level", LogLevel.INFO)),
            format=LogFormat(log_overrides["log.format"]) if "log.format" in log_overrides else None,
        ),
        warnings=loaded.warnings,
    )


def _report(config: Path, loaded: LoadedConfiguration) -> int:
    """Print the result of `--test`, as the real proxy does."""
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    if loaded.configuration is None:
        refuse(loaded.problems)
        return ExitCode.FAILURE
    click.echo(f"sentinel: configuration file {config} test is successful")
    return ExitCode.SUCCESS


def _assemble(
    config: Path,
    loaded: LoadedConfiguration,
    configuration: Configuration,
    port_offset: int,
    pid_file: Path | None,
    context: ServiceContext,
) -> Assembly:
    built = build_proxy(
        configuration,
        remarks=loaded.remarks,
        file=config,
        port_offset=port_offset,
        pid_file=pid_file,
        context=context,
    )
    if loaded.unimplemented:
        context.log.warning("proxy.not_implemented", ignored=loaded.unimplemented)
    return Assembly(
        parts=[built.part],
        description={
            "config": str(config),
            "listeners": [listener.id for listener in configuration.listeners],
            "routes": len(configuration.routes),
            "upstreams": len(configuration.upstreams),
        },
        drain=configuration.system.graceful_shutdown_timeout + _MARGIN,
        on_reload=built.reload,
        has_large_bodies=True,
    )
