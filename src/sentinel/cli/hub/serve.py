"""`sentinel hub serve`: serves agents over gRPC, and users over REST."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import click
import msgspec

from sentinel.cli import options
from sentinel.cli.wiring.extras import extra
from sentinel.cli.wiring.serve import Assembly, ServiceContext, refuse, serve
from sentinel.hub import settings as hub_settings
from sentinel.hub.settings import HubSettings
from sentinel.runtime.listening import Address, is_loopback
from sentinel.runtime.settings import loader
from sentinel.runtime.settings.server import exposure_problems, listen_address, required_address


@click.command("serve")
@options.service_options(listen=":8080", database="fleet.db")
@click.option("--listen-grpc", metavar="ADDRESS", help="Address to listen on for agents. Default: :9090.")
@click.option("--tls-cert", metavar="FILE", help="Certificate of the gRPC listener (PEM).")
@click.option("--tls-key", metavar="FILE", help="Key of --tls-cert (PEM).")
@click.option(
    "--client-ca",
    metavar="FILE",
    help="CA of agents' certificates (PEM). Every agent then needs one, and no registration token.",
)
@click.option("--revoked-file", metavar="FILE", help="Serial numbers of revoked certificates, one a line.")
@click.option(
    "--secrets-key-file", metavar="FILE", help="Key that encrypts secrets in the database: 32 bytes in base64."
)
@options.credential_options
@options.set_option
@options.log_options
def hub_serve(
    config: Path | None,
    listen: str | None,
    listen_grpc: str | None,
    database_url: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    client_ca: str | None,
    revoked_file: str | None,
    secrets_key_file: str | None,
    credentials: Mapping[str, str],
    sets: Sequence[str],
    log_overrides: Mapping[str, str],
) -> int:
    """Serve agents of proxies over gRPC, and users over REST.

    Agents register with a certificate of --client-ca, or with a token of the role agent, which is in --tokens-file
    or in the database. The TLS options concern gRPC; certificates, revoked serials and tokens are read again when
    they change. Without TLS, tokens and configurations travel unencrypted. All data is in the database, which is
    migrated at startup. SIGTERM or Ctrl-C stops the hub after the calls in progress.
    """
    overrides = options.overrides(
        listen=listen,
        listen_grpc=listen_grpc,
        database_url=database_url,
        tls_cert=tls_cert,
        tls_key=tls_key,
        client_ca=client_ca,
        revoked_file=revoked_file,
        secrets_key_file=secrets_key_file,
    )
    overrides |= {**credentials, **log_overrides}
    loaded = loader.load(HubSettings, file=config, environ=os.environ, sets=sets, overrides=overrides)
    if loaded.settings is None:
        return refuse(loaded.problems)
    settings = loaded.settings
    address, address_problems = listen_address(settings, name="listen" if listen is None else "--listen")
    grpc_address, grpc_problems = required_address(
        settings.listen_grpc, name="listen_grpc" if listen_grpc is None else "--listen-grpc", example=":9090"
    )
    problems = (
        *address_problems,
        *grpc_problems,
        *hub_settings.problems(settings),
        *exposure_problems(settings, address),
        *_agent_exposure_problems(settings, grpc_address),
    )
    if address is None or grpc_address is None or problems:
        return refuse(problems)

    return serve(
        partial(_assemble, settings, address, grpc_address),
        name="hub",
        component="hub",
        service_name="sentinel-hub",
        log=settings.log,
        secrets=settings.secrets,
        warnings=(*loaded.warnings, *hub_settings.warnings(settings, grpc_address)),
    )


def _agent_exposure_problems(settings: HubSettings, address: Address | None) -> Iterator[str]:
    """Yield why unknown agents could register."""
    is_open = settings.insecure and settings.client_ca is None
    if is_open and address is not None and not is_loopback(address.host):
        yield (
            f'insecure: expected a loopback address for agents, got "{address}"; '
            "give --listen-grpc 127.0.0.1:9090, or --client-ca with --tls-cert and --tls-key"
        )


def _assemble(settings: HubSettings, address: Address, grpc_address: Address, context: ServiceContext) -> Assembly:
    with extra("hub", who="sentinel hub serve"):
        from sentinel.cli.wiring import hub as wiring
        from sentinel.cli.wiring.accounts import build_accounts
        from sentinel.cli.wiring.server import build_database, build_server, configured_identities
        from sentinel.web.audit import Auditor
    database = build_database(settings)
    auditor = Auditor()
    accounts = build_accounts(database, auditor=auditor, clock=context.clock)
    credentials = configured_identities(settings, log=context.log)
    hub = wiring.build_sql_hub(
        settings,
        database=database,
        identities=[*credentials, accounts.identities],
        ignores_unknown_tokens=not credentials,
        address=grpc_address,
        auditor=auditor,
        clock=context.clock,
    )
    server = build_server(
        [hub.component],
        database=database,
        settings=settings,
        retention=settings.retention,
        address=address,
        info=wiring.info(settings),
        metrics_prefix=wiring.METRICS_PREFIX,
        context=context,
        log=context.log,
        auditor=auditor,
        accounts=accounts,
        credentials=credentials,
    )
    assembly = server.assembly(
        listen_grpc=str(grpc_address),
        tls=settings.tls_cert is not None,
        client_certificates=settings.client_ca is not None,
    )
    return msgspec.structs.replace(assembly, parts=[*assembly.parts, hub.listener.part])
