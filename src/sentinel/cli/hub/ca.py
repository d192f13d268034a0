"""`sentinel hub ca`: a certificate authority for a hub and its agents, for teams that have none of their own.

Exit codes: 0 for success, 1 if the folder cannot be used for this, 2 for wrong usage.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from sentinel.cli import options, table
from sentinel.cli.database.errors import exit_with
from sentinel.cli.options import OutputFormat
from sentinel.cli.wiring.extras import extra
from sentinel.ports.errors import Misconfigured
from sentinel.runtime.process import ExitCode
from sentinel.runtime.revoked_serials import hexadecimal
from sentinel.runtime.settings.report import quoted

if TYPE_CHECKING:  # needs cryptography, which only an extra installs
    from sentinel.cli.hub.ca_folder import CaFolder, CertificateState, PairFiles

F = TypeVar("F", bound=Callable[..., object])

_CA_DAYS: Final = 3650
_DAYS: Final = 365
_MAX_DAYS: Final = 36_500
_MAX_ORGANIZATION: Final = 64
_LABEL: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST: Final = re.compile(rf"(?=.{{1,253}}\Z)(?:\*\.)?(?:{_LABEL}\.)*(?![0-9]+\Z){_LABEL}", re.ASCII)


class CertificateOutput(msgspec.Struct, frozen=True):
    """A certificate and its files, in the JSON or YAML output."""

    certificate: str
    key: str
    serial: str
    expires_time: datetime


class InitOutput(msgspec.Struct, frozen=True):
    """The JSON or YAML output of `init`."""

    organization: str
    hosts: Sequence[str]
    ca: CertificateOutput
    hub: CertificateOutput


class RenewHubOutput(CertificateOutput, frozen=True):
    """The JSON or YAML output of `renew-hub`."""

    hosts: Sequence[str]


class EarlierCertificate(msgspec.Struct, frozen=True):
    """A certificate of the same id that can still be used."""

    serial: str
    expires_time: datetime


class IssueOutput(CertificateOutput, frozen=True):
    """The JSON or YAML output of `issue`."""

    id: str
    earlier: Sequence[EarlierCertificate]


class RevokeOutput(msgspec.Struct, frozen=True):
    """The JSON or YAML output of `revoke`."""

    id: str
    revoked: Sequence[str]
    revoked_before: Sequence[str]


class ListedCertificate(msgspec.Struct, frozen=True):
    """A certificate of an agent."""

    id: str
    serial: str
    expires_time: datetime
    state: CertificateState


class CertificateList(msgspec.Struct, frozen=True):
    """The JSON or YAML output of `list`."""

    certificates: Sequence[ListedCertificate]


def _parse_hosts(context: click.Context, parameter: click.Parameter, texts: Sequence[str]) -> Sequence[str]:
    for text in texts:
        if not _is_host(text):
            raise click.BadParameter(f"expected a host name or an IP address without a port, got {quoted(text)}")
    return tuple(dict.fromkeys(texts))


def _parse_organization(context: click.Context, parameter: click.Parameter, text: str) -> str:
    if not text.strip() or not text.isprintable() or len(text) > _MAX_ORGANIZATION:
        raise click.BadParameter(f"expected a name of at most {_MAX_ORGANIZATION} characters, got {quoted(text)}")
    return text


def _dir_option(command: F) -> F:
    return click.option(
        "--dir",
        "folder",
        required=True,
        type=click.Path(path_type=Path, file_okay=False),
        help="The folder of the certificate authority.",
    )(command)


def _days_option(name: str, what: str, default: int) -> Callable[[F], F]:
    return click.option(
        name,
        type=click.IntRange(1, _MAX_DAYS),
        default=default,
        show_default=True,
        help=f"How many days {what} is valid.",
    )


def _host_option(help_text: str, *, required: bool) -> Callable[[F], F]:
    return click.option("--host", "hosts", multiple=True, required=required, callback=_parse_hosts, help=help_text)


@click.command()
@_dir_option
@_host_option("A host name or IP address of the hub, as agents write it. Repeat it for each.", required=True)
@click.option(
    "--organization", required=True, callback=_parse_organization, help="The organization in all certificates."
)
@_days_option("--days", "the hub's certificate", _DAYS)
@_days_option("--ca-days", "the authority", _CA_DAYS)
@options.output_option
def init(
    folder: Path, hosts: Sequence[str], organization: str, days: int, ca_days: int, output: OutputFormat
) -> None:
    """Make a certificate authority, and a certificate for the hub.

    Writes ca.crt, ca.key, hub.crt, hub.key and revoked. Exits with 1 if the folder has an authority already. Keep
    ca.key off the hub's host: with it, anyone can make certificates that the hub accepts.
    """
    with _ca_in(folder) as ca:
        made = ca.create(
            hosts=hosts,
            organization=organization,
            now=_now(),
            ca_lifetime=timedelta(days=ca_days),
            hub_lifetime=timedelta(days=days),
        )
    shown = InitOutput(
        organization, hosts, CertificateOutput(**_files(made.ca)), CertificateOutput(**_files(made.hub))
    )
    lines = [
        f"{made.ca.certificate}: the authority, valid until {_time(shown.ca.expires_time)}",
        f"{made.hub.certificate}: the hub, {', '.join(hosts)}, valid until {_time(shown.hub.expires_time)}",
    ]
    _print(shown, lines, output)


@click.command("renew-hub")
@_dir_option
@_host_option("A host name or IP address of the hub. Default: those of its present certificate.", required=False)
@_days_option("--days", "the certificate", _DAYS)
@options.output_option
def renew_hub(folder: Path, hosts: Sequence[str], days: int, output: OutputFormat) -> None:
    """Replace the hub's certificate and key. A running hub uses them within a second of getting the files."""
    with _ca_in(folder) as ca:
        files = ca.renew_hub(hosts=hosts, now=_now(), lifetime=timedelta(days=days))
    shown = RenewHubOutput(**_files(files), hosts=files.pair.hosts())
    named = f"{shown.certificate}: the hub, {', '.join(shown.hosts)}, valid until {_time(shown.expires_time)}"
    _print(shown, [named], output)


