"""`sentinel migrate`: its output, its effects and its exit codes."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner, Result

from sentinel.cli.database.migrate import migrate
from sentinel.drivers.sql.history import HISTORY
from tests.support.databases.empty import DatabaseKind, empty_database
from tools.services.server import LOOPBACK, free_port


def run(*arguments: str, url: str | None = None) -> Result:
    return CliRunner().invoke(migrate, list(arguments), env={"SENTINEL_DATABASE_URL": url})


@pytest.fixture(params=list(DatabaseKind))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return empty_database(request.param, request, tmp_path)


def test_the_output_names_both_revisions(url: str) -> None:
    first = run("--database-url", url)
    second = run("--database-url", url)

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert first.stdout.endswith(f": nothing → {HISTORY.head}\n")
    assert second.stdout.endswith(f": up to date at {HISTORY.head}\n")


def test_check_changes_nothing_and_fails_if_a_migration_is_needed(url: str) -> None:
    before = run("--check", "--database-url", url)
    again = run("--check", "--database-url", url)
    run("--database-url", url)
    after = run("--check", "--database-url", url)

    assert (before.exit_code, again.exit_code, after.exit_code) == (1, 1, 0)
    assert before.stdout.endswith(f": at nothing, this program needs {HISTORY.head}\n")
    assert before.stdout == again.stdout
    assert after.stdout.endswith(f": up to date at {HISTORY.head}\n")


def test_the_json_output_has_no_password(url: str) -> None:
    result = run("--output", "json", url=url)

    printed = json.loads(result.stdout)
    assert printed == {"database": printed["database"], "from": None, "to": HISTORY.head, "up_to_date": True}
    assert urlsplit(url).path in printed["database"]
    password = urlsplit(url).password
    assert password is None or password not in result.output


def test_tables_of_a_newer_version_are_an_error(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'fleet.db'}"
    run("--database-url", url)
    with closing(sqlite3.connect(tmp_path / "fleet.db", isolation_level=None)) as connection:
        connection.execute("UPDATE sentinel_schema SET version_num = '9999'")

    results = [run("--database-url", url), run("--database-url", url, "--check")]

    assert [result.exit_code for result in results] == [1, 1]
    for result in results:
        assert result.stdout == ""
        assert "its tables are at revision 9999" in result.stderr


def test_a_bad_url_is_bad_usage_and_is_not_quoted() -> None:
    result = run("--database-url", "mysql://ops:geheim@host/fleet")

    assert result.exit_code == 2
    assert result.stderr.startswith("error: --database-url: expected a database as sqlite:///fleet.db")
    assert "geheim" not in result.output


def test_an_unreachable_server_is_a_failure_without_its_password() -> None:
    result = run("--database-url", f"postgresql://ops:geheim@{LOOPBACK}:{free_port()}/fleet")

    assert result.exit_code == 1
    assert f"postgresql://ops@{LOOPBACK}" in result.stderr
    assert "geheim" not in result.output


def test_a_missing_url_is_bad_usage() -> None:
    result = run()

    assert result.exit_code == 2
    assert "--database-url" in result.stderr


@pytest.mark.parametrize("mark", "#?/@")
def test_an_unescaped_password_is_not_printed(mark: str) -> None:
    result = run("--check", "--database-url", f"postgresql://u:correcthorse{mark}battery@{LOOPBACK}:1/x")

    assert result.exit_code == 2
    assert "percent-encoded" in result.stderr
    assert "correcthorse" not in result.output
    assert "battery" not in result.output
