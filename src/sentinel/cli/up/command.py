"""`sentinel up`: the whole loop on this machine, in one command."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import click

from sentinel.cli import options
from sentinel.cli.options import bind_address
from sentinel.cli.up.data_dir import DataDir, UnusableDataDir, default_folder
from sentinel.cli.up.plan import UpOptions, UpPlan, make_plan
from sentinel.cli.up.ready import ReadyFile
from sentinel.cli.up.tokens import UpTokens, make_keys
from sentinel.cli.up.view import Showing
from sentinel.cli.wiring.extras import extra
from sentinel.cli.wiring.serve import Assembly, ServiceContext, refuse, serve
from sentinel.runtime import durations, process
from sentinel.runtime.listening import Address

if TYPE_CHECKING:
    from sentinel.cli.up.live import HeldLog
    from sentinel.cli.up.session import UpSession


def _duration(context: click.Context, parameter: click.Parameter, text: str | None) -> timedelta | None:
    if text is None:
        return None
    with suppress(ValueError):
        duration = durations.parse(text)
        if duration > timedelta(0):
            return duration
    raise click.BadParameter(f'expected a duration such as 30s, got "{text}"')


def _path(context: click.Context, parameter: click.Parameter, text: str | None) -> Path | None:
    """Nothing at all would be the folder in which we are, which nobody means."""
    if text is not None and not text.strip():
        raise click.BadParameter('expected a path, got ""')
    return None if text is None else Path(text)


@click.command
@click.option("--demo", is_flag=True, help="Make a small fleet, and go on changing, breaking and healing it.")
@click.option(
    "--data-dir",
    metavar="D",
    callback=_path,
    envvar="SENTINEL_DATA_DIR",
    help="Where everything is kept, from one start to the next: the fleet and the parts' own tokens. Made where it"
    " does not exist; ~/.local/share/sentinel where nothing is said (or sentinel in XDG_DATA_HOME).",
)
@click.option(
    "--listen",
    metavar="ADDRESS",
    help="Where everything HTTP is served: /, /api/hyperfleet/v1, /api/v1, /docs, /metrics, /healthz, /readyz;"
    " port 0 picks a free one. 127.0.0.1:8080 where nothing is said. On an address that other machines can reach,"
    " a token is needed, which is printed at the first start.",
)
@click.option(
    "--listen-grpc",
    "grpc_address",
    metavar="ADDRESS",
    default="127.0.0.1:9090",
    show_default=True,
    callback=bind_address,
    help="Where gRPC will be served. Nothing speaks it yet, so nothing listens, and the ready file says null.",
)
@click.option(
    "--broker-url",
    metavar="URL",
    envvar="SENTINEL_BROKER_URL",
    help="A broker to use in place of the one in this process: amqp://… or pubsub://PROJECT/TOPIC.",
)
@click.option(
    "--database-url",
    metavar="URL",
    help="A database to use in place of fleet.db in the data directory: sqlite:///FILE or postgresql://…",
)
@click.option("--kinds-file", metavar="FILE", help="Which kinds are served, and the adapters that each requires.")
@click.option(
    "--adapter",
    "adapter_files",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="An adapter of your own to run with the rest, configured as for `sentinel adapter --config`; may be"
    " repeated. It stands in for a sample of the same name. The API and the broker are those of this command.",
)
@click.option(
    "--ready-file",
    metavar="FILE",
    callback=_path,
    help="Written when everything serves: the addresses, as JSON. Removed at the end.",
)
@click.option("--for", "lasts", metavar="DURATION", callback=_duration, help="End by itself, such as after 30s.")
@click.option("--seed", type=int, default=1, show_default=True, help="Another seed, another demonstration.")
@options.set_option
@options.log_options
def up(
    demo: bool,
    data_dir: Path | None,
    listen: str | None,
    grpc_address: Address | None,
    broker_url: str | None,
    database_url: str | None,
    kinds_file: str | None,
    adapter_files: Sequence[Path],
    ready_file: Path | None,
    lasts: timedelta | None,
    seed: int,
    sets: Sequence[str],
    log_level: str | None,
    log_format: str | None,
) -> int:
    """Run the whole loop on this machine: the fleet API, a broker, pulses and adapters, in one process.

    Create a cluster and watch it become ready: each kind that requires adapters has a pulse, which looks every
    second, and the samples validation, dns and provision answer it. On a terminal it is a live view, elsewhere a
    line for each happening. Ctrl-C ends it; the next start goes on where this one ended.

    The settings of its pulses and adapters can be changed, as by --set max_age_ready=1m, or by
    SENTINEL_TASK_TIMEOUT=5s. Unless told otherwise it logs warnings and errors only.
    """
    home = DataDir(data_dir or default_folder(os.environ))
    plan = make_plan(
        UpOptions(
            listen=listen,
            database_url=database_url,
            broker_url=broker_url,
            kinds_file=kinds_file,
            adapter_files=tuple(adapter_files),
            sets=tuple(sets),
            logging=options.log_overrides(log_level=log_level, log_format=log_format),
            is_demo=demo,
        ),
        environ=os.environ,
        database_url=home.database_url,
        tokens_file=home.tokens_file,
    )
    if not isinstance(plan, UpPlan):
        return refuse(plan)
    if ready_file is not None:
        try:
            ReadyFile(ready_file).try_out()
        except OSError as error:
            return refuse([f"--ready-file: {ready_file}: {(error.strerror or str(error)).lower()}"])
    random = Random(seed) if demo else None  # noqa: S311 - a demonstration wants the same numbers again
    showing = Showing(is_live=_can_draw(), ready_file=ready_file, lasts=lasts)
    try:
        with home.occupied():
            keys = make_keys(plan, home, has_demo=demo)
            return _run(plan, home, keys, showing=showing, random=random)
    except UnusableDataDir as error:
        return refuse([f"--data-dir: {error}"])


def _run(plan: UpPlan, home: DataDir, keys: UpTokens, *, showing: Showing, random: Random | None) -> int:
    held = _hold_log() if showing.is_live and sys.stderr.isatty() else None
    session: UpSession | None = None

    def assemble(context: ServiceContext) -> Assembly:
        nonlocal session
        with extra("api", who="sentinel up"):
            from sentinel.cli.up.session import UpSession
        session = UpSession(plan=plan, home=home, keys=keys, context=context, showing=showing, random=random)
        return session.assembly()

    is_stuck = False
    try:
        code = serve(
            assemble,
            name="up",
            component="up",
            log=plan.server.log,
            secrets=(*plan.secrets, *keys.secrets),
            warnings=plan.warnings,
            stream=held,
        )
        is_stuck = session is not None and not session.leave_screen()
    finally:
        if held is not None and not is_stuck:
            held.release()
    if session is not None and code == process.ExitCode.SUCCESS:
        session.say_goodbye()
    return code


def _can_draw() -> bool:
    """Whether standard output is a terminal on which a live view makes sense, and there is what draws it."""
    return (
        sys.stdout is not None
        and sys.stdout.isatty()
        and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
        and "utf" in sys.stdout.encoding.lower()
        and importlib.util.find_spec("rich") is not None
    )


def _hold_log() -> HeldLog:
    from sentinel.cli.up.live import HeldLog

    return HeldLog(sys.stderr)
