"""`sentinel create`, `patch`, `delete`, `pause` and `resume`: one change to one resource."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import NoReturn, TypeVar

import click
import msgspec

from sentinel.cli import options, table
from sentinel.cli.client import names, session, wait
from sentinel.cli.client.fleet import FetchedDocument, FleetClient, is_not_found
from sentinel.cli.client.session import ServerOptions
from sentinel.cli.options import OutputFormat
from sentinel.core.counted import counted
from sentinel.drivers.rest.errors import RequestRejected
from sentinel.runtime.settings.report import quoted

F = TypeVar("F", bound=Callable[..., object])


def _parse_spec(context: click.Context, parameter: click.Parameter, text: str | None) -> msgspec.Raw | None:
    """Check for a JSON object and return it as typed: the server interprets its numbers."""
    if text is None:
        return None
    try:
        decoded = json.loads(text, parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise click.BadParameter(f"expected JSON, got a syntax error at {place}: {error.msg.lower()}") from error
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"expected JSON, got something else: {error}") from error
    if not isinstance(decoded, dict):
        raise click.BadParameter('expected a JSON object such as {"region": "us-east"}')
    return msgspec.Raw(text.encode("utf-8", "replace"))


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _parse_labels(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> Mapping[str, str] | None:
    """Parse `k=v,…`."""
    changes = _parse_label_changes(context, parameter, text)
    if changes is None:
        return None
    removed = next((key for key, value in changes.items() if value is None), None)
    if removed is not None:
        raise click.BadParameter(f"expected a value for {quoted(removed)}: a new resource has no labels to remove")
    return {key: value for key, value in changes.items() if value is not None}


def _parse_label_changes(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> Mapping[str, str | None] | None:
    """Parse `k=v,…`, where `k-` removes a label: its value is None."""
    if text is None:
        return None
    changes: dict[str, str | None] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        key, equals, value = (each.strip() for each in part.partition("="))
        is_removed = not equals and key.endswith("-")
        key = key.removesuffix("-") if is_removed else key
        if not key or not (equals or is_removed):
            raise click.BadParameter(f"expected labels such as region=us-east,tier=gold, got {quoted(part)}")
        if key in changes:
            raise click.BadParameter(f"expected each label once, got {quoted(key)} a second time")
        changes[key] = None if is_removed else value
    return changes


def _spec_option(command: F) -> F:
    return click.option("--spec", callback=_parse_spec, metavar="JSON", help="The desired state.")(command)


@click.command
@click.argument("plural")
@click.option("--name", required=True, help="A name that is unique within its kind and parent.")
@click.option("--parent", metavar="ID", help="The id or name of the parent resource.")
@click.option("--id", "resource_id", metavar="ID", help="The id. Default: the server generates one.")
@_spec_option
@click.option("--labels", callback=_parse_labels, metavar="k=v,…", help="The labels.")
@options.output_option
@session.server_options
def create(
    plural: str,
    name: str,
    parent: str | None,
    resource_id: str | None,
    spec: msgspec.Raw | None,
    labels: Mapping[str, str] | None,
    output: OutputFormat,
    server: ServerOptions,
) -> int:
    """Create a resource."""
    body: dict[str, object] = {"name": name}
    if resource_id is not None:
        body["id"] = resource_id
    if spec is not None:
        body["spec"] = spec
    if labels is not None:
        body["labels"] = labels

    async def work(fleet: FleetClient) -> int:
        if parent is not None:
            body["owner_references"] = {"id": await _find_parent(fleet, plural, parent)}
        try:
            created = await fleet.create(plural, body)
        except RequestRejected as rejected:
            if parent is None and _names_owner(rejected) and (kind := await fleet.kind(plural)).parent:
                usage = f"required, but missing: {plural} belong to {kind.parent}; give the id or name of one"
                raise click.UsageError(f"--parent: {usage}") from rejected
            raise
        return session.print_resource(created, f"created {created.title}", output)

    return server.run(work)


async def _find_parent(fleet: FleetClient, plural: str, reference: str) -> str:
    """Return the id of the parent. An unknown plural is left to the server, whose refusal explains the mistake."""
    kind = next((each for each in await fleet.kinds() if each.plural == plural), None)
    if kind is None:
        return reference
    if not kind.parent:
        raise click.UsageError(f"--parent: expected none, because {plural} have no parent")
    return (await names.resolve(fleet, reference, plural=kind.parent)).document.id


def _names_owner(rejected: RequestRejected) -> bool:
    """Whether the server refuses the reference to the parent."""
    problem = rejected.response.problem
    return problem is not None and any(each.field.startswith("owner_references") for each in problem.field_errors)


@click.command
@click.argument("plural")
@click.argument("resource_id", metavar="ID")
@_spec_option
@click.option(
    "--labels", callback=_parse_label_changes, metavar="k=v,…", help="Labels to set; k- removes the label k."
)
@options.output_option
@session.server_options
def patch(
    plural: str,
    resource_id: str,
    spec: msgspec.Raw | None,
    labels: Mapping[str, str | None] | None,
    output: OutputFormat,
    server: ServerOptions,
) -> int:
    """Change the spec and labels of a resource by a JSON merge patch.

    Keys that are not named keep their values; null removes a key.
    """
    body: dict[str, object] = {}
    if spec is not None:
        body["spec"] = spec
    if labels is not None:
        body["labels"] = labels
    if not body:
        raise click.UsageError("expected --spec, --labels, or both")

    async def work(fleet: FleetClient) -> int:
        before = await names.resolve(fleet, resource_id, plural=plural)
        patched = await fleet.patch(plural, before.document.id, body)
        if patched.document.generation == before.document.generation:
            return session.print_resource(patched, f"unchanged {patched.title}", output)
        session.warn_if_paused(patched)
        message = f"changed {patched.title}: generation {patched.document.generation}"
        return session.print_resource(patched, message, output)

    return server.run(work)


@click.command
@click.argument("plural")
@click.argument("resource_id", metavar="ID")
@session.wait_options(until="it is gone", timeout="5m")
@options.output_option
@session.server_options
def delete(
    plural: str,
    resource_id: str,
    is_waiting: bool,
    timeout: timedelta,
    output: OutputFormat,
    server: ServerOptions,
) -> int:
    """Delete a resource and its children.

    It is gone when every required adapter has cleaned up and no child is left.
    """

    async def poll(fleet: FleetClient, found_id: str) -> wait.WaitProgress:
        try:
            waiting = await fleet.waiting(found_id)
        except RequestRejected as rejected:
            if is_not_found(rejected):
                return wait.WaitProgress(is_done=True)
            raise
        missing = [each.adapter for each in waiting.waiting_for]
        if waiting.children:
            missing.append(counted(waiting.children, "child", "children"))
        return wait.WaitProgress(text=f"waiting for {', '.join(missing) or 'the server'}")

    async def work(fleet: FleetClient) -> int:
        found_id = (await names.resolve(fleet, resource_id, plural=plural)).document.id
        deleted = await fleet.delete(plural, found_id)
        is_gone = await fleet.find_or_none(found_id) is None
        if not is_gone:
            session.warn_if_paused(deleted)
            if not is_waiting:
                message = f"deleting {deleted.title}; sentinel why {deleted.document.id} shows what it waits for"
                return session.print_resource(deleted, message, output)
            progress = await wait.poll_until_done(lambda: poll(fleet, found_id), timeout=timeout)
            if not progress.is_done:
                return session.fail(
                    f"{deleted.title} is not gone after {table.format_duration(timeout)}: {progress.text}"
                )
        return session.print_resource(deleted, f"deleted {deleted.title}", output)

    return server.run(work)


@click.command
@click.argument("resource_id", metavar="ID")
@options.output_option
@session.server_options
def pause(resource_id: str, output: OutputFormat, server: ServerOptions) -> int:
    """Send no events for a resource until it is resumed."""

    def message(resource: FetchedDocument) -> str:
        return f"paused {resource.title}: no events until sentinel resume {resource.document.id}"

    return server.run(_post("pause", resource_id, message, output))


@click.command
@click.argument("resource_id", metavar="ID")
@options.output_option
@session.server_options
def resume(resource_id: str, output: OutputFormat, server: ServerOptions) -> int:
    """Send events for a resource again."""
    return server.run(_post("resume", resource_id, lambda resource: f"resumed {resource.title}", output))


def _post(
    action: str, resource_id: str, message: Callable[[FetchedDocument], str], output: OutputFormat
) -> session.Work:
    async def work(fleet: FleetClient) -> int:
        resource = await fleet.post_action(await names.resolve(fleet, resource_id), action)
        return session.print_resource(resource, message(resource), output)

    return work
