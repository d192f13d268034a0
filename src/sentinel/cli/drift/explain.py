"""`sentinel drift explain`: the judgement on two versions of an object, without a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import click
import msgspec

from sentinel.cli import options, table
from sentinel.cli.drift import object_file
from sentinel.cli.options import OutputFormat
from sentinel.cli.wiring.serve import refuse
from sentinel.core.drift import paths
from sentinel.core.drift.fingerprint import Fingerprint, fingerprint
from sentinel.core.drift.judge import judge
from sentinel.core.drift.judgement import Actor, Change, Judgement, Reason, ValueSummary
from sentinel.core.drift.object_fields import Node
from sentinel.core.json import Malformed
from sentinel.core.times import timestamp
from sentinel.drift import settings as drift_settings
from sentinel.drift.settings import DriftSettings
from sentinel.ports.kube import KubeObject
from sentinel.runtime.process import ExitCode
from sentinel.runtime.settings.report import SettingsProblem, file_origin, printable, quoted

_MEANINGS: Final[Mapping[Reason, str]] = {
    Reason.LABEL_LOST: "a label that selects the operator's objects was removed or changed",
    Reason.OWNED_FIELD_CHANGED: "another manager changed a field that the operator owns",
    Reason.OWNED_FIELD_REMOVED: "a field that the operator owns was removed",
    Reason.UNOWNED_ADDED: "another manager added a field, or changed a default",
    Reason.DELETED: "the object was deleted",
    Reason.FINGERPRINT_MISMATCH: "the object differs from the fingerprint that the operator attested",
    Reason.OPERATOR_WRITE: "the operator wrote it",
    Reason.STATUS: "only the status changed",
    Reason.BOOKKEEPING: "only fields changed that the API server maintains",
    Reason.UNOWNED: "the change is about nothing that the operator owns, and the rules do not count it",
    Reason.UNATTESTED: "there is no earlier version, and managedFields show no fingerprint by the operator",
    Reason.IGNORED: "a rule or the object's annotation ignores the change",
    Reason.UNCHANGED: "nothing changed",
}


_MAX_FIELDS: Final = 50
"""How many fields of an added or removed subtree are shown."""


class _Invalid(Exception):
    """The input is invalid."""

    def __init__(self, *problems: SettingsProblem) -> None:
        super().__init__(*problems)
        self.problems = problems


@click.command
@click.option(
    "--before",
    "before_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    required=True,
    help="The object before, as JSON or YAML; /dev/null: it is seen for the first time.",
)
@click.option(
    "--after",
    "after_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    required=True,
    help="The object after; /dev/null: it was deleted.",
)
@click.option("--config", type=click.Path(path_type=Path), help="The settings file of `sentinel drift`.")
@options.set_option
@options.output_option
@options.log_options
def explain(
    before_file: Path,
    after_file: Path,
    config: Path | None,
    sets: Sequence[str],
    output: OutputFormat,
    log_overrides: Mapping[str, str],
) -> int:
    """Explain whether a change of an object is drift, and which rule decides.

    Each file holds one object with its managedFields: `kubectl get --show-managed-fields --output yaml`. Reads
    neither a cluster nor environment variables. Exits with 0 whatever the judgement is.
    """
    try:
        judged = _judge(_load(config, sets, log_overrides), before_file, after_file)
    except _Invalid as error:
        return refuse(error.problems)
    if output is OutputFormat.TABLE:
        for line in _lines(judged):
            click.echo(line)
    else:
        click.echo(options.encode(judged.judgement.encode(), output))
    return ExitCode.SUCCESS


def _load(config: Path | None, sets: Sequence[str], log_overrides: Mapping[str, str]) -> DriftSettings:
    # The environment of this process is not that of the sidecar.
    loaded = drift_settings.load(file=config, environ={}, sets=sets, overrides=log_overrides)
    if loaded.settings is None:
        raise _Invalid(*loaded.problems)
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    return loaded.settings


class _Judged(msgspec.Struct, frozen=True):
    """A judgement, with the fields of both objects."""

    judgement: Judgement
    before: Mapping[str, Node]
    after: Mapping[str, Node]


def _judge(settings: DriftSettings, before_file: Path, after_file: Path) -> _Judged:
    before, after = _read(before_file, "--before"), _read(after_file, "--after")
    earlier = None if before is None else _fingerprint(before, before_file, settings)
    later = None if after is None else _fingerprint(after, after_file, settings, earlier)
    if earlier is None and later is None:
        raise _problem(after_file, "--after", "expected an object, got none; --before has none either")
    if earlier is not None and later is not None:
        _check_same(earlier, later, after_file)
    judgement, _ = judge(earlier, after, settings.rules)
    return _Judged(judgement, {} if earlier is None else earlier.nodes, {} if later is None else later.nodes)


def _read(file: Path, option: str) -> KubeObject | None:
    document = object_file.read(file)
    if isinstance(document, SettingsProblem):
        # A problem with the file as a whole has no field.
        raise _Invalid(msgspec.structs.replace(document, field=document.field or option))
    return document


def _fingerprint(
    document: KubeObject, file: Path, settings: DriftSettings, earlier: Fingerprint | None = None
) -> Fingerprint:
    try:
        found = fingerprint(document, settings.rules, earlier=earlier)
    except Malformed as error:
        field, _, message = str(error).partition(": ")
        raise _problem(file, field, message) from error
    if found.kind == "Secret":
        raise _problem(file, "kind", "expected any kind but Secret, got Secret")
    if found.kind not in [kind.kind for kind in settings.kinds]:
        click.echo(printable(f"warning: {file}: {found.kind} is not one of the watched kinds"), err=True)
    return found


def _check_same(earlier: Fingerprint, later: Fingerprint, file: Path) -> None:
    for field, one, other in (
        ("kind", earlier.kind, later.kind),
        ("metadata.namespace", earlier.namespace, later.namespace),
        ("metadata.name", earlier.name, later.name),
    ):
        if one != other:
            raise _problem(file, field, f"expected {quoted(one)} as in --before, got {quoted(other)}")


def _problem(file: Path, field: str, message: str) -> _Invalid:
    return _Invalid(SettingsProblem.at(file_origin(file), field, message))


def _lines(judged: _Judged) -> Iterator[str]:
    """The judgement, what decided it, and a row for each change."""
    judgement = judged.judgement
    yield printable(f"{'drift' if judgement.is_drift else 'no drift'}: {judgement.summary}")
    yield f"reason: {judgement.reason} ({_MEANINGS[judgement.reason]})"
    yield f"rule: {judgement.rule}"
    yield printable(f"actor: {_who(judgement.actor)}")
    if judgement.changes:
        yield ""
        yield from table.render(
            ("CHANGE", "PATH", "BEFORE", "AFTER"),
            [row for each in judgement.changes for row in _rows(each, judged)],
        )


def _rows(change: Change, judged: _Judged) -> Iterator[tuple[str, str, str, str]]:
    """The change, and the fields of an added or removed subtree. Confidential values are hashes."""
    yield change.op, change.path, _value(change.before), _value(change.after)
    if not change.path:  # the whole object
        return
    before, after = (
        {path: node for path, node in nodes.items() if not node.is_container and paths.is_below(path, change.path)}
        for nodes in (judged.before, judged.after)
    )
    inner = [] if before and after else sorted({*before, *after})
    for path in inner[:_MAX_FIELDS]:
        yield change.op, f"  {path}", _node(before.get(path)), _node(after.get(path))
    if len(inner) > _MAX_FIELDS:
        yield change.op, f"  and {len(inner) - _MAX_FIELDS} more", "", ""


def _who(actor: Actor) -> str:
    subresource = f", subresource {actor.subresource}" if actor.subresource else ""
    time = f" at {timestamp(actor.time)}" if actor.time else ""
    return f"{actor}{subresource}{time}"


def _node(node: Node | None) -> str:
    return "" if node is None else _value(node.summary)


def _value(value: ValueSummary | None) -> str:
    return "" if value is None else str(value)
