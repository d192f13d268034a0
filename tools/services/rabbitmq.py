"""RabbitMQ on its usual port, and private nodes for tests that stop or kill them."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pamqp.frame
from pamqp import commands, header
from pamqp.base import Frame
from pamqp.exceptions import PAMQPException

from tools.services import debian
from tools.services.server import (
    LOOPBACK,
    PING_TIMEOUT,
    NotListening,
    ServerProcess,
    ServiceError,
    free_port,
    kill_session,
    log_progress,
    run_command,
)

RABBITMQ_PORT = 5672

_DEBIAN_SCRIPTS = Path("/usr/lib/rabbitmq/bin")

Response = TypeVar("Response", bound=Frame)


def ping(port: int) -> None:
    """Open an AMQP connection as guest to the default virtual host, and close it.

    A listening port is not enough: it may belong to another program, or to a node that is still starting.
    Raises `NotListening` if nothing listens, `ServiceError` if something else responds.
    """
    try:
        connection = socket.create_connection((LOOPBACK, port), timeout=PING_TIMEOUT.total_seconds())
    except OSError as error:
        raise NotListening(str(error)) from error
    with connection:
        stream = connection.makefile("rb")

        def call(frame: pamqp.frame.FrameTypes, expected: type[Response]) -> Response:
            connection.sendall(pamqp.frame.marshal(frame, 0))
            start = stream.read(7)
            size = pamqp.frame.frame_parts(start)[2]
            response = pamqp.frame.unmarshal(start + stream.read(size + 1))[2] if size else None
            if not isinstance(response, expected):
                raise ServiceError(f"expected {expected.name}, got {response.name if response else start!r}")
            return response

        try:
            call(header.ProtocolHeader(), commands.Connection.Start)
            tune = call(commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest"), commands.Connection.Tune)
            tune_ok = commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0)
            connection.sendall(pamqp.frame.marshal(tune_ok, 0))
            call(commands.Connection.Open(), commands.Connection.OpenOk)
            call(commands.Connection.Close(200, "", 0, 0), commands.Connection.CloseOk)
        except (OSError, PAMQPException) as error:
            raise ServiceError(f"no AMQP handshake: {error}") from error


@dataclass(frozen=True, kw_only=True)
class TlsFiles:
    """PEM files and the port for TLS connections."""

    authority: Path
    certificate: Path
    key: Path
    port: int


class RabbitMQNode(ServerProcess):
    """A private node: loopback only, without plugins.

    It runs its own port mapper (epmd) on a free port, so it shares nothing with other nodes on the machine.
    """

    name = "RabbitMQ"

    def __init__(self, *, port: int, directory: Path, tls: TlsFiles | None = None) -> None:
        super().__init__(port=port, directory=directory)
        self.tls = tls
        self._mapper_port = free_port()
        self._distribution_port = free_port()
        self._mapper: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the port mapper and the node, and return when the node is ready."""
        if self._mapper is None:
            self._mapper = subprocess.Popen(
                ["epmd", "-address", LOOPBACK, "-port", str(self._mapper_port)],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        super().start()

    def close(self) -> None:
        """Stop the node and its port mapper."""
        super().close()
        mapper, self._mapper = self._mapper, None
        if mapper is not None:
            kill_session(mapper)

    def control(self, *arguments: str) -> str:
        """Run `rabbitmqctl` against this node and return its output."""
        command = [_script("rabbitmqctl"), "--quiet", *arguments]
        return run_command(f"rabbitmqctl {arguments[0]}", command, env=self._environment())

    def _command(self) -> list[str]:
        return [_script("rabbitmq-server")]

    def _is_ready(self) -> bool:
        try:
            ping(self.port)
        except (NotListening, ServiceError):
            return False
        return True

    def _prepare(self) -> None:
        settings = [
            f"listeners.tcp.1 = {LOOPBACK}:{self.port}",
            # Tests must pass on a machine whose disk is nearly full.
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
    # Debian's wrapper in /usr/sbin requires the user rabbitmq. The script that it calls runs as any user.
    found = shutil.which(name, path=str(_DEBIAN_SCRIPTS)) or shutil.which(name)
    if found is None:
        raise ServiceError(f"{name} is not installed")
    return found


@contextmanager
def provide() -> Iterator[None]:
    """Run RabbitMQ on its usual port with its usual guest account, unless it already runs there."""
    try:
        ping(RABBITMQ_PORT)
    except NotListening:
        pass
    except ServiceError as error:
        raise ServiceError(
            f"expected a RabbitMQ that accepts guest on port {RABBITMQ_PORT} ({error}): stop what uses the port"
        ) from error
    else:
        log_progress(f"using the RabbitMQ that answers on port {RABBITMQ_PORT}")
        yield
        return
    try:
        _script("rabbitmq-server")
    except ServiceError:
        debian.install("rabbitmq-server")
    log_progress(f"starting RabbitMQ on port {RABBITMQ_PORT}")
    with (
        tempfile.TemporaryDirectory(prefix="sentinel-rabbitmq-", ignore_cleanup_errors=True) as directory,
        RabbitMQNode(port=RABBITMQ_PORT, directory=Path(directory)),
    ):
        log_progress("RabbitMQ is ready")
        yield
        log_progress("stopping RabbitMQ")
