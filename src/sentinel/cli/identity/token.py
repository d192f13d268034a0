"""`sentinel token`: the tokens that a server accepts, made and revoked in its tokens file.

Servers read the file again when it changes, so nothing has to be restarted. A token is printed once, when it is
made; the file has its hash only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import click
import msgspec
from msgspec import UNSET, UnsetType

from sentinel.cli import options, table
from sentinel.cli.options import Output
from sentinel.core.access import Role
from sentinel.drivers.identity import token_editing, tokens_file
from sentinel.drivers.identity.tokens_file import StoredToken
from sentinel.ports.errors import Misconfigured
from sentinel.runtime.process import ExitCode

F = TypeVar("F", bound=Callable[..., object])

_SHOWN = 12
"""Digits of a hash: enough to tell tokens apart, and to name one."""
_SHORTEST_PREFIX = 6


class CreatedToken(msgspec.Struct, frozen=True):
    """A new token, as it is printed for scripts."""

    name: str
    role: Role
    token: str
    adapter: str | UnsetType = UNSET
    instance: str | UnsetType = UNSET


class ListedToken(msgspec.Struct, frozen=True):
    """A token in the file, as it is printed for scripts: without anything that could be used."""

    name: str
    role: Role
    sha256: str
    """How its hash begins."""
    adapter: str | UnsetType = UNSET
    instance: str | UnsetType = UNSET


class TokenList(msgspec.Struct, frozen=True):
    """Tokens, as they are printed for scripts."""

    tokens: tuple[ListedToken, ...]


class _Refused(click.ClickException):
    """Bad usage, or a file that will not do: everything that is wrong with it, a line each."""

    exit_code = ExitCode.MISCONFIGURED

    def show(self, file: object = None) -> None:
        click.echo(self.message, err=True)


def _tokens_file(command: F) -> F:
    return click.option(
        "--tokens-file",
        "file",
        type=click.Path(path_type=Path, dir_okay=False),
        required=True,
        help="The file of tokens that the server reads.",
    )(command)


@click.group()
def token() -> None:
    """Make, list and revoke the tokens that a server accepts."""


@token.command()
@click.option("--name", required=True, help="Whose it is; several tokens may have one name.")
@click.option("--role", required=True, type=click.Choice([role.value for role in Role]), help="What it is for.")
@click.option(
    "--adapter", default="", metavar="NAME", help="As which adapter it may report; for the role adapter."
)
@click.option(
    "--instance", default="", metavar="ID", help="The only instance it may register; for the role agent."
)
@_tokens_file
@options.output_option
def new(name: str, role: str, adapter: str, instance: str, file: Path, output: Output) -> int:
    """Make a token, print it once, and keep its hash in the tokens file.

    The file is made, readable by its owner only, where there is none. Servers that read it accept the token
    within a second or so.
    """
    with _explained(file):
        made = token_editing.add_token(file, name=name, role=Role(role), adapter=adapter, instance=instance)
    if output is Output.TABLE:
        click.echo(made)
    else:
        printed = CreatedToken(name, Role(role), made, adapter or UNSET, instance or UNSET)
        click.echo(options.encode(printed, output))
    return ExitCode.SUCCESS


@token.command("list")
@_tokens_file
@options.output_option
def list_tokens(file: Path, output: Output) -> int:
    """List the tokens of a file: names, roles, and how their hashes begin."""
    with _explained(file):
        found = tokens_file.read(file).tokens
    _print(found, output)
    return ExitCode.SUCCESS


@token.command()
@click.option("--name", help="Revoke what has this name.")
@click.option("--sha256", "prefix", metavar="PREFIX", help="Revoke what has a hash that begins like this.")
@_tokens_file
@options.output_option
def revoke(name: str | None, prefix: str | None, file: Path, output: Output) -> int:
    """Take tokens out of the file, and print which.

    With --name and --sha256, only those that fit both. Exits with 1 where none does.
    """
    if name is None and prefix is None:
        raise click.UsageError("expected --name, --sha256, or both")
    if prefix is not None and len(prefix) < _SHORTEST_PREFIX:
        raise click.UsageError(f"--sha256: expected at least {_SHORTEST_PREFIX} digits, got {len(prefix)}")
    begins = (prefix or "").lower()

    def is_meant(one: StoredToken) -> bool:
        return (name is None or one.name == name) and one.sha256.startswith(begins)

    with _explained(file):
        gone = token_editing.revoke_tokens(file, is_meant=is_meant)
    if not gone:
        click.echo(f"{file}: no such token", err=True)
        return ExitCode.FAILURE
    _print(gone, output)
    return ExitCode.SUCCESS


@contextmanager
def _explained(file: Path) -> Iterator[None]:
    try:
        yield
    except Misconfigured as error:
        raise _Refused(str(error)) from error
    except OSError as error:
        raise _Refused(f"{file}: cannot be changed: {(error.strerror or str(error)).lower()}") from error


def _print(found: Sequence[StoredToken], output: Output) -> None:
    if output is not Output.TABLE:
        click.echo(options.encode(TokenList(tuple(map(_entry, found))), output))
        return
    columns: dict[str, list[str]] = {
        "NAME": [one.name for one in found],
        "ROLE": [one.role for one in found],
        "ADAPTER": [one.adapter for one in found],
        "INSTANCE": [one.instance for one in found],
        "SHA256": [one.sha256[:_SHOWN] for one in found],
    }
    if not any(columns["INSTANCE"]):  # most files have none, and their table stays narrow
        del columns["INSTANCE"]
    for line in table.render(tuple(columns), list(zip(*columns.values(), strict=True))):
        click.echo(line)


def _entry(one: StoredToken) -> ListedToken:
    return ListedToken(one.name, one.role, one.sha256[:_SHOWN], one.adapter or UNSET, one.instance or UNSET)
