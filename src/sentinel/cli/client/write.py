"""`sentinel create`, `patch`, `delete`, `pause` and `resume`: one change to one resource, each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import NoReturn, TypeVar

import click
import msgspec

from sentinel.cli import options, table
from sentinel.cli.client import session, wait
from sentinel.cli.client.fleet import FetchedDocument, FleetClient, is_missing
from sentinel.cli.client.session import ServerOptions
from sentinel.cli.options import Output
from sentinel.drivers.rest.errors import RequestRejected
from sentinel.runtime.process import ExitCode
from sentinel.runtime.settings.report import quoted

F = TypeVar("F", bound=Callable[..., object])


def _spec(context: click.Context, parameter: click.Parameter, text: str | None) -> msgspec.Raw | None:
    """A JSON object, kept as it was typed: what its numbers mean is for the server to say."""
    if text is None:
        return None
    try:
        decoded = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise click.BadParameter(f"expected JSON, got a mistake at {place}: {error.msg.lower()}") from error
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"expected JSON, got something else: {error}") from error
    if not isinstance(decoded, dict):
        raise click.BadParameter('expected a JSON object such as {"region": "us-east"}')
    return msgspec.Raw(text.encode("utf-8", "replace"))


def _labels(context: click.Context, parameter: click.Parameter, text: str | None) -> Mapping[str, str] | None:
    """`k=v,…` as a mapping."""
    found = _label_changes(context, parameter, text)
    if found is None:
        return None
    removed = next((key for key, value in found.items() if value is None), None)
    if removed is not None:
        raise click.BadParameter(f"expected a value for {quoted(removed)}: there is nothing to remove it from")
    return {key: value for key, value in found.items() if value is not None}


def _label_changes(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> Mapping[str, str | None] | None:
    """`k=v,…` as a mapping, where `k-` removes a label."""
    if text is None:
        return None
    found: dict[str, str | None] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        key, equals, value = (each.strip() for each in part.partition("="))
        is_removed = not equals and key.endswith("-")
        key = key.removesuffix("-") if is_removed else key
        if not key or not (equals or is_removed):
            raise click.BadParameter(f"expected labels such as region=us-east,tier=gold, got {quoted(part)}")
        if key in found:
            raise click.BadParameter(f"expected each label once, got {quoted(key)} a second time")
        found[key] = None if is_removed else value
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _spec_option(command: F) -> F:
    return click.option("--spec", callback=_spec, metavar="JSON", help="What is asked for.")(command)


@click.command
@click.argument("plural")
@click.option("--name", required=True, help="Unique within its kind and parent.")
@click.option("--parent", metavar="ID", help="The resource that it belongs to.")
@click.option("--id", "resource_id", metavar="ID", help="Made by the server unless it is given.")
@_spec_option
@click.option("--labels", callback=_labels, metavar="k=v,…", help="Its labels.")
@options.output_option
@session.server_options
def create(
    plural: str,
    name: str,
    parent: str | None,
    resource_id: str | None,
    spec: msgspec.Raw | None,
    labels: Mapping[str, str] | None,
    output: Output,
    target: ServerOptions,
) -> int:
    """Create a resource."""
    body: dict[str, object] = {"name": name}
    if resource_id is not None:
        body["id"] = resource_id
    if spec is not None:
        body["spec"] = spec
    if labels is not None:
        body["labels"] = labels
    if parent is not None:
        body["owner_references"] = {"id": parent}

    async def work(fleet: FleetClient) -> int:
        return _done(await fleet.create(plural, body), "created {title}", output)

    return target.use(work)


@click.command
@click.argument("plural")
@click.argument("resource_id", metavar="ID")
@_spec_option
@click.option("--labels", callback=_label_changes, metavar="k=v,…", help="A label that ends in - is removed.")
@options.output_option
@session.server_options
def patch(
    plural: str,
    resource_id: str,
    spec: msgspec.Raw | None,
    labels: Mapping[str, str | None] | None,
    output: Output,
    target: ServerOptions,
) -> int:
    """Change spec and labels of a resource by a JSON merge patch.

    What is not named stays as it is; null removes a key.
    """
    body: dict[str, object] = {}
    if spec is not None:
        body["spec"] = spec
    if labels is not None:
        body["labels"] = labels
    if not body:
        raise click.UsageError("expected --spec, --labels, or both")

    async def work(fleet: FleetClient) -> int:
        before = await fleet.get(plural, resource_id)
        patched = await fleet.patch(plural, resource_id, body)
        is_changed = patched.document.generation != before.document.generation
        if is_changed:
            session.mention_pause(patched)
        said = "changed {title}: generation {generation}" if is_changed else "{title} is so already"
        return _done(patched, said, output)

    return target.use(work)


@click.command
@click.argument("plural")
@click.argument("resource_id", metavar="ID")
@click.option("--wait", "is_waiting", is_flag=True, help="Until it is gone.")
@click.option("--timeout", callback=session.duration, default="5m", help="How long to wait. Default: 5m.")
@options.output_option
@session.server_options
def delete(
    plural: str, resource_id: str, is_waiting: bool, timeout: timedelta, output: Output, target: ServerOptions
) -> int:
    """Delete a resource, and all that belongs to it.

    It goes when every required adapter has cleaned up and no child is left.
    """

    async def progress(fleet: FleetClient) -> wait.WaitProgress:
        try:
            waiting = await fleet.waiting(resource_id)
        except RequestRejected as refused:
            if is_missing(refused):
                return wait.WaitProgress(is_done=True)
            raise
        missing = [wait.adapter for wait in waiting.waiting_for]
        if waiting.children:
            missing.append("1 child" if waiting.children == 1 else f"{waiting.children} children")
        return wait.WaitProgress(text=f"waiting for {', '.join(missing) or 'the server'}")

    async def work(fleet: FleetClient) -> int:
        deleted = await fleet.delete(plural, resource_id)
        is_gone = await fleet.is_gone(resource_id)
        if not is_gone:
            session.mention_pause(deleted)
        if is_waiting and not is_gone:
            end = await wait.until(lambda: progress(fleet), timeout=timeout)
            if not end.is_done:
                return session.fail(
                    f"{deleted.title} is not gone after {table.format_duration(timeout)}: {end.text}"
                )
            return _done(deleted, "deleted {title}", output)
        if is_gone:
            return _done(deleted, "deleted {title}", output)
        return _done(deleted, "deleting {title}; sentinel why {id} says what it waits for", output)

    return target.use(work)


@click.command
@click.argument("resource_id", metavar="ID")
@options.output_option
@session.server_options
def pause(resource_id: str, output: Output, target: ServerOptions) -> int:
    """Send no events for a resource until it is resumed."""
    return _mark(resource_id, "pause", "paused {title}: no events until sentinel resume {id}", output, target)


@click.command
@click.argument("resource_id", metavar="ID")
@options.output_option
@session.server_options
def resume(resource_id: str, output: Output, target: ServerOptions) -> int:
    """Send events for a resource again."""
    return _mark(resource_id, "resume", "resumed {title}", output, target)


def _mark(resource_id: str, verb: str, said: str, output: Output, target: ServerOptions) -> int:
    async def work(fleet: FleetClient) -> int:
        return _done(await fleet.mark(await fleet.find(resource_id), verb), said, output)

    return target.use(work)


def _done(resource: FetchedDocument, said: str, output: Output) -> ExitCode:
    document = resource.document
    if output is Output.TABLE:
        click.echo(said.format(title=resource.title, id=document.id, generation=document.generation))
    else:
        click.echo(options.encode(msgspec.Raw(resource.body), output))
    return ExitCode.SUCCESS
