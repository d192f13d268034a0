"""`sentinel adapter dead-letters`: what an adapter could not use, for people to look at, try again, or forget."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from sentinel.adapter import loading
from sentinel.adapter import settings as adapter_settings
from sentinel.cli import options, table
from sentinel.cli.options import Output
from sentinel.cli.wiring.broker import build_dead_letters
from sentinel.core import events
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.ports.subscription import DeadLetter, DeadLetters
from sentinel.runtime.process import ExitCode
from sentinel.runtime.redaction import Redactor
from sentinel.runtime.settings.broker import load_broker

_HEADER = ("ID", "SUBJECT", "TYPE", "TIME", "ATTEMPTS", "REASON")

F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T")

_LONGEST = {"ID": 80, "SUBJECT": 40, "TYPE": 60, "REASON": 80}
"""So that a table stays one: strangers may send anything."""


class Letter(msgspec.Struct, frozen=True):
    """A dead letter, as it is printed for scripts."""

    id: str
    type: str
    subject: str
    reason: str
    time: datetime | None
    attempts: int


class DeadLetterList(msgspec.Struct, frozen=True):
    """Dead letters, as they are printed for scripts."""

    subscription: str
    dead_letters: tuple[Letter, ...]


class Dealt(msgspec.Struct, frozen=True):
    """How many were dealt with, as it is printed for scripts."""

    subscription: str
    count: int


class _Refused(click.ClickException):
    """Bad usage or bad configuration: everything that is wrong, a line each."""

    exit_code = ExitCode.MISCONFIGURED

    def show(self, file: object = None) -> None:
        click.echo(self.message, err=True)


def _whose(command: F) -> F:
    config = click.option(
        "--config", type=click.Path(path_type=Path), help="The adapter's settings file, which says its name."
    )
    broker = click.option(
        "--broker-config",
        type=click.Path(path_type=Path),
        help="Broker settings: a file, a ConfigMap's manifest, or the directory where one is mounted.",
    )
    subscription = click.option(
        "--subscription", metavar="ID", help="Whose letters; otherwise BROKER_SUBSCRIPTION_ID, or by --config."
    )
    return config(broker(subscription(command)))


def _which(command: F) -> F:
    ids = click.argument("ids", metavar="[ID]...", nargs=-1)
    everything = click.option("--all", "everything", is_flag=True, help="All of them.")
    return ids(everything(command))


@click.group("dead-letters")
def dead_letters() -> None:
    """Look at, replay or drop the messages that an adapter gave up."""


@dead_letters.command("list")
@_whose
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="How many at most.")
@options.output_option
def list_letters(
    config: Path | None, broker_config: Path | None, subscription: str | None, limit: int, output: Output
) -> int:
    """List dead letters with the reason for each, the oldest first; they stay where they are."""
    name, letters = _open(config, broker_config, subscription)
    found = _done(letters.peek(limit=limit))
    if output is not Output.TABLE:
        click.echo(options.encode(DeadLetterList(name, tuple(_printed(letter) for letter in found)), output))
        return ExitCode.SUCCESS
    rows = [_row(letter) for letter in found]
    for line in table.render(_HEADER, rows, numbers=("ATTEMPTS",)):
        click.echo(line)
    return ExitCode.SUCCESS


@dead_letters.command()
@_which
@_whose
@options.output_option
def replay(
    ids: Sequence[str],
    everything: bool,
    config: Path | None,
    broker_config: Path | None,
    subscription: str | None,
    output: Output,
) -> int:
    """Deliver dead letters to the adapter again, those with these ids or --all; nobody else gets them."""
    name, letters = _open(config, broker_config, subscription)
    return _deal("replayed", name, letters.replay, ids, everything, output)


@dead_letters.command()
@_which
@_whose
@options.output_option
def drop(
    ids: Sequence[str],
    everything: bool,
    config: Path | None,
    broker_config: Path | None,
    subscription: str | None,
    output: Output,
) -> int:
    """Forget dead letters, those with these ids or --all."""
    name, letters = _open(config, broker_config, subscription)
    return _deal("dropped", name, letters.drop, ids, everything, output)


def _deal(
    verb: str,
    subscription: str,
    deal: Callable[[str | None], Awaitable[int]],
    ids: Sequence[str],
    everything: bool,
    output: Output,
) -> int:
    if bool(ids) == everything:
        raise click.UsageError("expected the ids of dead letters, or --all")
    chosen: Sequence[str | None] = [None] if everything else ids
    count = 0
    missing: list[str] = []
    for letter_id in chosen:
        dealt = _done(deal(letter_id))
        count += dealt
        if letter_id is not None and not dealt:
            missing.append(letter_id)
    if output is Output.TABLE:
        click.echo(f"{verb} {count}")
    else:
        click.echo(options.encode(Dealt(subscription, count), output))
    for letter_id in missing:
        click.echo(f"{letter_id}: no such dead letter", err=True)
    return ExitCode.FAILURE if missing else ExitCode.SUCCESS


def _open(config: Path | None, broker_config: Path | None, given: str | None) -> tuple[str, DeadLetters]:
    """The subscription's name and its dead letters."""
    broker = load_broker(source=broker_config, environ=os.environ)
    if broker.settings is None:
        problems = [str(problem) for problem in broker.problems]
        raise _Refused(
            "\n".join(problems) or "BROKER_TYPE: expected rabbitmq or pubsub, by environment or --broker-config"
        )
    subscription = given or broker.settings.subscription_id or (_name_by(config) if config is not None else "")
    if not subscription:
        raise click.UsageError("expected --subscription ID, BROKER_SUBSCRIPTION_ID, or --config FILE")
    try:
        return subscription, build_dead_letters(broker.settings, subscription=subscription)
    except Misconfigured as error:
        raise _Refused(str(error)) from error


def _name_by(config: Path) -> str:
    loaded = adapter_settings.load(file=config, environ=os.environ)
    if loaded.settings is None:
        raise _Refused("\n".join(str(problem) for problem in loaded.problems))
    try:
        return loading.load_adapter(loaded.settings.task, folder=config.parent).name
    except loading.InvalidAdapter as error:
        raise _Refused(f"{config}: task: {error}") from error


def _done(work: Awaitable[T]) -> T:
    async def awaited() -> T:
        return await work

    try:
        return asyncio.run(awaited())
    except Unavailable as error:
        click.echo(Redactor().redact(str(error)), err=True)
        raise click.exceptions.Exit(ExitCode.FAILURE) from error
    except Misconfigured as error:
        raise _Refused(str(error)) from error


def _printed(letter: DeadLetter) -> Letter:
    return Letter(letter.id, letter.type, letter.subject, letter.reason, letter.time, letter.attempts)


def _row(letter: DeadLetter) -> tuple[str, ...]:
    time = "" if letter.time is None else events.timestamp(letter.time)
    cells = (letter.id, letter.subject, letter.type, time, str(letter.attempts), letter.reason)
    return tuple(_cut(cell, _LONGEST.get(name)) for name, cell in zip(_HEADER, cells, strict=True))


def _cut(text: str, longest: int | None) -> str:
    return text if longest is None or len(text) <= longest else f"{text[: longest - 1]}…"
