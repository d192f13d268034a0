"""Processes that compete for a Lease, on virtual time, with faults between them and the API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.core.json import Json
from sentinel.core.kube import lease
from sentinel.core.kube.objects import ObjectKey
from sentinel.ports.kube import Forbidden, KubeKind, KubeObject, KubeUnavailable
from sentinel.runtime.kube.leader_election import LastLeader, LeaderCallbacks, LeaderElector
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import get_logger
from sentinel.testing import loop
from sentinel.testing.clock import START
from sentinel.testing.loop import SimulatedClock, simulated
from tests.runtime.kube.fake_kube_api import FakeKubeApi

KEY = ObjectKey("prod", "sentinel-a")
RESET = KubeUnavailable("connection reset by peer")


class Link(FakeKubeApi):
    """The connection of one process to an API server that several share, with faults of its own."""

    def __init__(self, server: FakeKubeApi) -> None:
        super().__init__()
        self._server = server

    async def get(self, kind: KubeKind, name: str, *, namespace: str = "") -> KubeObject:
        await self._begin("get")
        found = await self._server.get(kind, name, namespace=namespace)
        self._end("get")
        return found

    async def create(
        self, kind: KubeKind, body: KubeObject, *, namespace: str = "", is_dry_run: bool = False
    ) -> KubeObject:
        await self._begin("create", body=body)
        created = await self._server.create(kind, body, namespace=namespace)
        self._end("create")
        return created

    async def replace(
        self, kind: KubeKind, body: KubeObject, *, namespace: str = "", subresource: str = ""
    ) -> KubeObject:
        await self._begin("replace", body=body)
        replaced = await self._server.replace(kind, body, namespace=namespace)
        self._end("replace")
        return replaced

    def cut(self) -> None:
        """Let every call hang."""
        self.hanging.update(("get", "create", "replace"))

    def repair(self) -> None:
        self.hanging.clear()


class Process:
    """A process that competes, and what it was told."""

    def __init__(
        self,
        server: FakeKubeApi,
        identity: str,
        *,
        facts: Callable[[], Mapping[str, str]] = dict,
        before_release: Callable[[], asyncio.Future[None]] | None = None,
        jitter: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.link = Link(server)
        self.identity = identity
        self.started: list[LastLeader | None] = []
        self.stopped: list[str] = []
        self.abandoned: list[float] = []
        """When it abandoned its work, in seconds of the event loop."""
        self.transitions: list[float] = []
        """When it started and stopped leading, in seconds of the event loop."""
        self.elector = LeaderElector(
            api=self.link,
            name=KEY.name,
            namespace=KEY.namespace,
            identity=identity,
            clock=SimulatedClock(),
            log=get_logger("test"),
            callbacks=LeaderCallbacks(
                annotations=facts,
                on_started_leading=self._on_started,
                on_stopped_leading=self._on_stopped,
                before_release=before_release,
                abandon=lambda: self.abandoned.append(asyncio.get_running_loop().time()),
            ),
            jitter=jitter,
        )
        self._stopping = Stopping()
        self._task: asyncio.Task[None] | None = None

    def _on_started(self, last_leader: LastLeader | None) -> None:
        assert self.elector.is_leader
        self.started.append(last_leader)
        self.transitions.append(asyncio.get_running_loop().time())

    def _on_stopped(self, reason: str) -> None:
        assert not self.elector.is_leader
        self.stopped.append(reason)
        self.transitions.append(asyncio.get_running_loop().time())

    @property
    def is_leader(self) -> bool:
        return self.elector.is_leader

    def start(self) -> None:
        self._stopping = Stopping()
        self._task = asyncio.create_task(self.elector.run(self._stopping))

    async def stop(self) -> None:
        self._stopping.request()
        if self._task is not None:
            await self._task

    async def kill(self) -> None:
        """End without another call."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))


@pytest.fixture
def server() -> FakeKubeApi:
    return FakeKubeApi()


@pytest.fixture
def process(server: FakeKubeApi) -> Process:
    return Process(server, "a")


