"""`sentinel user` on a database: its output, its effects, and its exit codes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from sentinel.cli.identity.token import token
from sentinel.cli.identity.user import user

PASSWORD = "correct horse"


def run(group: click.Group, *words: str, stdin: str | bytes = "") -> Result:
    return CliRunner().invoke(group, words, input=stdin, standalone_mode=False)


def output(result: Result) -> Any:
    assert result.exception is None, result.exception
    return json.loads(result.stdout)


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'fleet.db'}"


def add(database: str, name: str = "ann", role: str = "admin", *more: str) -> Result:
    words = ("add", name, "--role", role, "--password-stdin", "--database-url", database, *more)
    return run(user, *words, stdin=f"{PASSWORD}\n")


def test_a_user_is_added_changed_listed_and_removed(database: str) -> None:
    here = ("--database-url", database, "--output", "json")

    added = output(add(database, "ann", "admin", "--output", "json"))
    add(database, "ben", "viewer")
    promoted = output(run(user, "set-role", "ben", "operator", *here))
    changed = output(run(user, "set-password", "ben", "--password-stdin", *here, stdin="another horse\n"))
    listed = output(run(user, "list", *here))
    removed = output(run(user, "remove", "ben", *here))

    assert (added["name"], added["role"]) == ("ann", "admin")
    assert added["created_by"].startswith("local")
    assert promoted["role"] == "operator"
    assert changed["updated_time"] > promoted["updated_time"]
    assert listed == {"users": [added, changed]}
    assert removed == {"name": "ben"}
    assert len(output(run(user, "list", *here))["users"]) == 1


def test_people_get_sentences_and_a_table(database: str) -> None:
    assert add(database).stdout == "user ann added with the role admin\n"

    lines = run(user, "list", "--database-url", database).stdout.splitlines()

    assert lines[0].split() == ["NAME", "ROLE", "ADDED", "CHANGED"]
    assert lines[1].split()[:2] == ["ann", "admin"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["remove", "ann"], "last admin"),
        (["set-role", "ann", "viewer"], "last admin"),
        (["remove", "eve"], 'no user "eve"'),
        (["set-role", "eve", "viewer"], 'no user "eve"'),
        (["add", "ann", "--role", "viewer", "--password-stdin"], "exists"),
    ],
)
def test_a_refused_change_exits_1(database: str, words: list[str], text: str) -> None:
    add(database)

    result = run(user, *words, "--database-url", database, stdin=f"{PASSWORD}\n")

    assert result.return_value == 1
    assert text in result.stderr


@pytest.mark.parametrize(
    ("words", "stdin", "text"),
    [
        (["add", "a b", "--role", "viewer", "--password-stdin"], PASSWORD, "name: expected letters"),
        (["add", "ann", "--role", "adapter", "--password-stdin"], PASSWORD, "adapter"),
        (["add", "ann", "--role", "viewer", "--password-stdin"], "short\n", "password: expected at least 8"),
        (["add", "ann", "--role", "viewer", "--password-stdin"], "", "password: expected at least 8"),
        (["add", "ann", "--role", "viewer", "--password-stdin"], b"\xff" * 9, "expected UTF-8"),
        (["add", "ann", "--role", "viewer"], f"{PASSWORD}\n", "expected --password-stdin, or a terminal"),
        (["list", "--server", "http://127.0.0.1:1"], "", "got both"),
    ],
)
def test_wrong_usage_changes_nothing(database: str, words: list[str], stdin: str | bytes, text: str) -> None:
    result = run(user, *words, "--database-url", database, stdin=stdin)

    assert isinstance(result.exception, click.ClickException)
    assert text in result.exception.format_message()
    assert PASSWORD not in result.exception.format_message()
    assert not Path(database.removeprefix("sqlite:///")).exists()


def test_a_bad_database_url_exits_2_without_its_password() -> None:
    result = run(user, "list", "--database-url", "mysql://root:hidden@db/fleet")

    assert result.return_value == 2
    assert "expected a database as sqlite:///" in result.stderr
    assert "hidden" not in result.stderr


def test_tokens_are_issued_listed_and_revoked_in_a_database(database: str) -> None:
    here = ("--database-url", database, "--output", "yaml")

    issued = yaml.safe_load(run(token, "new", "--name", "ci", "--role", "viewer", *here).stdout)
    dns = run(token, "new", "--name", "dns", "--role", "adapter", "--adapter", "dns", "--database-url", database)
    listed = yaml.safe_load(run(token, "list", *here).stdout)
    table = run(token, "list", "--database-url", database).stdout
    revoked = yaml.safe_load(run(token, "revoke", "--name", "ci", *here).stdout)
    none = run(token, "revoke", "--name", "ci", *here)

    assert issued["token"].startswith("snt_")
    assert dns.stdout.startswith("snt_")
    assert [each["name"] for each in listed["tokens"]] == ["ci", "dns"]
    assert "token" not in listed["tokens"][0]
    assert table.splitlines()[0].split() == ["ID", "NAME", "ROLE", "ADAPTER", "EXPIRES"]
    assert [each["id"] for each in revoked["tokens"]] == [issued["id"]]
    assert (none.return_value, none.stderr) == (1, "no such token\n")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["list"], "got none"),
        (["list", "--tokens-file", "t", "--server", "http://x"], "got several"),
        (["list", "--tokens-file", "t", "--database-url", "sqlite:///x"], "got several"),
        (["revoke", "--server", "http://x"], "expected --name, --id"),
        (["revoke", "--sha256", "abcdef", "--server", "http://x"], "--sha256"),
        (["revoke", "--id", "1", "--tokens-file", "t"], "--id"),
        (["new", "--name", "a", "--role", "viewer", "--expires-in", "1h", "--tokens-file", "t"], "--expires-in"),
        (["new", "--name", "a", "--role", "viewer", "--expires-in", "5", "--server", "http://x"], "a duration"),
        (["new", "--name", "a", "--role", "adapter", "--database-url", "sqlite:///:none:/x"], "adapter"),
    ],
)
def test_wrong_usage_of_tokens_is_explained(words: list[str], text: str, tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'x.db'}"

    result = run(token, *(database if word.startswith("sqlite:") else word for word in words))

    assert isinstance(result.exception, click.ClickException)
    assert text in result.exception.format_message()


def test_a_terminal_is_asked_twice_and_shows_no_password(database: str) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "sentinel.cli", "user", "add", "ann", "--role", "admin"]
    # In a session of its own, because the prompt would otherwise use the terminal that runs the tests.
    with subprocess.Popen(
        [*command, "--database-url", database],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        shown = b""
        for prompt in (b"Password: ", b"confirmation: "):
            while prompt not in shown:
                shown += os.read(ours, 1024)
            os.write(ours, f"{PASSWORD}\n".encode())
        printed, _ = process.communicate(timeout=60)
    os.close(ours)

    assert process.returncode == 0
    assert printed == b"user ann added with the role admin\n"
    assert PASSWORD.encode() not in shown
