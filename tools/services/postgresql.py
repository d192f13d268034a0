"""PostgreSQL servers for tests that create databases or kill the server."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tools.services import debian
from tools.services.server import (
    LOOPBACK,
    ServerProcess,
    ServiceError,
    environment_variable,
    free_port,
    log_progress,
    run_command,
)

POSTGRESQL_URL_VARIABLE = "SENTINEL_TEST_POSTGRESQL_URL"


class PostgreSQLServer(ServerProcess):
    """A private server: loopback only, durable as in production because tests kill it.

    PostgreSQL refuses to run as root, so under root it runs as the user postgres.
    """

    name = "PostgreSQL"
    stop_signal = signal.SIGINT  # PostgreSQL's "fast shutdown": disconnects clients
    USER = "sentinel"

    def __init__(self, *, port: int, directory: Path, password: str) -> None:
        super().__init__(port=port, directory=directory)
        self.password = password
        self.url = f"postgresql://{self.USER}:{password}@{LOOPBACK}:{port}/postgres"
        self._data = directory / "data"
        self._binaries = _binaries()

    def _command(self) -> list[str]:
        settings = {
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            "unix_socket_directories": str(self._directory),
            "max_connections": "200",
            # Tests create and drop many databases.
            "max_wal_size": "512MB",
        }
        options = [each for name, value in settings.items() for each in ("-c", f"{name}={value}")]
        return [*_as_unprivileged(), str(self._binaries / "postgres"), "-D", str(self._data), *options]

    def _is_ready(self) -> bool:
        # The server writes its state into the last line of this file.
        with suppress(OSError):
            return (self._data / "postmaster.pid").read_text().rstrip().endswith("ready")
        return False

    def _prepare(self) -> None:
        if (self._data / "PG_VERSION").exists():
            return
        password_file = self._directory / "password"
        password_file.write_text(self.password)
        if os.geteuid() == 0:
            for path in (self._directory, password_file, self._log):
                shutil.chown(path, "postgres")
        command = [str(self._binaries / "initdb"), "-D", str(self._data), "-U", self.USER, "-A", "scram-sha-256"]
        command += [f"--pwfile={password_file}", "-E", "UTF8", "--locale=C.UTF-8"]
        run_command("initdb", [*_as_unprivileged(), *command], cwd=self._directory)


def _binaries() -> Path:
    """The directory of `postgres` and `initdb`: the newest of Debian's versions, or from the path."""
    installed = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if installed:
        return max(installed, key=lambda path: int(path.parent.name) if path.parent.name.isdigit() else 0)
    found = shutil.which("initdb")
    if found is None:
        raise ServiceError("PostgreSQL is not installed")
    return Path(found).resolve().parent


def _as_unprivileged() -> list[str]:
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]


def _install() -> None:
    # By default Debian's package creates a cluster and starts it at every boot.
    file = Path("/etc/postgresql-common/createcluster.conf")
    no_cluster = f"mkdir -p {file.parent} && echo 'create_main_cluster = false' > {file}"
    debian.install("postgresql", before="" if file.exists() else no_cluster)


@contextmanager
def provide() -> Iterator[None]:
    """Run a server and set SENTINEL_TEST_POSTGRESQL_URL to it, unless the variable is already set.

    A server on the usual port is not used: tests must not create databases in it.
    """
    if os.environ.get(POSTGRESQL_URL_VARIABLE):
        log_progress(f"using the PostgreSQL that {POSTGRESQL_URL_VARIABLE} names")
        yield
        return
    try:
        _binaries()
    except ServiceError:
        _install()
    log_progress("starting PostgreSQL")
    with temporary_server() as server:
        log_progress(f"PostgreSQL is ready on port {server.port}")
        with environment_variable(POSTGRESQL_URL_VARIABLE, server.url):
            yield
        log_progress("stopping PostgreSQL")


@contextmanager
def temporary_server() -> Iterator[PostgreSQLServer]:
    """Run an empty server in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="sentinel-postgresql-", ignore_cleanup_errors=True) as directory:
        # mkdtemp allows only its creator in, and the server may run as another user.
        Path(directory).chmod(0o755)
        data = Path(directory) / "server"
        with PostgreSQLServer(port=free_port(), directory=data, password=secrets.token_hex(8)) as server:
            yield server
