"""`sentinel up`: run the whole loop on this machine."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from sentinel.cli import options
from sentinel.cli.client.session import parse_duration
from sentinel.cli.up.data_dir import DataDir, UnusableDataDir, UpTokens, default_folder
from sentinel.cli.up.instances.ports import MAX_INSTANCES
from sentinel.cli.up.plan import DEMO_AGENTS, UpOptions, UpPlan, make_plan
from sentinel.cli.up.view import ReadyFile, ViewOptions
from sentinel.cli.wiring.extras import extra
from sentinel.cli.wiring.serve import Assembly, ServiceContext, refuse, serve
from sentinel.runtime import process
from sentinel.runtime.settings.report import Origin, Source

if TYPE_CHECKING:
    from sentinel.cli.up.live import LogBuffer
    from sentinel.cli.up.session import UpSession


_BROKER_URL_VARIABLE = "SENTINEL_BROKER_URL"


def _parse_path(context: click.Context, parameter: click.Parameter, text: str | None) -> Path | None:
    # Path("") is the working directory. An empty option must not mean that.
    if text is not None and not text.strip():
        raise click.BadParameter('expected a path, got ""')
    return None if text is None else Path(text)


@click.command
@click.option(
    "--demo",
    is_flag=True,
    help="Create a small fleet, then change, break and repair it continually, and roll out to five proxies.",
)
@click.option(
    "--agents",
    metavar="N",
    type=click.IntRange(0, MAX_INSTANCES),
    help="Run this many agents in three zones, each with a proxy, as child processes. Default: 0, with --demo"
    f" {DEMO_AGENTS}.",
)
@click.option(
    "--data-dir",
    "folder",
    metavar="D",
    callback=_parse_path,
    envvar="SENTINEL_DATA_DIR",
    help="Where the fleet and the tokens are kept between starts; created if missing. Default:"
    " ~/.local/share/sentinel, or sentinel in XDG_DATA_HOME.",
)
@click.option(
    "--listen",
    metavar="ADDRESS",
    help="Where to serve HTTP: /, /api/hyperfleet/v1, /api/v1, /docs, /metrics, /healthz, /readyz. Port 0 picks a"
    " free port. Default: 127.0.0.1:8080. On an address that other machines can reach, clients need the token that"
    " is printed at the first start.",
)
@click.option(
    "--listen-grpc",
    metavar="ADDRESS",
    help="Where the hub serves agents, over gRPC. Port 0 picks a free port. Default: 127.0.0.1:9090. On an address"
    " that other machines can reach, agents need the registration token that is printed at the first start.",
)
@click.option(
    "--broker-url",
    metavar="URL",
    envvar=_BROKER_URL_VARIABLE,
    help="A broker to use instead of the one in this process: amqp://… or pubsub://PROJECT/TOPIC.",
)
@click.option(
    "--database-url",
    metavar="URL",
    help="A database to use instead of fleet.db in the data directory: sqlite:///FILE or postgresql://…",
)
@click.option("--kinds-file", metavar="FILE", help="The kinds to serve, their adapters and their conditions.")
@click.option(
    "--adapter",
    "adapter_files",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The settings of another adapter to run, as for `sentinel adapter --config`; may be repeated. It replaces"
    " a sample of the same name, and uses the API and the broker of this command.",
)
@click.option(
    "--ready-file",
    metavar="FILE",
    callback=_parse_path,
    help="A file to write the addresses to, as JSON, once everything serves; removed at exit.",
)
@click.option("--for", "max_duration", metavar="DURATION", callback=parse_duration, help="Exit after this time.")
@click.option("--seed", type=int, default=1, show_default=True, help="The random seed of the demo.")
@options.set_option
@options.log_options
def up(
    demo: bool,
    agents: int | None,
    folder: Path | None,
    listen: str | None,
    listen_grpc: str | None,
    broker_url: str | None,
    database_url: str | None,
    kinds_file: str | None,
    adapter_files: Sequence[Path],
    ready_file: Path | None,
    max_duration: timedelta | None,
    seed: int,
    sets: Sequence[str],
    log_overrides: Mapping[str, str],
) -> int:
    """Run the whole loop on this machine: the fleet API, a broker, pulses, adapters and the hub, in one process.

    Create a cluster and watch it become ready. Each kind that requires adapters has a pulse, which polls every
    second, and the sample adapters validation, dns and provision respond. A terminal shows a live view, a pipe or
    file gets a line for each activity. Ctrl-C stops it; the next start continues with the same fleet.

    With --agents, proxies and their agents run beside it: change the configuration of the proxies at the hub.

    Change settings of the pulses, the adapters and the API with --set max_age_ready=1m or
    SENTINEL_TASK_TIMEOUT=5s. Only warnings and errors are logged by default.
    """
    data_dir = DataDir(folder or default_folder(os.environ))
    plan = make_plan(
        UpOptions(
            listen=listen,
            listen_grpc=listen_grpc,
            database_url=database_url,
            broker_url=broker_url,
            broker_url_origin=_broker_url_origin(),
            kinds_file=kinds_file,
            adapter_files=tuple(adapter_files),
            sets=tuple(sets),
            logging=log_overrides,
            is_demo=demo,
            agents=agents,
        ),
        environ=os.environ,
        database_url=data_dir.database_url,
        tokens_file=data_dir.tokens_file,
    )
    if not isinstance(plan, UpPlan):
        return refuse(plan)
    if ready_file is not None:
        try:
            ReadyFile(ready_file).check_writable()
        except OSError as error:
            return refuse([f"--ready-file: {ready_file}: {(error.strerror or str(error)).lower()}"])
    random = Random(seed) if demo else None  # noqa: S311 - the demo must be repeatable
    view_options = ViewOptions(is_live=_can_draw(), ready_file=ready_file, max_duration=max_duration)
    try:
        with data_dir.locked():
            adapters = [each.adapter.name for each in plan.adapters]
            tokens = data_dir.tokens(
                adapters,
                has_demo=demo,
                has_admin=plan.is_exposed,
                has_agent=plan.is_exposed_to_agents,
                has_instances=plan.agents > 0,
            )
            return _run(plan, data_dir, tokens, view_options=view_options, random=random)
    except UnusableDataDir as error:
        return refuse([f"--data-dir: {error}"])


def _broker_url_origin() -> Origin:
    """Return where the broker's URL was written, for its problems."""
    if click.get_current_context().get_parameter_source("broker_url") is ParameterSource.ENVIRONMENT:
        return Origin(Source.ENVIRONMENT, _BROKER_URL_VARIABLE)
    return Origin(Source.FLAG, "--broker-url")


