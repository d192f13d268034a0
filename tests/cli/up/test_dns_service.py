"""The service that the sample `dns` works against, over a real connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from sentinel.cli.up.dns_service import DnsService, Rerouted
from sentinel.drivers.rest.retries import Retries
from sentinel.drivers.task_http import TaskHttp
from sentinel.ports.task_http import HttpClient
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.log import get_logger
from tests.support.processes.up import get

AT_ONCE = Retries(attempts=3, backoff=Backoff(initial=timedelta(0), maximum=timedelta(0)))
ZONE = "http://dns.internal/zones/c1"


@asynccontextmanager
async def serving(service: DnsService) -> AsyncIterator[HttpClient]:
    """A client for which the service is where adapters expect it."""
    part = service.part()
    client = TaskHttp(user_agent="test", retries=AT_ONCE)
    assert part.start is not None
    assert part.close is not None
    await part.start()
    try:
        yield Rerouted(client, lambda: service.url)
    finally:
        await client.close()
        await part.close()


def make() -> DnsService:
    return DnsService(log=get_logger("test"))


async def test_a_zone_is_accepted_first_and_there_when_it_is_asked_for_again() -> None:
    async with serving(make()) as http:
        answers = [await http.put(ZONE, json={"replicas": 1}) for _ in range(3)]

    assert [answer.status for answer in answers] == [202, 200, 200]


async def test_another_content_takes_its_time_again() -> None:
    async with serving(make()) as http:
        for _ in range(2):
            await http.put(ZONE, json={"replicas": 1})
        changed = await http.put(ZONE, json={"replicas": 2})
        settled = await http.put(ZONE, json={"replicas": 2})

    assert (changed.status, settled.status) == (202, 200)


async def test_a_zone_that_is_removed_is_gone() -> None:
    async with serving(make()) as http:
        await http.put(ZONE, json={})
        found = await http.get(ZONE)
        removed = [await http.delete(ZONE) for _ in range(2)]
        missing = await http.get(ZONE)

    assert (found.status, found.json()) == (200, {"id": "c1", "content": {}, "is_there": True})
    assert [answer.status for answer in (*removed, missing)] == [204, 404, 404]


async def test_out_of_service_for_some_it_answers_the_others_and_forgets_nothing() -> None:
    service = make()

    async with serving(service) as http:
        await http.put(ZONE, json={})
        service.out_of_service = {"c1"}
        refused, _ = await get(f"{service.url}/zones/c1")  # a client that does not try again
        other = await http.put("http://dns.internal/zones/c2", json={})
        service.out_of_service = ()
        back = await http.put(ZONE, json={})

    assert (refused, other.status, back.status) == (503, 202, 200)


async def test_built_anew_it_listens_where_it_did_and_keeps_its_zones() -> None:
    service = make()
    async with serving(service) as http:
        await http.put(ZONE, json={})
        before = service.url

    async with serving(service) as http:
        again = await http.put(ZONE, json={})

    assert service.url == before
    assert again.status == 200


async def test_other_addresses_are_left_alone() -> None:
    service, other = make(), make()
    async with serving(service) as http, serving(other):
        answer = await http.put(f"{other.url}/zones/c1", json={})
        mine = await http.get(ZONE)

    assert (answer.status, mine.status) == (202, 404)
