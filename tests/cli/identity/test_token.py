"""`sentinel token`: its output, its effects on the tokens file, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from sentinel.cli.identity.token import token
from sentinel.core.access import Identity, Role
from sentinel.drivers.identity.tokens_file import TokensFile
from sentinel.runtime import bearer_tokens


def digest_of(token: str) -> str:
    return bearer_tokens.digest_of(token).hex()


def run(*arguments: object) -> Result:
    return CliRunner().invoke(token, [str(argument) for argument in arguments], standalone_mode=False)


def create(path: Path, *arguments: object) -> str:
    result = run("new", *arguments, "--tokens-file", path)
    assert result.exception is None
    return result.stdout.strip()


def text_of(path: Path) -> str:
    return path.read_text()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens.yaml"


async def test_new_prints_only_the_token_and_stores_its_hash(path: Path) -> None:
    result = run("new", "--name", "ops", "--role", "operator", "--tokens-file", path)

    secret = result.stdout.removesuffix("\n")
    assert secret.startswith("snt_")
    assert result.stderr == ""
    assert secret not in text_of(path)
    assert await TokensFile(path).identify(secret) == Identity("ops", Role.OPERATOR)


async def test_the_json_output_of_new_has_the_role_and_adapter(path: Path) -> None:
    printed = json.loads(
        create(path, "--name", "dns", "--role", "adapter", "--adapter", "dns", "--output", "json")
    )

    assert {key: printed[key] for key in ("name", "role", "adapter")} == {
        "name": "dns",
        "role": "adapter",
        "adapter": "dns",
    }
    assert await TokensFile(path).identify(printed["token"]) is not None


async def test_a_token_of_an_agent_may_be_limited_to_an_instance(path: Path) -> None:
    printed = json.loads(
        create(path, "--name", "edge", "--role", "agent", "--instance", "edge-1", "--output", "json")
    )

    assert {key: printed[key] for key in printed if key != "token"} == {
        "name": "edge",
        "role": "agent",
        "instance": "edge-1",
    }
    assert await TokensFile(path).identify(printed["token"]) == Identity("edge", Role.AGENT, instance="edge-1")


def test_the_list_has_instances_if_a_token_has_one(path: Path) -> None:
    edge = create(path, "--name", "edge", "--role", "agent", "--instance", "edge-1")
    ops = create(path, "--name", "ops", "--role", "operator")

    table, data = run("list", "--tokens-file", path), run("list", "--tokens-file", path, "--output", "json")

    assert table.stdout.splitlines() == [
        "NAME  ROLE      ADAPTER  INSTANCE  SHA256",
        f"edge  agent     -        edge-1    {digest_of(edge)[:12]}",
        f"ops   operator  -        -         {digest_of(ops)[:12]}",
    ]
    assert [entry.get("instance") for entry in json.loads(data.stdout)["tokens"]] == ["edge-1", None]


def test_the_list_shows_no_token_and_no_whole_hash(path: Path) -> None:
    secret = create(path, "--name", "ops", "--role", "operator")

    table, data = run("list", "--tokens-file", path), run("list", "--tokens-file", path, "--output", "json")

    assert table.stdout.splitlines() == [
        "NAME  ROLE      ADAPTER  SHA256",
        f"ops   operator  -        {digest_of(secret)[:12]}",
    ]
    assert json.loads(data.stdout) == {
        "tokens": [{"name": "ops", "role": "operator", "sha256": digest_of(secret)[:12]}]
    }


def test_the_list_is_printed_as_yaml(path: Path) -> None:
    create(path, "--name", "ops", "--role", "viewer")

    printed = yaml.safe_load(run("list", "--tokens-file", path, "--output", "yaml").stdout)

    assert printed["tokens"][0]["name"] == "ops"


async def test_revoking_by_name_revokes_all_tokens_of_that_name(path: Path) -> None:
    first, second = (
        create(path, "--name", "ops", "--role", "admin"),
        create(path, "--name", "ops", "--role", "admin"),
    )
    other = create(path, "--name", "eve", "--role", "viewer")

    result = run("revoke", "--name", "ops", "--tokens-file", path)

    assert result.return_value == 0
    identities = TokensFile(path)
    assert [await identities.identify(each) for each in (first, second)] == [None, None]
    assert await identities.identify(other) is not None


async def test_revoking_by_hash_revokes_one_of_several(path: Path) -> None:
    first, second = (
        create(path, "--name", "ops", "--role", "admin"),
        create(path, "--name", "ops", "--role", "admin"),
    )

    result = run("revoke", "--sha256", digest_of(first)[:12].upper(), "--tokens-file", path, "--output", "json")

    assert [entry["sha256"] for entry in json.loads(result.stdout)["tokens"]] == [digest_of(first)[:12]]
    assert await TokensFile(path).identify(first) is None
    assert await TokensFile(path).identify(second) is not None


async def test_revoking_by_name_and_hash_must_match_both(path: Path) -> None:
    secret = create(path, "--name", "ops", "--role", "admin")

    result = run("revoke", "--name", "eve", "--sha256", digest_of(secret)[:12], "--tokens-file", path)

    assert result.return_value == 1
    assert "no such token" in result.stderr
    assert await TokensFile(path).identify(secret) is not None


@pytest.mark.parametrize(
    "arguments",
    [
        ("new", "--name", "a", "--role", "root"),
        ("new", "--role", "viewer"),
        ("new", "--name", "a b", "--role", "viewer"),
        ("new", "--name", "dns", "--role", "adapter"),
        ("new", "--name", "a", "--role", "viewer", "--adapter", "dns"),
        ("new", "--name", "a", "--role", "viewer", "--instance", "edge-1"),
        ("new", "--name", "a", "--role", "agent", "--instance", "a/b"),
        ("new", "--name", "a", "--role", "agent", "--adapter", "dns"),
        ("revoke",),
        ("revoke", "--sha256", "ab"),
    ],
)
def test_bad_usage_is_refused_and_writes_nothing(path: Path, arguments: tuple[str, ...]) -> None:
    result = run(*arguments, "--tokens-file", path)

    assert isinstance(result.exception, click.ClickException)
    assert result.exception.exit_code == 2
    assert not path.exists()


@pytest.mark.parametrize(
    "command", [("list",), ("revoke", "--name", "a"), ("new", "--name", "a", "--role", "admin")]
)
def test_an_invalid_file_is_an_error_and_stays_unchanged(path: Path, command: tuple[str, ...]) -> None:
    path.write_text("tokens:\n  - {name: a}\n")

    result = run(*command, "--tokens-file", path)

    assert isinstance(result.exception, click.ClickException)
    assert f"{path}:2:5: tokens[0].role: required, but missing" in result.exception.message
    assert path.read_text() == "tokens:\n  - {name: a}\n"


def test_a_missing_folder_is_an_error_in_one_line(tmp_path: Path) -> None:
    result = run("new", "--name", "a", "--role", "admin", "--tokens-file", tmp_path / "absent" / "tokens.yaml")

    assert isinstance(result.exception, click.ClickException)
    assert "cannot be changed: no such file or directory" in result.exception.message


@pytest.mark.parametrize("command", ["token", "user"])
def test_the_command_loads_no_server_libraries(command: str) -> None:
    script = (
        f"import sys, sentinel.cli.identity.{command};"
        "heavy = ('starlette', 'uvicorn', 'sqlalchemy', 'jwt', 'rich', 'cryptography');"
        "print([name for name in heavy if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)

    assert done.stdout == "[]\n"
