"""What every REST server is built from: its address, its database, and who may call it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sentinel.core.access import Permissions
from sentinel.ports.errors import Misconfigured
from sentinel.ports.identity import Identities
from sentinel.runtime.database_url import BadUrl
from sentinel.runtime.listening import Address, is_loopback, parse_address
from sentinel.runtime.settings.server import DatabaseSettings, ServerSettings
from sentinel.runtime.telemetry import Log

if TYPE_CHECKING:
    from sentinel.drivers.sql.engine.statements import SqlDatabase
    from sentinel.web.identity import Guard


def address_of(settings: ServerSettings) -> tuple[Address | None, Sequence[str]]:
    """Where the settings say to listen, or what is wrong with that."""
    try:
        address = parse_address(settings.listen)
    except ValueError as error:
        return None, [f"listen: {error}"]
    if address is None:
        return None, ['listen: expected an address such as "127.0.0.1:8000", got none']
    return address, ()


def exposures(settings: ServerSettings, address: Address | None) -> Iterator[str]:
    """What would let in callers that nobody knows."""
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


def build_database(settings: DatabaseSettings) -> SqlDatabase:
    """The database that the settings name, not opened yet; all stores of the process share it.

    Raises `Misconfigured` for a bad URL.
    """
    from sentinel.drivers.sql import engine

    try:
        return engine.database(
            settings.database_url.reveal(), migrate=settings.migrate, connections=settings.database_connections
        )
    except BadUrl as error:
        raise Misconfigured(f"database_url: {error}") from None


def build_guard(settings: ServerSettings, *, permissions: Permissions, log: Log) -> Guard:
    """Who may call the server. Raises `Misconfigured` where a file with tokens or keys cannot be used."""
    from sentinel.web.identity import Guard

    identities: list[Identities] = []
    if settings.tokens_file is not None:
        from sentinel.drivers.identity.tokens_file import TokensFile

        identities.append(TokensFile(settings.tokens_file, log=log))
    if settings.jwt_key_file is not None:
        from sentinel.drivers.identity.jwt import JwtKey

        identities.append(JwtKey(settings.jwt_key_file, log=log))
    return Guard(identities=identities, permissions=permissions, is_insecure=settings.insecure)
