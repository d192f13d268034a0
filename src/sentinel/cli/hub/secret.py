"""`sentinel hub secret set|list|delete`: values that configurations name, on a hub.

A value comes from a prompt or from stdin, never from an argument, which everyone who lists processes could see.
"""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Final

import click

from sentinel.cli import options, table
from sentinel.cli.client import session
from sentinel.cli.client.session import ServerOptions
from sentinel.cli.hub.client import HubApiClient, run
from sentinel.cli.hub.list_output import print_list
from sentinel.cli.options import OutputFormat
from sentinel.core.hub import secret_names
from sentinel.hub.secrets import MAX_VALUE_LENGTH
from sentinel.runtime.process import ExitCode

_MAX_BYTES: Final = 4 * MAX_VALUE_LENGTH
_HEADER: Final = ("NAME", "UPDATED", "USED BY")


@click.command("set")
@click.argument("name", metavar="NAME")
@session.server_options
def set_secret(name: str, server: ServerOptions) -> int:
    """Store the secret NAME, or replace its value.

    Asks for the value on a terminal; otherwise the value is all of standard input, such as a certificate in PEM.
    Of a single line, the line break at its end is dropped.
    """
    if not secret_names.is_secret_name(name):
        raise click.BadParameter(f"expected {secret_names.NAME_EXPECTED}", param_hint="NAME")
    value = _read_value()

    async def work(hub: HubApiClient) -> int:
        await hub.put_secret(name, value)
        click.echo(f"secret {name} stored")
        return ExitCode.SUCCESS

    return run(server, work)


@click.command("list")
@options.output_option
@session.server_options
def list_secrets(output: OutputFormat, server: ServerOptions) -> int:
    """List the names of secrets, and the versions that use them. Values are never shown."""

    async def work(hub: HubApiClient) -> int:
        found = await hub.secrets()
        rows = [(each.name, _time(each.updated_time), ", ".join(each.used_by)) for each in found]
        print_list(found, table.render(_HEADER, rows), output)
        return ExitCode.SUCCESS

    return run(server, work)


@click.command("delete")
@click.argument("name", metavar="NAME")
@session.server_options
def delete_secret(name: str, server: ServerOptions) -> int:
    """Delete the secret NAME. Instances that have it keep it."""

    async def work(hub: HubApiClient) -> int:
        await hub.delete_secret(name)
        click.echo(f"secret {name} deleted")
        return ExitCode.SUCCESS

    return run(server, work)


def _read_value() -> str:
    if sys.stdin.isatty():
        value: str = click.prompt("Value", hide_input=True, confirmation_prompt=True, err=True)
        return value
    data = sys.stdin.buffer.read(_MAX_BYTES + 1)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise click.UsageError("standard input: expected text in UTF-8, got something else") from None
    line = text.removesuffix("\n").removesuffix("\r")
    value = line if "\n" not in line else text
    if not 0 < len(value) <= MAX_VALUE_LENGTH:
        raise click.UsageError(f"standard input: expected 1 to {MAX_VALUE_LENGTH} characters")
    return value


def _time(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}"
