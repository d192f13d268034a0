"""Database URLs are parsed, and passwords are never shown."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.api.settings import FleetApiSettings
from sentinel.runtime.database_url import InvalidDatabaseUrl, PostgresqlServer, SqliteFile, parse_database_url
from sentinel.runtime.settings import loader

UNAMBIGUOUS = {
    "postgresql://ops:geheim@db.example:5432/fleet": "postgresql://ops@db.example:5432/fleet",
    "postgres://ops@db.example/fleet": "postgresql://ops@db.example/fleet",
    "postgresql://ops@db.example/fleet": "postgresql://ops@db.example/fleet",
    "postgresql:///fleet": "postgresql:///fleet",
    "postgresql://ops:ge%23he%2Fim@[::1]:5432/fleet": "postgresql://ops@[::1]:5432/fleet",
    "postgresql://ops:geheim@one:5432,two:5433/fleet": "postgresql://ops@one:5432,two:5433/fleet",
    "postgresql://ops:geheim@%2Frun%2Fpostgresql/fleet": "postgresql://ops@%2Frun%2Fpostgresql/fleet",
    "postgresql:///fleet?host=/run/postgresql&password=geheim": "postgresql:///fleet",
}
AMBIGUOUS = [
    "postgresql://u:correcthorse#battery@127.0.0.1:1/x",
    "postgresql://u:correcthorse?battery@127.0.0.1:1/x",
    "postgresql://u:correcthorse/battery@127.0.0.1:1/x",
    "postgresql://u:correcthorse@battery@127.0.0.1:1/x",
    "postgresql://u:123#battery@127.0.0.1:1/x",
    "postgresql://u:correcthorse",
    "postgresql://u:correcthorse@[::1/x",
    "postgresql://u:correcthorse@ho\u2100st/x",
]


@pytest.mark.parametrize(("url", "shown"), UNAMBIGUOUS.items())
def test_a_server_is_shown_without_password_and_parameters(url: str, shown: str) -> None:
    address = parse_database_url(url)

    assert isinstance(address, PostgresqlServer)
    assert address.dsn.reveal() == url
    assert str(address) == shown
    assert "geheim" not in repr(address)


@pytest.mark.parametrize("url", AMBIGUOUS)
def test_an_ambiguous_url_is_rejected_and_not_quoted(url: str) -> None:
    with pytest.raises(InvalidDatabaseUrl) as caught:
        parse_database_url(url)

    shown = "".join(traceback.format_exception(caught.value))
    assert "correcthorse" not in shown
    assert "battery" not in shown


@pytest.mark.parametrize("hosts", ["one:65536", "one:5432,two:99999", "[::1]:70000"])
def test_an_invalid_port_is_rejected(hosts: str) -> None:
    with pytest.raises(InvalidDatabaseUrl, match="a port above 65535"):
        parse_database_url(f"postgresql://ops:geheim@{hosts}/fleet")


@given(st.text("ab:/?#@%[]", min_size=1))
def test_a_password_is_rejected_or_not_shown(password: str) -> None:
    try:
        shown = str(parse_database_url(f"postgresql://u:X{password}X@h/x"))
    except InvalidDatabaseUrl as error:
        shown = str(error)

    assert "X" not in shown


def test_a_file_may_be_relative_or_absolute() -> None:
    assert parse_database_url("sqlite:///fleet.db") == SqliteFile(Path("fleet.db"))
    assert parse_database_url("sqlite:////var/fleet.db") == SqliteFile(Path("/var/fleet.db"))


@pytest.mark.parametrize("url", [*AMBIGUOUS, "sqlite://x", "sqlite:///", "mysql://u:correcthorse@h/x", "fleet.db"])
def test_settings_reject_an_invalid_url_without_quoting_it(url: str) -> None:
    loaded = loader.load(FleetApiSettings, file=None, environ={}, overrides={"database_url": url})

    assert loaded.settings is None
    [problem] = loaded.problems
    assert "expected sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE; " in str(problem)
    assert "correcthorse" not in str(problem)
    assert "battery" not in str(problem)
