"""`sentinel apply`: make resources match files, after showing a diff.

Each change is made only if the resource still has the version that the plan is based on, so that it never
overwrites a concurrent change.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import assert_never

import click
import msgspec
from msgspec import UNSET, UnsetType

from sentinel.cli import options
from sentinel.cli.client import diff, manifest, session
from sentinel.cli.client.fleet import FleetClient
from sentinel.cli.client.plan import PlanAction, Planner, PlanStep, labels_and_spec
from sentinel.cli.client.session import ServerOptions
from sentinel.cli.options import OutputFormat
from sentinel.core.json import Json
from sentinel.drivers.rest.errors import RequestRejected, ServerError
from sentinel.runtime.process import ExitCode
from sentinel.runtime.secret_text import mask_secret_text
from sentinel.runtime.settings.report import SettingsProblem, printable


class AppliedStep(msgspec.Struct, frozen=True):
    """The result for one resource, as printed for scripts."""

    action: PlanAction
    plural: str
    name: str
    id: str | None
    """None in a dry run that would create it."""
    generation: int | None
    patch: dict[str, Json] | UnsetType = UNSET


class ApplyResult(msgspec.Struct, frozen=True):
    """The result for all resources."""

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
    help="YAML or JSON, with any number of documents; - for standard input. May be repeated.",
)
@click.option("--dry-run", "is_dry", is_flag=True, help="Show what would change, and write nothing.")
@click.option("--yes", "-y", "is_confirmed", is_flag=True, help="Do not ask for confirmation on a terminal.")
@options.output_option
@session.server_options
def apply(
    files: Sequence[Path], is_dry: bool, is_confirmed: bool, output: OutputFormat, server: ServerOptions
) -> int:
    """Make resources match the files, after showing what changes.

    Each document has kind (or plural), name, and optionally labels, spec, id and parent. Missing resources are
    created and others changed; keys that are not in the file's spec or labels are removed.
    """
    try:
        manifests = [each for file in files for each in manifest.read(file)]
    except manifest.InvalidManifest as error:
        click.echo(mask_secret_text(str(error)), err=True)
        return ExitCode.MISCONFIGURED
    steps: list[PlanStep] = []

    async def make_plan(fleet: FleetClient) -> int:
        planner = Planner(fleet)
        for each in manifests:
            steps.append(await planner.step(each, steps))
        return ExitCode.SUCCESS

    code = server.run(make_plan)
    if code != ExitCode.SUCCESS:
        return code
    # With JSON or YAML on stdout, the diff goes to stderr.
    is_for_scripts = output is not OutputFormat.TABLE
    is_colored = sys.stderr.isatty() if is_for_scripts else session.is_terminal()
    for step in steps:
        for line in _diff(step, is_colored=is_colored):
            click.echo(line, err=is_for_scripts)
    changes = sum(step.action is not PlanAction.NONE for step in steps)
    if is_dry or not changes:
        return _print_result(ApplyResult(is_dry, [_planned(step) for step in steps]), output)
    if not is_confirmed and sys.stdin.isatty():
        question = "Apply this change?" if changes == 1 else f"Apply these {changes} changes?"
        if not click.confirm(question, err=True):
            return session.fail("nothing was changed")

    async def write(fleet: FleetClient) -> int:
        applied: list[AppliedStep] = []
        for step in steps:
            try:
                applied.append(await _write(fleet, step, applied))
            except ServerError as error:
                if is_for_scripts:
                    _print_result(ApplyResult(False, applied), output)
                for problem in _problems(step, error):
                    session.fail(str(problem))
                return session.fail(f"{step.title}: {len(steps) - len(applied)} of {len(steps)} not applied")
            if not is_for_scripts:
                click.echo(_summary(applied[-1]))
        return _print_result(ApplyResult(False, applied), output) if is_for_scripts else ExitCode.SUCCESS

    return server.run(write)


def _problems(step: PlanStep, error: ServerError) -> Iterator[SettingsProblem]:
    """Yield what the server refuses, each error at the position of its field in the file."""
    refusal = error.response if isinstance(error, RequestRejected) else None
    fields = refusal.problem.field_errors if refusal is not None and refusal.problem is not None else ()
    for each in fields:
        yield step.wanted.problem(each.field, each.message)
    if not fields:
        yield step.wanted.problem("", str(error))


async def _write(fleet: FleetClient, step: PlanStep, applied: Sequence[AppliedStep]) -> AppliedStep:
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
            parent = applied[step.parent].id if isinstance(step.parent, int) else step.parent
            if parent:
                body["owner_references"] = {"id": parent}
            created = (await fleet.create(step.plural, body)).document
            return AppliedStep(PlanAction.CREATE, step.plural, wanted.name, created.id, created.generation)
        case PlanAction.CHANGE if step.current is not None:
            resource_id = step.current.document.id
            try:
                changed = await fleet.patch(step.plural, resource_id, step.patch, etag=step.current.etag)
            except RequestRejected as rejected:
                if rejected.status == HTTPStatus.PRECONDITION_FAILED:
                    raise ServerError("it was changed after the plan was made; apply again") from rejected
                raise
            session.warn_if_paused(changed)
            generation = changed.document.generation
            return AppliedStep(PlanAction.CHANGE, step.plural, wanted.name, resource_id, generation, step.patch)
        case _:
            raise AssertionError("expected a current resource to change")


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


def _diff(step: PlanStep, *, is_colored: bool) -> Iterator[str]:
    wanted = step.wanted
    if step.action is PlanAction.NONE:
        return
    labels, spec = labels_and_spec(step.current) if step.current else ({}, {})
    after_labels: Json = labels if wanted.labels is None else dict(wanted.labels)
    after_spec: Json = spec if wanted.spec is None else wanted.spec
    heading = f"create {step.title}" if step.current is None else f"change {step.title} ({wanted.name})"
    yield click.style(printable(heading), bold=True) if is_colored else printable(heading)
    before, after = _without_empty(labels, spec), _without_empty(after_labels, after_spec)
    yield from diff.render(before, after, is_colored=is_colored)


def _without_empty(labels: Json, spec: Json) -> Json:
    return {name: value for name, value in (("labels", labels), ("spec", spec)) if value}


def _summary(applied: AppliedStep) -> str:
    title = f"{applied.plural}/{applied.id} ({applied.name})"
    match applied.action:
        case PlanAction.CREATE:
            text = f"created {title}"
        case PlanAction.CHANGE:
            text = f"changed {title}: generation {applied.generation}"
        case PlanAction.NONE:
            text = f"unchanged {title}"
        case _:
            assert_never(applied.action)
    return printable(text)


def _print_result(result: ApplyResult, output: OutputFormat) -> ExitCode:
    if output is not OutputFormat.TABLE:
        click.echo(options.encode(result, output))
        return ExitCode.SUCCESS
    unchanged = [applied for applied in result.resources if applied.action is PlanAction.NONE]
    for applied in unchanged:
        click.echo(_summary(applied))
    if result.dry_run:
        total = len(result.resources)
        click.echo(f"dry run: {total - len(unchanged)} of {total} resources would be written")
    return ExitCode.SUCCESS
