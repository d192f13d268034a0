"""`sentinel token`: creates, lists and revokes the tokens in a server's tokens file.

Servers reload the file when it changes. A token is printed once, when it is created; the file stores its hash.
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
from sentinel.cli.options import OutputFormat
from sentinel.core.access import Role
from sentinel.drivers.identity import token_editing, tokens_file
from sentinel.drivers.identity.tokens_file import StoredToken
from sentinel.ports.errors import Misconfigured
from sentinel.runtime.process import ExitCode

F = TypeVar("F", bound=Callable[..., object])

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


class _InvalidTokens(click.ClickException):
    """An invalid token or file, with one problem per line."""

    exit_code = ExitCode.MISCONFIGURED

    def show(self, file: object = None) -> None:
        click.echo(self.message, err=True)


def _tokens_file(command: F) -> F:
    return click.option(
        "--tokens-file",
        "file",
        type=click.Path(path_type=Path, dir_okay=False),
        required=True,
        help="The tokens file that the server reads.",
    )(command)


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
@_tokens_file
@options.output_option
def new(name: str, role: str, adapter: str, instance: str, file: Path, output: OutputFormat) -> int:
    """Create a token, print it once, and store its hash in the tokens file.

    If the file does not exist, it is created and only its owner can read it. Servers accept the token within about
    a second.
    """
    with _errors_shown(file):
        secret = token_editing.add_token(file, name=name, role=Role(role), adapter=adapter, instance=instance)
    if output is OutputFormat.TABLE:
        click.echo(secret)
    else:
        printed = PrintedToken(
            name, Role(role), token=secret, adapter=adapter or UNSET, instance=instance or UNSET
        )
        click.echo(options.encode(printed, output))
    return ExitCode.SUCCESS


@token.command("list")
@_tokens_file
@options.output_option
def list_tokens(file: Path, output: OutputFormat) -> int:
    """List the tokens of a file: names, roles, and the first digits of their hashes."""
    with _errors_shown(file):
        found = tokens_file.read(file).tokens
    _print(found, output)
    return ExitCode.SUCCESS


@token.command()
@click.option("--name", help="Revoke the tokens with this name.")
@click.option("--sha256", "prefix", metavar="PREFIX", help="Revoke the tokens whose hash begins with this.")
@_tokens_file
@options.output_option
def revoke(name: str | None, prefix: str | None, file: Path, output: OutputFormat) -> int:
    """Remove tokens from the file and print them.

    With --name and --sha256, a token must match both. Exits with 1 if none matches.
    """
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


def _entry(stored: StoredToken) -> PrintedToken:
    return PrintedToken(
        stored.name,
        stored.role,
        sha256=stored.sha256[:_SHOWN_DIGITS],
        adapter=stored.adapter or UNSET,
        instance=stored.instance or UNSET,
    )
