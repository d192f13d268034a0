"""`sentinel get`: resources of a kind, or one of them."""

from __future__ import annotations

import click
import msgspec

from sentinel.cli import options
from sentinel.cli.client import rows, session
from sentinel.cli.client.fleet import FleetClient
from sentinel.cli.client.session import ServerOptions
from sentinel.cli.client.watch import INTERVAL, follow
from sentinel.cli.options import Output
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.process import ExitCode


class Merged(msgspec.Struct, frozen=True):
    """All pages of a list as if they were one."""

    page: int
    size: int
    total: int
    items: list[msgspec.Raw]
    next: str | None = None


@click.command
@click.argument("plural")
@click.argument("resource_id", metavar="[ID]", default="")
@session.selector_option
@click.option("--order", metavar="FIELD", default="", help="name, created_time, updated_time or id; and desc.")
@click.option("--all", "is_all", is_flag=True, help="All pages as one body; the table always has them all.")
@click.option("-w", "--watch", "is_watching", is_flag=True, help="Go on and print what changes.")
@options.output_option
@session.server_options
def get(
    plural: str,
    resource_id: str,
    selector: str,
    order: str,
    is_all: bool,
    is_watching: bool,
    output: Output,
    target: ServerOptions,
) -> int:
    """Print the resources of a kind, or the one with this ID.

    With --output json or yaml, what is printed is the body of the API's answer: of a list its first page, unless
    --all is given.
    """
    query = {"labels": selector, "order": order}
    if resource_id and (selector or order or is_all):
        raise click.UsageError("expected either an ID, or --selector, --order and --all")
    if is_watching:
        return follow(target, plural, resource_id, query=query, output=output, interval=INTERVAL)

    async def one(fleet: FleetClient) -> int:
        fetched = await fleet.get(plural, resource_id)
        if output is Output.TABLE:
            required = (await fleet.kind(fetched.plural)).required_adapters
            _print_rows([rows.of(fetched.document)], required)
        else:
            click.echo(options.encode(msgspec.Raw(fetched.body), output))
        return ExitCode.SUCCESS

    async def several(fleet: FleetClient) -> int:
        if output is Output.TABLE:
            items = [rows.read(each) async for each in fleet.walk(plural, {**query, "fields": rows.FIELDS})]
            _print_rows(items, (await fleet.kind(plural)).required_adapters)
        elif is_all:
            found = [each async for each in fleet.walk(plural, query)]
            click.echo(options.encode(Merged(1, len(found), len(found), found), output))
        else:
            click.echo(options.encode(msgspec.Raw(await fleet.page(plural, query)), output))
        return ExitCode.SUCCESS

    return target.use(one if resource_id else several)


def _print_rows(items: list[rows.Item], required: tuple[str, ...]) -> None:
    for line in rows.lines(items, required, SystemClock().now()):
        click.echo(line)
