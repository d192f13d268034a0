"""Services as users run them: processes of their own, watched through their logs, probes and metrics."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

Line = dict[str, Any]

_INHERITED = ("PATH", "HOME", "LANG", "PYTHONPATH", "COVERAGE_PROCESS_START")
_LINES_KEPT = 1_000_000


class ServiceProcess:
    """Any of our commands. It runs between `async with` and its end, where it is killed if it has not ended."""

    def __init__(self, command: Sequence[str], *, environ: Mapping[str, str]) -> None:
        self._command = command
        self._environ = {name: os.environ[name] for name in _INHERITED if name in os.environ} | dict(environ)
        self._arrived = asyncio.Condition()
        self._readers: list[asyncio.Task[None]] = []
        self._session: aiohttp.ClientSession | None = None
        self._process: asyncio.subprocess.Process | None = None
        self.lines: list[Line] = []
        """What it logged; a line that is not JSON is kept under `text`."""
        self.stdout = bytearray()
        self.stderr = bytearray()

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "sentinel.cli",
            *self._command,
            env=self._environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=2**20,
        )
        self._readers = [asyncio.create_task(self._read_log()), asyncio.create_task(self._read_output())]
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        """Sends a signal, as Kubernetes or a terminal would."""
        assert self._process is not None
        self._process.send_signal(number)

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Tells it to stop; its exit code."""
        self.send_signal(number)
        return await self.exit_code()

    async def exit_code(self, *, timeout: float = 30) -> int:
        """Waits for its end, and for the last of what it wrote."""
        assert self._process is not None
        async with asyncio.timeout(timeout):
            code = await self._process.wait()
            await asyncio.gather(*self._readers)
        return code

    async def until(self, wanted: Callable[[Line], bool], *, timeout: float = 20, since: int = 0) -> Line:
        """Waits for a line of the log, those before `since` aside."""

        looked = since
        try:
            async with asyncio.timeout(timeout), self._arrived:
                while True:
                    # Each line is looked at once: some tests log a hundred thousand of them.
                    for line in self.lines[looked:]:
                        looked += 1
                        if wanted(line):
                            return line
                    await self._arrived.wait()
        except TimeoutError:
            raise AssertionError(f"no such line within {timeout} s among {self.lines[-20:]}") from None

    async def until_event(self, event: str, *, timeout: float = 20, since: int = 0, **fields: object) -> Line:
        """Waits for an event with these fields."""
        return await self.until(
            lambda line: line.get("event") == event and fields.items() <= line.items(),
            timeout=timeout,
            since=since,
        )

    async def readiness(self) -> tuple[int, Line]:
        """Status and body of `/readyz`."""
        return await self._get_json("/readyz")

    async def liveness(self) -> tuple[int, Line]:
        """Status and body of `/healthz`."""
        return await self._get_json("/healthz")

    async def metrics_text(self) -> str:
        """The whole of `/metrics`."""
        assert self._session is not None
        async with self._session.get(await self._address("/metrics")) as response:
            assert response.status == 200
            return await response.text()

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric over all series with these labels."""
        text = await self.metrics_text()
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == f"hyperfleet_sentinel_{name}" and labels.items() <= sample.labels.items()
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
            self.stderr += raw
            try:
                line = msgspec.json.decode(raw, type=Line)
            except msgspec.DecodeError:
                line = {"text": raw.decode(errors="replace").rstrip("\n")}
            assert len(self.lines) < _LINES_KEPT
            async with self._arrived:
                self.lines.append(line)
                self._arrived.notify_all()

    async def _read_output(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for raw in self._process.stdout:
            self.stdout += raw


class SentinelProcess(ServiceProcess):
    """`sentinel run`."""

    def __init__(
        self,
        directory: Path,
        config: Mapping[str, object] | Path,
        *,
        environ: Mapping[str, str],
        arguments: Sequence[str] = (),
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
        )


class ApiProcess(ServiceProcess):
    """`sentinel api`, on a free port of loopback; without protection unless the arguments say otherwise."""

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
        """Where it listens, once it does."""
        line = await self.until_event("http.listening")
        return f"http://{line['address']}"
