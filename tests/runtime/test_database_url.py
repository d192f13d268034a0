"""Which database a URL names, and that nothing of a password is ever shown."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.api.settings import FleetApiSettings
from sentinel.runtime.database_url import InvalidDatabaseUrl, PostgresqlServer, SqliteFile, parse_database_url
from sentinel.runtime.settings import loader

UNEQUIVOCAL = {
    "postgresql://ops:geheim@db.example:5432/fleet": "postgresql://ops@db.example:5432/fleet",
    "postgres://ops@db.example/fleet": "postgresql://ops@db.example/fleet",
    "postgresql://ops@db.example/fleet": "postgresql://ops@db.example/fleet",
    "postgresql:///fleet": "postgresql:///fleet",
    "postgresql://ops:ge%23he%2Fim@[::1]:5432/fleet": "postgresql://ops@[::1]:5432/fleet",
    "postgresql://ops:geheim@one:5432,two:5433/fleet": "postgresql://ops@one:5432,two:5433/fleet",
    "postgresql://ops:geheim@%2Frun%2Fpostgresql/fleet": "postgresql://ops@%2Frun%2Fpostgresql/fleet",
    "postgresql:///fleet?host=/run/postgresql&password=geheim": "postgresql:///fleet",
}
EQUIVOCAL = [
    "postgresql://u:correcthorse#battery@127.0.0.1:1/x",
    "postgresql://u:correcthorse?battery@127.0.0.1:1/x",
    "postgresql://u:correcthorse/battery@127.0.0.1:1/x",
    "postgresql://u:correcthorse@battery@127.0.0.1:1/x",
    "postgresql://u:123#battery@127.0.0.1:1/x",
    "postgresql://u:correcthorse",
    "postgresql://u:correcthorse@[::1/x",
    "postgresql://u:correcthorse@ho\u2100st/x",
]


@pytest.mark.parametrize(("url", "shown"), UNEQUIVOCAL.items())
def test_a_server_is_shown_without_password_and_parameters(url: str, shown: str) -> None:
    named = parse_database_url(url)

    assert isinstance(named, PostgresqlServer)
    assert named.dsn.reveal() == url
    assert str(named) == shown
    assert "geheim" not in repr(named)


@pytest.mark.parametrize("url", EQUIVOCAL)
def test_a_url_whose_password_might_end_elsewhere_is_refused_and_not_quoted(url: str) -> None:
    with pytest.raises(InvalidDatabaseUrl) as caught:
        parse_database_url(url)

    told = "".join(traceback.format_exception(caught.value))
    assert "correcthorse" not in told
    assert "battery" not in told


@pytest.mark.parametrize("hosts", ["one:65536", "one:5432,two:99999", "[::1]:70000"])
def test_a_port_that_there_is_not_is_refused(hosts: str) -> None:
    with pytest.raises(InvalidDatabaseUrl, match="a port above 65535"):
        parse_database_url(f"postgresql://ops:geheim@{hosts}/fleet")


@given(st.text("ab:/?#@%[]", min_size=1))
def test_whatever_a_password_contains_it_is_refused_or_not_shown(password: str) -> None:
    try:
        shown = str(parse_database_url(f"postgresql://u:X{password}X@h/x"))
    except InvalidDatabaseUrl as error:
        shown = str(error)

    assert "X" not in shown


def test_a_file_is_a_path_relative_or_absolute() -> None:
    assert parse_database_url("sqlite:///fleet.db") == SqliteFile(Path("fleet.db"))
    assert parse_database_url("sqlite:////var/fleet.db") == SqliteFile(Path("/var/fleet.db"))


@pytest.mark.parametrize("url", [*EQUIVOCAL, "sqlite://x", "sqlite:///", "mysql://u:correcthorse@h/x", "fleet.db"])
def test_settings_refuse_what_no_command_takes(url: str) -> None:
    loaded = loader.load(FleetApiSettings, file=None, environ={}, overrides={"database_url": url})

    assert loaded.settings is None
    [problem] = loaded.problems
    assert "expected sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE; " in str(problem)
    assert "correcthorse" not in str(problem)
    assert "battery" not in str(problem)
