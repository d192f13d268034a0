"""Runs a command beside the services it needs, on loopback, and ends only what it started.

    python -m tools.services rabbitmq pubsub postgresql -- pytest tests

A service that already answers on its usual port is used as it is and left alone. Otherwise its package is
installed where it is missing, and an instance is started that keeps everything it writes in a temporary
directory. Where a part cannot be installed the command runs without it, unless SENTINEL_REQUIRE_ALL is 1. The
exit code is the command's.

A further service is one more function in `SERVICES`: a context manager that holds while the service answers.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self, TypeVar

import pamqp.frame
from pamqp import commands, header
from pamqp.base import Frame
from pamqp.exceptions import PAMQPException

LOOPBACK = "127.0.0.1"
RABBITMQ_PORT = 5672
EMULATOR = "PUBSUB_EMULATOR_HOST"
POSTGRESQL = "SENTINEL_TEST_POSTGRESQL_URL"

_BOOT = timedelta(seconds=120)
"""How long a node may take to answer: a cold machine with two busy cores needs half a minute."""
_SHUTDOWN = timedelta(seconds=30)
_COMMAND_GRACE = timedelta(seconds=20)
_PROBE = timedelta(seconds=5)
_LOWEST_PORT = 10_000
_DEBIAN_SCRIPTS = Path("/usr/lib/rabbitmq/bin")

Answer = TypeVar("Answer", bound=Frame)


class ServiceError(Exception):
    """A service cannot be provided; the text says why and what to do."""


class ServiceMissing(ServiceError):
    """A service is not on this machine, and is not ours to install."""


class Interrupted(BaseException):
    """A signal asked us to end; what was started is taken down on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def say(text: str) -> None:
    """One line of progress."""
    print(f"services: {text}", file=sys.stderr, flush=True)


# --- RabbitMQ ---------------------------------------------------------------------------------------------------


class NotAnswering(Exception):
    """Nothing accepts connections there."""


def greet(port: int) -> None:
    """Opens an AMQP connection as guest to the default virtual host and closes it again.

    A listening port proves nothing: it may belong to something else, or to a node that is still starting.
    Raises `NotAnswering` where nothing listens, `ServiceError` where something else answers.
    """
    try:
        connection = socket.create_connection((LOOPBACK, port), timeout=_PROBE.total_seconds())
    except OSError as error:
        raise NotAnswering(str(error)) from error
    with connection:
        stream = connection.makefile("rb")

        def ask(frame: pamqp.frame.FrameTypes, expected: type[Answer]) -> Answer:
            connection.sendall(pamqp.frame.marshal(frame, 0))
            start = stream.read(7)
            size = pamqp.frame.frame_parts(start)[2]
            answer = pamqp.frame.unmarshal(start + stream.read(size + 1))[2] if size else None
            if not isinstance(answer, expected):
                raise ServiceError(f"expected {expected.name}, got {answer.name if answer else start!r}")
            return answer

        try:
            ask(header.ProtocolHeader(), commands.Connection.Start)
            tune = ask(commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest"), commands.Connection.Tune)
            agreed = commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0)
            connection.sendall(pamqp.frame.marshal(agreed, 0))
            ask(commands.Connection.Open(), commands.Connection.OpenOk)
            ask(commands.Connection.Close(200, "", 0, 0), commands.Connection.CloseOk)
        except (OSError, PAMQPException) as error:
            raise ServiceError(f"no AMQP handshake: {error}") from error


def free_port() -> int:
    """A port of the loopback interface that nobody uses, and that the system gives to no outgoing connection.

    A service that is stopped and started again must find its port free. One from the range of outgoing
    connections may be gone by then, even to a client that tries to reach it: that client is at last connected
    to itself.
    """
    for _ in range(1000):
        port = _LOWEST_PORT + secrets.randbelow(_first_outgoing_port() - _LOWEST_PORT)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port
    raise ServiceError("no port is free")


