"""`sentinel hub config check`: every problem of a configuration with its place, before a proxy gets it."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NoReturn

import click
import msgspec

from sentinel.cli import options
from sentinel.cli.hub import config_file
from sentinel.cli.hub.picture import Pictures
from sentinel.cli.options import OutputFormat
from sentinel.core import kdl
from sentinel.core.proxy import check as proxy_check
from sentinel.core.proxy.check import Report
from sentinel.core.proxy.facts import Facts, Resolve
from sentinel.core.proxy.problem import Level, Problem, Severity, syntax_problems
from sentinel.core.proxy.semantics import questions
from sentinel.runtime.settings.report import printable


class CheckResult(msgspec.Struct, frozen=True):
    """The output for scripts, for one file."""

    valid: bool
    problems: tuple[Problem, ...]


class FileCheckResult(msgspec.Struct, frozen=True):
    """The output for scripts, for one of several files."""

    file: str
    valid: bool
    problems: tuple[Problem, ...]


class _Checked(msgspec.Struct, frozen=True):
    """A file that was checked. If it could not be read, that is its problem."""

    name: str
    source: bytes
    report: Report


@click.command
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--level",
    type=click.Choice([str(level.value) for level in Level]),
    default=str(Level.SEMANTICS.value),
    show_default=True,
    help="1: the syntax. 2: also the blocks, keys and values. 3: also whether it can work.",
)
@click.option(
    "--resolve",
    type=click.Choice([choice.value for choice in Resolve]),
    default=Resolve.WARN.value,
    show_default=True,
    envvar="SENTINEL_RESOLVE",
    help="At level 3, what an address that does not resolve is; off looks up none. Or set SENTINEL_RESOLVE."
    " Link-local addresses and metadata services of clouds are errors in any case.",
)
@click.option("--upgrade", is_flag=True, help="Print the file, written in version 1 of KDL, in version 2.")
@options.output_option
def check(files: Sequence[str], level: str, resolve: str, upgrade: bool, output: OutputFormat) -> None:
    """Check configuration files of the proxy, and print every problem with its position and what to write instead.

    FILE may be - for standard input. Secrets and certificate files are not checked, because only a hub and the
    proxy's host have them. Exits with 0 if all files can be used, even if there are warnings, otherwise with 2.
    """
    if files.count(config_file.STANDARD_INPUT) > 1:
        raise click.UsageError("expected - for standard input once, got it twice")
    if upgrade:
        if len(files) > 1 or output is not OutputFormat.TABLE:
            raise click.UsageError("--upgrade expects one file, and prints it without --output")
        _upgrade(files[0])
        return
    checked = [_check(name, Level(int(level)), Resolve(resolve)) for name in files]
    if output is OutputFormat.TABLE:
        _print_problems(checked)
    else:
        click.echo(options.encode(_for_scripts(checked), output))
    if not all(each.report.is_valid for each in checked):
        raise click.exceptions.Exit(2)


def _check(name: str, level: Level, resolve: Resolve) -> _Checked:
    source = config_file.read(name)
    if isinstance(source, Problem):
        return _Checked(name, b"", Report((source,)))
    parsed = kdl.parse(source)
    facts = _look_up(parsed.document, resolve) if level >= Level.SEMANTICS else None
    return _Checked(name, source, proxy_check.check(parsed, level=level, facts=facts))


def _look_up(document: kdl.Document, resolve: Resolve) -> Facts:
    """Return what can be found out without a hub: which addresses resolve."""
    hosts = questions(document).hosts
    if resolve is Resolve.OFF or not hosts:
        return Facts(resolve=resolve)
    # Imported here: most files have only IP addresses, and asyncio alone takes longer than to check one.
    from sentinel.drivers.proxy_facts import SystemProxyFacts
    from sentinel.ports.proxy_facts import gather

    async def look_up() -> Facts:
        return await gather(SystemProxyFacts(), questions(document), now=datetime.now(UTC), resolve=resolve)

    return asyncio.run(look_up())


def _for_scripts(checked: Sequence[_Checked]) -> CheckResult | list[FileCheckResult]:
    if len(checked) == 1:
        report = checked[0].report
        return CheckResult(report.is_valid, report.problems)
    return [FileCheckResult(each.name, each.report.is_valid, each.report.problems) for each in checked]


def _print_problems(checked: Sequence[_Checked]) -> None:
    is_colored = sys.stdout.isatty()
    for each in checked:
        for line in _lines(each.name, each.source, each.report.problems, is_colored=is_colored):
            click.echo(line)
    for each in checked:
        click.echo(f"{printable(each.name)}: {_summary(each.report.problems)}")


def _lines(name: str, source: bytes, problems: Sequence[Problem], *, is_colored: bool) -> Iterator[str]:
    if not problems:
        return
    pictures = Pictures(name, source, is_colored=is_colored)
    for problem in problems:
        yield from pictures.draw(problem)
        yield ""


def _summary(problems: Sequence[Problem]) -> str:
    counts = Counter(problem.severity for problem in problems)
    found = [
        f"{counts[severity]} {severity.value}{'s' if counts[severity] > 1 else ''}"
        for severity in (Severity.ERROR, Severity.WARNING)
        if counts[severity]
    ]
    return ", ".join(found) or "ok"


def _upgrade(name: str) -> None:
    source = config_file.read(name)
    if isinstance(source, Problem):
        _refuse(name, b"", [source])
    unread = (kdl.Code.TOO_LARGE, kdl.Code.INVALID_UTF8)
    lost = [problem for problem in kdl.parse(source).problems if problem.code in unread]
    if lost:
        _refuse(name, source, syntax_problems(lost))
    upgraded = kdl.upgrade(source)
    click.echo(upgraded.text.encode(), nl=False)
    if upgraded.problems:
        _refuse(f"{name} (upgraded)", upgraded.text.encode(), syntax_problems(upgraded.problems))


def _refuse(name: str, source: bytes, problems: Sequence[Problem]) -> NoReturn:
    for line in _lines(name, source, problems, is_colored=sys.stderr.isatty()):
        click.echo(line, err=True)
    click.echo(f"{printable(name)}: {_summary(problems)}", err=True)
    raise click.exceptions.Exit(2)
