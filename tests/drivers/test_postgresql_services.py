"""The PostgreSQL for tests: the configured server, or one that is started and stopped."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.databases import postgresql
from tools.services.postgresql import POSTGRESQL_URL_VARIABLE, PostgreSQLServer
from tools.services.server import LOOPBACK

ROOT = Path(__file__).parents[2]


def run_with_postgresql(script: str, *, url: str = "") -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != POSTGRESQL_URL_VARIABLE}
    return subprocess.run(
        [sys.executable, "-m", "tools.services", "postgresql", "--", "sh", "-c", script],
        cwd=ROOT,
        env=environment | ({POSTGRESQL_URL_VARIABLE: url} if url else {}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_server_is_started_for_the_command_and_stopped_after_it() -> None:
    done = run_with_postgresql(f'echo "${POSTGRESQL_URL_VARIABLE}"; exit 7')

    address = urlsplit(done.stdout.strip())
    assert done.returncode == 7, done.stderr
    assert (address.scheme, address.hostname, bool(address.password)) == ("postgresql", LOOPBACK, True)
    with pytest.raises(OSError), socket.create_connection((LOOPBACK, address.port or 0), timeout=5):
        pass


def test_a_configured_server_is_used() -> None:
    done = run_with_postgresql(f'echo "${POSTGRESQL_URL_VARIABLE}"', url="postgresql://user@host/database")

    assert done.returncode == 0
    assert done.stdout == "postgresql://user@host/database\n"


async def test_a_server_listens_on_loopback_and_syncs_to_disk(private_postgresql: PostgreSQLServer) -> None:
    settings = await postgresql.fetch(
        private_postgresql.url,
        "SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'listen_addresses', 'synchronous_commit')",
    )

    assert dict(settings) == {"fsync": "on", "listen_addresses": LOOPBACK, "synchronous_commit": "on"}
