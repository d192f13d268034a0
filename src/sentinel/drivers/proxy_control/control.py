"""Controls a proxy by the commands, the pid file and the health URL that an operator has configured."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

from sentinel.drivers.proxy_control import commands
from sentinel.drivers.proxy_control.config_file import ConfigPath
from sentinel.drivers.proxy_control.pid_file import PidFile, is_zombie
from sentinel.drivers.rest.client import RestClient
from sentinel.drivers.rest.errors import RequestRejected, ServerError
from sentinel.ports.errors import Misconfigured
from sentinel.ports.proxy_control import ConfigFile, ProxyFailure
from sentinel.runtime import durations
from sentinel.runtime.blocking import run_in_thread

TEST_TIMEOUT: Final = timedelta(minutes=1)
RELOAD_TIMEOUT: Final = timedelta(minutes=1)
RESTART_TIMEOUT: Final = timedelta(minutes=2)
"""Longer than the proxy's own graceful shutdown."""
CANDIDATE: Final = "{config}"
_STOP_INTERVAL: Final = timedelta(milliseconds=100)
_HEALTH_LIMIT: Final = 1024 * 1024
_MAX_LINE: Final = 500

T = TypeVar("T")


class LocalProxy:
    """Implements `ports.proxy_control.ProxyControl` for a proxy on this machine."""

    def __init__(
        self,
        *,
        config_path: Path,
        test_command: Sequence[str] = (),
        pid_file: Path | None = None,
        reload_command: Sequence[str] = (),
        restart_command: Sequence[str] = (),
        stop_command: Sequence[str] = (),
        health_url: str | None = None,
        health_timeout: timedelta = timedelta(seconds=2),
        environ: Mapping[str, str],
        user_agent: str = "sentinel-agent",
    ) -> None:
        """Commands get `environ`. Raises `Misconfigured` for an invalid URL."""
        self._file = ConfigPath(config_path)
        self._pid_file = None if pid_file is None else PidFile(pid_file)
        self._test_command = test_command
        self._reload_command = reload_command
        self._restart_command = restart_command
        self._stop_command = stop_command
        self._health_timeout = health_timeout
        self._environ = environ
        self._health: RestClient | None = None
        self._health_path = ""
        if health_url is not None:
            parts = urlsplit(health_url)
            self._health_path = urlunsplit(("", "", parts.path or "/", parts.query, ""))
            self._health = RestClient(
                base_url=urlunsplit((parts.scheme, parts.netloc, "", "", "")), user_agent=user_agent, connections=1
            )

    @property
    def path(self) -> str:
        return str(self._file.path)

    @property
    def can_restart(self) -> bool:
        return bool(self._restart_command)

    async def close(self) -> None:
        """Close the connection for health checks."""
        if self._health is not None:
            await self._health.close()

    async def read(self) -> ConfigFile:
        return await _in_thread(self._file.read)

    async def test(self, text: str) -> None:
        if not self._test_command:
            return
        with self._file.candidate_file(text) as candidate:
            words = [word.replace(CANDIDATE, str(candidate)) for word in self._test_command]
            finished = await self._run(words, TEST_TIMEOUT)
            if finished.code:
                said = finished.output.replace(str(candidate), self.path)
                reason = _first_line(said) or f"{words[0]} exits with {finished.code}"
                raise ProxyFailure(f"the proxy does not accept it: {reason}", said)

    async def write(self, text: str) -> None:
        await _in_thread(lambda: self._file.write(text))

    async def read_copy(self) -> str | None:
        return await _in_thread(self._file.read_copy)

    async def restore(self, text: str | None) -> None:
        await _in_thread(lambda: self._file.restore(text))

    async def reload(self) -> None:
        if self._reload_command:
            await self._require(self._reload_command, RELOAD_TIMEOUT)
        elif self._pid_file is not None:
            self._pid_file.send(signal.SIGHUP)

    async def restart(self) -> None:
        await self._require(self._restart_command, RESTART_TIMEOUT)

    async def check_health(self) -> None:
        if self._pid_file is not None:
            pid = self._pid_file.process_id()
            if is_zombie(pid):
                raise ProxyFailure(f"the proxy does not run: process {pid} has ended")
        if self._health is None:
            return
        try:
            await self._health.request("GET", self._health_path, timeout=self._health_timeout, limit=_HEALTH_LIMIT)
        except RequestRejected as error:
            raise ProxyFailure(f"{self._shown_health}: responded {error.response.status}") from error
        except (ServerError, Misconfigured) as error:
            raise ProxyFailure(str(error)) from error

    async def process_id(self) -> int | None:
        if self._pid_file is None:
            return None
        try:
            return self._pid_file.process_id()
        except ProxyFailure:
            return None

    async def stop(self, timeout: timedelta) -> None:
        if self._stop_command:
            await self._require(self._stop_command, timeout)
            return
        if self._pid_file is None:
            raise ProxyFailure("the proxy cannot be stopped: there is no stop_command, and no pid_file")
        if await self.process_id() is None:
            return
        pid = self._pid_file.send(signal.SIGTERM)
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                while await self.process_id() == pid and not is_zombie(pid):  # noqa: ASYNC110  # it is no child
                    await asyncio.sleep(_STOP_INTERVAL.total_seconds())
        except TimeoutError:
            limit = durations.render(timeout)
            raise ProxyFailure(f"process {pid} still runs {limit} after SIGTERM") from None

    @property
    def _shown_health(self) -> str:
        return "" if self._health is None else f"{self._health.base_url}{self._health_path}"

    async def _run(self, words: Sequence[str], timeout: timedelta) -> commands.Finished:
        return await commands.run(words, timeout=timeout, environ=self._environ)

    async def _require(self, words: Sequence[str], timeout: timedelta) -> None:
        """Run a command that has to succeed."""
        finished = await self._run(words, timeout)
        if finished.code:
            reason = _first_line(finished.output)
            shown = f"{' '.join(words)}: exits with {finished.code}"
            raise ProxyFailure(f"{shown}: {reason}" if reason else shown, finished.output)


async def _in_thread(function: Callable[[], T]) -> T:
    return await run_in_thread(function, name="proxy file")


def _first_line(text: str) -> str:
    """Return the first line that says something, bounded."""
    line = next((line for line in text.splitlines() if line.strip()), "").strip()
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}…"
