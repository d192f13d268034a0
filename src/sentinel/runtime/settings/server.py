"""What every REST server and every database is configured with. A component's settings inherit from these.

The keys stay at the top level of a file: `listen`, `database_url`, … mean the same for every server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import msgspec

from sentinel.runtime.database_url import InvalidDatabaseUrl, PostgresqlServer, parse_database_url
from sentinel.runtime.listening import Address, is_loopback, parse_address
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings import field_types
from sentinel.runtime.settings.field_types import FieldType, InvalidValue
from sentinel.runtime.settings.log import LogSettings


def _database_url(given: str) -> Secret:
    try:
        named = parse_database_url(given)
    except InvalidDatabaseUrl as error:
        raise InvalidValue(error.reason, hides_text=True) from None
    return named.dsn if isinstance(named, PostgresqlServer) else Secret(given, shown=given)


class DatabaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which database a process opens."""

    database_url: Annotated[
        Secret,
        FieldType("sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE", _database_url),
    ] = Secret("sqlite:///fleet.db", shown="sqlite:///fleet.db")
    """Where everything is kept: `sqlite:///fleet.db` for a file beside the process, `postgresql://…` for
    production."""

    database_connections: Annotated[int, field_types.integer(1, 200)] = 10
    """How many connections to PostgreSQL are held at most."""

    migrate: bool = True
    """Whether the database is brought up to date at start. False: the server refuses to start on a database that
    is behind, for those who run `sentinel migrate` as a step of its own."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no log may show."""
        url = self.database_url
        return () if str(url) == url.reveal() else (url.reveal(),)


class ServerSettings(DatabaseSettings, frozen=True, kw_only=True):
    """How a REST server listens, who may call it, and where it keeps its state."""

    listen: str = "127.0.0.1:8000"
    """The address to listen on; `:8000` for every interface, port 0 for one that is free."""

    tokens_file: Path | None = None
    """The names, roles and hashes of the tokens that are accepted; read again when it changes."""

    jwt_key_file: Path | None = None
    """The key that JSON web tokens are checked with: a public key (PEM), or a shared secret."""

    insecure: bool = False
    """Whether requests without a token may do everything. Only on a loopback address."""

    request_timeout: timedelta = timedelta(seconds=30)
    """How long a request may take."""

    log: LogSettings = msgspec.field(default_factory=LogSettings)
    """What is logged, and how."""


class RetentionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long rows are kept in the tables that all components share."""

    audit: timedelta = timedelta(days=90)
    """How long it can be read who has written what."""

    answers: timedelta = timedelta(days=1)
    """How long a creation can be repeated with the same Idempotency-Key."""


def listen_address(settings: ServerSettings) -> tuple[Address | None, Sequence[str]]:
    """Where the settings say to listen, or what is wrong with that."""
    try:
        address = parse_address(settings.listen)
    except ValueError as error:
        return None, [f"listen: {error}"]
    if address is None:
        return None, ['listen: expected an address such as "127.0.0.1:8000", got none']
    return address, ()


def exposure_problems(settings: ServerSettings, address: Address | None) -> Iterator[str]:
    """Problems with settings that would let in unknown callers."""
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
