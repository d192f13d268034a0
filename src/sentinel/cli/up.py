"""`sentinel up`: everything on this machine, to watch it work.

In this version that is the demonstration: a made-up fleet, with the real pulses and the broker in this process.
On a terminal it is a live view, elsewhere a line for each event.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import click
import msgspec

from sentinel.cli import options
from sentinel.cli.addresses import bind_address
from sentinel.cli.board import Board, Observers
from sentinel.cli.build import build_pulse
from sentinel.cli.demo import DEFAULTS, KINDS, Demo
from sentinel.cli.lines import Lines
from sentinel.ports import Clock
from sentinel.pulse import settings as pulse_settings
from sentinel.pulse.report import Observer
from sentinel.pulse.settings import PulseSettings
from sentinel.runtime import durations, lifecycle, process, telemetry
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.health import Health
from sentinel.runtime.http import Listener, metrics_pages, probe_pages
from sentinel.runtime.lifecycle import Loop, Part, Shared, opened
from sentinel.runtime.listening import Address, ListenError
from sentinel.runtime.metrics import Metrics
from sentinel.runtime.provenance import Loaded
from sentinel.runtime.stopping import Stopping
from sentinel.runtime.tracing import NO_TRACING

if TYPE_CHECKING:
    from sentinel.cli.live import HeldLog

_RESTART = Backoff(initial=timedelta(milliseconds=500), maximum=timedelta(seconds=10))
_DRAIN = timedelta(seconds=3)
"""Short: somebody waits, and what is still under way belongs to a fleet that ends with us."""


def _duration(context: click.Context, parameter: click.Parameter, text: str | None) -> timedelta | None:
    if text is None:
        return None
    with suppress(ValueError):
        duration = durations.parse(text)
        if duration > timedelta(0):
            return duration
    raise click.BadParameter(f'expected a duration such as 30s, got "{text}"')


@click.command
@click.option("--demo", is_flag=True, help="Watch over a made-up fleet whose adapters are simulated.")
@click.option(
    "--listen",
    "address",
    metavar="ADDRESS",
    default="127.0.0.1:8080",
    show_default=True,
    callback=bind_address,
    help="Where /healthz, /readyz and /metrics are served; port 0 picks a free one.",
)
@click.option(
    "--ready-file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Written when everything serves: the addresses, as JSON. Removed at the end.",
)
@click.option("--for", "lasts", metavar="DURATION", callback=_duration, help="End by itself, such as after 30s.")
@click.option("--seed", type=int, default=1, show_default=True, help="Another seed, another history of the fleet.")
@options.set_option
@options.log_options
def up(
    demo: bool,
    address: Address | None,
    ready_file: Path | None,
    lasts: timedelta | None,
    seed: int,
    sets: Sequence[str],
    log_level: str | None,
    log_format: str | None,
) -> int:
    """Run everything on this machine and watch it work.

    In this version: sentinel up --demo. On a terminal it is a live view, elsewhere a line for each event. Ctrl-C
    ends it. The settings of its pulses can be changed, as by --set max_age_ready=1m. Unless told otherwise it logs
    warnings and errors only.
    """
    if not demo:
        raise click.UsageError("this version of `up` is a demonstration only; try: sentinel up --demo")
    if ready_file is not None:
        if not ready_file.parent.is_dir():
            raise click.UsageError(f"--ready-file: expected a file in a folder that exists, got {ready_file}")
        ready_file.unlink(missing_ok=True)  # one of an earlier run would say that this one is ready
    loaded = _load(sets, options.log_overrides(log_level=log_level, log_format=log_format))
    settings = [each.settings for each in loaded if each.settings is not None]
    if len(settings) < len(loaded):
        for problem in _distinct(each.problems for each in loaded):
            click.echo(problem, err=True)
        return lifecycle.ExitCode.MISCONFIGURED

    is_live = _can_draw()
    held = _hold_log() if is_live and sys.stderr.isatty() else None
    telemetry.configure(
        settings[0].log.level,
        settings[0].log.format,
        stream=held,
        secrets=[secret.reveal() for each in loaded for secret in each.secrets],
    )
    for warning in _distinct(each.warnings for each in loaded):
        telemetry.get_logger("up").warning("settings.warning", problem=warning)
    session = _Session(
        settings=settings,
        address=address,
        ready_file=ready_file,
        lasts=lasts,
        is_live=is_live,
        clock=SystemClock(),
        random=Random(seed),  # noqa: S311 - a simulation wants the same numbers again
    )
    try:
        code = process.main(session.run(), log=session.log)
    finally:
        if held is not None:
            held.release()
    if code == lifecycle.ExitCode.SUCCESS:
        click.echo(session.summary())
    return code


def _can_draw() -> bool:
    """Whether standard output is a terminal on which a live view makes sense, and there is what draws it."""
    return (
        sys.stdout.isatty()
        and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
        and "utf" in sys.stdout.encoding.lower()
        and importlib.util.find_spec("rich") is not None
    )


def _hold_log() -> HeldLog:
    from sentinel.cli.live import HeldLog

    return HeldLog(sys.stderr)


def _load(sets: Sequence[str], overrides: Mapping[str, str]) -> list[Loaded[PulseSettings]]:
    """The settings of each pulse; they watch different types of resource, and differ in nothing else."""
    return [
        pulse_settings.load(
            file=None,
            environ=os.environ,
            sets=sets,
            overrides={
                "resource_type": resource_type,
                "hyperfleet_api.endpoint": "http://in-process.invalid",
                **overrides,
            },
            defaults=DEFAULTS,
        )
        for resource_type in KINDS
    ]


def _distinct(texts: Iterable[Iterable[object]]) -> list[str]:
    """What is wrong with the settings is wrong with each pulse's; it is worth saying once."""
    return list(dict.fromkeys(str(text) for some in texts for text in some))


