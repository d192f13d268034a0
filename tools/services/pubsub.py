"""Google's Pub/Sub emulator."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.services.server import (
    LOOPBACK,
    PING_TIMEOUT,
    NotListening,
    ServerProcess,
    ServiceError,
    ServiceMissing,
    environment_variable,
    free_port,
    log_progress,
    run_command,
)

EMULATOR_VARIABLE = "PUBSUB_EMULATOR_HOST"


def ping(host: str) -> None:
    """List an emulator's topics.

    Raises `NotListening` if nothing listens yet, `ServiceError` if something else responds.
    """
    # Heavy: only commands that need Pub/Sub load it.
    import grpc
    from google.api_core import exceptions
    from google.pubsub_v1.services.publisher import PublisherClient
    from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport

    with grpc.insecure_channel(host, options=[("grpc.enable_http_proxy", 0)]) as channel:
        client = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        try:
            client.list_topics(project="projects/ping", retry=None, timeout=PING_TIMEOUT.total_seconds())
        except (exceptions.ServiceUnavailable, exceptions.DeadlineExceeded) as error:
            raise NotListening(str(error)) from error
        except exceptions.GoogleAPICallError as error:
            raise ServiceError(f"expected a Pub/Sub server, got {error}") from error


class PubSubEmulator(ServerProcess):
    """The emulator: loopback only, everything in memory, so every start begins empty.

    It is run by Java directly. gcloud would add seconds and one more process.
    """

    name = "the Pub/Sub emulator"

    def __init__(self, *, port: int, directory: Path) -> None:
        super().__init__(port=port, directory=directory)
        self.host = f"{LOOPBACK}:{port}"
        self._java_command = _emulator_command(port)

    def close(self) -> None:
        """Kill the emulator: it has nothing to save."""
        self.kill()

    def _command(self) -> list[str]:
        return self._java_command

    def _is_ready(self) -> bool:
        try:
            ping(self.host)
        except NotListening:
            return False
        return True


def _emulator_command(port: int) -> list[str]:
    """The command for the emulator of the installed Google Cloud CLI. Raises `ServiceMissing`."""
    gcloud = shutil.which("gcloud")
    if gcloud is None:
        raise ServiceMissing(f"no Pub/Sub emulator: install the Google Cloud CLI, or set {EMULATOR_VARIABLE}")
    jars = _emulator_jars(Path(gcloud).resolve().parent.parent) or _emulator_jars(_sdk_root(gcloud))
    if not jars:
        raise ServiceMissing(
            "no Pub/Sub emulator: add the component pubsub-emulator to the Google Cloud CLI, "
            f"or the package google-cloud-cli-pubsub-emulator, or set {EMULATOR_VARIABLE}"
        )
    java_home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{java_home}/bin") if java_home else shutil.which("java")
    if java is None:
        raise ServiceMissing(f"no Pub/Sub emulator: it needs Java; install it, or set {EMULATOR_VARIABLE}")
    return [java, "-Xmx1g", "-jar", str(jars[-1]), f"--host={LOOPBACK}", f"--port={port}"]


def _emulator_jars(root: Path) -> list[Path]:
    return sorted(root.glob("platform/pubsub-emulator/lib/*emulator*.jar"))


def _sdk_root(gcloud: str) -> Path:
    # In some installations the command on the path is a wrapper outside the SDK.
    try:
        root = run_command("gcloud info", [gcloud, "info", "--format=value(installation.sdk_root)"]).strip()
    except ServiceError:
        root = ""
    return Path(root or "/nonexistent")


@contextmanager
def provide() -> Iterator[None]:
    """Run an emulator and set PUBSUB_EMULATOR_HOST to it, unless the variable is already set."""
    given = os.environ.get(EMULATOR_VARIABLE)
    if given:
        try:
            ping(given)
        except (NotListening, ServiceError) as error:
            raise ServiceError(
                f"{EMULATOR_VARIABLE} is {given}, but no emulator answers there: {error}"
            ) from error
        log_progress(f"using the Pub/Sub emulator at {given}")
        yield
        return
    with tempfile.TemporaryDirectory(prefix="sentinel-pubsub-", ignore_cleanup_errors=True) as directory:
        emulator = PubSubEmulator(port=free_port(), directory=Path(directory))
        log_progress(f"starting the Pub/Sub emulator at {emulator.host}")
        with emulator:
            log_progress("the Pub/Sub emulator is ready")
            with environment_variable(EMULATOR_VARIABLE, emulator.host):
                yield
            log_progress("stopping the Pub/Sub emulator")
