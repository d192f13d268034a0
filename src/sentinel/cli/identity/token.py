"""`sentinel token`: creates, lists and revokes tokens: of a server, in a database, or in a tokens file.

Servers reload a tokens file when it changes. A token is printed once, when it is created; only its hash is stored.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import UNSET, UnsetType

from sentinel.cli import options, table
from sentinel.cli.client.session import fail, parse_duration
from sentinel.cli.identity.accounts import Accounts
from sentinel.cli.identity.target import (
    AccountsTarget,
    accounts_options,
    is_given,
    is_on_command_line,
    tokens_file_option,
)
from sentinel.cli.options import OutputFormat
from sentinel.core.access import Role
from sentinel.drivers.identity import token_editing, tokens_file
from sentinel.drivers.identity.tokens_file import StoredToken
from sentinel.ports.errors import Misconfigured
from sentinel.runtime.process import ExitCode
from sentinel.web.accounts.schemas import TokenDocument

_SHOWN_DIGITS = 12
"""Digits of a hash: enough to identify a token."""
_MIN_PREFIX = 6


class PrintedToken(msgspec.Struct, frozen=True):
    """A token in the JSON or YAML output.

    Only `new` prints the token itself, because the file keeps only its hash. `list` and `revoke` print the first
    digits of the hash, which cannot be used to sign in.
    """

    name: str
    role: Role
    token: str | UnsetType = UNSET
    sha256: str | UnsetType = UNSET
    adapter: str | UnsetType = UNSET
    instance: str | UnsetType = UNSET


class TokenList(msgspec.Struct, frozen=True):
    """The JSON or YAML output of `list` and `revoke`."""

    tokens: tuple[PrintedToken, ...]


class IssuedTokens(msgspec.Struct, frozen=True):
    """The JSON or YAML output of `list` and `revoke` for tokens of a server or database."""

    tokens: Sequence[TokenDocument]


class _InvalidTokens(click.ClickException):
    """An invalid token or file, with one problem per line."""

    exit_code = ExitCode.MISCONFIGURED

    def show(self, file: object = None) -> None:
        click.echo(self.message, err=True)


class _Place(msgspec.Struct, frozen=True):
    """Where the tokens are: in a file, or else on a server or in a database."""

    file: Path | None
    target: AccountsTarget


def _place_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add `--tokens-file`, `--server` and `--database-url`, as the parameter `place`."""

    @functools.wraps(command)
    def with_place(*args: Any, file: Path | None, target: AccountsTarget, **kwargs: Any) -> int:
        if file is not None and any(map(is_on_command_line, ("server", "database_url"))):
            raise click.UsageError("expected one of --tokens-file, --server and --database-url, got several")
        if file is None and not any(map(is_given, ("server", "database_url"))):
            raise click.UsageError("expected --tokens-file, --server or --database-url, got none")
        return command(*args, place=_Place(file, target), **kwargs)

    return tokens_file_option(accounts_options(with_place))


@click.group()
def token() -> None:
    """Create, list and revoke the tokens that a server accepts."""


@token.command()
@click.option("--name", required=True, help="The owner; several tokens may have the same name.")
@click.option(
    "--role", required=True, type=click.Choice([role.value for role in Role]), help="What the token permits."
)
@click.option("--adapter", default="", metavar="NAME", help="The adapter it may report as; for the role adapter.")
@click.option(
    "--instance", default="", metavar="ID", help="The only instance it may register; for the role agent."
)
@click.option(
    "--expires-in",
    "lifetime",
    metavar="DURATION",
    callback=parse_duration,
    help="How long it is valid, such as 720h. Default: until it is revoked. Not with --tokens-file.",
)
@_place_options
@options.output_option
def new(
    name: str,
    role: str,
    adapter: str,
    instance: str,
    lifetime: timedelta | None,
    place: _Place,
    output: OutputFormat,
) -> int:
    """Create a token, print it once, and store its hash.

    If a tokens file does not exist, it is created and only its owner can read it. Servers accept the token within
    about a second.
    """
    if place.file is None:

        async def work(accounts: Accounts) -> int:
            issued = await accounts.issue_token(
                name=name, role=Role(role), adapter=adapter, instance=instance, lifetime=lifetime
            )
            click.echo(issued.token if output is OutputFormat.TABLE else options.encode(issued, output))
            return ExitCode.SUCCESS

        return place.target.run(work)
    if lifetime is not None:
        raise click.UsageError("--expires-in: expected --server or --database-url; a tokens file has no expiry")
    with _errors_shown(place.file):
        secret = token_editing.add_token(
            place.file, name=name, role=Role(role), adapter=adapter, instance=instance
        )
    if output is OutputFormat.TABLE:
        click.echo(secret)
    else:
        printed = PrintedToken(
            name, Role(role), token=secret, adapter=adapter or UNSET, instance=instance or UNSET
        )
        click.echo(options.encode(printed, output))
    return ExitCode.SUCCESS


