"""`sentinel api`: serves the fleet API."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import click

from sentinel.api.kinds import Kinds
from sentinel.api.kinds import load as load_kinds
from sentinel.api.kinds import warnings as kind_warnings
from sentinel.api.settings import FleetApiSettings
from sentinel.cli import options
from sentinel.cli.wiring.expressions import compile_expression
from sentinel.cli.wiring.extras import extra
from sentinel.cli.wiring.serve import Assembly, ServiceContext, refuse, serve
from sentinel.runtime.listening import Address
from sentinel.runtime.settings import loader
from sentinel.runtime.settings.server import exposure_problems, listen_address


@click.command()
@options.service_options(listen="127.0.0.1:8000", database="fleet.db")
@click.option("--kinds-file", metavar="FILE", help="The kinds to serve, their adapters and their conditions.")
@options.credential_options
@options.set_option
@options.log_options
def api(
    config: Path | None,
    listen: str | None,
    database_url: str | None,
    kinds_file: str | None,
    credentials: Mapping[str, str],
    sets: Sequence[str],
    log_overrides: Mapping[str, str],
) -> int:
    """Serve the fleet API: resources, adapters' reports, and the conditions aggregated from them.

    Requests need a token unless --insecure is given: of a user or token in the database (`sentinel user add`), of
    --tokens-file, or signed with --jwt-key-file or a key of --jwks-url. All data is in the database, which is
    migrated at startup. SIGTERM or Ctrl-C stops the server after the requests in progress.
    """
    overrides = options.overrides(
        listen=listen,
        database_url=database_url,
        kinds_file=kinds_file,
    )
    overrides |= {**credentials, **log_overrides}
    loaded = loader.load(FleetApiSettings, file=config, environ=os.environ, sets=sets, overrides=overrides)
    if loaded.settings is None:
        return refuse(loaded.problems)
    settings = loaded.settings
    address, address_problems = listen_address(settings, name="listen" if listen is None else "--listen")
    kinds, kinds_problems = load_kinds(settings.kinds_file, compile_expression=compile_expression)
    problems = (*address_problems, *exposure_problems(settings, address), *kinds_problems)
    if address is None or kinds is None or problems:
        return refuse(problems)

    return serve(
        partial(_assemble, settings, address, kinds),
        name="api",
        component="api",
        service_name="hyperfleet-api",
        log=settings.log,
        secrets=settings.secrets,
        warnings=(*loaded.warnings, *kind_warnings(kinds)),
    )


def _assemble(settings: FleetApiSettings, address: Address, kinds: Kinds, context: ServiceContext) -> Assembly:
    with extra("api", who="sentinel api"):
        from sentinel.cli.wiring import api as wiring
        from sentinel.cli.wiring.server import build_database, build_server
        from sentinel.web.audit import Auditor
    database = build_database(settings)
    auditor = Auditor()
    built = build_server(
        [
            wiring.build_api(
                settings,
                kinds=kinds,
                database=database,
                auditor=auditor,
                clock=context.clock,
                tracer=context.tracer,
            )
        ],
        database=database,
        settings=settings,
        retention=settings.retention,
        address=address,
        info=wiring.info(settings),
        metrics_prefix=wiring.METRICS_PREFIX,
        context=context,
        log=context.log,
        auditor=auditor,
    )
    return built.assembly(kinds=[kind.plural for kind in kinds])
