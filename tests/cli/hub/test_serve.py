"""`sentinel hub serve`: what it refuses to start with."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from sentinel.cli.hub.command import hub as command
from sentinel.hub.settings import HubSettings
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings import loader

SAFE = ("--listen", "127.0.0.1:0", "--listen-grpc", "127.0.0.1:0", "--insecure")


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start in an empty directory, where the default database does not exist."""
    monkeypatch.chdir(tmp_path)


def refusal(*words: str) -> str:
    """Run a command that exits with 2, and return what it says."""
    result = CliRunner().invoke(command, words, standalone_mode=False)
    assert result.return_value == 2, result
    return result.stderr


@pytest.mark.parametrize("words", [(), ("serve",)], ids=["hub", "hub serve"])
def test_without_any_credentials_nothing_starts(words: tuple[str, ...]) -> None:
    text = refusal(*words)

    assert "tokens_file: expected --tokens-file" in text


def test_options_of_serve_may_follow_hub() -> None:
    text = refusal("--listen-grpc", "nonsense", "--insecure", "--listen", "127.0.0.1:0")

    assert text.startswith("--listen-grpc: expected HOST:PORT")


def test_help_is_that_of_the_group() -> None:
    result = CliRunner().invoke(command, ["--help"])

    assert result.exit_code == 0
    assert "serve" in result.output
    assert "--listen-grpc" not in result.output


@pytest.mark.parametrize("address", [":9090", "0.0.0.0:9090", "[::]:9090"])
def test_unknown_agents_are_allowed_on_loopback_only(address: str) -> None:
    text = refusal("serve", *SAFE, "--listen-grpc", address)

    assert text == (
        f'insecure: expected a loopback address for agents, got "{address}"; '
        "give --listen-grpc 127.0.0.1:9090, or --client-ca with --tls-cert and --tls-key\n"
    )


def test_unknown_users_are_allowed_on_loopback_only() -> None:
    text = refusal("serve", *SAFE, "--listen", ":8080")

    assert 'insecure: expected a loopback address to listen on, got ":8080"' in text


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--tls-cert", "hub.crt"), "tls_key: expected a file"),
        (("--tls-key", "hub.key"), "tls_cert: expected a file"),
        (("--client-ca", "ca.crt"), "tls_cert: expected a file, because client_ca is given"),
        (("--revoked-file", "revoked"), "client_ca: expected a file, because revoked_file is given"),
        (("--set", "offline_threshold=30s"), "offline_threshold: expected more than heartbeat_interval"),
        (("--set", "ping_interval=0s"), "ping_interval: "),
        (("--set", "session_ttl=999ms"), "session_ttl: expected at least 1s"),
        (("--set", "resolve=maybe"), "resolve: "),
        (("--set", "grpc_reflection=maybe"), "grpc_reflection: "),
        (("--listen-grpc", "0"), "--listen-grpc: expected an address"),
        (("--secrets-key-file", "missing"), "missing: cannot be read"),
        (("--tls-cert", "hub.crt", "--tls-key", "hub.key"), "hub.crt: cannot be read"),
    ],
)
def test_settings_that_cannot_work_are_refused(words: tuple[str, ...], text: str) -> None:
    assert text in refusal("serve", *SAFE, *words)


def test_the_key_of_secrets_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTINEL_SECRETS_KEY", "hunter2")

    twice = refusal("serve", *SAFE, "--secrets-key-file", "keys")
    damaged = refusal("serve", *SAFE)
    in_a_flag = refusal("serve", *SAFE, "--set", "secrets_key=hunter2")

    assert "secrets_key_file: expected no file, because SENTINEL_SECRETS_KEY is set" in twice
    assert "SENTINEL_SECRETS_KEY:1: expected 32 bytes in base64" in damaged
    assert "expected no secret here; use secrets_key_file" in in_a_flag
    assert "hunter2" not in twice + damaged + in_a_flag


def test_the_key_of_secrets_is_no_misspelled_setting() -> None:
    loaded = loader.load(HubSettings, environ={"SENTINEL_SECRETS_KEY": "hunter2", "SENTINEL_SECRET_KEY": "x"})

    assert loaded.settings is not None
    assert loaded.settings.secrets_key == Secret("hunter2")
    assert loaded.warnings == (
        "SENTINEL_SECRET_KEY is not a setting and is ignored; did you mean SENTINEL_SECRETS_KEY?",
    )


def test_all_problems_are_told_at_once() -> None:
    text = refusal("serve", "--insecure", "--tls-cert", "hub.crt")

    assert [line.partition(":")[0] for line in text.splitlines()] == ["tls_key", "insecure", "insecure"]
