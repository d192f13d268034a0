"""`sentinel adapter dead-letters`: list, replay and drop the messages that an adapter dead-lettered."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypedDict, TypeVar, Unpack

import click
import msgspec

from sentinel.adapter import loading
from sentinel.adapter.settings import AdapterSettings
from sentinel.cli import options, table
from sentinel.cli.options import OutputFormat
from sentinel.cli.wiring.broker import build_dead_letters
from sentinel.core.times import timestamp
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.ports.subscription import DeadLetter, DeadLetters, DeadLetterSummary
from sentinel.runtime.process import ExitCode
from sentinel.runtime.secrets import Redactor
from sentinel.runtime.settings import loader
from sentinel.runtime.settings.broker import load_broker

_HEADER = ("ID", "SUBJECT", "TYPE", "TIME", "ATTEMPTS", "REASON")
_MAX_WIDTHS = {"ID": 80, "SUBJECT": 40, "TYPE": 60, "REASON": 80}
"""Messages may contain anything, so cells are shortened to keep the table readable."""

F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T")


class DeadLetterList(msgspec.Struct, frozen=True):
    """The output of `list` for scripts."""

    subscription: str
    dead_letters: tuple[DeadLetterSummary, ...]


class LetterCount(msgspec.Struct, frozen=True):
    """The output of `replay` and `drop` for scripts.

    `count` is the number of dead letters that were replayed or dropped.
    """

    subscription: str
    count: int


class _Selection(TypedDict):
    ids: Sequence[str]
    everything: bool
    config: Path | None
    broker_config: Path | None
    subscription: str | None
    output: OutputFormat


class _SettingsError(click.ClickException):
    """Invalid configuration: all problems, one per line."""

    exit_code = ExitCode.MISCONFIGURED

    def show(self, file: object = None) -> None:
        click.echo(self.message, err=True)


def _subscription_options(command: F) -> F:
    config = click.option(
        "--config",
        type=click.Path(path_type=Path),
        help="The adapter's settings file, which names the adapter.",
    )
    subscription = click.option(
        "--subscription",
        metavar="ID",
        help="The subscription; otherwise BROKER_SUBSCRIPTION_ID, or the adapter of --config.",
    )
    return config(options.broker_option(subscription(options.output_option(command))))


def _selection_options(command: F) -> F:
    ids = click.argument("ids", metavar="[ID]...", nargs=-1)
    everything = click.option("--all", "everything", is_flag=True, help="All dead letters.")
    return ids(everything(_subscription_options(command)))


@click.group("dead-letters")
def dead_letters() -> None:
    """List, replay or drop the messages that an adapter dead-lettered."""


@dead_letters.command("list")
@_subscription_options
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="How many at most.")
def list_letters(
    config: Path | None, broker_config: Path | None, subscription: str | None, limit: int, output: OutputFormat
) -> int:
    """List dead letters with their reasons, the oldest first, without removing them."""
    name, letters = _open(config, broker_config, subscription)
    found = _run(letters.peek(limit=limit))
    if output is not OutputFormat.TABLE:
        click.echo(options.encode(DeadLetterList(name, tuple(letter.summary() for letter in found)), output))
        return ExitCode.SUCCESS
    rows = [_row(letter) for letter in found]
    for line in table.render(_HEADER, rows, numbers=("ATTEMPTS",)):
        click.echo(line)
    return ExitCode.SUCCESS


@dead_letters.command()
@_selection_options
def replay(**selection: Unpack[_Selection]) -> int:
    """Deliver the dead letters with these ids, or --all, to this adapter again and to no other."""
    return _apply("replayed", lambda letters: letters.replay, selection)


@dead_letters.command()
@_selection_options
def drop(**selection: Unpack[_Selection]) -> int:
    """Delete the dead letters with these ids, or --all."""
    return _apply("dropped", lambda letters: letters.drop, selection)


def _apply(
    verb: str, method: Callable[[DeadLetters], Callable[[str | None], Awaitable[int]]], selection: _Selection
) -> int:
    ids, everything = selection["ids"], selection["everything"]
    name, letters = _open(selection["config"], selection["broker_config"], selection["subscription"])
    if bool(ids) == everything:
        raise click.UsageError("expected the ids of dead letters, or --all")
    chosen: Sequence[str | None] = [None] if everything else ids
    counts = [(letter_id, _run(method(letters)(letter_id))) for letter_id in chosen]
    total = sum(count for _, count in counts)
    if selection["output"] is OutputFormat.TABLE:
        click.echo(f"{verb} {total}")
    else:
        click.echo(options.encode(LetterCount(name, total), selection["output"]))
    missing = [letter_id for letter_id, count in counts if letter_id is not None and not count]
    for letter_id in missing:
        click.echo(f"{letter_id}: no such dead letter", err=True)
    return ExitCode.FAILURE if missing else ExitCode.SUCCESS


def _open(config: Path | None, broker_config: Path | None, given: str | None) -> tuple[str, DeadLetters]:
    """Return the name of the subscription and its dead letters."""
    broker = load_broker(source=broker_config, environ=os.environ)
    if broker.settings is None:
        problems = [str(problem) for problem in broker.problems]
        raise _SettingsError(
            "\n".join(problems) or "BROKER_TYPE: expected rabbitmq or pubsub, by environment or --broker-config"
        )
    subscription = (
        given or broker.settings.subscription_id or (_adapter_name(config) if config is not None else "")
    )
    if not subscription:
        raise click.UsageError("expected --subscription ID, BROKER_SUBSCRIPTION_ID, or --config FILE")
    try:
        return subscription, build_dead_letters(broker.settings, subscription=subscription)
    except Misconfigured as error:
        raise _SettingsError(str(error)) from error


def _adapter_name(config: Path) -> str:
    loaded = loader.load(AdapterSettings, file=config, environ=os.environ)
    if loaded.settings is None:
        raise _SettingsError("\n".join(str(problem) for problem in loaded.problems))
    try:
        return loading.load_adapter(loaded.settings.task, folder=config.parent).name
    except loading.InvalidAdapter as error:
        raise _SettingsError(str(loading.task_problem(error, file=config, loaded=loaded))) from error


def _run(call: Awaitable[T]) -> T:
    async def awaited() -> T:
        return await call

    try:
        return asyncio.run(awaited())
    except Unavailable as error:
        click.echo(Redactor().redact(str(error)), err=True)
        raise click.exceptions.Exit(ExitCode.FAILURE) from error
    except Misconfigured as error:
        raise _SettingsError(str(error)) from error


def _row(letter: DeadLetter) -> tuple[str, ...]:
    time = "" if letter.time is None else timestamp(letter.time)
    cells = (letter.id, letter.subject, letter.type, time, str(letter.attempts), letter.reason)
    return tuple(_shortened(cell, _MAX_WIDTHS.get(name)) for name, cell in zip(_HEADER, cells, strict=True))


def _shortened(text: str, max_width: int | None) -> str:
    return text if max_width is None or len(text) <= max_width else f"{text[: max_width - 1]}…"
