"""`sentinel user`: adds, lists, changes and removes the users of a server or database.

A password comes from a prompt or from stdin, never from an option, which everyone who lists processes could see.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
import msgspec

from sentinel.cli import options, table
from sentinel.cli.identity.accounts import Accounts
from sentinel.cli.identity.target import AccountsTarget, accounts_options
from sentinel.cli.options import OutputFormat
from sentinel.core.access import Role
from sentinel.runtime.process import ExitCode
from sentinel.web.accounts import users
from sentinel.web.accounts.schemas import UserDocument
from sentinel.web.errors import Invalid

_ROLE = click.Choice([role.value for role in users.ROLES])


class UserOutput(msgspec.Struct, frozen=True):
    """The JSON or YAML output of `list`."""

    users: Sequence[UserDocument]


_password_option = click.option(
    "--password-stdin", "from_stdin", is_flag=True, help="Read the password from the first line of stdin."
)


@click.group()
def user() -> None:
    """Add, list, change and remove the users who sign in to a server."""


@user.command()
@click.argument("name")
@click.option("--role", required=True, type=_ROLE, help="What the user may do.")
@_password_option
@accounts_options
@options.output_option
def add(name: str, role: str, from_stdin: bool, target: AccountsTarget, output: OutputFormat) -> int:
    """Add the user NAME.

    The first admin is added with --database-url, while no server uses a SQLite file. Asks for the password on a
    terminal.
    """
    _check(name=name)
    password = _read_password(from_stdin)

    async def work(accounts: Accounts) -> int:
        added = await accounts.add_user(name, Role(role), password)
        return _print(added, f"user {name} added with the role {role}", output)

    return target.run(work)


@user.command("list")
@accounts_options
@options.output_option
def list_users(target: AccountsTarget, output: OutputFormat) -> int:
    """List users: names, roles, and when they were added and changed."""

    async def work(accounts: Accounts) -> int:
        found = await accounts.users()
        if output is not OutputFormat.TABLE:
            click.echo(options.encode(UserOutput(found), output))
            return ExitCode.SUCCESS
        rows = [(each.name, each.role, _time(each.created_time), _time(each.updated_time)) for each in found]
        for line in table.render(("NAME", "ROLE", "ADDED", "CHANGED"), rows):
            click.echo(line)
        return ExitCode.SUCCESS

    return target.run(work)


@user.command("set-role")
@click.argument("name")
@click.argument("role", type=_ROLE)
@accounts_options
@options.output_option
def set_role(name: str, role: str, target: AccountsTarget, output: OutputFormat) -> int:
    """Give the user NAME another ROLE, and end the user's sign-ins.

    The last admin cannot be demoted.
    """

    async def work(accounts: Accounts) -> int:
        changed = await accounts.change_user(name, role=Role(role))
        return _print(changed, f"user {name} has the role {role}", output)

    return target.run(work)


@user.command("set-password")
@click.argument("name")
@_password_option
@accounts_options
@options.output_option
def set_password(name: str, from_stdin: bool, target: AccountsTarget, output: OutputFormat) -> int:
    """Give the user NAME another password, and end the user's sign-ins. Asks for it on a terminal."""
    password = _read_password(from_stdin)

    async def work(accounts: Accounts) -> int:
        changed = await accounts.change_user(name, password=password)
        return _print(changed, f"user {name} has another password", output)

    return target.run(work)


@user.command()
@click.argument("name")
@accounts_options
@options.output_option
def remove(name: str, target: AccountsTarget, output: OutputFormat) -> int:
    """Remove the user NAME, and end the user's sign-ins. The last admin cannot be removed."""

    async def work(accounts: Accounts) -> int:
        await accounts.remove_user(name)
        if output is OutputFormat.TABLE:
            click.echo(f"user {name} removed")
        else:
            click.echo(options.encode({"name": name}, output))
        return ExitCode.SUCCESS

    return target.run(work)


def _read_password(from_stdin: bool) -> str:
    if from_stdin:
        # Bytes, because what is not UTF-8 should be an error and not another password.
        line = sys.stdin.buffer.readline().rstrip(b"\r\n")
        try:
            password = line.decode()
        except UnicodeDecodeError:
            raise click.UsageError("--password-stdin: expected UTF-8, got something else") from None
    elif sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        raise click.UsageError("expected --password-stdin, or a terminal to ask for the password")
    _check(password=password)
    return password


def _check(*, name: str | None = None, password: str | None = None) -> None:
    try:
        users.check(name=name, password=password)
    except Invalid as error:
        raise click.UsageError(str(error)) from error


def _print(changed: UserDocument, message: str, output: OutputFormat) -> int:
    click.echo(message if output is OutputFormat.TABLE else options.encode(changed, output))
    return ExitCode.SUCCESS


def _time(time: object) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}Z"
