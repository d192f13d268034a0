"""`sentinel apply`: makes resources what files say they should be, and shows first what that changes.

Each change is made to exactly the version that the plan was made from, so that nobody's work is undone unseen.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import assert_never

import click
import msgspec
from msgspec import UNSET, UnsetType

from sentinel.cli import options
from sentinel.cli.client import difference, manifest, session
from sentinel.cli.client.fleet import FleetClient
from sentinel.cli.client.plan import PlanAction, Planner, PlanStep, as_is
from sentinel.cli.client.session import ServerOptions
from sentinel.cli.options import Output
from sentinel.core.json import Json
from sentinel.drivers.rest.errors import RequestRejected, ServerError
from sentinel.runtime.process import ExitCode
from sentinel.runtime.settings.report import printable

_PRECONDITION_FAILED = 412


class AppliedStep(msgspec.Struct, frozen=True):
    """What became of one resource, as it is printed for scripts."""

    action: PlanAction
    plural: str
    name: str
    id: str | None
    """None for one that was not created because nothing was."""
    generation: int | None
    patch: dict[str, Json] | UnsetType = UNSET


class ApplyResult(msgspec.Struct, frozen=True):
    """What became of it all."""

    dry_run: bool
    resources: list[AppliedStep]


@click.command
@click.option(
    "-f",
    "--file",
    "files",
    metavar="FILE",
    type=click.Path(path_type=Path),
    multiple=True,
    required=True,
    help="YAML or JSON; several documents in a file, several files, or - for standard input.",
)
@click.option("--dry-run", "is_dry", is_flag=True, help="Show what would be done, and write nothing.")
@click.option("--yes", "-y", "is_agreed", is_flag=True, help="Do not ask, on a terminal, before writing.")
@options.output_option
@session.server_options
def apply(files: Sequence[Path], is_dry: bool, is_agreed: bool, output: Output, target: ServerOptions) -> int:
    """Make resources what the files say, and show first what that changes.

    Each document has kind (or plural), name, and any of labels, spec, id and parent. What is missing is created,
    what differs is changed: a key that spec or labels no longer have is removed.
    """
    try:
        wanted = [each for file in files for each in manifest.read(file)]
    except manifest.Unusable as error:
        click.echo(str(error), err=True)
        return ExitCode.MISCONFIGURED
    steps: list[PlanStep] = []

    async def look(fleet: FleetClient) -> int:
        planner = Planner(fleet)
        for each in wanted:
            steps.append(await planner.step(each, steps))
        return ExitCode.SUCCESS

    code = target.use(look)
    if code != ExitCode.SUCCESS:
        return code
    # Always first, and with the data on stdout only where that is for people, too.
    is_data = output is not Output.TABLE
    is_coloured = sys.stderr.isatty() if is_data else session.is_on_screen()
    for step in steps:
        for line in _shown(step, is_coloured=is_coloured):
            click.echo(line, err=is_data)
    changes = sum(step.action is not PlanAction.NONE for step in steps)
    if is_dry or not changes:
        return _report(ApplyResult(is_dry, [_planned(step) for step in steps]), output)
    if not is_agreed and sys.stdin.isatty():
        question = "Apply this change?" if changes == 1 else f"Apply these {changes} changes?"
        if not click.confirm(question, err=True):
            return session.fail("nothing was changed")

    async def write(fleet: FleetClient) -> int:
        done: list[AppliedStep] = []
        for step in steps:
            try:
                done.append(await _write(fleet, step, done))
            except ServerError as error:
                left = len(steps) - len(done)
                if is_data:
                    _report(ApplyResult(False, done), output)
                return session.fail(
                    f"{step.wanted.where}: {step.title}: {error} ({left} of {len(steps)} not applied)"
                )
            if not is_data:
                click.echo(_said(done[-1]))
        return _report(ApplyResult(False, done), output) if is_data else ExitCode.SUCCESS

    return target.use(write)


async def _write(fleet: FleetClient, step: PlanStep, done: Sequence[AppliedStep]) -> AppliedStep:
    wanted = step.wanted
    match step.action:
        case PlanAction.NONE:
            return _planned(step)
        case PlanAction.CREATE:
            body: dict[str, object] = {
                "name": wanted.name,
                "labels": wanted.labels or {},
                "spec": wanted.spec or {},
            }
            if wanted.id:
                body["id"] = wanted.id
            parent = done[step.parent].id if isinstance(step.parent, int) else step.parent
            if parent:
                body["owner_references"] = {"id": parent}
            created = (await fleet.create(step.plural, body)).document
            return AppliedStep(PlanAction.CREATE, step.plural, wanted.name, created.id, created.generation)
        case PlanAction.CHANGE if step.current is not None:
            resource_id = step.current.document.id
            try:
                changed = await fleet.patch(step.plural, resource_id, step.patch, etag=step.current.etag)
            except RequestRejected as refused:
                if refused.status == _PRECONDITION_FAILED:
                    raise ServerError("somebody has changed it since the plan was made; apply again") from refused
                raise
            session.mention_pause(changed)
            generation = changed.document.generation
            return AppliedStep(PlanAction.CHANGE, step.plural, wanted.name, resource_id, generation, step.patch)
        case _:
            raise AssertionError("a change is made to something")


def _planned(step: PlanStep) -> AppliedStep:
    document = step.current.document if step.current else None
    return AppliedStep(
        step.action,
        step.plural,
        step.wanted.name,
        (document.id if document else step.wanted.id) or None,
        document.generation if document else None,
        step.patch or UNSET,
    )


def _shown(step: PlanStep, *, is_coloured: bool) -> Iterator[str]:
    """What a step changes, for people to look at before it is done."""
    wanted = step.wanted
    if step.action is PlanAction.NONE:
        return
    labels, spec = as_is(step.current) if step.current else ({}, {})
    after_labels: Json = labels if wanted.labels is None else dict(wanted.labels)
    after_spec: Json = spec if wanted.spec is None else wanted.spec
    heading = f"create {step.title}" if step.current is None else f"change {step.title} ({wanted.name})"
    yield click.style(printable(heading), bold=True) if is_coloured else printable(heading)
    before, after = _view(labels, spec), _view(after_labels, after_spec)
    yield from difference.lines(before, after, is_coloured=is_coloured)


def _view(labels: Json, spec: Json) -> Json:
    return {name: value for name, value in (("labels", labels), ("spec", spec)) if value}


def _said(done: AppliedStep) -> str:
    match done.action:
        case PlanAction.CREATE:
            text = f"created {done.plural}/{done.id} ({done.name})"
        case PlanAction.CHANGE:
            text = f"changed {done.plural}/{done.id} ({done.name}): generation {done.generation}"
        case PlanAction.NONE:
            text = f"unchanged {done.plural}/{done.id} ({done.name})"
        case _:
            assert_never(done.action)
    return printable(text)


def _report(outcome: ApplyResult, output: Output) -> ExitCode:
    if output is not Output.TABLE:
        click.echo(options.encode(outcome, output))
        return ExitCode.SUCCESS
    for done in outcome.resources:
        if done.action is PlanAction.NONE:
            click.echo(_said(done))
    if outcome.dry_run:
        changes = sum(done.action is not PlanAction.NONE for done in outcome.resources)
        click.echo(f"dry run: {changes} of {len(outcome.resources)} resources would be written")
    return ExitCode.SUCCESS
