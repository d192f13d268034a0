"""The settings of an agent: everything has a default that works, and what does not fit together is refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from sentinel.agent import settings
from sentinel.agent.settings import AgentSettings
from sentinel.core.agent.offline import OfflineMode

COMPLETE = """
hub:
  address: hub.example:9090
  tls: {ca: ca.crt, cert: agent.crt, key: agent.key}
  registration_token_file: token
instance: {id: edge-1, name: Edge 1, labels: {zone: a}}
proxy:
  config_path: /etc/sentinel/config.kdl
  test_command: [sentinel, proxy, --test, -c, "{config}"]
  reload: {pid_file: /run/sentinel.pid}
  restart: {command: []}
  health_url: http://127.0.0.1:8088/health
  health: {attempts: 3, interval: 1s, timeout: 2s}
  metrics_url: http://127.0.0.1:9091/metrics
  metrics: {}
  stop_command: []
offline_behavior:
  mode: keep_running
  max_offline_duration: 24h
  retry_backoff: {initial: 1s, max: 5m, multiplier: 2}
state_dir: /var/lib/sentinel-agent
deregister_on_shutdown: false
"""
SMALLEST = """
hub: {address: "[::1]:9090"}
proxy: {config_path: proxy.kdl, reload: {command: [./reload.sh, now]}}
"""


def loaded(folder: Path, text: str, environ: Mapping[str, str] | None = None) -> AgentSettings:
    file = folder / "agent.yaml"
    file.write_text(text)
    found = settings.load(file=file, environ=environ or {})
    assert found.settings is not None, found.problems
    return found.settings


def problems(folder: Path, text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    file = folder / "agent.yaml"
    file.write_text(text)
    return [str(each) for each in settings.load(file=file, environ=environ or {}).problems]


def test_the_documented_file_says_what_the_defaults_are(tmp_path: Path) -> None:
    complete, smallest = loaded(tmp_path, COMPLETE), loaded(tmp_path, SMALLEST)

    assert complete.proxy.test_command == smallest.proxy.test_command
    assert complete.proxy.health == smallest.proxy.health
    assert complete.proxy.metrics == smallest.proxy.metrics
    assert complete.offline_behavior.retry_backoff == smallest.offline_behavior.retry_backoff
    assert complete.state_dir == smallest.state_dir
    assert complete.offline_behavior.mode is OfflineMode.KEEP_RUNNING
    assert complete.offline_behavior.max_offline_duration == timedelta(hours=24)
    assert smallest.offline_behavior.max_offline_duration is None


def test_delays_between_attempts_are_as_configured_with_jitter(tmp_path: Path) -> None:
    text = COMPLETE.replace("{initial: 1s, max: 5m, multiplier: 2}", "{initial: 2s, max: 1m, multiplier: 3}")

    backoff = loaded(tmp_path, text).offline_behavior.retry_backoff.backoff

    without_jitter = [backoff.delay(attempt, 0.5).total_seconds() for attempt in range(3)]
    assert without_jitter == [2, 6, 18]
    assert backoff.delay(0, 0.0) < backoff.delay(0, 0.5) < backoff.delay(0, 0.99)
    assert backoff.delay(9, 0.0) < backoff.delay(9, 0.99) <= timedelta(minutes=1)


def test_relative_paths_are_those_of_the_file_s_folder(tmp_path: Path) -> None:
    complete, smallest = loaded(tmp_path, COMPLETE), loaded(tmp_path, SMALLEST)

    assert complete.hub.tls is not None
    assert complete.hub.tls.key == tmp_path / "agent.key"
    assert complete.hub.registration_token_file == tmp_path / "token"
    assert complete.proxy.config_path == Path("/etc/sentinel/config.kdl")
    assert smallest.proxy.config_path == tmp_path / "proxy.kdl"
    assert smallest.proxy.reload.command == (f"{tmp_path}/reload.sh", "now")
    assert smallest.proxy.test_command[0] == "sentinel"


def test_variables_override_the_file_and_secrets_come_only_from_there(tmp_path: Path) -> None:
    environ = {
        "SENTINEL_REGISTRATION_TOKEN": "hunter2",
        "SENTINEL_PROXY__HEALTH__ATTEMPTS": "5",
        "SENTINEL_OFFLINE_BEHAVIOR__MODE": "shutdown",
        "SENTINEL_INSTANCE__LABELS": "{zone: b}",
    }

    read = loaded(tmp_path, COMPLETE, environ)

    assert read.proxy.health.attempts == 5
    assert read.offline_behavior.mode is OfflineMode.SHUTDOWN
    assert read.instance.labels == {"zone": "b"}
    assert read.hub.registration_token is not None
    assert read.hub.registration_token.reveal() == "hunter2"
    assert "hunter2" not in repr(read)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("state_dir:", "statedir:", "statedir: unknown key; did you mean state_dir?"),
        ("config_path:", "config:", "proxy.config: unknown key"),
        ("metrics: {}", "metrics: {requests: x}", "proxy.metrics.requests: unknown key"),
        ("hub.example:9090", "hub.example", "hub.address: expected HOST:PORT"),
        ("hub.example:9090", "hub.example:0", "hub.address: expected HOST:PORT"),
        ("hub.example:9090", "::1:9090", "hub.address: expected HOST:PORT"),
        ("id: edge-1", "id: a/b", "instance.id: expected an id"),
        (", key: agent.key", "", "hub.tls.key: required, because the other one of cert and key is given"),
        ("cert: agent.crt, ", "", "hub.tls.cert: required"),
        ('"{config}"', "config.kdl", "proxy.test_command: expected {config}"),
        ("stop_command: []", 'stop_command: [""]', "proxy.stop_command: expected a program"),
        ("{pid_file: /run/sentinel.pid}", "{}", "proxy.reload: expected pid_file or command, got neither"),
        ("max: 5m", "max: 1ms", "offline_behavior.retry_backoff.max: expected at least initial"),
        ("http://127.0.0.1:8088/health", "ftp://x/", "proxy.health_url: expected an http or https URL"),
        (
            "http://127.0.0.1:8088/health",
            "http://me:hunter2@127.0.0.1/",
            "proxy.health_url: expected an http or https URL such as http://127.0.0.1:8088/health; without a user",
        ),
        ("http://127.0.0.1:8088/health", "'http://[/'", "proxy.health_url: expected an http or https URL"),
        ("attempts: 3", "attempts: 0", "proxy.health.attempts: expected a whole number from 1"),
        ("mode: keep_running", "mode: stop", "offline_behavior.mode: expected one of keep_running, shutdown"),
        (
            "registration_token_file: token",
            "registration_token: secret-1",
            "hub.registration_token: expected no secret here; use hub.registration_token_file",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_the_key(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in COMPLETE

    found = problems(tmp_path, COMPLETE.replace(old, new))

    assert any(problem in each for each in found), found
    assert not any("secret-1" in each or "hunter2" in each for each in found)


def test_without_a_file_everything_may_come_from_variables(tmp_path: Path) -> None:
    environ = {
        "SENTINEL_HUB__ADDRESS": "127.0.0.1:9090",
        "SENTINEL_PROXY__CONFIG_PATH": "/etc/proxy.kdl",
        "SENTINEL_PROXY__RELOAD__PID_FILE": "/run/proxy.pid",
    }

    found = settings.load(environ=environ)

    assert found.settings is not None
    assert found.settings.hub.address == "127.0.0.1:9090"
    assert found.settings.instance_name