@pytest.fixture
def first(server: FakeKubeApi) -> Process:
    return Process(server, "a")


@pytest.fixture
def second(server: FakeKubeApi) -> Process:
    return Process(server, "b")


async def take_lease(server: FakeKubeApi, *, holder: str) -> None:
    """Take the Lease as a process would that does not wait for its end."""
    taken = lease.taken(
        server.objects[KEY], holder=holder, duration=timedelta(seconds=15), time=START, annotations={}
    )
    await server.replace(KubeKind("", "", "", ""), taken, namespace="prod")


@asynccontextmanager
async def running(*processes: Process, apart: float = 0.1) -> AsyncIterator[None]:
    """Start the processes one after the other, and kill them at the end."""
    for process in processes:
        process.start()
        await asyncio.sleep(apart)
    try:
        yield
    finally:
        for process in processes:
            await process.kill()


def stored_spec(server: FakeKubeApi) -> Mapping[str, Json]:
    spec = server.objects[KEY]["spec"]
    assert isinstance(spec, dict)
    return spec


@simulated
async def test_the_first_process_leads_and_the_second_follows(
    server: FakeKubeApi, first: Process, second: Process
) -> None:
    async with running(first, second):
        await asyncio.sleep(60)

        assert (first.is_leader, second.is_leader) == (True, False)
        assert (first.elector.holder, second.elector.holder) == ("a", "a")
        assert (first.started, first.stopped, second.started) == ([None], [], [])
        assert (first.elector.problem(), second.elector.problem()) == (None, None)
    assert stored_spec(server)["holderIdentity"] == "a"
    assert stored_spec(server)["leaseDurationSeconds"] == 15


@simulated
async def test_only_get_create_and_update_are_used_and_renewals_are_one_call(process: Process) -> None:
    async with running(process):
        await asyncio.sleep(10)

    assert [call.verb for call in process.link.calls] == ["get", "create", *["replace"] * 5]
    assert process.link.times("replace") == pytest.approx([2, 4, 6, 8, 10])


@simulated
async def test_after_a_kill_another_leads_within_the_lease_and_a_retry_period(
    server: FakeKubeApi, first: Process, second: Process
) -> None:
    async with running(first, second, apart=1):
        await asyncio.sleep(10)
        await first.kill()
        killed = asyncio.get_running_loop().time()
        await asyncio.sleep(20)

        assert second.is_leader
        assert second.transitions[0] - killed <= 17
    assert stored_spec(server)["leaseTransitions"] == 1


@simulated
async def test_a_clean_shutdown_releases_the_lease_for_the_next_look(
    server: FakeKubeApi, first: Process, second: Process
) -> None:
    async with running(first, second, apart=1):
        await asyncio.sleep(10)
        await first.stop()
        assert stored_spec(server)["holderIdentity"] == ""
        assert first.stopped == ["the service is stopping"]

        await asyncio.sleep(2)
        assert second.is_leader


@simulated
async def test_a_follower_that_stops_makes_no_calls(first: Process, second: Process) -> None:
    async with running(first, second):
        await asyncio.sleep(1)
        second.link.cut()
        calls = len(second.link.calls)
        await second.stop()

        assert len(second.link.calls) == calls
        assert second.stopped == []


@simulated
async def test_a_process_stopped_while_it_takes_the_lease_releases_it(
    server: FakeKubeApi, process: Process
) -> None:
    process.link.losing.add("create")

    async with running(process):
        process.link.losing.clear()
        assert stored_spec(server)["holderIdentity"] == "a"
        await process.stop()

    assert stored_spec(server)["holderIdentity"] == ""
    assert process.started == []


@simulated
async def test_a_release_that_fails_delays_shutdown_only_briefly(server: FakeKubeApi, process: Process) -> None:
    async with running(process):
        await asyncio.sleep(5)
        process.link.cut()
        before = asyncio.get_running_loop().time()
        await process.stop()

    assert asyncio.get_running_loop().time() - before == pytest.approx(2)
    assert stored_spec(server)["holderIdentity"] == "a"


