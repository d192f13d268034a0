"""The Pub/Sub emulator that tests run on: started, found or done without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.brokers.pubsub import emulator_host, go_without
from tools.services import pubsub
from tools.services.pubsub import EMULATOR_VARIABLE, PubSubEmulator
from tools.services.server import LOOPBACK, NotListening, ServiceMissing, free_port

ROOT = Path(__file__).parents[3]
PRINT_HOST = f"import os; print(os.environ.get('{EMULATOR_VARIABLE}', 'none'))"


def run_with_pubsub(**environment: str) -> subprocess.CompletedProcess[str]:
    """Prints which emulator a command is given."""
    overridden = (EMULATOR_VARIABLE, "SENTINEL_REQUIRE_ALL")
    inherited = {name: value for name, value in os.environ.items() if name not in overridden}
    return subprocess.run(
        [sys.executable, "-m", "tools.services", "pubsub", "--", sys.executable, "-c", PRINT_HOST],
        cwd=ROOT,
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_an_emulator_is_started_for_the_command_and_ended_after_it(tmp_path: Path) -> None:
    try:
        PubSubEmulator(port=free_port(), directory=tmp_path)
    except ServiceMissing as missing:
        go_without(str(missing))

    done = run_with_pubsub()

    host = done.stdout.strip()
    assert done.returncode == 0
    assert host.startswith(f"{LOOPBACK}:")
    with pytest.raises(NotListening):
        pubsub.ping(host)


def test_an_emulator_that_answers_is_used_and_left_alone() -> None:
    host = emulator_host()

    done = run_with_pubsub(**{EMULATOR_VARIABLE: host})

    assert done.stdout.strip() == host
    assert done.stderr == f"services: using the Pub/Sub emulator at {host}\n"
    pubsub.ping(host)


def test_an_emulator_that_was_named_and_does_not_answer_is_a_failure() -> None:
    done = run_with_pubsub(**{EMULATOR_VARIABLE: f"{LOOPBACK}:{free_port()}"})

    assert done.returncode == 1
    assert "no emulator answers there" in done.stderr


def test_where_there_is_no_emulator_the_command_runs_without_it() -> None:
    done = run_with_pubsub(PATH="")

    assert done.returncode == 0
    assert done.stdout == "none\n"
    assert done.stderr.count("\n") == 1
    assert "no Pub/Sub emulator" in done.stderr


def test_where_every_part_is_required_a_missing_emulator_is_a_failure() -> None:
    done = run_with_pubsub(PATH="", SENTINEL_REQUIRE_ALL="1")

    assert done.returncode == 1
    assert done.stdout == ""
    assert "no Pub/Sub emulator" in done.stderr
