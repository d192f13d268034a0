"""Three sample adapters, which `sentinel up` runs; `examples/adapters` has their configuration files.

`validation` checks the spec. `dns` waits for `validation` and has a service create a zone, which takes longer than
one evaluation. `provision` waits for `dns` and fails its first attempt at every generation. Together they show how
adapters wait for each other, poll, fail, recover and clean up.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Final

import msgspec

from sentinel.adapter.declaration import Adapter, Context, Task
from sentinel.core.adapter.resource import Resource
from sentinel.core.adapter.task import Done, Failed, Finalized, InProgress, Outcome, PreconditionsNotMet
from sentinel.core.json import Json
from sentinel.ports.task_http import HttpResponse

DEPENDENCIES: Final[Mapping[str, Sequence[str]]] = {
    "validation": (),
    "dns": ("validation",),
    "provision": ("dns",),
}
"""The samples by name, with the adapters that each waits for."""
DNS_URL: Final = "http://dns.internal"
"""The DNS service, unless the environment variable `DNS_SERVICE` names another."""

_MAX_QUOTE = 80
_MAX_EXCERPT = 200


def declare(name: str, *, kinds: Sequence[str]) -> Adapter:
    """Return the sample of this name, for these kinds of resource."""
    adapter = Adapter(name)
    task, finalizer = _FUNCTIONS[name]
    adapter.task(kinds=kinds)(task)
    if finalizer is not None:
        adapter.finalizer(kinds=kinds)(finalizer)
    return adapter


# --- validation: checks the spec. It creates nothing, so it needs no finalizer. ---------------------------------


async def check_spec(resource: Resource, context: Context) -> Outcome:
    """Check the spec and nothing else, so every repetition has the same outcome."""
    problems = list(spec_problems(resource.spec))
    if problems:
        return Failed("; ".join(problems), reason="SpecRejected")
    return Done("the spec is acceptable", reason="SpecAccepted")


def spec_problems(spec: Json) -> Iterator[str]:
    """Yield every problem of a spec."""
    if not isinstance(spec, Mapping):
        return
    if "replicas" in spec and not _is_positive(spec["replicas"]):
        yield f"replicas: expected a positive integer, got {_quoted(spec['replicas'])}"
    if "region" in spec and _is_empty(spec["region"]):
        yield f"region: expected the name of a region, got {_quoted(spec['region'])}"


def _is_positive(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_empty(value: Json) -> bool:
    return value is None or (isinstance(value, str) and not value.strip()) or value in ([], {})


def _quoted(value: Json) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_QUOTE else text[: _MAX_QUOTE - 1] + "…"


# --- dns: a zone for each resource. The service responds to PUT with 202 until the zone exists, then with 200, so
# --- the same request starts the work and polls for its end. ---------------------------------------------------


class _Problem(msgspec.Struct, frozen=True):
    """An error as RFC 9457 has it."""

    detail: str = ""


async def ensure_zone(resource: Resource, context: Context) -> Outcome:
    """Create the zone, or find that it exists."""
    if missing := _first_missing("dns", resource):
        return PreconditionsNotMet(f"Waiting for {missing} to complete")
    response = await context.http.put(_zone_url(resource), json=resource.spec)
    if response.status == HTTPStatus.ACCEPTED:
        return InProgress("the zone is being created", reason="ZonePending")
    if not response.is_success:
        return _dns_failure(response)
    return Done("the zone exists", reason="ZoneReady", data={"zone": resource.id})


async def remove_zone(resource: Resource, context: Context) -> Outcome:
    """Delete the zone; one that does not exist counts as deleted."""
    response = await context.http.delete(_zone_url(resource))
    if response.is_success or response.status == HTTPStatus.NOT_FOUND:
        return Finalized("the zone is deleted")
    return _dns_failure(response)


def _zone_url(resource: Resource) -> str:
    url = os.environ.get("DNS_SERVICE", "") or DNS_URL
    return f"{url.rstrip('/')}/zones/{resource.id}"


def _dns_failure(response: HttpResponse) -> Failed:
    text = response.text()
    with suppress(msgspec.DecodeError):
        text = msgspec.json.decode(text, type=_Problem).detail or text
    excerpt = " ".join(text[:_MAX_EXCERPT].split())
    message = f"the DNS service answered {response.status}{f': {excerpt}' if excerpt else ''}"
    return Failed(message, reason="DnsServiceFailed")


# --- provision: machines for each resource. All its state is in its own last report, which comes with every
# --- evaluation, so it survives a restart and is the same for every replica. -----------------------------------

_ATTEMPTS, _MACHINES = "attempts", "machines"


async def ensure_machines(resource: Resource, context: Context) -> Outcome:
    """Fail the first attempt at a generation, and succeed from the second on."""
    previous = context.previous
    is_current = previous is not None and previous.observed_generation == resource.generation
    attempts = _reported_count(context, _ATTEMPTS) if is_current else 0
    machines = _reported_count(context, _MACHINES)
    if missing := _first_missing("provision", resource):
        # The next evaluation reads its state from this report, so a report that only waits carries it too.
        state = {_ATTEMPTS: attempts, _MACHINES: machines}
        return PreconditionsNotMet(f"Waiting for {missing} to complete", data=state)
    if attempts == 0:
        state = {_ATTEMPTS: 1, _MACHINES: machines}
        return Failed("no machines were free; the next attempt will find some", "NoCapacity", state)
    replicas = resource.spec.get("replicas") if isinstance(resource.spec, Mapping) else None
    count = replicas if isinstance(replicas, int) else 1
    return Done(f"{count} machines are running", "Provisioned", {_ATTEMPTS: attempts, _MACHINES: count})


async def return_machines(resource: Resource, context: Context) -> Outcome:
    """Return the machines that the last report counts."""
    return Finalized(f"{_reported_count(context, _MACHINES)} machines were released")


def _reported_count(context: Context, key: str) -> int:
    data = None if context.previous is None else context.previous.read_data()
    count = data.get(key) if isinstance(data, Mapping) else None
    return count if isinstance(count, int) else 0


def _first_missing(name: str, resource: Resource) -> str:
    return next((adapter for adapter in DEPENDENCIES[name] if not resource.is_available(adapter)), "")


_FUNCTIONS: Final[Mapping[str, tuple[Task, Task | None]]] = {
    "validation": (check_spec, None),
    "dns": (ensure_zone, remove_zone),
    "provision": (ensure_machines, return_machines),
}

validation = declare("validation", kinds=["Cluster", "NodePool"])
dns = declare("dns", kinds=["Cluster"])
provision = declare("provision", kinds=["Cluster"])
