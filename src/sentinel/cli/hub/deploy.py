"""`sentinel hub deploy`: rolls a version out, or shows what that would do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final

import click

from sentinel.cli import options, table
from sentinel.cli.client import session
from sentinel.cli.client.session import ServerOptions
from sentinel.cli.hub import deployment_screen, refusal
from sentinel.cli.hub.client import HubApiClient, run
from sentinel.cli.hub.deploy_options import deployment_options, request_body
from sentinel.cli.hub.deployment_progress import Progress, title
from sentinel.cli.hub.deployment_watch import DeploymentWatch
from sentinel.cli.hub.version_argument import VERSION
from sentinel.cli.options import OutputFormat
from sentinel.core.counted import counted
from sentinel.core.hub.versions import VersionName
from sentinel.drivers.rest.errors import RequestRejected
from sentinel.hub.plan_documents import PlanDocument
from sentinel.runtime.process import ExitCode
from sentinel.runtime.settings.report import printable

_DIFF_COLORS: Final = {"+": "green", "-": "red", "@": "cyan"}


@click.command
@click.argument("version", type=VERSION)
@deployment_options
@click.option("--plan", "is_plan", is_flag=True, help="Only show batches, the difference and problems.")
@click.option(
    "--wait", "is_waiting", is_flag=True, help="Show the progress until the end; exit 1 unless completed."
)
@options.output_option
@session.server_options
def deploy(
    version: VersionName,
    is_plan: bool,
    is_waiting: bool,
    output: OutputFormat,
    server: ServerOptions,
    **given: Any,
) -> int:
    """Roll out VERSION, such as edge@3, to instances.

    With --plan nothing starts, and the exit code is 1 if the hub would refuse it.
    """
    if is_plan and is_waiting:
        raise click.UsageError("expected either --plan or --wait")
    body = request_body(version, given)

    async def work(hub: HubApiClient) -> int:
        try:
            if is_plan:
                return _print_plan(await hub.plan(body), version, output)
            created = await hub.deploy(body)
        except RequestRejected as rejected:
            return refusal.explain(rejected, str(version))
        if is_waiting:
            return await wait(hub, created.id, output)
        if output is not OutputFormat.TABLE:
            click.echo(options.encode(created, output))
            return ExitCode.SUCCESS
        click.echo(printable(f"deployment {created.id}: {title(created, sum(created.counts.values()))}"))
        click.echo(f"follow it: sentinel hub deployments watch {created.id}", err=True)
        return ExitCode.SUCCESS

    return run(server, work)


async def wait(
    hub: HubApiClient,
    deployment_id: str,
    output: OutputFormat,
    *,
    succeeds: Callable[[Progress], bool] | None = None,
) -> int:
    """Show a deployment until it is over. Returns a failure unless it has completed, or `succeeds`."""
    is_data = output is not OutputFormat.TABLE
    screen = deployment_screen.screen(to_stderr=is_data)
    try:
        progress = await DeploymentWatch(hub, deployment_id).run(screen.show)
    except asyncio.CancelledError:
        screen.close()
        click.echo(
            f"the deployment {deployment_id} goes on without this command;"
            f" to stop it: sentinel hub deployments abort|rollback {deployment_id}",
            err=True,
        )
        raise
    finally:
        screen.close()
    if is_data:
        click.echo(options.encode(progress.deployment, output))
    is_success = progress.is_success if succeeds is None else succeeds(progress)
    return ExitCode.SUCCESS if is_success else ExitCode.FAILURE


def _print_plan(plan: PlanDocument, version: VersionName, output: OutputFormat) -> int:
    code = ExitCode.FAILURE if plan.problems else ExitCode.SUCCESS
    if output is not OutputFormat.TABLE:
        click.echo(options.encode(plan, output))
        return code
    is_colored = session.is_terminal()
    for line, color in _plan_lines(plan):
        click.echo(click.style(line, fg=color) if is_colored and color else line)
    for line in refusal.problem_lines(plan.problems, str(version)):
        session.fail(line)
    for line in refusal.problem_lines(plan.warnings, str(version)):
        click.echo(printable(f"warning: {line}"), err=True)
    return code


def _plan_lines(plan: PlanDocument) -> Iterator[tuple[str, str | None]]:
    rows = [
        (str(position), each.id, each.from_ or "", each.to)
        for position, batch in enumerate(plan.batches, start=1)
        for each in batch
    ]
    for line in table.render(("BATCH", "INSTANCE", "FROM", "TO"), rows, numbers=("BATCH",)):
        yield line, None
    yield "", None
    for line in plan.diff.splitlines():
        yield printable(line), _DIFF_COLORS.get(line[:1])
    if plan.diff:
        yield "", None
    batches = counted(len(plan.batches), "batch", "batches")
    duration = table.format_duration(timedelta(seconds=plan.estimated_seconds))
    yield f"{counted(len(rows), 'instance')} in {batches}, about {duration}", None
    if plan.restart_required:
        yield "proxies have to restart for this change", "yellow"
