"""Commands as processes, observed through their output, logs, probes and metrics."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

Line = dict[str, Any]

PROGRAM = ("-m", "sentinel.cli")
"""The arguments of Python before a command."""
_INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "PYTHONPATH", "COVERAGE_PROCESS_START")
"""No others: variables are settings, and the tests must not depend on those of the developer."""
_MAX_LINES = 1_000_000
_CHUNK_SIZE = 2**16


class ServiceProcess:
    """A `sentinel` command. `async with` starts it and finally kills it if it still runs."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environ: Mapping[str, str],
        program: Sequence[str] = PROGRAM,
        ignored_event: str = "",
        stdin: bytes = b"",
    ) -> None:
        """Log lines of `ignored_event` are read and
        dropped, for benchmarks that log millions of them."""
        self._stdin = stdin
        self._arguments = [*program, *command]
        self._environ = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ} | dict(
            environ
        )
        self._ignored = f'"event":"{ignored_event}"'.encode() if ignored_event else None
        self._arrived = asyncio.Condition()
        self._readers: list[asyncio.Task[None]] = []
        self._session: aiohttp.ClientSession | None = None
        self._process: asyncio.subprocess.Process | None = None
        self.lines: list[Line] = []
        """The log. A line that is not JSON is stored as `{"text": line}`."""
        self.stdout = bytearray()
        self.stderr = bytearray()

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *self._arguments,
            env=self._environ,
            stdin=asyncio.subprocess.PIPE if self._stdin else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=2**20,
        )
        if self._process.stdin is not None:
            self._process.stdin.write(self._stdin)
            self._process.stdin.write_eof()
        self._readers = [asyncio.create_task(self._read_log()), asyncio.create_task(self._read_output())]
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._process is not None
        assert self._session is not None
        await self._session.close()
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await asyncio.gather(*self._readers)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, wait for the end and return the exit code."""
        self.send_signal(number)
        return await self.exit_code()

    async def exit_code(self, *, timeout: float = 90) -> int:
        """Wait until the process has ended and all its output is read, and return the exit code."""
        assert self._process is not None
        async with asyncio.timeout(timeout):
            code = await self._process.wait()
            await asyncio.gather(*self._readers)
        return code

    async def until(self, wanted: Callable[[Line], bool], *, timeout: float = 90, since: int = 0) -> Line:
        """Wait for a log line, starting at index `since`, and return it."""
        position = since
        try:
            async with asyncio.timeout(timeout), self._arrived:
                while True:
                    # Check each line only once: some tests log a hundred thousand lines.
                    for line in self.lines[position:]:
                        position += 1
                        if wanted(line):
                            return line
                    await self._arrived.wait()
        except TimeoutError:
            raise AssertionError(f"no such line within {timeout} s; last lines: {self.lines[-20:]}") from None

    async def until_event(self, event: str, *, timeout: float = 90, since: int = 0, **fields: object) -> Line:
        """Wait for a log event with these fields and return its line."""
        return await self.until(
            lambda line: line.get("event") == event and fields.items() <= line.items(),
            timeout=timeout,
            since=since,
        )

    async def until_output(self, wanted: Callable[[str], bool], *, timeout: float = 90) -> None:
        """Wait until the text on stdout is as wanted."""
        try:
            async with asyncio.timeout(timeout), self._arrived:
                await self._arrived.wait_for(lambda: wanted(self.stdout.decode(errors="replace")))
        except TimeoutError:
            raise AssertionError(f"not printed within {timeout} s: {self.stdout[-1000:]!r}") from None

    async def readiness(self) -> tuple[int, Line]:
        """Return the status and body of `/readyz`."""
        return await self._get_json("/readyz")

    async def liveness(self) -> tuple[int, Line]:
        """Return the status and body of `/healthz`."""
        return await self._get_json("/healthz")

    async def metrics_text(self) -> str:
        assert self._session is not None
        async with self._session.get(await self._address("/metrics")) as response:
            assert response.status == 200
            return await response.text()

    async def metric(self, name: str, *, prefix: str = "hyperfleet_sentinel_", **labels: str) -> float:
        """Return the sum of a metric over all series with these labels."""
        text = await self.metrics_text()
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == prefix + name and labels.items() <= sample.labels.items()
        )

    async def _get_json(self, path: str) -> tuple[int, Line]:
        assert self._session is not None
        async with self._session.get(await self._address(path)) as response:
            body: Line = await response.json()
            return response.status, body

    async def _address(self, path: str) -> str:
        line = await self.until(lambda line: line.get("event") == "http.listening" and path in line["paths"])
        return f"http://{line['address']}{path}"

    async def _read_log(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        async for raw in self._process.stderr:
            if self._ignored is not None and self._ignored in raw:
                continue
            self.stderr += raw
            try:
                line = msgspec.json.decode(raw, type=Line)
            except msgspec.DecodeError:
                line = {"text": raw.decode(errors="replace").rstrip("\n")}
            assert len(self.lines) < _MAX_LINES
            async with self._arrived:
                self.lines.append(line)
                self._arrived.notify_all()

    async def _read_output(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while chunk := await self._process.stdout.read(_CHUNK_SIZE):
            async with self._arrived:
                self.stdout += chunk
                self._arrived.notify_all()


class SentinelProcess(ServiceProcess):
    """`sentinel run`."""

    def __init__(
        self,
        directory: Path,
        config: Mapping[str, object] | Path,
        *,
        environ: Mapping[str, str],
        arguments: Sequence[str] = (),
        ignored_event: str = "",
    ) -> None:
        if isinstance(config, Path):
            file = config
        else:
            file = directory / f"sentinel-{len(list(directory.iterdir()))}.yaml"
            file.write_bytes(msgspec.json.encode(config))
        super().__init__(
            (
                "run",
                "--config",
                str(file),
                "--metrics-bind-address=127.0.0.1:0",
                "--health-probe-bind-address=127.0.0.1:0",
                *arguments,
            ),
            environ=environ,
            ignored_event=ignored_event,
        )


class ApiProcess(ServiceProcess):
    """`sentinel api`, by default on a free port of loopback and without authentication."""

    def __init__(
        self,
        database_url: str,
        *,
        kinds: Sequence[Mapping[str, object]] = (),
        directory: Path,
        arguments: Sequence[str] = ("--insecure",),
        environ: Mapping[str, str] | None = None,
        listen: str = "127.0.0.1:0",
    ) -> None:
        command = ["api", "--listen", listen, "--database-url", database_url, *arguments]
        if kinds:
            file = directory / f"kinds-{len(list(directory.iterdir()))}.yaml"
            file.write_bytes(msgspec.json.encode({"kinds": kinds}))
            command += ["--kinds-file", str(file)]
        super().__init__(command, environ=environ or {})

    async def url(self) -> str:
        """Wait until it listens and return its URL."""
        line = await self.until_event("http.listening")
        return f"http://{line['address']}"


class CompletedCommand(msgspec.Struct, frozen=True):
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str


async def run_command(
    *command: object,
    environ: Mapping[str, str] | None = None,
    program: Sequence[str] = PROGRAM,
    timeout: float = 60,
    stdin: bytes = b"",
) -> CompletedCommand:
    """Run a `sentinel` command until it ends."""
    words = [str(word) for word in command]
    async with ServiceProcess(words, environ=environ or {}, program=program, stdin=stdin) as process:
        code = await process.exit_code(timeout=timeout)
    return CompletedCommand(code, process.stdout.decode(), process.stderr.decode())