@simulated
async def test_the_lease_of_another_process_is_not_released(server: FakeKubeApi, process: Process) -> None:
    async with running(process):
        await asyncio.sleep(1)
        await take_lease(server, holder="b")
        await process.stop()

    assert stored_spec(server)["holderIdentity"] == "b"


@simulated
async def test_what_the_leader_has_begun_ends_before_the_release(server: FakeKubeApi) -> None:
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    process = Process(server, "a", before_release=lambda: ended)

    async with running(process):
        await asyncio.sleep(5)
        stop = asyncio.create_task(process.stop())
        await asyncio.sleep(3)
        assert not process.is_leader
        assert stored_spec(server)["holderIdentity"] == "a"

        assert process.abandoned == []
        ended.set_result(None)
        await stop
    assert stored_spec(server)["holderIdentity"] == ""
    assert len(process.abandoned) == 1


@simulated
async def test_a_drain_that_takes_too_long_leaves_the_lease_to_expire(server: FakeKubeApi) -> None:
    process = Process(server, "a", before_release=lambda: asyncio.get_running_loop().create_future())

    async with running(process):
        await asyncio.sleep(5)
        before = asyncio.get_running_loop().time()
        await process.stop()

    assert asyncio.get_running_loop().time() - before < 10
    assert stored_spec(server)["holderIdentity"] == "a"
    assert process.abandoned == [process.transitions[0] + 4 + 10], "10 s after the last renewal"


@simulated
async def test_a_stopped_process_can_compete_again(server: FakeKubeApi, process: Process) -> None:
    async with running(process):
        await asyncio.sleep(1)
        await process.stop()
        process.start()
        assert not process.is_leader
        await asyncio.sleep(1)

        assert process.is_leader
        assert stored_spec(server)["holderIdentity"] == "a"


@pytest.mark.parametrize("fault", ["hanging", "failing"])
@simulated
async def test_a_leader_without_renewals_stops_at_the_deadline(process: Process, fault: str) -> None:
    async with running(process):
        await asyncio.sleep(6)  # the last renewal was sent at 6
        if fault == "hanging":
            process.link.cut()
        else:
            process.link.failing.update({"get": RESET, "replace": RESET})
        await asyncio.sleep(9.8)
        assert process.is_leader
        await asyncio.sleep(0.2)

        assert not process.is_leader
        assert process.transitions[1] == pytest.approx(16, abs=0.01)
        assert process.abandoned == [process.transitions[1]]
        [reason] = process.stopped
    expected = "TimeoutError: no response" if fault == "hanging" else "KubeUnavailable: connection reset by peer"
    assert reason.startswith(f"the Lease was not renewed for 10 s: {expected}")


def ignoring_cancellation(event: asyncio.Event) -> Callable[[], Awaitable[None]]:
    """Return a call that ends with the event, and not when it is cancelled."""

    async def call() -> None:
        while not event.is_set():
            with suppress(asyncio.CancelledError):
                await event.wait()

    return call


@simulated
async def test_leadership_ends_by_the_clock_even_if_a_call_ignores_its_timeout() -> None:
    process, released = Process(FakeKubeApi(), "a"), asyncio.Event()

    async with running(process):
        await asyncio.sleep(6.5)  # the last renewal was sent at 6
        process.link.before_call = ignoring_cancellation(released)
        await asyncio.sleep(9.3)
        assert process.is_leader
        await asyncio.sleep(0.2)
        assert not process.is_leader

        released.set()
        await asyncio.sleep(1)


@simulated
async def test_a_response_after_the_deadline_starts_another_term() -> None:
    process, released = Process(FakeKubeApi(), "a"), asyncio.Event()

    async with running(process):
        await asyncio.sleep(6.5)
        process.link.before_call = ignoring_cancellation(released)  # renewal sent at 8
        await asyncio.sleep(10.4)
        released.set()
        await asyncio.sleep(5)

        assert process.transitions == pytest.approx([0, 17, 17])
        assert process.is_leader