def _first_outgoing_port() -> int:
    ports = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(ports.read_text().split()[0]) if ports.exists() else 32768
    # Where the system keeps nothing aside, any port will have to do.
    return first if first > _LOWEST_PORT + 1000 else 65536


@dataclass(frozen=True, kw_only=True)
class TlsFiles:
    """What a node needs to serve TLS: PEM files."""

    authority: Path
    certificate: Path
    key: Path
    port: int


class RabbitMQNode:
    """A RabbitMQ node of our own: loopback only, no plugins, everything it writes inside `directory`.

    It brings its own port mapper (epmd), in the foreground on a free port, so that neither a node nor an epmd
    that others run is ever involved, and ending ours ends nothing of theirs. It can be stopped or killed and
    started again on the same data.
    """

    def __init__(self, *, port: int, directory: Path, tls: TlsFiles | None = None) -> None:
        self.port = port
        self.tls = tls
        self._directory = directory
        self._mapper_port = free_port()
        self._distribution_port = free_port()
        self._mapper: subprocess.Popen[bytes] | None = None
        self._node: subprocess.Popen[bytes] | None = None
        self._log = directory / "node.log"

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._write_configuration()
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Starts the node and returns when it answers."""
        environment = self._environment()
        if self._mapper is None:
            self._mapper = subprocess.Popen(
                ["epmd", "-address", LOOPBACK, "-port", str(self._mapper_port)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        with self._log.open("ab") as log:
            # A session of its own: a Ctrl-C is for the command, which may still need the node to end well.
            self._node = subprocess.Popen(
                [_script("rabbitmq-server")],
                env=environment,
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait_until_it_answers(self._node)

    def stop(self) -> None:
        """Ends the node in order; harmless when it does not run."""
        node, self._node = self._node, None
        if node is None:
            return
        node.terminate()
        try:
            node.wait(_SHUTDOWN.total_seconds())
        except subprocess.TimeoutExpired:
            say(f"RabbitMQ on port {self.port} does not stop, killing it")
        _kill_session(node)

    def kill(self) -> None:
        """Ends the node as a power cut would."""
        node, self._node = self._node, None
        if node is not None:
            _kill_session(node)

    def close(self) -> None:
        """Ends the node and its port mapper."""
        self.stop()
        mapper, self._mapper = self._mapper, None
        if mapper is not None:
            _kill_session(mapper)

    def control(self, *arguments: str) -> str:
        """Runs `rabbitmqctl` against this node and returns what it printed."""
        done = subprocess.run(
            [_script("rabbitmqctl"), "--quiet", *arguments],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_BOOT.total_seconds(),
            check=False,
        )
        if done.returncode != 0:
            raise ServiceError(f"rabbitmqctl {arguments[0]}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def _wait_until_it_answers(self, node: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + _BOOT.total_seconds()
        while time.monotonic() < end:
            if node.poll() is not None:
                raise ServiceError(f"RabbitMQ ended while starting:\n{self._tail()}")
            with suppress(NotAnswering, ServiceError):
                greet(self.port)
                return
            time.sleep(0.1)
        raise ServiceError(f"RabbitMQ does not answer on port {self.port} after {_BOOT}:\n{self._tail()}")

    def _tail(self) -> str:
        written = self._log.read_text(errors="replace") if self._log.exists() else ""
        return "\n".join(written.splitlines()[-25:])

    def _write_configuration(self) -> None:
        settings = [
            f"listeners.tcp.1 = {LOOPBACK}:{self.port}",
            # A nearly full disk of the machine is not what the tests are about.
            "disk_free_limit.absolute = 1MB",
        ]
        if self.tls is not None:
            settings += [
                f"listeners.ssl.1 = {LOOPBACK}:{self.tls.port}",
                f"ssl_options.cacertfile = {self.tls.authority}",
                f"ssl_options.certfile = {self.tls.certificate}",
                f"ssl_options.keyfile = {self.tls.key}",
                "ssl_options.verify = verify_none",
            ]
        (self._directory / "rabbitmq.conf").write_text("\n".join(settings) + "\n")
        (self._directory / "enabled_plugins").write_text("[].\n")
        cookie = self._directory / ".erlang.cookie"
        if not cookie.exists():
            cookie.touch(mode=0o600)
            cookie.write_text(secrets.token_hex(16))
            cookie.chmod(0o400)

    def _environment(self) -> dict[str, str]:
        directory = str(self._directory)
        loopback_only = "-kernel inet_dist_use_interface {127,0,0,1}"
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_"))
        }
        return inherited | {
            "HOME": directory,
            "LC_ALL": "C.UTF-8",
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "ERL_EPMD_PORT": str(self._mapper_port),
            "RABBITMQ_NODENAME": f"sentinel-{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": loopback_only,
            "RABBITMQ_CTL_ERL_ARGS": loopback_only,
            "RABBITMQ_CONF_ENV_FILE": f"{directory}/no-environment-file",
            "RABBITMQ_CONFIG_FILE": f"{directory}/rabbitmq.conf",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{directory}/no-advanced-configuration",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{directory}/enabled_plugins",
            "RABBITMQ_MNESIA_BASE": f"{directory}/mnesia",
            "RABBITMQ_LOG_BASE": f"{directory}/log",
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": f"{directory}/node.pid",
        }


def _script(name: str) -> str:
    # Debian's wrapper in /usr/sbin insists on the user rabbitmq; the script behind it runs as anybody.
    found = shutil.which(name, path=str(_DEBIAN_SCRIPTS)) or shutil.which(name)
    if found is None:
        raise ServiceError(f"{name} is not installed")
    return found


def _kill_session(leader: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    leader.wait()


def _install(package: str, *, before: str = "") -> None:
    """Installs a Debian package without letting it start a service of its own, after a shell command."""
    if shutil.which("apt-get") is None:
        raise ServiceError(f"{package} is not installed, and this is not Debian: install it and try again")
    # Whatever policy the machine has stays; ours is there only for the moment of the installation.
    script = f"""
        set -e
        policy=/usr/sbin/policy-rc.d
        if [ ! -e "$policy" ]; then
            trap 'rm -f "$policy"' EXIT
            printf '#!/bin/sh\\nexit 101\\n' > "$policy"
            chmod 755 "$policy"
        fi
        {before or ":"}
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq || echo "the package lists could not be updated" >&2
        apt-get install -qq -y --no-install-recommends -o DPkg::Lock::Timeout=300 {package}
    """
    command = ["sh", "-c", script]
    if os.geteuid() != 0:
        if shutil.which("sudo") is None:
            raise ServiceError(f"{package} is not installed: install it, or run as root or with sudo available")
        command = ["sudo", *command]
    say(f"installing {package}")
    # The command's standard output is its own; a package manager's chatter does not belong there.
    if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode != 0:
        raise ServiceError(f"{package} could not be installed")


@contextmanager
def rabbitmq() -> Iterator[None]:
    """RabbitMQ on its usual port, with its usual guest account."""
    try:
        greet(RABBITMQ_PORT)
    except NotAnswering:
        pass
    except ServiceError as error:
        raise ServiceError(
            f"port {RABBITMQ_PORT} is taken, but not by a RabbitMQ that lets guest in ({error}): end what uses it"
        ) from error
    else:
        say(f"using the RabbitMQ that answers on port {RABBITMQ_PORT}")
        yield
        return
    try:
        _script("rabbitmq-server")
    except ServiceError:
        _install("rabbitmq-server")
    say(f"starting RabbitMQ on port {RABBITMQ_PORT}")
    with (
        tempfile.TemporaryDirectory(prefix="sentinel-rabbitmq-", ignore_cleanup_errors=True) as directory,
        RabbitMQNode(port=RABBITMQ_PORT, directory=Path(directory)),
    ):
        say("RabbitMQ answers")
        yield
        say("stopping RabbitMQ")


# --- Pub/Sub ----------------------------------------------------------------------------------------------------


def greet_pubsub(host: str) -> None:
    """Asks a Pub/Sub emulator for its topics.

    Raises `NotAnswering` where nothing listens yet, `ServiceError` where something else answers.
    """
    # Heavy, and needed only by those who ask for Pub/Sub.
    import grpc  # type: ignore[import-untyped]  # it ships no types
    from google.api_core import exceptions
    from google.pubsub_v1.services.publisher import PublisherClient
    from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport

    with grpc.insecure_channel(host, options=[("grpc.enable_http_proxy", 0)]) as channel:
        client = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        try:
            client.list_topics(project="projects/greeting", retry=None, timeout=_PROBE.total_seconds())
        except (exceptions.ServiceUnavailable, exceptions.DeadlineExceeded) as error:
            raise NotAnswering(str(error)) from error
        except exceptions.GoogleAPICallError as error:
            raise ServiceError(f"no answer that Pub/Sub would give: {error}") from error


class PubSubEmulator:
    """Google's Pub/Sub emulator: loopback only, everything in memory, so that a start is a start from nothing.

    Run by Java itself: gcloud would add seconds, and a process in between.
    """

    def __init__(self, *, port: int, directory: Path) -> None:
        self.host = f"{LOOPBACK}:{port}"
        self._port = port
        self._command = _emulator_command(port)
        self._log = directory / "emulator.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Starts the emulator and returns when it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        end = time.monotonic() + _BOOT.total_seconds()
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise ServiceError(f"the Pub/Sub emulator ended while starting:\n{self._tail()}")
            with suppress(NotAnswering):
                greet_pubsub(self.host)
                return
            time.sleep(0.1)
        raise ServiceError(f"the Pub/Sub emulator does not answer after {_BOOT}:\n{self._tail()}")

    def kill(self) -> None:
        """Ends the emulator, and with it all it knows; harmless when it does not run."""
        process, self._process = self._process, None
        if process is not None:
            _kill_session(process)

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-25:])


def _emulator_command(port: int) -> list[str]:
    """How to run the emulator of the Google Cloud CLI that is installed; raises `ServiceMissing`."""
    gcloud = shutil.which("gcloud")
    if gcloud is None:
        raise ServiceMissing(f"no Pub/Sub emulator: install the Google Cloud CLI, or set {EMULATOR}")
    jars = _emulator_jars(Path(gcloud).resolve().parent.parent) or _emulator_jars(_sdk_root(gcloud))
    if not jars:
        raise ServiceMissing(
            "no Pub/Sub emulator: add the component pubsub-emulator to the Google Cloud CLI, "
            f"or the package google-cloud-cli-pubsub-emulator, or set {EMULATOR}"
        )
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        raise ServiceMissing(f"no Pub/Sub emulator: it needs Java; install it, or set {EMULATOR}")
    return [java, "-Xmx1g", "-jar", str(jars[-1]), f"--host={LOOPBACK}", f"--port={port}"]


def _emulator_jars(root: Path) -> list[Path]:
    return sorted(root.glob("platform/pubsub-emulator/lib/*emulator*.jar"))


def _sdk_root(gcloud: str) -> Path:
    # For installations whose command is a wrapper that stands somewhere else.
    asked = [gcloud, "info", "--format=value(installation.sdk_root)"]
    done = subprocess.run(
        asked, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_BOOT.total_seconds(), check=False
    )
    return Path(done.stdout.strip() or "/nonexistent")


@contextmanager
def pubsub() -> Iterator[None]:
    """A Pub/Sub emulator, which the command finds by PUBSUB_EMULATOR_HOST."""
    given = os.environ.get(EMULATOR)
    if given:
        try:
            greet_pubsub(given)
        except (NotAnswering, ServiceError) as error:
            raise ServiceError(f"{EMULATOR} is {given}, but no emulator answers there: {error}") from error
        say(f"using the Pub/Sub emulator at {given}")
        yield
        return
    with tempfile.TemporaryDirectory(prefix="sentinel-pubsub-", ignore_cleanup_errors=True) as directory:
        emulator = PubSubEmulator(port=free_port(), directory=Path(directory))
        say(f"starting the Pub/Sub emulator at {emulator.host}")
        with emulator:
            say("the Pub/Sub emulator answers")
            os.environ[EMULATOR] = emulator.host
            try:
                yield
            finally:
                del os.environ[EMULATOR]
                say("stopping the Pub/Sub emulator")


# --- PostgreSQL -------------------------------------------------------------------------------------------------


class PostgreSQLServer:
    """A PostgreSQL server of our own: loopback only, everything it writes inside `directory`.

    It runs as an unprivileged user, as PostgreSQL insists, and waits for the disk as in production, because tests
    kill it. It can be stopped or killed and started again on the same data.
    """

    USER = "sentinel"

    def __init__(self, *, port: int, directory: Path, password: str) -> None:
        self.port = port
        self.password = password
        self.url = f"postgresql://{self.USER}:{password}@{LOOPBACK}:{port}/postgres"
        self._directory = directory
        self._data = directory / "data"
        self._log = directory / "server.log"
        self._binaries = _postgresql_binaries()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._log.touch()
        try:
            self._initialise()
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the server and returns when it takes connections."""
        settings = {
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            "unix_socket_directories": str(self._directory),
            "max_connections": "200",
            # Tests make and drop databases by the dozen.
            "max_wal_size": "512MB",
        }
        options = [each for name, value in settings.items() for each in ("-c", f"{name}={value}")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*_as_unprivileged(), str(self._binaries / "postgres"), "-D", str(self._data), *options],
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end = time.monotonic() + _BOOT.total_seconds()
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise ServiceError(f"PostgreSQL ended while starting:\n{self._tail()}")
            if self._is_ready():
                return
            time.sleep(0.05)
        raise ServiceError(f"PostgreSQL does not answer on port {self.port} after {_BOOT}:\n{self._tail()}")

    def stop(self) -> None:
        """Ends the server in order, and whoever is connected with it; harmless when it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGINT)  # PostgreSQL's own fast shutdown
        try:
            process.wait(_SHUTDOWN.total_seconds())
        except subprocess.TimeoutExpired:
            say(f"PostgreSQL on port {self.port} does not stop, killing it")
        _kill_session(process)

    def kill(self) -> None:
        """Ends the server as a power cut would."""
        process, self._process = self._process, None
        if process is not None:
            _kill_session(process)

    def _initialise(self) -> None:
        if (self._data / "PG_VERSION").exists():
            return
        secret = self._directory / "password"
        secret.write_text(self.password)
        if os.geteuid() == 0:
            for path in (self._directory, secret, self._log):
                shutil.chown(path, "postgres")
        command = [str(self._binaries / "initdb"), "-D", str(self._data), "-U", self.USER, "-A", "scram-sha-256"]
        done = subprocess.run(
            [*_as_unprivileged(), *command, f"--pwfile={secret}", "-E", "UTF8", "--locale=C.UTF-8"],
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_BOOT.total_seconds(),
            check=False,
        )
        if done.returncode != 0:
            raise ServiceError(f"initdb: {(done.stderr or done.stdout).strip()}")

    def _is_ready(self) -> bool:
        # The server writes its state into the last line of this file.
        with suppress(OSError):
            return (self._data / "postmaster.pid").read_text().rstrip().endswith("ready")
        return False

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-25:])


def _postgresql_binaries() -> Path:
    """Where `postgres` and `initdb` are: the newest of Debian's, which stand beside each other, or on the path."""
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


