"""`sentinel hub config list|get|push|diff`: configurations of proxies and their versions, on a hub."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from http import HTTPStatus

import click
import msgspec

from sentinel.cli import options, table
from sentinel.cli.client import session
from sentinel.cli.client.session import ServerOptions, fail
from sentinel.cli.hub import config_file
from sentinel.cli.hub.client import HubApiClient, run
from sentinel.cli.hub.picture import Pictures
from sentinel.cli.hub.version_argument import CONFIG, VERSION
from sentinel.cli.hub.watched_list import show, watch_options
from sentinel.cli.options import OutputFormat
from sentinel.core.counted import counted
from sentinel.core.hub import versions
from sentinel.core.hub.versions import VersionName
from sentinel.core.proxy.problem import Level, Problem, Severity
from sentinel.drivers.rest.errors import RequestRejected
from sentinel.hub.schemas import ConfigDocument, RefusedText, VersionDocument
from sentinel.runtime.process import ExitCode
from sentinel.runtime.settings.report import printable, quoted

_COLORS = {"+": "green", "-": "red"}


class _Refusal(msgspec.Struct, frozen=True):
    """The part of a problem document that says what is wrong with a text."""

    errors: Sequence[RefusedText] = ()


@click.command("list")
@click.argument("config_id", metavar="[CONFIG]", type=CONFIG, required=False)
@watch_options
@options.output_option
@session.server_options
def list_configs(
    config_id: str | None, watch: bool, interval: timedelta, output: OutputFormat, server: ServerOptions
) -> int:
    """List configurations, or the versions of CONFIG, newest first.

    With --watch, JSON is a line for each list, and YAML a document.
    """
    pause = interval if watch else None
    if config_id is None:
        return show(server, HubApiClient.configs, render=_config_lines, output=output, interval=pause)
    return show(server, lambda hub: hub.versions(config_id), render=_version_lines, output=output, interval=pause)


@click.command
@click.argument("name", metavar="CONFIG[@N]")
@options.output_option
@session.server_options
def get(name: str, output: OutputFormat, server: ServerOptions) -> int:
    """Print the text of a version, of the latest one without a number; with --output json everything about it."""
    version = versions.parse(name)
    if version is None and not versions.is_config_id(name):
        raise click.UsageError(f"expected a configuration such as edge, or edge@3, got {quoted(name)}")

    async def work(hub: HubApiClient) -> int:
        wanted = version or VersionName(name, (await hub.config(name)).latest_version)
        found = await hub.version(wanted)
        if output is OutputFormat.TABLE:
            click.echo(str(found.content).encode(), nl=False)
        else:
            click.echo(options.encode(found, output))
        return ExitCode.SUCCESS

    return run(server, work)


@click.command
@click.argument("config_id", metavar="CONFIG", type=CONFIG)
@click.argument("file", metavar="FILE", required=False)
@click.option(
    "--copy-of", type=click.IntRange(min=1), help="Save an earlier version once more, instead of a FILE."
)
@click.option("--summary", default="", help="What changed and why, for people.")
@options.output_option
@session.server_options
def push(
    config_id: str,
    file: str | None,
    copy_of: int | None,
    summary: str,
    output: OutputFormat,
    server: ServerOptions,
) -> int:
    """Save FILE, or - for standard input, as a new version of CONFIG, which is created if it does not exist.

    Nothing runs it until it is assigned or deployed. A file with errors is not saved.
    """
    if (file is None) == (copy_of is None):
        raise click.UsageError("expected either a FILE or --copy-of")
    source = b""
    if file is not None:
        read = config_file.read(file)
        if isinstance(read, Problem):
            raise click.UsageError(f"{file}: {read.message}")
        source = read
    try:
        content = source.decode()
    except UnicodeDecodeError:
        fail(f"{file}: expected UTF-8; see: sentinel hub config check {file}")
        return ExitCode.MISCONFIGURED

    async def work(hub: HubApiClient) -> int:
        try:
            saved = await _save(hub, config_id, content, copy_of, summary)
        except RequestRejected as rejected:
            problems = _problems(rejected)
            if not problems:
                raise
            return _refuse(file or "", source, problems)
        message = f"{saved.config_id}@{saved.version} saved"
        if saved.warnings:
            message += f" with {counted(len(saved.warnings), 'warning')}"
        if saved.restart_required:
            message += "; the proxy has to restart for it"
        click.echo(message if output is OutputFormat.TABLE else options.encode(saved, output))
        return ExitCode.SUCCESS

    return run(server, work)


@click.command
@click.argument("version", type=VERSION)
@click.argument("base", type=click.IntRange(min=1), required=False, metavar="[FROM]")
@options.output_option
@session.server_options
def diff(version: VersionName, base: int | None, output: OutputFormat, server: ServerOptions) -> int:
    """Print what VERSION, such as edge@3, changes against version FROM of the same configuration, or the one
    before."""

    async def work(hub: HubApiClient) -> int:
        found = await hub.diff(version, base)
        if output is not OutputFormat.TABLE:
            click.echo(options.encode(found, output))
            return ExitCode.SUCCESS
        for line in found.diff.splitlines():
            color = _COLORS.get(line[:1]) if session.is_terminal() else None
            click.echo(click.style(printable(line), fg=color) if color else printable(line))
        if found.restart_required:
            click.echo("the proxy has to restart for this change", err=True)
        return ExitCode.SUCCESS

    return run(server, work)


async def _save(
    hub: HubApiClient, config_id: str, content: str, copy_of: int | None, summary: str
) -> VersionDocument:
    if copy_of is not None:
        return await hub.add_version(config_id, summary, copy_of=copy_of)
    try:
        return await hub.add_version(config_id, summary, content=content)
    except RequestRejected as rejected:
        if rejected.status != HTTPStatus.NOT_FOUND:
            raise
    return await hub.create(config_id, content, summary)


def _problems(rejected: RequestRejected) -> list[Problem]:
    """Return what is wrong with the text, if that is why the request was rejected."""
    if rejected.status != HTTPStatus.UNPROCESSABLE_ENTITY:
        return []
    try:
        refusal = msgspec.json.decode(rejected.body, type=_Refusal)
    except msgspec.MsgspecError:
        return []
    return [
        Problem(
            Level(each.level), Severity.ERROR, each.code, each.line, each.column, each.message, each.suggestion
        )
        for each in refusal.errors
    ]


def _refuse(name: str, source: bytes, problems: Sequence[Problem]) -> int:
    pictures = Pictures(name, source, is_colored=False)
    for problem in problems:
        for line in pictures.draw(problem):
            click.echo(line, err=True)
        click.echo("", err=True)
    fail(f"{name}: not saved, {counted(len(problems), 'error')}")
    return ExitCode.MISCONFIGURED


def _config_lines(found: Sequence[ConfigDocument], _: datetime) -> Iterator[str]:
    header = ("ID", "LATEST", "ASSIGNED", "CREATED", "UPDATED", "BY")
    return table.render(header, [_config_row(each) for each in found], numbers=("LATEST", "ASSIGNED"))


def _version_lines(found: Sequence[VersionDocument], _: datetime) -> Iterator[str]:
    header = ("VERSION", "CREATED", "BY", "RESTART", "WARNINGS", "SUMMARY")
    return table.render(header, [_version_row(each) for each in found], numbers=("WARNINGS",))


def _config_row(config: ConfigDocument) -> tuple[str, ...]:
    return (
        config.id,
        str(config.latest_version),
        str(config.assigned),
        _time(config.created_time),
        _time(config.updated_time),
        config.created_by,
    )


def _version_row(version: VersionDocument) -> tuple[str, ...]:
    return (
        f"{version.config_id}@{version.version}",
        _time(version.created_time),
        version.created_by,
        "yes" if version.restart_required else "no",
        str(len(version.warnings)),
        version.change_summary,
    )


def _time(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}"