def _parse_id(context: click.Context, parameter: click.Parameter, text: str) -> str:
    with _extra():
        from sentinel.cli.hub.ca_folder import id_problem
    problem = id_problem(text)
    if problem is not None:
        raise click.BadParameter(problem)
    return text


_id_argument = click.argument("instance", metavar="ID", callback=_parse_id)


@click.command()
@_id_argument
@_dir_option
@_days_option("--days", "the certificate", _DAYS)
@options.output_option
def issue(instance: str, folder: Path, days: int, output: OutputFormat) -> None:
    """Issue a certificate for the agent of the instance ID.

    Writes agents/ID.crt and agents/ID.key. Run it again to renew the certificate: the earlier one stays valid
    until it expires, unless it is revoked.
    """
    with _ca_in(folder) as ca:
        issued = ca.issue(instance, now=_now(), lifetime=timedelta(days=days))
    earlier = [EarlierCertificate(hexadecimal(each.serial), each.expires_time) for each in issued.earlier]
    shown = IssueOutput(**_files(issued.files), id=instance, earlier=earlier)
    lines = [f"{shown.certificate}: {instance}, serial {shown.serial}, valid until {_time(shown.expires_time)}"]
    lines += [
        f"the earlier certificate {each.serial} stays valid until {_time(each.expires_time)}, unless it is revoked"
        for each in earlier
    ]
    _print(shown, lines, output)


@click.command()
@_id_argument
@_dir_option
@options.output_option
def revoke(instance: str, folder: Path, output: OutputFormat) -> None:
    """Revoke every certificate that was issued for the instance ID.

    Adds their serials to the file revoked. A running hub refuses them within a second of getting the file. Exits
    with 1 if there is no certificate of this id.
    """
    with _ca_in(folder) as ca:
        revocation = ca.revoke(instance)
    shown = RevokeOutput(instance, [*map(hexadecimal, revocation.revoked)], [*map(hexadecimal, revocation.before)])
    lines = [f"{serial}: revoked" for serial in shown.revoked]
    lines += [f"{serial}: was revoked before" for serial in shown.revoked_before]
    _print(shown, lines, output)


@click.command("list")
@_dir_option
@options.output_option
def list_certificates(folder: Path, output: OutputFormat) -> None:
    """List the certificates that were issued for agents, the oldest first."""
    with _ca_in(folder) as ca:
        found = ca.certificates(_now())
    listed = [
        ListedCertificate(record.id, hexadecimal(record.serial), record.expires_time, state)
        for record, state in found
    ]
    rows = [(each.id, each.serial, _time(each.expires_time), each.state.value) for each in listed]
    _print(CertificateList(listed), table.render(("ID", "SERIAL", "EXPIRES", "STATE"), rows), output)


@contextmanager
def _ca_in(folder: Path) -> Iterator[CaFolder]:
    """The authority in a folder. Its errors end the command."""
    with _extra():
        from sentinel.cli.hub.ca_folder import CaFolder, UnusableCa
    try:
        yield CaFolder(folder)
    except UnusableCa as error:
        exit_with(str(error), ExitCode.FAILURE)


@contextmanager
def _extra() -> Iterator[None]:
    try:
        with extra("hub", who="sentinel hub ca"):
            yield
    except Misconfigured as error:
        exit_with(str(error), ExitCode.MISCONFIGURED)


def _is_host(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return _HOST.fullmatch(text) is not None
    return True


def _files(files: PairFiles) -> dict[str, Any]:
    return {
        "certificate": str(files.certificate),
        "key": str(files.key),
        "serial": hexadecimal(files.pair.serial),
        "expires_time": files.pair.expires_time,
    }


def _print(shown: msgspec.Struct, lines: Iterator[str] | Sequence[str], output: OutputFormat) -> None:
    if output is not OutputFormat.TABLE:
        click.echo(options.encode(shown, output))
        return
    for line in lines:
        click.echo(line)


def _now() -> datetime:
    return datetime.now(UTC)


def _time(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}Z"