class _Ready(msgspec.Struct, frozen=True):
    """What the ready file says."""

    http: str | None
    grpc: str | None = None
    token: str | None = None


class _Session:
    """One `up`: what is wired together, and for how long."""

    def __init__(
        self,
        *,
        settings: Sequence[PulseSettings],
        address: Address | None,
        ready_file: Path | None,
        lasts: timedelta | None,
        is_live: bool,
        clock: Clock,
        random: Random,
    ) -> None:
        self.log = telemetry.get_logger("up")
        self._settings = settings
        self._ready_file = ready_file
        self._lasts = lasts
        self._is_live = is_live
        self._clock = clock
        self._stopping = Stopping()
        self._board = Board(started=clock.now())
        self._demo = Demo(settings=settings, clock=clock, random=random)
        self._health = Health()
        self._metrics = Metrics(component="up")
        pages = {**probe_pages(self._health), **metrics_pages(self._metrics)}
        self._listener = Listener(address, pages, log=self.log) if address is not None else None

    async def run(self) -> int:
        """Runs until a signal or until its time is up; the exit code."""
        publishers = {
            each.resource_type: self._demo.broker.publisher(mode=each.event_mode) for each in self._settings
        }
        pulses = (
            lambda each=each: build_pulse(
                each,
                fleet=self._demo.fleets[each.resource_type],
                publisher=publishers[each.resource_type],
                clock=self._clock,
                tracer=NO_TRACING,
                watch=lambda own: self._observer(each.resource_type, own),
            )
            for each in self._settings
        )
        return await lifecycle.run(
            # Whoever receives comes before whoever sends, and the view when there is something to see.
            parts=[*self._demo.parts(), *pulses, self._view],
            shared=[
                Shared("listener", self._listening),
                *(opened(f"broker for {plural}", publisher) for plural, publisher in publishers.items()),
            ],
            log=self.log,
            health=self._health,
            metrics=self._metrics,
            drain=_DRAIN,
            restart=_RESTART,
            stopping=self._stopping,
        )

    def summary(self) -> str:
        """The last word, when the screen is the terminal's again."""
        totals = self._board.totals
        lasted = durations.render(
            timedelta(seconds=int((self._clock.now() - self._board.started).total_seconds()))
        )
        return f"{totals.published:,} events published and {totals.failed:,} failed in {lasted}"

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if self._listener is not None:
                try:
                    await stack.enter_async_context(self._listener)
                except ListenError as error:
                    raise ListenError(f"{error}; choose another address with --listen") from error
            if not self._is_live:
                click.echo(f"watching {', '.join(KINDS)}; {self._url or 'nothing'} serves /readyz and /metrics")
            yield

    def _observer(self, resource_type: str, own: Observer) -> Observer:
        """The pulse's own observer, and those that show what it sees."""
        observers = [own, self._board.observer(resource_type)]
        if not self._is_live:
            observers.append(
                Lines(
                    resource_type=resource_type,
                    stream=sys.stdout,
                    started=self._board.started,
                    on_broken_pipe=self._end_quietly,
                )
            )
        return Observers(observers)

    def _view(self) -> Part:
        loops: list[Loop] = [Stopping.wait]
        if self._is_live:
            loops = [self._live_view()]
        if self._lasts is not None:
            loops.append(self._end_in_time)
        return Part(name="view", loops=loops, start=self._announce, close=self._withdraw)

    def _live_view(self) -> Loop:
        from sentinel.cli.live import Hint, LiveView

        hints = [Hint("sentinel check --config examples/sentinel-config.yaml", "for your own fleet")]
        if self._url is not None:
            hints = [
                Hint(f"curl {self._url}/readyz", "does it do its job?"),
                Hint(f"curl {self._url}/metrics", "what it counts"),
                *hints,
            ]
        return LiveView(board=self._board, clock=self._clock, title="up --demo", hints=hints).run

    async def _end_in_time(self, stopping: Stopping) -> None:
        if self._lasts is not None and not await stopping.interrupts(self._clock.sleep(self._lasts)):
            stopping.request()

    async def _announce(self) -> None:
        """The view is the last to start, so by now everything serves."""
        if self._ready_file is not None:
            unfinished = self._ready_file.with_name(f".{self._ready_file.name}.{os.getpid()}")
            unfinished.write_bytes(msgspec.json.encode(_Ready(self._url)) + b"\n")
            unfinished.replace(self._ready_file)

    async def _withdraw(self) -> None:
        if self._ready_file is not None:
            self._ready_file.unlink(missing_ok=True)

    @property
    def _url(self) -> str | None:
        if self._listener is None:
            return None
        address = self._listener.address
        anywhere = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - read, not bound
        return f"http://{Address(anywhere.get(address.host, address.host), address.port)}"

    def _end_quietly(self) -> None:
        """Whoever read our lines has gone; what could not be written would be tried again at exit."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        self._stopping.request()
