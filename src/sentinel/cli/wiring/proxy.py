"""Builds the small proxy."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path

from sentinel.cli.wiring.serve import ServiceContext
from sentinel.core.proxy.model import Configuration
from sentinel.proxy import configuration_file
from sentinel.proxy.service import Proxy


def build_proxy(
    configuration: Configuration,
    *,
    remarks: Collection[str],
    file: Path,
    port_offset: int = 0,
    pid_file: Path | None = None,
    context: ServiceContext,
) -> Proxy:
    """Build the proxy. A reload reads `file` again, and logs only those warnings that are not among `remarks`."""
    return Proxy(
        configuration,
        remarks=remarks,
        load=partial(configuration_file.load, file, port_offset=port_offset),
        pid_file=pid_file,
        metrics=context.metrics,
        clock=context.clock,
        log=context.log,
    )