def _run(
    plan: UpPlan, data_dir: DataDir, tokens: UpTokens, *, view_options: ViewOptions, random: Random | None
) -> int:
    log_buffer = _buffer_log() if view_options.is_live and sys.stderr.isatty() else None
    session: UpSession | None = None

    def assemble(context: ServiceContext) -> Assembly:
        nonlocal session
        with extra("hub", who="sentinel up"):
            from sentinel.cli.up.session import UpSession
        session = UpSession(
            plan=plan, data_dir=data_dir, tokens=tokens, context=context, view_options=view_options, random=random
        )
        return session.assembly()

    is_restored = True
    try:
        code = serve(
            assemble,
            name="up",
            component="up",
            log=plan.server.log,
            secrets=(*plan.secrets, *tokens.secrets),
            warnings=plan.warnings,
            stream=log_buffer,
        )
        is_restored = session is None or session.view.flush()
    finally:
        # A terminal that takes nothing, as after Ctrl-S, would block us.
        if log_buffer is not None and is_restored:
            log_buffer.write_to_terminal()
    if session is not None and code == process.ExitCode.SUCCESS:
        session.view.print_totals()
    return code


def _can_draw() -> bool:
    """Whether stdout is a terminal that can show the live view, and rich is installed."""
    return (
        sys.stdout is not None
        and sys.stdout.isatty()
        and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
        and "utf" in sys.stdout.encoding.lower()
        and importlib.util.find_spec("rich") is not None
    )


def _buffer_log() -> LogBuffer:
    from sentinel.cli.up.live import LogBuffer

    return LogBuffer(sys.stderr)
