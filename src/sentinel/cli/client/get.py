"""`sentinel get`: print the resources of a kind, or one resource."""

from __future__ import annotations

import click
import msgspec

from sentinel.cli import options
from sentinel.cli.client import names, resource_table, session
from sentinel.cli.client.fleet import FleetClient
from sentinel.cli.client.resource_table import ResourceSummary
from sentinel.cli.client.session import ServerOptions
from sentinel.cli.client.watch import DEFAULT_INTERVAL, run_watch
from sentinel.cli.options import OutputFormat
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.process import ExitCode


class MergedPages(msgspec.Struct, frozen=True):
    """All pages of a list, in the format of one page."""

    page: int
    size: int
    total: int
    items: list[msgspec.Raw]
    next: str | None = None


@click.command
@click.argument("plural")
@click.argument("resource_id", metavar="[ID]", default="")
@session.selector_option
@click.option(
    "--order",
    metavar="FIELD",
    default="",
    help="Sort by name, created_time, updated_time or id; add desc to reverse, as in 'name desc'.",
)
@click.option("--all", "is_all", is_flag=True, help="Print all pages as one body; the table always has all.")
@click.option("-w", "--watch", "is_watching", is_flag=True, help="Keep running and print changes.")
@options.output_option
@session.server_options
def get(
    plural: str,
    resource_id: str,
    selector: str,
    order: str,
    is_all: bool,
    is_watching: bool,
    output: OutputFormat,
    server: ServerOptions,
) -> int:
    """Print the resources of a kind, or the one with this ID or name.

    With --output json or yaml, print the body of the API's response: for a list its first page, or all pages with
    --all.
    """
    query = {"labels": selector, "order": order}
    if resource_id and (selector or order or is_all):
        raise click.UsageError("expected either an ID, or --selector, --order and --all")
    if is_watching:
        return run_watch(server, plural, resource_id, query=query, output=output, interval=DEFAULT_INTERVAL)

    async def get_one(fleet: FleetClient) -> int:
        fetched = await names.resolve(fleet, resource_id, plural=plural)
        if output is OutputFormat.TABLE:
            required = (await fleet.kind(fetched.plural)).required_adapters
            _print_table([resource_table.summarize(fetched.document)], required)
        else:
            click.echo(options.encode(msgspec.Raw(fetched.body), output))
        return ExitCode.SUCCESS

    async def get_list(fleet: FleetClient) -> int:
        if output is OutputFormat.TABLE:
            items = fleet.list_all(plural, {**query, "fields": resource_table.FIELDS})
            resources = [resource_table.decode(item) async for item in items]
            _print_table(resources, (await fleet.kind(plural)).required_adapters)
        elif is_all:
            all_items = [item async for item in fleet.list_all(plural, query)]
            click.echo(options.encode(MergedPages(1, len(all_items), len(all_items), all_items), output))
        else:
            click.echo(options.encode(msgspec.Raw(await fleet.list_page(plural, query)), output))
        return ExitCode.SUCCESS

    return server.run(get_one if resource_id else get_list)


def _print_table(resources: list[ResourceSummary], required: tuple[str, ...]) -> None:
    for line in resource_table.lines(resources, required, SystemClock().now()):
        click.echo(line)
