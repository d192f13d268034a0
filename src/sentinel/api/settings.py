"""The settings of the fleet API's server. The docstring of each field is its entry in the reference."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import msgspec

from sentinel.runtime import database_url
from sentinel.runtime.database_url import BadUrl, PostgresqlServer
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings import field_types
from sentinel.runtime.settings.field_types import Leaf, Refused
from sentinel.runtime.settings.log import LogSettings


def _database_url(given: str) -> Secret:
    try:
        named = database_url.parse(given)
    except BadUrl as error:
        raise Refused(error.reason, hides_text=True) from None
    return named.dsn if isinstance(named, PostgresqlServer) else Secret(given, shown=given)


class RetentionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long is kept what nobody deletes."""

    audit: timedelta = timedelta(days=90)
    """How long it can be read who has written what."""

    discarded: timedelta = timedelta(days=1)
    """How long discarded reports can be read. Of each resource no more than the newest 50 are kept."""

    history: timedelta = timedelta(days=90)
    """How long past generations of a resource can be read; the newest is kept as long as the resource."""

    answers: timedelta = timedelta(days=1)
    """How long a creation can be repeated with the same Idempotency-Key."""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the fleet API is served."""

    listen: str = "127.0.0.1:8000"
    """The address to listen on; `:8000` for every interface, port 0 for one that is free."""

    database_url: Annotated[
        Secret,
        Leaf("sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE", _database_url),
    ] = Secret("sqlite:///fleet.db", shown="sqlite:///fleet.db")
    """Where everything is kept: `sqlite:///fleet.db` for a file beside the process, `postgresql://…` for
    production."""

    database_connections: Annotated[int, field_types.whole(1, 200)] = 10
    """How many connections to PostgreSQL are held at most."""

    migrate: bool = True
    """Whether the database is brought up to date at start. False: the server refuses to start on a database that
    is behind, for those who run `sentinel migrate` as a step of its own."""

    kinds_file: Path | None = None
    """Which kinds of resource are served. Unset: clusters, nodepools (in clusters), manifests, workloads, without
    required adapters."""

    tokens_file: Path | None = None
    """The names, roles and hashes of the tokens that are accepted; read again when it changes."""

    jwt_key_file: Path | None = None
    """The key that JSON web tokens are checked with: a public key (PEM), or a shared secret."""

    insecure: bool = False
    """Whether requests without a token may do everything. Only on a loopback address."""

    public_condition_names: bool = False
    """Whether `Ready` and `Available` appear a second time, as `Reconciled` and `LastKnownReconciled`, for clients
    of the public API."""

    request_timeout: timedelta = timedelta(seconds=30)
    """How long a request may take."""

    retention: RetentionSettings = msgspec.field(default_factory=RetentionSettings)
    """How long is kept what nobody deletes."""

    log: LogSettings = msgspec.field(default_factory=LogSettings)
    """What is logged, and how."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no log may show."""
        url = self.database_url
        return () if str(url) == url.reveal() else (url.reveal(),)
