"""`sentinel api`: the fleet API as a service."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from sentinel.api import kinds as kinds_file
from sentinel.api.kinds import Kinds
from sentinel.api.settings import FleetApiSettings
from sentinel.cli import options
from sentinel.cli.wiring.extras import extra
from sentinel.cli.wiring.serve import Assembly, ServiceContext, refuse, serve
from sentinel.runtime.lifecycle.part import opened
from sentinel.runtime.listening import Address
from sentinel.runtime.settings import loader
from sentinel.runtime.settings.server import exposures, listen_address


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="A settings file; flags and environment beat it.")
@click.option("--listen", metavar="ADDRESS", help="Where to listen; 127.0.0.1:8000 where nothing else is said.")
@click.option(
    "--database-url", metavar="URL", help="sqlite:///FILE (fleet.db where nothing is said) or postgresql://…"
)
@click.option("--kinds-file", metavar="FILE", help="Which kinds are served, and the adapters that each requires.")
@click.option("--tokens-file", metavar="FILE", help="The tokens that are accepted; see `sentinel token new`.")
@click.option("--jwt-key-file", metavar="FILE", help="The key that JSON web tokens are checked with.")
@click.option("--insecure", is_flag=True, help="Let everybody do everything; on a loopback address only.")
@options.set_option
@options.log_options
def api(
    config: Path | None,
    listen: str | None,
    database_url: str | None,
    kinds_file: str | None,
    tokens_file: str | None,
    jwt_key_file: str | None,
    insecure: bool,
    sets: Sequence[str],
    log_level: str | None,
    log_format: str | None,
) -> int:
    """Serve the fleet API: resources, adapters' reports, and the conditions aggregated from them.

    Requests need a token (--tokens-file, --jwt-key-file) unless --insecure is given. Everything is kept in the
    database, which is brought up to date at start. SIGTERM or Ctrl-C finishes the requests under way and ends it.
    """
    overrides = options.log_overrides(log_level=log_level, log_format=log_format)
    given = {
        "listen": listen,
        "database_url": database_url,
        "kinds_file": kinds_file,
        "tokens_file": tokens_file,
        "jwt_key_file": jwt_key_file,
        "insecure": "true" if insecure else None,
    }
    overrides |= {key: value for key, value in given.items() if value is not None}
    loaded = loader.load(FleetApiSettings, file=config, environ=os.environ, sets=sets, overrides=overrides)
    if loaded.settings is None:
        return refuse(loaded.problems)
    settings = loaded.settings
    address, address_problems = listen_address(settings)
    kinds, kinds_problems = kinds_of(settings)
    problems = (*address_problems, *exposures(settings, address), *kinds_problems)
    if address is None or kinds is None or problems:
        return refuse(problems)

    return serve(
        partial(_assemble, settings, address, kinds),
        name="api",
        component="api",
        log=settings.log,
        secrets=settings.secrets,
        warnings=loaded.warnings,
    )


def _assemble(settings: FleetApiSettings, address: Address, kinds: Kinds, context: ServiceContext) -> Assembly:
    with extra("api", who="sentinel api"):
        from sentinel.cli.wiring.api import build_api_server
    built = build_api_server(settings, kinds=kinds, address=address, context=context)
    return Assembly(
        parts=[*built.factories, built.listener.part],
        shared=[opened("database", built.database)],
        description={
            "listen": str(address),
            "database": str(settings.database_url),
            "kinds": [kind.plural for kind in kinds],
            "insecure": settings.insecure,
        },
        has_large_answers=True,
    )


def kinds_of(settings: FleetApiSettings) -> tuple[Kinds | None, Sequence[str]]:
    """The kinds that the settings name, or what is wrong with their file."""
    kinds, problems = kinds_file.load(settings.kinds_file)
    return kinds, [str(problem) for problem in problems]
