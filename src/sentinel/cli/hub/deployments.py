"""`sentinel hub deployments`: shows deployments, and does with them what users decide."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

import click

from sentinel.cli import options, table
from sentinel.cli.client import session
from sentinel.cli.client.session import ServerOptions
from sentinel.cli.hub import refusal
from sentinel.cli.hub.client import HubApiClient, run
from sentinel.cli.hub.deploy import wait
from sentinel.cli.hub.deployment_progress import Progress
from sentinel.cli.hub.deployment_view import STATE_COLORS, draw
from sentinel.cli.hub.list_output import print_list
from sentinel.cli.options import OutputFormat
from sentinel.core.hub.rollout_row import UNSUCCESSFUL, RowState
from sentinel.core.hub.rollout_state import RollbackState, RolloutState
from sentinel.drivers.rest.errors import RequestRejected
from sentinel.hub.deployment_documents import DeploymentDocument
from sentinel.runtime.process import ExitCode

_HEADER = ("ID", "VERSION", "STRATEGY", "STATE", "ROLLBACK", "BATCH", "DONE", "FAILED", "CREATED", "BY", "REASON")
_INTERRUPTED = 128 + signal.SIGINT


def _deployment_options(command: Callable[..., int]) -> Callable[..., int]:
    """The argument `ID`, `--output` and the options of the server, as parameters."""
    with_options = options.output_option(session.server_options(command))
    return click.argument("deployment_id", metavar="ID")(with_options)


@click.group()
def deployments() -> None:
    """List, watch, pause, promote, abort and roll back deployments."""


@deployments.command("list")
@click.option(
    "--state", type=click.Choice([each.value for each in RolloutState]), default=None, help="Only this state."
)
@options.output_option
@session.server_options
def list_deployments(state: str | None, output: OutputFormat, server: ServerOptions) -> int:
    """List deployments, newest first."""

    async def work(hub: HubApiClient) -> int:
        found = await hub.deployments(state=state or "")
        print_list(found, _lines(found), output)
        return ExitCode.SUCCESS

    return run(server, work)


@deployments.command()
@_deployment_options
def get(deployment_id: str, output: OutputFormat, server: ServerOptions) -> int:
    """Print one deployment: its batches, its canaries against their limits, and its instances."""

    async def work(hub: HubApiClient) -> int:
        found = await hub.deployment(deployment_id)
        if output is not OutputFormat.TABLE:
            click.echo(options.encode(found, output))
            return ExitCode.SUCCESS
        rows = {row.instance_id: row for row in await hub.deployment_instances(deployment_id)}
        for line in draw(Progress(deployment=found, rows=rows), now=datetime.now(UTC)):
            click.echo(line.render(is_colored=session.is_terminal()))
        return ExitCode.SUCCESS

    return run(server, work)


@deployments.command()
@_deployment_options
def watch(deployment_id: str, output: OutputFormat, server: ServerOptions) -> int:
    """Show the progress of a deployment until it is over, or until Ctrl-C. Exit 1 unless it has completed."""
    code = run(server, lambda hub: wait(hub, deployment_id, output))
    return ExitCode.SUCCESS if code == _INTERRUPTED else code


@deployments.command()
@_deployment_options
def pause(deployment_id: str, output: OutputFormat, server: ServerOptions) -> int:
    """Start no further batch. The current one continues."""
    return _change(deployment_id, "pause", output, server)


@deployments.command()
@_deployment_options
def resume(deployment_id: str, output: OutputFormat, server: ServerOptions) -> int:
    """Let a paused deployment go on. Canaries are watched for a new duration."""
    return _change(deployment_id, "resume", output, server)


@deployments.command()
@_deployment_options
def promote(deployment_id: str, output: OutputFormat, server: ServerOptions) -> int:
    """Trust the canaries: end the watch over them, or the pause after one that was inconclusive."""
    return _change(deployment_id, "promote", output, server)


@deployments.command()
@_deployment_options
def abort(deployment_id: str, output: OutputFormat, server: ServerOptions) -> int:
    """End a deployment without going back: what is in flight finishes, the others are skipped."""
    return _change(deployment_id, "abort", output, server)


@deployments.command()
@click.option("--wait", "is_waiting", is_flag=True, help="Show the progress; exit 1 unless all went back.")
@_deployment_options
def rollback(deployment_id: str, is_waiting: bool, output: OutputFormat, server: ServerOptions) -> int:
    """Bring every instance that was touched back to what it ran before."""
    return _change(deployment_id, "rollback", output, server, is_waiting=is_waiting)


@deployments.command()
@click.option("--wait", "is_waiting", is_flag=True, help="Show the progress; exit 1 unless completed.")
@_deployment_options
def retry(deployment_id: str, is_waiting: bool, output: OutputFormat, server: ServerOptions) -> int:
    """Deploy the same version once more, to the instances on which it was unsuccessful."""
    return _change(deployment_id, "retry", output, server, is_waiting=is_waiting)


def _change(
    deployment_id: str, action: str, output: OutputFormat, server: ServerOptions, *, is_waiting: bool = False
) -> int:
    async def work(hub: HubApiClient) -> int:
        try:
            changed = await hub.change_deployment(deployment_id, action)
        except RequestRejected as rejected:
            return refusal.explain(rejected, deployment_id)
        if is_waiting:
            return await wait(hub, changed.id, output, succeeds=_went_back if action == "rollback" else None)
        message = f"deployment {changed.id} is {_state(changed)}"
        click.echo(message if output is OutputFormat.TABLE else options.encode(changed, output))
        return ExitCode.SUCCESS

    return run(server, work)


def _went_back(progress: Progress) -> bool:
    return progress.deployment.rollback is RollbackState.COMPLETED


def _lines(found: Sequence[DeploymentDocument]) -> Iterator[str]:
    columns = session.terminal_width()
    header, *rows = table.render(_HEADER, [_row(each) for each in found], numbers=("FAILED",))
    yield session.truncate(header, columns)
    for deployment, row in zip(found, rows, strict=True):
        line = session.truncate(row, columns)
        yield click.style(line, fg=STATE_COLORS[deployment.state]) if session.is_terminal() else line


def _row(deployment: DeploymentDocument) -> tuple[str, ...]:
    counts = deployment.counts
    return (
        deployment.id,
        f"{deployment.config_id}@{deployment.version}",
        deployment.strategy,
        deployment.state,
        "" if deployment.rollback is RollbackState.NONE else deployment.rollback,
        f"{deployment.batch.position}/{deployment.batch.total}",
        f"{counts.get(RowState.COMPLETED, 0)}/{sum(counts.values())}",
        str(sum(counts.get(state, 0) for state in (*UNSUCCESSFUL, RowState.ROLLBACK_FAILED))),
        f"{deployment.created_time:%Y-%m-%d %H:%M:%S}",
        deployment.created_by,
        deployment.reason,
    )


def _state(deployment: DeploymentDocument) -> str:
    if deployment.rollback is RollbackState.NONE:
        return deployment.state
    return f"{deployment.state}, its rollback is {deployment.rollback}"
