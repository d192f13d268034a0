"""The Pub/Sub emulator for tests: started, found, or missing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.brokers.pubsub import emulator_host
from tests.support.missing_service import skip_or_fail
from tests.support.service_command import run_with_service
from tools.services import pubsub
from tools.services.pubsub import EMULATOR_VARIABLE, PubSubEmulator
from tools.services.server import LOOPBACK, NotListening, ServiceMissing, free_port

PRINT_HOST = f"import os; print(os.environ.get('{EMULATOR_VARIABLE}', 'none'))"


def run_with_pubsub(**environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command that prints its emulator host."""
    unset = (EMULATOR_VARIABLE, "SENTINEL_REQUIRE_ALL")
    return run_with_service("pubsub", PRINT_HOST, unset=unset, **environment)


def test_an_emulator_is_started_for_the_command_and_stopped_after_it(tmp_path: Path) -> None:
    try:
        PubSubEmulator(port=free_port(), directory=tmp_path)
    except ServiceMissing as missing:
        skip_or_fail(str(missing))

    done = run_with_pubsub()

    host = done.stdout.strip()
    assert done.returncode == 0
    assert host.startswith(f"{LOOPBACK}:")
    with pytest.raises(NotListening):
        pubsub.ping(host)


def test_a_running_emulator_is_used_and_not_stopped() -> None:
    host = emulator_host()

    done = run_with_pubsub(**{EMULATOR_VARIABLE: host})

    assert done.stdout.strip() == host
    assert done.stderr == f"services: using the Pub/Sub emulator at {host}\n"
    pubsub.ping(host)


def test_a_configured_emulator_that_does_not_answer_is_a_failure() -> None:
    done = run_with_pubsub(**{EMULATOR_VARIABLE: f"{LOOPBACK}:{free_port()}"})

    assert done.returncode == 1
    assert "no emulator answers there" in done.stderr


def test_the_command_runs_without_a_missing_emulator() -> None:
    done = run_with_pubsub(PATH="")

    assert done.returncode == 0
    assert done.stdout == "none\n"
    assert done.stderr.count("\n") == 1
    assert "no Pub/Sub emulator" in done.stderr


def test_a_missing_emulator_is_a_failure_if_all_are_required() -> None:
    done = run_with_pubsub(PATH="", SENTINEL_REQUIRE_ALL="1")

    assert done.returncode == 1
    assert done.stdout == ""
    assert "no Pub/Sub emulator" in done.stderr