@token.command("list")
@_place_options
@options.output_option
def list_tokens(place: _Place, output: OutputFormat) -> int:
    """List tokens: names, roles, and their ids, or in a file the first digits of their hashes."""
    if place.file is not None:
        with _errors_shown(place.file):
            found = tokens_file.read(place.file).tokens
        _print(found, output)
        return ExitCode.SUCCESS

    async def work(accounts: Accounts) -> int:
        _print_issued(await accounts.tokens(), output)
        return ExitCode.SUCCESS

    return place.target.run(work)


@token.command()
@click.option("--name", help="Revoke the tokens with this name.")
@click.option("--id", "token_id", metavar="ID", help="Revoke the token with this id. Not with --tokens-file.")
@click.option(
    "--sha256",
    "prefix",
    metavar="PREFIX",
    help="Revoke the tokens whose hash begins with this. Only with --tokens-file.",
)
@_place_options
@options.output_option
def revoke(name: str | None, token_id: str | None, prefix: str | None, place: _Place, output: OutputFormat) -> int:
    """Revoke tokens and print them.

    With several options, a token must match all of them. Exits with 1 if none matches. Servers reject a revoked
    token within about a second.
    """
    if place.file is not None:
        return _revoke_in_file(place.file, name, token_id, prefix, output)
    if prefix is not None:
        raise click.UsageError("--sha256: expected --tokens-file; give --id for tokens of a server")
    if name is None and token_id is None:
        raise click.UsageError("expected --name, --id, or both")

    async def work(accounts: Accounts) -> int:
        revoked = [
            each for each in await accounts.tokens() if name in (None, each.name) and token_id in (None, each.id)
        ]
        for each in revoked:
            await accounts.revoke_token(each.id)
        if not revoked:
            return fail("no such token")
        _print_issued(revoked, output)
        return ExitCode.SUCCESS

    return place.target.run(work)


def _revoke_in_file(
    file: Path, name: str | None, token_id: str | None, prefix: str | None, output: OutputFormat
) -> int:
    if token_id is not None:
        raise click.UsageError("--id: expected --server or --database-url; give --sha256 for tokens of a file")
    if name is None and prefix is None:
        raise click.UsageError("expected --name, --sha256, or both")
    if prefix is not None and len(prefix) < _MIN_PREFIX:
        raise click.UsageError(f"--sha256: expected at least {_MIN_PREFIX} digits, got {len(prefix)}")
    digits = (prefix or "").lower()

    def matches(stored: StoredToken) -> bool:
        return (name is None or stored.name == name) and stored.sha256.startswith(digits)

    with _errors_shown(file):
        revoked = token_editing.revoke_tokens(file, matches=matches)
    if not revoked:
        click.echo(f"{file}: no such token", err=True)
        return ExitCode.FAILURE
    _print(revoked, output)
    return ExitCode.SUCCESS


@contextmanager
def _errors_shown(file: Path) -> Iterator[None]:
    try:
        yield
    except Misconfigured as error:
        raise _InvalidTokens(str(error)) from error
    except OSError as error:
        raise _InvalidTokens(f"{file}: cannot be changed: {(error.strerror or str(error)).lower()}") from error


def _print(found: Sequence[StoredToken], output: OutputFormat) -> None:
    if output is not OutputFormat.TABLE:
        click.echo(options.encode(TokenList(tuple(map(_entry, found))), output))
        return
    columns: dict[str, list[str]] = {
        "NAME": [each.name for each in found],
        "ROLE": [each.role for each in found],
        "ADAPTER": [each.adapter for each in found],
        "INSTANCE": [each.instance for each in found],
        "SHA256": [each.sha256[:_SHOWN_DIGITS] for each in found],
    }
    if not any(columns["INSTANCE"]):  # most files have no instances, so keep their table narrow
        del columns["INSTANCE"]
    for line in table.render(tuple(columns), list(zip(*columns.values(), strict=True))):
        click.echo(line)


def _print_issued(found: Sequence[TokenDocument], output: OutputFormat) -> None:
    if output is not OutputFormat.TABLE:
        click.echo(options.encode(IssuedTokens(found), output))
        return
    columns: dict[str, list[str]] = {
        "ID": [each.id for each in found],
        "NAME": [each.name for each in found],
        "ROLE": [each.role for each in found],
        "ADAPTER": [each.adapter or "" for each in found],
        "INSTANCE": [each.instance or "" for each in found],
        "EXPIRES": [
            "" if each.expires_time is None else f"{each.expires_time:%Y-%m-%d %H:%M:%S}Z" for each in found
        ],
    }
    if not any(columns["INSTANCE"]):
        del columns["INSTANCE"]
    for line in table.render(tuple(columns), list(zip(*columns.values(), strict=True))):
        click.echo(line)


def _entry(stored: StoredToken) -> PrintedToken:
    return PrintedToken(
        stored.name,
        stored.role,
        sha256=stored.sha256[:_SHOWN_DIGITS],
        adapter=stored.adapter or UNSET,
        instance=stored.instance or UNSET,
    )
