"""The sample `dns`: a zone for each resource, made by a service that takes its time.

The service is asked for the zone as it should be (PUT). It answers 202 while it is at it and 200 when the zone is
there, so asking again is both how the work is begun and how its end is found out. `sentinel up` runs such a
service; elsewhere `DNS_SERVICE` says where it is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

import msgspec

from sentinel.adapter.context import Context
from sentinel.adapter.declaration import Adapter
from sentinel.adapter.samples import acceptance
from sentinel.core.adapter.resource import Resource
from sentinel.core.adapter.task import Done, Failed, Finalized, InProgress, Outcome, PreconditionsNotMet
from sentinel.ports.task_http import HttpResponse

NAME: Final = "dns"
NEEDS: Final = (acceptance.NAME,)
SERVICE: Final = "http://dns.internal"
"""Where the service is, unless `DNS_SERVICE` says otherwise."""

_EXCERPT = 200


class _Problem(msgspec.Struct, frozen=True):
    """What a service says in the usual form (RFC 9457)."""

    detail: str = ""


def declare(kinds: Sequence[str]) -> Adapter:
    """The adapter, for these kinds."""
    adapter = Adapter(NAME)
    adapter.task(kinds=kinds)(ensure_zone)
    adapter.finalizer(kinds=kinds)(remove_zone)
    return adapter


async def ensure_zone(resource: Resource, context: Context) -> Outcome:
    """Has the zone made, or finds that it is there."""
    if missing := [name for name in NEEDS if not resource.is_available(name)]:
        return PreconditionsNotMet(f"Waiting for {missing[0]} to complete")
    answer = await context.http.put(_zone_of(resource), json=resource.spec)
    if answer.status == HTTPStatus.ACCEPTED:
        return InProgress("the zone is being made", reason="ZonePending")
    if not answer.is_success:
        return _refused(answer)
    return Done("the zone is there", reason="ZoneReady", data={"zone": resource.id})


async def remove_zone(resource: Resource, context: Context) -> Outcome:
    """Has the zone removed; one that is not there any more is as good."""
    answer = await context.http.delete(_zone_of(resource))
    if answer.is_success or answer.status == HTTPStatus.NOT_FOUND:
        return Finalized("the zone is gone")
    return _refused(answer)


def _zone_of(resource: Resource) -> str:
    service = os.environ.get("DNS_SERVICE", "") or SERVICE
    return f"{service.rstrip('/')}/zones/{resource.id}"


def _refused(answer: HttpResponse) -> Failed:
    said = " ".join(_words(answer)[:_EXCERPT].split())
    return Failed(
        f"the DNS service answered {answer.status}{f': {said}' if said else ''}", reason="DnsServiceFailed"
    )


def _words(answer: HttpResponse) -> str:
    """What a person would quote of it: of a problem document, its detail."""
    try:
        detail = msgspec.json.decode(answer.text(), type=_Problem).detail
    except msgspec.DecodeError:
        detail = ""
    return detail or answer.text()
