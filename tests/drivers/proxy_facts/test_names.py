"""Looking up names within limits. No test asks a name server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from sentinel.core.proxy.facts import Outcome, Resolution
from sentinel.drivers.proxy_facts import Limits, SystemProxyFacts, system_lookup
from tests.support.loop_time import HOUR, LoopTime
from tests.support.thread_gate import ThreadGate

LONG = timedelta(minutes=1)
"""Only a test that fails waits this long."""


class NameServer(ThreadGate):
    """Answers only while it is open."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[str] = []

    def lookup(self, host: str) -> list[str]:
        self.started.append(host)
        self.wait()
        return ["10.0.0.1"]


@pytest.fixture
def server() -> Iterator[NameServer]:
    server = NameServer()
    yield server
    server.open()


def outcomes(found: dict[str, Resolution]) -> dict[str, Outcome]:
    return {host: answer.outcome for host, answer in found.items()}


async def resolve(facts: SystemProxyFacts, *hosts: str) -> dict[str, Resolution]:
    return dict(await facts.resolve(hosts))


def raising(error: Exception) -> Callable[[str], list[str]]:
    def lookup(_: str) -> list[str]:
        raise error

    return lookup


async def test_only_so_many_lookups_run_at_once(server: NameServer) -> None:
    facts = SystemProxyFacts(limits=Limits(at_once=3, time=LONG), lookup=server.lookup)
    hosts = [f"h{number}" for number in range(10)]

    async with asyncio.TaskGroup() as tasks:
        calls = [tasks.create_task(resolve(facts, *half)) for half in (hosts[:5], hosts[5:])]
        await server.until_arrived(3)
        server.open()

    assert server.most_running == 3
    assert sorted(server.started) == hosts
    assert {outcome for call in calls for outcome in outcomes(call.result()).values()} == {Outcome.USABLE}


async def test_names_beyond_the_limit_are_not_tried() -> None:
    facts = SystemProxyFacts(limits=Limits(names=2), lookup=lambda _: ["10.0.0.1"])

    found = await resolve(facts, "a", "10.0.0.1", "b", "c")

    assert outcomes(found) == {
        "a": Outcome.USABLE,
        "10.0.0.1": Outcome.USABLE,
        "b": Outcome.USABLE,
        "c": Outcome.NOT_TRIED,
    }


async def test_a_call_ends_in_time_although_the_name_server_hangs(server: NameServer) -> None:
    loop_time = LoopTime()
    facts = SystemProxyFacts(limits=Limits(at_once=2, time=HOUR), lookup=server.lookup)

    call = asyncio.create_task(resolve(facts, "a", "b", "c"))
    await server.until_arrived(2)
    loop_time.advance(HOUR)
    found = await call

    assert found == {
        "a": Resolution(Outcome.FAILED, "no answer within 3600s"),
        "b": Resolution(Outcome.FAILED, "no answer within 3600s"),
        "c": Resolution(Outcome.NOT_TRIED),
    }


async def test_abandoned_lookups_count_until_they_end(server: NameServer) -> None:
    loop_time = LoopTime()
    facts = SystemProxyFacts(limits=Limits(at_once=1, time=HOUR), lookup=server.lookup)
    abandoned = asyncio.create_task(resolve(facts, "a"))
    await server.until_arrived()
    loop_time.advance(HOUR)
    await abandoned

    call = asyncio.create_task(resolve(facts, "b"))
    await loop_time.advance_until(call.done)
    during = call.result()
    server.open()
    after = await resolve(facts, "c")

    assert outcomes(after) == {"c": Outcome.USABLE}
    assert outcomes(during) == {"b": Outcome.NOT_TRIED}
    assert "b" not in server.started
    assert server.most_running == 1


async def test_a_cancelled_call_gives_its_slot_back(server: NameServer) -> None:
    facts = SystemProxyFacts(limits=Limits(at_once=1, time=LONG), lookup=server.lookup)
    call = asyncio.create_task(resolve(facts, "a"))
    await server.until_arrived(1)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    server.open()

    assert outcomes(await resolve(facts, "b")) == {"b": Outcome.USABLE}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "no such name"),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), "the name server does not answer"),
        (socket.gaierror(socket.EAI_FAIL, "Non-recoverable failure"), "Non-recoverable failure"),
        (socket.gaierror(socket.EAI_FAIL), "the lookup failed"),
        (PermissionError(1, "Not permitted"), "Not permitted"),
        (OSError(), "OSError"),
        (UnicodeError("label too long"), "not a valid host name"),
    ],
)
async def test_a_failed_lookup_says_why(error: Exception, reason: str) -> None:
    facts = SystemProxyFacts(lookup=raising(error))

    assert await resolve(facts, "a") == {"a": Resolution(Outcome.FAILED, reason)}


async def test_a_name_without_addresses_does_not_resolve() -> None:
    facts = SystemProxyFacts(lookup=lambda _: [])

    assert await resolve(facts, "a") == {"a": Resolution(Outcome.FAILED, "it has no addresses")}


def test_the_system_knows_this_machine() -> None:
    assert set(system_lookup("localhost")) <= {"127.0.0.1", "::1"}


@pytest.mark.parametrize("host", ["a\0b", "a" * 300, "a..b"])
async def test_what_cannot_be_a_name_is_not_asked(host: str) -> None:
    assert await resolve(SystemProxyFacts(), host) == {host: Resolution(Outcome.FAILED, "not a valid host name")}
