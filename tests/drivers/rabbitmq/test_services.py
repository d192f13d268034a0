"""The RabbitMQ for tests: recognized by its greeting, and not stopped if it ran before."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tools.services import rabbitmq
from tools.services.server import LOOPBACK, NotListening, ServiceError, free_port

ROOT = Path(__file__).parents[3]


@contextmanager
def server_that_sends(data: bytes) -> Iterator[int]:
    """Serve one connection: send the data and hang up. Yields the port."""
    with socket.create_server((LOOPBACK, 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join(timeout=10)


def run_with_rabbitmq(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tools.services", "rabbitmq", "--", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_port_without_a_listener_does_not_answer() -> None:
    with pytest.raises(NotListening):
        rabbitmq.ping(free_port())


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"AMQP\x00\x00\x09\x01"])
def test_another_server_is_not_taken_for_rabbitmq(greeting: bytes) -> None:
    with server_that_sends(greeting) as port, pytest.raises(ServiceError):
        rabbitmq.ping(port)


@pytest.mark.usefixtures("rabbitmq_url")
@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -9 $$", 137)])
def test_the_exit_code_is_that_of_the_command(script: str, code: int) -> None:
    done = run_with_rabbitmq("sh", "-c", script)

    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr == "services: using the RabbitMQ that answers on port 5672\n"


@pytest.mark.usefixtures("rabbitmq_url")
def test_a_command_that_does_not_exist_is_named() -> None:
    done = run_with_rabbitmq("no-such-command")

    assert done.returncode == 1
    assert "cannot run no-such-command: No such file or directory" in done.stderr
