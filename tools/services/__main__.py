"""Runs a command with the services it needs on loopback, and stops only what it started.

    python -m tools.services rabbitmq pubsub postgresql -- pytest tests

A service that already runs is used and left running. Otherwise its package is installed or built if it is missing,
and a server is started that keeps its files in a temporary directory. If a service cannot be installed or built,
the command runs without it, unless SENTINEL_REQUIRE_ALL is 1. The exit code is the command's.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import timedelta
from types import FrameType

from tools.services import chromium, kube_apiserver, postgresql, promtool, pubsub, rabbitmq
from tools.services.server import ServiceError, ServiceMissing, log_progress

_SERVICES: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    "rabbitmq": rabbitmq.provide,
    "pubsub": pubsub.provide,
    "chromium": chromium.provide,
    "postgresql": postgresql.provide,
    "promtool": promtool.provide,
    "kube-apiserver": kube_apiserver.provide,
}
_COMMAND_GRACE_PERIOD = timedelta(seconds=20)


class _Interrupted(BaseException):
    """A signal asked us to stop. Raised so that context managers stop what was started."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def main() -> int:
    """Provide the named services, run the command, and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.services",
        description=(__doc__ or "").partition("\n")[0],
        usage="%(prog)s SERVICE... -- COMMAND ARGUMENT...",
    )
    parser.add_argument("services", nargs="+", choices=_SERVICES, metavar="SERVICE", help=", ".join(_SERVICES))
    arguments = sys.argv[1:]
    split = arguments.index("--") if "--" in arguments else len(arguments)
    names = parser.parse_args(arguments[:split]).services
    command = arguments[split + 1 :]
    if not command:
        parser.error("expected a command after --")

    _raise_on_signals()
    try:
        with ExitStack() as running:
            for name in names:
                try:
                    running.enter_context(_SERVICES[name]())
                except ServiceMissing as error:
                    if os.environ.get("SENTINEL_REQUIRE_ALL") == "1":
                        raise
                    log_progress(f"{error}; continuing without it")
            return _run(command)
    except ServiceError as error:
        log_progress(str(error))
        return 1
    except _Interrupted as interruption:
        return 128 + interruption.number


def _raise_on_signals() -> None:
    """Turn the first TERM, INT or HUP into an exception, and ignore later ones so that services stop in order."""
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        raise _Interrupted(number)

    for each in signals:
        signal.signal(each, interrupt)


def _run(command: Sequence[str]) -> int:
    try:
        child = subprocess.Popen(command)
    except OSError as error:
        raise ServiceError(f"cannot run {command[0]}: {error.strerror}") from error
    try:
        code = child.wait()
    except _Interrupted as interruption:
        # A terminal sends SIGINT to the command as well. A second signal would interrupt its shutdown.
        if interruption.number != signal.SIGINT:
            child.terminate()
        for end in (child.terminate, child.kill):
            try:
                child.wait(_COMMAND_GRACE_PERIOD.total_seconds())
                break
            except subprocess.TimeoutExpired:
                end()
        child.wait()
        raise
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main())