def _install_postgresql() -> None:
    # Debian's package would make a cluster of its own and start it at every boot; nobody asked for one.
    keep_quiet = "mkdir -p /etc/postgresql-common && echo 'create_main_cluster = false' > {file}"
    file = Path("/etc/postgresql-common/createcluster.conf")
    _install("postgresql", before="" if file.exists() else keep_quiet.format(file=file))


@contextmanager
def postgresql() -> Iterator[None]:
    """A PostgreSQL server, which the command finds by SENTINEL_TEST_POSTGRESQL_URL.

    One that answers on the usual port is nobody's to make databases in, so it is left alone.
    """
    if os.environ.get(POSTGRESQL):
        say(f"using the PostgreSQL that {POSTGRESQL} names")
        yield
        return
    try:
        _postgresql_binaries()
    except ServiceError:
        _install_postgresql()
    say("starting PostgreSQL")
    with postgresql_server() as server:
        say(f"PostgreSQL answers on port {server.port}")
        os.environ[POSTGRESQL] = server.url
        try:
            yield
        finally:
            del os.environ[POSTGRESQL]
            say("stopping PostgreSQL")


@contextmanager
def postgresql_server() -> Iterator[PostgreSQLServer]:
    """A server with nothing in it, in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="sentinel-postgresql-", ignore_cleanup_errors=True) as directory:
        # Such a directory is its maker's alone, and the server is somebody else.
        Path(directory).chmod(0o755)
        place = Path(directory) / "server"
        with PostgreSQLServer(port=free_port(), directory=place, password=secrets.token_hex(8)) as server:
            yield server


# --- chromium ---------------------------------------------------------------------------------------------------


@contextmanager
def chromium() -> Iterator[None]:
    """A browser on the path; installed, and not started: each test starts its own."""
    if shutil.which("chromium") is None:
        _install("chromium")
    yield


# --- the command ------------------------------------------------------------------------------------------------

SERVICES: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    "rabbitmq": rabbitmq,
    "pubsub": pubsub,
    "chromium": chromium,
    "postgresql": postgresql,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Provides the services named, runs the command, and returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.services",
        description=(__doc__ or "").partition("\n")[0],
        usage="%(prog)s SERVICE... -- COMMAND ARGUMENT...",
    )
    parser.add_argument("services", nargs="+", choices=SERVICES, metavar="SERVICE", help=", ".join(SERVICES))
    given = list(sys.argv[1:] if arguments is None else arguments)
    split = given.index("--") if "--" in given else len(given)
    names = parser.parse_args(given[:split]).services
    command = given[split + 1 :]
    if not command:
        parser.error("expected a command after --")

    _raise_on_signals()
    try:
        with ExitStack() as running:
            for name in names:
                try:
                    running.enter_context(SERVICES[name]())
                except ServiceMissing as error:
                    if os.environ.get("SENTINEL_REQUIRE_ALL") == "1":
                        raise
                    say(f"{error}; going on without it")
            return _run(command)
    except ServiceError as error:
        say(str(error))
        return 1
    except Interrupted as interruption:
        return 128 + interruption.number


def _raise_on_signals() -> None:
    """Turns the first TERM, INT or HUP into an exception; later ones must not disturb the taking down."""
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(number)

    for each in signals:
        signal.signal(each, interrupt)


def _run(command: Sequence[str]) -> int:
    try:
        child = subprocess.Popen(command)
    except OSError as error:
        raise ServiceError(f"cannot run {command[0]}: {error.strerror}") from error
    try:
        code = child.wait()
    except Interrupted as interruption:
        # A terminal has sent the interrupt to the command as well; a second one would cut its own ending short.
        if interruption.number != signal.SIGINT:
            child.terminate()
        for end in (child.terminate, child.kill):
            try:
                child.wait(_COMMAND_GRACE.total_seconds())
                break
            except subprocess.TimeoutExpired:
                end()
        child.wait()
        raise
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main())