@simulated
async def test_the_deadline_counts_from_the_sending_of_a_renewal(process: Process) -> None:
    process.link.delays["replace"] = 4

    async with running(process):
        await asyncio.sleep(7)  # sent at 2, confirmed at 6
        process.link.cut()
        await asyncio.sleep(20)

        assert process.transitions == pytest.approx([0, 12])


@simulated
async def test_a_foreign_write_to_the_lease_is_no_problem(
    server: FakeKubeApi, process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(process):
        await asyncio.sleep(5)
        await server.replace(KubeKind("", "", "", ""), server.objects[KEY], namespace="prod")
        await asyncio.sleep(1.5)
        assert process.elector.problem() is None
        await asyncio.sleep(60)

        assert process.is_leader
        assert process.stopped == []
    assert caplog.records == []


@simulated
async def test_a_leader_that_lost_one_renewal_goes_on(process: Process) -> None:
    async with running(process):
        await asyncio.sleep(5)
        process.link.fail("replace", RESET)
        process.link.losing.add("replace")
        await asyncio.sleep(6)
        process.link.losing.clear()
        await asyncio.sleep(60)

        assert process.is_leader
        assert process.stopped == []


@simulated
async def test_a_leader_that_was_cut_off_does_not_return_while_another_leads(
    first: Process, second: Process
) -> None:
    async with running(first, second):
        await asyncio.sleep(5)
        first.link.cut()
        await asyncio.sleep(30)
        assert second.is_leader
        first.link.repair()
        await asyncio.sleep(30)

        assert (first.is_leader, second.is_leader) == (False, True)
        assert first.elector.problem() is None
        assert first.elector.holder == "b"
    assert first.transitions[1] < second.transitions[0]


@simulated
async def test_a_leader_learns_that_another_holds_the_lease(server: FakeKubeApi, process: Process) -> None:
    async with running(process):
        await asyncio.sleep(5)
        await take_lease(server, holder="b")
        await asyncio.sleep(5)

        assert process.stopped == ["b holds the Lease"]


@simulated
async def test_the_next_leader_knows_what_the_last_one_published_and_when(server: FakeKubeApi) -> None:
    number = iter(range(1000))
    first = Process(server, "a", facts=lambda: {"ex.io/cycle": str(next(number))})
    second = Process(server, "b", facts=lambda: {"ex.io/cycle": "mine"})

    async with running(first, second):
        await asyncio.sleep(9)  # renewed at 2, 4, 6, 8
        await first.kill()
        assert second.elector.last_leader is not None
        assert second.elector.last_leader.annotations == {"ex.io/cycle": "3"}
        await asyncio.sleep(20)

        [last_leader] = second.started
        seen = START + timedelta(seconds=8.1)
        assert last_leader == LastLeader("a", {"ex.io/cycle": "3"}, seen, was_alive=True)
        assert second.elector.last_leader == last_leader
        await asyncio.sleep(2)
        assert lease.read(server.objects[KEY]).annotations == {"ex.io/cycle": "mine"}


@simulated
async def test_the_last_facts_are_published_with_the_release(server: FakeKubeApi) -> None:
    facts = {"ex.io/cycle": "1"}
    process = Process(server, "a", facts=lambda: facts)

    async with running(process):
        await asyncio.sleep(5)
        facts = {"ex.io/cycle": "2"}
        await process.stop()

    assert lease.read(server.objects[KEY]).annotations == {"ex.io/cycle": "2"}


@simulated
async def test_a_new_leader_keeps_the_facts_of_the_last_until_it_renews(server: FakeKubeApi) -> None:
    first = Process(server, "a", facts=lambda: {"ex.io/cycle": "1"})
    second = Process(server, "b", facts=lambda: {"ex.io/cycle": "mine"})

    async with running(first, second):
        await asyncio.sleep(5)
        await first.stop()
        await asyncio.sleep(2)

        assert second.is_leader
        assert lease.read(server.objects[KEY]).annotations == {"ex.io/cycle": "1"}


@simulated
async def test_callbacks_that_raise_end_nothing(server: FakeKubeApi, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*arguments: object) -> Mapping[str, str]:
        raise RuntimeError("a bug")

    def fail_silently(argument: object) -> None:
        fail()

    elector = LeaderElector(
        api=server,
        name="l",
        namespace="prod",
        identity="a",
        clock=SimulatedClock(),
        log=get_logger("test"),
        callbacks=LeaderCallbacks(
            annotations=fail, on_started_leading=fail_silently, on_stopped_leading=fail_silently
        ),
    )
    stopping = Stopping()

    async with asyncio.TaskGroup() as group:
        group.create_task(elector.run(stopping))
        await asyncio.sleep(30)
        assert elector.is_leader
        stopping.request()

    messages = [record.getMessage() for record in caplog.records]
    assert messages.count("leader.callback_failed") == 2
    assert "leader.annotations_failed" in messages
    assert lease.read(server.objects[ObjectKey("prod", "l")]).term.holder == ""


@simulated
async def test_a_lease_that_cannot_be_read_is_a_problem_with_its_time(process: Process) -> None:
    assert process.elector.problem() == "lease prod/sentinel-a: no response yet"
    assert not process.is_leader
    process.link.failing["get"] = Forbidden("leases is forbidden", status=403)

    async with running(process):
        await asyncio.sleep(60)
        assert process.elector.problem() == (
            "cannot get lease prod/sentinel-a: Forbidden: leases is forbidden (since 2025-01-01T00:00:00Z)"
        )

        process.link.failing.clear()
        await asyncio.sleep(3)
        assert process.elector.problem() is None
        assert process.is_leader


@simulated
async def test_a_repeated_failure_is_logged_once(process: Process, caplog: pytest.LogCaptureFixture) -> None:
    process.link.failing["get"] = RESET

    async with running(process):
        await asyncio.sleep(60)

    assert [record.getMessage() for record in caplog.records] == ["leader.failed"]


@pytest.mark.parametrize("error", [ValueError("a bug in the driver"), asyncio.CancelledError()])
@simulated
async def test_an_unexpected_error_does_not_end_the_election(
    process: Process, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    process.link.fail("get", error)

    async with running(process):
        await asyncio.sleep(5)
        assert process.is_leader

    assert "leader.crashed" in [record.getMessage() for record in caplog.records]


@simulated
async def test_a_malformed_lease_is_a_problem(server: FakeKubeApi, process: Process) -> None:
    await server.put(KEY.name, spec={"holderIdentity": 5})

    async with running(process):
        await asyncio.sleep(5)
        assert "spec.holderIdentity: expected a text" in (process.elector.problem() or "")
        assert not process.is_leader


async def compete(seed: int) -> None:
    """Disturb three processes for ten minutes, and look at all of them often."""
    random = Random(seed)  # noqa: S311  # reproducible
    server = FakeKubeApi()
    processes = [Process(server, name, jitter=random.random) for name in "abc"]

    async def disturb(process: Process) -> None:
        while True:
            await asyncio.sleep(random.uniform(0, 40))
            link = process.link
            match random.randrange(4):
                case 0:
                    link.cut()
                case 1:
                    link.losing.update(("create", "replace"))
                case 2:
                    link.delays = {verb: random.uniform(0, 6) for verb in ("get", "create", "replace")}
                case _:
                    link.failing = {"get": RESET, "replace": RESET}
            await asyncio.sleep(random.uniform(0, 30))
            link.repair()
            link.losing.clear()
            link.delays.clear()
            link.failing.clear()

    async with running(*processes):
        disturbances = [asyncio.create_task(disturb(process)) for process in processes]
        for _ in range(3000):
            await asyncio.sleep(0.2)
            assert sum(process.is_leader for process in processes) <= 1
        for disturbance in disturbances:
            disturbance.cancel()
        await asyncio.wait(disturbances)
    assert sum(len(process.started) for process in processes) >= 2


@settings(max_examples=5)
@given(st.integers(0, 2**32))
def test_with_any_faults_at_most_one_process_leads(seed: int) -> None:
    loop.run(compete(seed), order=Random(seed))  # noqa: S311  # reproducible
