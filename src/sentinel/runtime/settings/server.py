"""Settings of REST servers and databases. A component's settings inherit from these.

So keys such as `listen` and `database_url` are at the top level of every server's file and mean the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec

from sentinel.runtime.database_url import InvalidDatabaseUrl, PostgresqlServer, SqliteFile, parse_database_url
from sentinel.runtime.listening import Address, is_loopback, parse_address
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings import field_types
from sentinel.runtime.settings.field_types import FieldType, InvalidValue
from sentinel.runtime.settings.log import LogSettings

NO_CREDENTIALS: Final = (
    "tokens_file: expected --tokens-file, --jwt-key-file or --jwks-url, a user or token in the database, or"
    " --insecure on a loopback address, got none; add an admin with `sentinel user add --database-url`"
)
"""Why a server that nobody could use does not start."""


def _parse_database_url(text: str) -> Secret:
    try:
        address = parse_database_url(text)
    except InvalidDatabaseUrl as error:
        raise InvalidValue(error.reason, hides_text=True) from None
    return address.dsn if isinstance(address, PostgresqlServer) else Secret(text, shown=text)


def _check_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.fragment:
        raise InvalidValue("without credentials and without a fragment")
    return text


class DatabaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The database of a process."""

    database_url: Annotated[
        Secret,
        FieldType("sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE", _parse_database_url),
    ] = Secret("sqlite:///fleet.db", shown="sqlite:///fleet.db")
    """The database: `sqlite:///fleet.db` for a file in the working directory, `postgresql://…` for production."""

    database_connections: Annotated[int, field_types.integer(1, 200)] = 10
    """The maximum number of connections to PostgreSQL."""

    migrate: bool = True
    """Whether to migrate the database at startup. If false, the server refuses to start on an outdated database,
    and you run `sentinel migrate` yourself."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that logs must not contain."""
        url = self.database_url
        return () if str(url) == url.reveal() else (url.reveal(),)


class ServerSettings(DatabaseSettings, frozen=True, kw_only=True):
    """A REST server: its address, its credentials and its database."""

    listen: str = "127.0.0.1:8000"
    """The address to listen on. `:8000` is all interfaces, port 0 any free port."""

    tokens_file: Path | None = None
    """A file with the names, roles and hashes of the accepted tokens. It is read again when it changes."""

    jwt_key_file: Path | None = None
    """The key that verifies JSON web tokens: a public key (PEM), or a shared secret."""

    jwks_url: Annotated[str | None, FieldType("an https or http URL", _check_url)] = None
    """Where the keys that verify JSON web tokens are published, as a JSON Web Key Set."""

    jwt_issuer: str | None = None
    """The `iss` that JSON web tokens must have. Unset: any."""

    jwt_audience: str | None = None
    """The `aud` that JSON web tokens must have. Unset: any."""

    insecure: bool = False
    """Whether to allow all requests without a token. Only on a loopback address."""

    request_timeout: timedelta = timedelta(seconds=30)
    """The timeout of one request."""

    log: LogSettings = msgspec.field(default_factory=LogSettings)
    """The level and format of the log."""

    @property
    def has_credentials(self) -> bool:
        """Whether requests can be authenticated without the database."""
        return any(each is not None for each in (self.tokens_file, self.jwt_key_file, self.jwks_url))


class RetentionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long rows of the shared tables are kept."""

    audit: timedelta = timedelta(days=90)
    """How long audit entries are kept."""

    answers: timedelta = timedelta(days=1)
    """How long a create request can be repeated with the same Idempotency-Key."""


def listen_address(settings: ServerSettings, *, name: str = "listen") -> tuple[Address | None, Sequence[str]]:
    """Return the address to listen on, or None and the problems with it.

    `name` is what problems call the setting, such as `--listen`.
    """
    return required_address(settings.listen, name=name, example="127.0.0.1:8000")


def required_address(text: str, *, name: str, example: str) -> tuple[Address | None, Sequence[str]]:
    """Return an address that a server needs, or None and the problems with it."""
    try:
        address = parse_address(text)
    except ValueError as error:
        return None, [f"{name}: {error}"]
    if address is None:
        return None, [f'{name}: expected an address such as "{example}", got none']
    return address, ()


def exposure_problems(settings: ServerSettings, address: Address | None) -> Iterator[str]:
    """Yield problems with settings that would admit unknown callers, or nobody.

    A database that exists may have users and tokens, which only shows when it is open.
    """
    if settings.insecure:
        if address is not None and not is_loopback(address.host):
            yield (
                f'insecure: expected a loopback address to listen on, got "{address}"; '
                "give --tokens-file, --jwt-key-file or --jwks-url instead of --insecure"
            )
    elif not settings.has_credentials:
        database = parse_database_url(settings.database_url.reveal())
        if isinstance(database, SqliteFile) and not database.path.exists():
            yield NO_CREDENTIALS
    if not (settings.jwt_key_file or settings.jwks_url):
        for name in ("jwt_issuer", "jwt_audience"):
            if getattr(settings, name) is not None:
                yield f"{name}: expected it with --jwt-key-file or --jwks-url only"
