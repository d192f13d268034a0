"""Runs the commands that an operator has configured for the proxy, each for a bounded time."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import IO, Final

import msgspec

from sentinel.ports.proxy_control import ProxyFailure
from sentinel.runtime import durations

MAX_OUTPUT: Final = 8 * 1024
"""What is kept of a command's output, from its beginning."""
_WITHHELD: Final = frozenset(("SENTINEL_REGISTRATION_TOKEN", "VAULT_TOKEN"))
"""Variables that are the agent's alone."""
_OWN_COMMAND: Final = "sentinel"


class Finished(msgspec.Struct, frozen=True):
    """How a command has ended."""

    code: int
    output: str


async def run(words: Sequence[str], *, timeout: timedelta, environ: Mapping[str, str]) -> Finished:
    """Run a command to its end. Raises `ProxyFailure` if it cannot be started, or takes too long.

    Its output goes to a file that is deleted already, not to a pipe: a restart may leave a daemon behind that
    writes on, and it must neither block nor die of that.
    """
    shown = " ".join(words)
    with _output() as output:
        try:
            process = await asyncio.create_subprocess_exec(
                _program(words[0], environ.get("PATH")),
                *words[1:],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={name: value for name, value in environ.items() if name not in _WITHHELD},
                start_new_session=True,
            )
        except OSError as error:
            raise ProxyFailure(f"{shown}: cannot be run: {_reason(error)}") from error
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                code = await process.wait()
        except TimeoutError:
            raise ProxyFailure(f"{shown}: took longer than {durations.render(timeout)}", _text(output)) from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        return Finished(code, _text(output))


def _program(name: str, search_path: str | None) -> str:
    """Return the program to run. Our own command is found beside this interpreter, too."""
    own = Path(sys.executable).with_name(_OWN_COMMAND)
    is_missing = name == _OWN_COMMAND and shutil.which(name, path=search_path) is None
    return str(own) if is_missing and own.exists() else name


def _output() -> IO[bytes]:
    try:
        return tempfile.TemporaryFile()
    except OSError:  # the disk is full; the exit code says enough
        return Path(os.devnull).open("w+b")


def _text(output: IO[bytes]) -> str:
    output.seek(0)
    return output.read(MAX_OUTPUT).decode(errors="replace").strip()


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
