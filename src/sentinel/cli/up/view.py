"""The output of `sentinel up`: the startup banner, lines or the live view, the ready file and the final totals.

The view is the last part to start, so that everything else has been started once. All output goes through one
queue, so that a slow reader blocks nothing.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

import msgspec

from sentinel.cli.client.connection import ServerConnection
from sentinel.cli.up import welcome
from sentinel.cli.up.activity import Activity, format_line
from sentinel.cli.up.dashboard_state import DashboardState
from sentinel.cli.up.data_dir import PRIVATE, DataDir, TokenFile, UnusableDataDir, write_temporary
from sentinel.cli.up.deployment_activities import DeploymentActivities
from sentinel.cli.up.fleet_poller import FleetPoller
from sentinel.cli.up.hub_poller import HubPoller
from sentinel.cli.up.instance_activities import InstanceActivities
from sentinel.cli.up.plan import UpPlan
from sentinel.cli.up.stdout_queue import StdoutQueue
from sentinel.ports.clock import Clock
from sentinel.runtime import durations
from sentinel.runtime.lifecycle.part import Loop, Part
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.listening import Address
from sentinel.runtime.log import Log
from sentinel.runtime.probes.health import Health
from sentinel.runtime.settings.report import printable

_READINESS_INTERVAL = timedelta(milliseconds=50)
_FLUSH_TIMEOUT = timedelta(milliseconds=500)
_WORLD_READABLE = 0o644


class Ready(msgspec.Struct, frozen=True):
    """The content of the ready file."""

    http: str
    grpc: str
    token: str | None = None


class ReadyFile:
    """A file that tells scripts that everything serves, and at which address.

    Only the process that holds the data directory and the database touches it: a second one that fails to start
    must not remove the file of the first.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def check_writable(self) -> None:
        """Raise `OSError` if the file cannot be written; an existing file is not touched."""
        if not self._path.name or self._path.is_dir():
            raise IsADirectoryError(None, "expected a file, got a folder")
        write_temporary(self._path, b"", mode=PRIVATE).unlink()

    @asynccontextmanager
    async def cleaned(self) -> AsyncIterator[None]:
        """Remove the file before the run, in case an earlier one left it, and after the run."""
        self._path.unlink(missing_ok=True)
        try:
            yield
        finally:
            self._path.unlink(missing_ok=True)

    def write(self, ready: Ready) -> None:
        """Write the file atomically; with a token in it, only the owner can read it."""
        mode = _WORLD_READABLE if ready.token is None else PRIVATE
        write_temporary(self._path, msgspec.json.encode(ready) + b"\n", mode=mode).replace(self._path)


class ViewOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line that concern the view."""

    is_live: bool = False
    """Show the live view instead of lines."""
    ready_file: Path | None = None
    max_duration: timedelta | None = None
    """Stop everything after this time."""


class View:
    """Everything that `sentinel up` prints."""

    def __init__(
        self,
        *,
        options: ViewOptions,
        plan: UpPlan,
        data_dir: DataDir,
        admin_token: TokenFile | None,
        agent_token: TokenFile | None = None,
        health: Health,
        clock: Clock,
        log: Log,
        stopping: Stopping,
        redact: Callable[[str], str],
    ) -> None:
        """The tokens are those for users and for agents, if they need one. `redact` removes secrets from
        activities."""
        self.dashboard = DashboardState(started=clock.now())
        self.ready_file = None if options.ready_file is None else ReadyFile(options.ready_file)
        self._options = options
        self._plan = plan
        self._data_dir = data_dir
        self._admin_token = admin_token
        self._agent_token = agent_token
        self._health = health
        self._clock = clock
        self._log = log
        self._stopping = stopping
        self._redact = redact
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_banner = self._was_ready = False
        self._stdout = StdoutQueue(
            *_standard_output(),
            on_closed=self._stop_from_thread,
            on_failure=lambda error: log.warning("output.failed", error=error),
        )

    @asynccontextmanager
    async def on_loop(self) -> AsyncIterator[None]:
        """Remember the event loop, for the writer thread; enter it before anything else runs."""
        self._loop = asyncio.get_running_loop()
        yield

    def show(self, activity: Activity) -> None:
        """Show an activity, as a line or in the live view."""
        activity = msgspec.structs.replace(activity, text=self._redact(activity.text))
        self.dashboard.record(activity)
        if not self._options.is_live:
            name = activity.name or self.dashboard.name_of(activity.resource_id)
            self._print(format_line(msgspec.structs.replace(activity, name=name)))

    def part(
        self,
        url: str,
        *,
        agents_address: Address,
        proxies: Sequence[str] = (),
        connect: Callable[[], ServerConnection],
    ) -> Part:
        """Build the view as a part, once the addresses are known. `proxies` are those that run here."""
        poller = FleetPoller(
            kinds=self._plan.watched,
            dashboard=self.dashboard,
            on_activity=self.show,
            clock=self._clock,
            connect=connect,
        )
        instances = InstanceActivities(dashboard=self.dashboard, on_activity=self.show, clock=self._clock)
        deployments = DeploymentActivities(dashboard=self.dashboard, on_activity=self.show, clock=self._clock)
        hub_poller = HubPoller([instances.poll, deployments.poll], connect=connect, clock=self._clock)
        token_file = None if self._admin_token is None else self._admin_token.path
        examples = welcome.example_commands(url, token_file=token_file, has_proxies=bool(proxies))

        async def start() -> None:
            self._print_banner(url, agents_address, proxies, examples)

        async def wait_for_readiness(stopping: Stopping) -> None:
            while not self._health.readiness().is_ok:
                if await stopping.interrupts(self._clock.sleep(_READINESS_INTERVAL)):
                    return
            self._announce_ready(url, agents_address)
            await stopping.wait()

        loops: list[Loop] = [poller.run, hub_poller.run, wait_for_readiness]
        if self._options.is_live:
            from sentinel.cli.up.live import console_on, run_live_view

            live_view = partial(
                run_live_view,
                dashboard=self.dashboard,
                clock=self._clock,
                title=url,
                examples=examples,
                health=self._health,
                console=console_on(self._stdout),
                is_idle=lambda: self._stdout.is_idle,
            )
            loops.append(live_view)
        if self._options.max_duration is not None:
            loops.append(self._stop_after_max_duration)
        return Part(name="view", loops=loops, start=start)

    def flush(self) -> bool:
        """Wait until stdout has taken everything, so that the terminal is restored. Return whether it has."""
        return self._stdout.flush(timeout=_FLUSH_TIMEOUT)

    def print_totals(self) -> None:
        """Print the totals of the run."""
        totals = self.dashboard.totals
        duration = timedelta(seconds=int((self._clock.now() - self.dashboard.started).total_seconds()))
        self._print(
            f"{totals.published:,} events published, {totals.failed:,} failed, "
            f"{totals.evaluations:,} evaluations in {durations.render(duration)}"
        )
        self.flush()

    def _print(self, text: str) -> None:
        # Adapters and resources put any text in messages; escape control characters.
        self._stdout.write(printable(text) + "\n")

    def _print_banner(
        self,
        url: str,
        agents_address: Address,
        proxies: Sequence[str],
        examples: list[welcome.ExampleCommand],
    ) -> None:
        """Print the banner once, however often the view is restarted."""
        if self._has_banner:
            return
        self._has_banner = True
        for name, token in (("admin token", self._admin_token), ("registration token", self._agent_token)):
            if token is not None and not self._data_dir.was_shown(token):
                self._print(f"{name}, printed only this once and kept in {token.path}: {token.token}")
                with suppress(UnusableDataDir):  # printing it again at the next start is better than never
                    self._data_dir.mark_shown(token)
        broker = self._plan.broker
        for line in welcome.banner(
            url,
            agents_address=agents_address,
            proxies=proxies,
            watched=self._plan.watched,
            ignored=[kind for kind in self._plan.kinds if not kind.required_adapters],
            broker="in this process"
            if broker is None
            else str(broker.url or f"{broker.project_id}/{broker.topic}"),
            database=str(self._plan.server.database_url),
            folder=str(self._data_dir.folder),
            # The live view has them in its footer, and they are of no use after it ends.
            examples=[] if self._options.is_live else examples,
        ):
            self._print(line)

    def _announce_ready(self, url: str, agents_address: Address) -> None:
        if self.ready_file is not None:
            token = None if self._admin_token is None else self._admin_token.token
            self.ready_file.write(Ready(url, str(agents_address), token=token))
        if not self._was_ready and not self._options.is_live:
            self._print(f"sentinel is up at {url}")
        self._was_ready = True
        self._log.info("up.ready", http=url, grpc=str(agents_address))

    async def _stop_after_max_duration(self, stopping: Stopping) -> None:
        duration = self._options.max_duration
        if duration is not None and not await stopping.interrupts(self._clock.sleep(duration)):
            self._stopping.request()

    def _stop_from_thread(self) -> None:
        """Stop because the reader of stdout is gone; called by the writer thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is already closed
                self._loop.call_soon_threadsafe(self._stopping.request)


def _standard_output() -> tuple[int, str]:
    """Return the descriptor and encoding of stdout. If it was closed, another file may have its number by now."""
    if sys.stdout is None:
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), "utf-8"
    return sys.stdout.fileno(), sys.stdout.encoding
