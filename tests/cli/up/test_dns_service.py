"""The fake DNS service, over a real connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from sentinel.cli.up.dns_service import DnsReroutingClient, DnsService
from sentinel.drivers.rest.retries import Retries
from sentinel.drivers.task_http import TaskHttp
from sentinel.ports.task_http import HttpClient
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.log import get_logger
from tests.support.processes.up import get

RETRY_AT_ONCE = Retries(attempts=3, backoff=Backoff(initial=timedelta(0), maximum=timedelta(0)))
ZONE = "http://dns.internal/zones/c1"


@asynccontextmanager
async def serving(service: DnsService) -> AsyncIterator[HttpClient]:
    """Serve; yields a client that reaches the service as `dns.internal`."""
    part = service.part()
    client = TaskHttp(user_agent="test", retries=RETRY_AT_ONCE)
    assert part.start is not None
    assert part.close is not None
    await part.start()
    try:
        yield DnsReroutingClient(client, lambda: service.url)
    finally:
        await client.close()
        await part.close()


def make_service() -> DnsService:
    return DnsService(log=get_logger("test"))


async def test_a_zone_is_accepted_first_and_created_at_the_next_request() -> None:
    async with serving(make_service()) as http:
        responses = [await http.put(ZONE, json={"replicas": 1}) for _ in range(3)]

    assert [response.status for response in responses] == [202, 200, 200]


async def test_new_content_is_accepted_first_too() -> None:
    async with serving(make_service()) as http:
        for _ in range(2):
            await http.put(ZONE, json={"replicas": 1})
        changed = await http.put(ZONE, json={"replicas": 2})
        again = await http.put(ZONE, json={"replicas": 2})

    assert (changed.status, again.status) == (202, 200)


async def test_a_removed_zone_is_gone() -> None:
    async with serving(make_service()) as http:
        await http.put(ZONE, json={})
        found = await http.get(ZONE)
        removed = [await http.delete(ZONE) for _ in range(2)]
        missing = await http.get(ZONE)

    assert (found.status, found.json()) == (200, {"id": "c1", "content": {}, "is_there": True})
    assert [response.status for response in (*removed, missing)] == [204, 404, 404]


async def test_an_outage_affects_only_its_zones_and_loses_none() -> None:
    service = make_service()

    async with serving(service) as http:
        await http.put(ZONE, json={})
        service.out_of_service = {"c1"}
        refused, _ = await get(f"{service.url}/zones/c1")  # a client without retries
        other = await http.put("http://dns.internal/zones/c2", json={})
        service.out_of_service = ()
        back = await http.put(ZONE, json={})

    assert (refused, other.status, back.status) == (503, 202, 200)


async def test_after_a_restart_it_keeps_its_port_and_zones() -> None:
    service = make_service()
    async with serving(service) as http:
        await http.put(ZONE, json={})
        before = service.url

    async with serving(service) as http:
        again = await http.put(ZONE, json={})

    assert service.url == before
    assert again.status == 200


async def test_requests_to_other_hosts_are_not_rerouted() -> None:
    service, other = make_service(), make_service()
    async with serving(service) as http, serving(other):
        response = await http.put(f"{other.url}/zones/c1", json={})
        own = await http.get(ZONE)

    assert (response.status, own.status) == (202, 404)
