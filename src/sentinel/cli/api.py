"""`sentinel api`: the fleet API as a service."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from sentinel.api import kinds as kinds_file
from sentinel.api.kinds import Kinds
from sentinel.api.settings import ServerSettings
from sentinel.cli import options
from sentinel.cli.build import extra
from sentinel.ports.errors import Misconfigured
from sentinel.runtime import lifecycle, process, telemetry
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.health import Health
from sentinel.runtime.http import metrics_pages, probe_pages
from sentinel.runtime.lifecycle import opened
from sentinel.runtime.listening import Address, is_loopback, parse_address
from sentinel.runtime.metrics import Metrics
from sentinel.runtime.settings import loader


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
    loaded = loader.load(ServerSettings, file=config, environ=os.environ, sets=sets, overrides=overrides)
    if loaded.settings is None:
        return _refuse(str(problem) for problem in loaded.problems)
    settings = loaded.settings
    address, address_problems = address_of(settings)
    kinds, kinds_problems = kinds_of(settings)
    problems = (*address_problems, *_exposures(settings, address), *kinds_problems)
    if address is None or kinds is None or problems:
        return _refuse(problems)

    logging = telemetry.configure(settings.log.level, settings.log.format, secrets=settings.secrets)
    log = telemetry.get_logger("api")
    for warning in loaded.warnings:
        log.warning("settings.warning", problem=warning)
    try:
        with extra("api", who="sentinel api"):
            from sentinel.cli import build_api
            from sentinel.web.server import Server
        guard = build_api.guard(settings, log=log)
        database = build_api.database(settings)
    except Misconfigured as error:
        return _refuse([str(error)])

    health = Health(redact=logging.redactor.redact)
    metrics = Metrics(component="api")
    built = build_api.build_api(settings, kinds=kinds, database=database, clock=SystemClock())
    app = build_api.application(
        built,
        pages=probe_pages(health) | metrics_pages(metrics),
        guard=guard,
        settings=settings,
        log=log,
    )
    log.info(
        "service.starting",
        listen=str(address),
        database=str(settings.database_url),
        kinds=[kind.plural for kind in kinds],
        insecure=settings.insecure,
    )
    service = lifecycle.run(
        parts=[lambda: built.part, lambda: Server(app, address=address, log=log).part()],
        shared=[opened("database", built.database)],
        log=log,
        health=health,
        metrics=metrics,
    )
    process.settle_memory()
    return process.main(service, log=log)


def kinds_of(settings: ServerSettings) -> tuple[Kinds | None, Sequence[str]]:
    """The kinds that the settings name, or what is wrong with their file."""
    kinds, problems = kinds_file.load(settings.kinds_file)
    return kinds, [str(problem) for problem in problems]


def address_of(settings: ServerSettings) -> tuple[Address | None, Sequence[str]]:
    """Where the settings say to listen, or what is wrong with that."""
    try:
        address = parse_address(settings.listen)
    except ValueError as error:
        return None, [f"listen: {error}"]
    if address is None:
        return None, ['listen: expected an address such as "127.0.0.1:8000", got none']
    return address, ()


def _exposures(settings: ServerSettings, address: Address | None) -> Iterator[str]:
    """What would let in whoever comes along."""
    if settings.insecure:
        if address is not None and not is_loopback(address.host):
            yield (
                f'insecure: expected a loopback address to listen on, got "{address}"; '
                "give --tokens-file or --jwt-key-file instead of --insecure"
            )
    elif settings.tokens_file is None and settings.jwt_key_file is None:
        yield (
            "tokens_file: expected --tokens-file or --jwt-key-file, or --insecure on a loopback address, got none"
        )


def _refuse(problems: Sequence[str] | Iterator[str]) -> int:
    for problem in problems:
        click.echo(problem, err=True)
    return lifecycle.ExitCode.MISCONFIGURED
