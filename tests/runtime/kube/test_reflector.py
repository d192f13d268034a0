"""The local copy of objects: what is reported, what is requested, and what happens when requests fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.json import Json
from sentinel.core.kube import objects
from sentinel.core.kube.objects import ObjectKey
from sentinel.ports.kube import (
    Bookmark,
    Forbidden,
    InvalidObject,
    KubeError,
    KubeKind,
    KubeObject,
    KubeUnavailable,
    ObjectChanged,
    ObjectDeleted,
    ObjectNotFound,
    ResourceExpired,
    Unauthorized,
)
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.kube.changes import (
    Added,
    Change,
    Deleted,
    EventReceived,
    Listed,
    ListReason,
    Modified,
    Observation,
    RequestFailed,
    WatchStarted,
)
from sentinel.runtime.kube.reflector import Reflector
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import get_logger
from sentinel.testing import loop
from sentinel.testing.loop import SimulatedClock, simulated
from tests.runtime.kube.fake_kube_api import FakeKubeApi

WIDGET = KubeKind("ex.io", "v1", "Widget", "widgets")
SECOND = timedelta(seconds=1)
BACKOFF = Backoff(initial=SECOND, maximum=8 * SECOND, jitter=0)
RESET = KubeUnavailable("connection reset by peer")
EXPIRED = ResourceExpired("too old resource version", status=410)
A, B, C = (ObjectKey("prod", name) for name in "abc")


def size_of(kube_object: KubeObject) -> Json:
    return kube_object.get("size")


class Following:
    """A reflector of widgets that keeps their sizes, and what it told."""

    def __init__(
        self,
        api: FakeKubeApi,
        *,
        keep: Callable[[KubeObject], Json] = size_of,
        on_change: Callable[[Change[Json]], None] = lambda change: None,
        **options: Any,
    ) -> None:
        """The options are those of `Reflector`."""
        self.api = api
        self.changes: list[Change[Json]] = []
        self._on_change = on_change
        self.observed: list[Observation] = []
        self.reflector: Reflector[Json] = Reflector(
            api=api,
            kind=WIDGET,
            keep=keep,
            handler=self._handle,
            clock=SimulatedClock(),
            log=get_logger("test"),
            observe=self.observed.append,
            backoff=BACKOFF,
            jitter=lambda: 0.5,
            **options,
        )

    def _handle(self, change: Change[Json]) -> None:
        self.changes.append(change)
        self._on_change(change)

    @property
    def summary(self) -> list[tuple[str, str]]:
        return [(type(change).__name__, change.key.name) for change in self.changes]

    @property
    def list_reasons(self) -> list[ListReason]:
        return [each.reason for each in self.observed if isinstance(each, Listed)]

    @property
    def watched_versions(self) -> list[str]:
        return [call.resource_version for call in self.api.calls if call.verb == "watch"]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        stopping = Stopping()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.reflector.run(stopping))
            await asyncio.sleep(0.01)
            yield
            stopping.request()


@pytest.fixture
def api() -> FakeKubeApi:
    return FakeKubeApi()


@pytest.fixture
def following(api: FakeKubeApi) -> Following:
    return Following(api)


async def settle(seconds: float = 0.01) -> None:
    """Let everything happen that is due."""
    await asyncio.sleep(seconds)


# Changes


@simulated
async def test_all_objects_are_listed_in_chunks_and_reported_as_added(
    api: FakeKubeApi, following: Following
) -> None:
    await api.put_all("abcde", size=1)

    async with following.running():
        assert following.summary == [("Added", name) for name in "abcde"]
        assert following.reflector.items() == {ObjectKey("prod", name): 1 for name in "abcde"}
        assert following.reflector.has_synced
        assert following.reflector.problem() is None
    assert api.count("list chunk") == 2


@simulated
async def test_changes_are_reported_with_what_was_kept_before(api: FakeKubeApi, following: Following) -> None:
    first = await api.put("a", size=1)

    async with following.running():
        second = await api.put("a", size=2)
        await settle()
        await api.remove("a")
        await settle()

    added, modified, deleted = following.changes
    assert added == Added(A, 1, first)
    assert modified == Modified(A, 1, 2, second)
    assert isinstance(deleted, Deleted)
    assert (deleted.previous, deleted.object and deleted.object["size"]) == (2, 2)
    assert following.reflector.items() == {}
    assert following.reflector.get(A) is None


@simulated
async def test_the_copy_is_updated_before_the_handler_is_called(api: FakeKubeApi) -> None:
    seen: list[Json] = []
    reader = Following(api, on_change=lambda change: seen.append(reader.reflector.get(change.key)))

    async with reader.running():
        await api.put("a", size=1)
        await settle()
        await api.remove("a")
        await settle()

    assert seen == [1, None]


@simulated
async def test_by_default_the_whole_object_is_kept(api: FakeKubeApi) -> None:
    stored = await api.put("a", size=1)
    changes: list[Change[KubeObject]] = []
    reflector: Reflector[KubeObject] = Reflector(
        api=api, kind=WIDGET, handler=changes.append, clock=SimulatedClock(), log=get_logger("test")
    )
    stopping = Stopping()

    async with asyncio.TaskGroup() as group:
        group.create_task(reflector.run(stopping))
        await reflector.wait_until_synced()
        stopping.request()

    assert reflector.get(A) == stored


@simulated
async def test_the_selection_is_passed_to_every_request(api: FakeKubeApi) -> None:
    await api.put("a")
    await api.put("b")
    await api.put("a", namespace="test")
    following = Following(api, namespace="prod", field_selector="metadata.name=a")

    async with following.running():
        await api.put("b")
        await settle()

    assert following.summary == [("Added", "a")]
    selection = {"namespace": "prod", "label_selector": "", "field_selector": "metadata.name=a"}
    assert [call.selection for call in api.calls] == [selection] * 2


@simulated
async def test_an_event_that_is_already_known_is_not_reported(api: FakeKubeApi, following: Following) -> None:
    stored = await api.put("a", size=1)

    async with following.running():
        await api.send(ObjectChanged(stored))
        await api.send(ObjectDeleted({**stored, "metadata": {**objects.read_metadata(stored), "name": "gone"}}))
        await settle()

    assert following.summary == [("Added", "a")]


@simulated
async def test_another_object_of_the_same_name_is_deleted_then_added(
    api: FakeKubeApi, following: Following
) -> None:
    stored = await api.put("a", size=1)

    async with following.running():
        metadata = {**objects.read_metadata(stored), "uid": "other", "resourceVersion": "99"}
        await api.send(ObjectChanged({**stored, "size": 2, "metadata": metadata}))
        await settle()

    assert following.summary == [("Added", "a"), ("Deleted", "a"), ("Added", "a")]
    assert [change.previous for change in following.changes if isinstance(change, Deleted)] == [1]
    assert following.reflector.get(A) == 2


# Expired versions


@simulated
async def test_a_deletion_while_nothing_was_watched_is_reported(api: FakeKubeApi, following: Following) -> None:
    await api.put_all("abc", size=1)

    async with following.running():
        following.changes.clear()
        await api.end_streams(RESET)
        await api.remove("a")
        await api.put("b", size=2)
        await api.put("d", size=4)
        api.forget_history()
        await settle(1.1)

    assert following.summary == [("Modified", "b"), ("Added", "d"), ("Deleted", "a")]
    assert following.changes[-1] == Deleted(A, 1, None)
    assert following.list_reasons == [ListReason.FIRST, ListReason.EXPIRED]
    assert following.reflector.relists == 1


@simulated
async def test_an_object_replaced_in_the_gap_is_deleted_then_added(api: FakeKubeApi, following: Following) -> None:
    await api.put("a", size=1)

    async with following.running():
        api.fail("watch", EXPIRED)
        await api.end_streams(RESET)
        await api.remove("a")
        await api.put("a", size=2)
        await settle(1.1)

    assert following.summary == [("Added", "a"), ("Deleted", "a"), ("Added", "a")]


@simulated
async def test_a_version_that_expires_in_mid_stream_is_listed_again_at_once(
    api: FakeKubeApi, following: Following
) -> None:
    await api.put("a")

    async with following.running():
        await api.bookmark()
        await settle()
        await api.end_streams(EXPIRED)
        await settle()

        assert following.list_reasons == [ListReason.FIRST, ListReason.EXPIRED]
        assert following.reflector.problem() is None
    assert following.summary == [("Added", "a")]


@simulated
async def test_a_list_that_fails_midway_deletes_nothing(api: FakeKubeApi, following: Following) -> None:
    await api.put_all("abc", size=1)

    async with following.running():
        api.fail("list chunk", RESET)
        await api.put("a", size=2)
        await api.end_streams(EXPIRED)
        await settle(0.5)
        assert set(following.reflector.items()) == {A, B, C}

        await settle(60)

    assert following.summary == [("Added", "a"), ("Added", "b"), ("Added", "c"), ("Modified", "a")]
    assert following.list_reasons == [ListReason.FIRST, ListReason.EXPIRED]


@simulated
async def test_a_watch_never_resumes_from_before_a_list_that_failed_midway(
    api: FakeKubeApi, following: Following
) -> None:
    await api.put_all("abc", size=1)

    async with following.running():
        api.fail("list chunk", RESET)
        await api.end_streams(EXPIRED)
        await settle(60)

    assert [call.verb for call in api.calls] == [
        *("list", "list chunk", "watch"),
        *("list", "list chunk", "list", "list chunk", "watch"),
    ]


# Resuming


@pytest.mark.parametrize("error", [RESET, ValueError("a bug in the driver"), asyncio.CancelledError()])
@simulated
async def test_a_broken_stream_is_resumed_from_the_last_version(
    api: FakeKubeApi, following: Following, error: Exception
) -> None:
    await api.put("a")

    async with following.running():
        await api.put("a", size=2)
        await api.put("b", size=2)
        await settle()
        await api.end_streams(error)
        await api.put("c", size=3)
        await settle(2)

    assert following.watched_versions == ["1", "3"]
    assert following.summary == [("Added", "a"), ("Modified", "a"), ("Added", "b"), ("Added", "c")]
    assert following.reflector.relists == 0


@simulated
async def test_a_closed_stream_is_resumed_from_the_last_bookmark(api: FakeKubeApi, following: Following) -> None:
    async with following.running():
        await api.bookmark()
        await settle(5)
        await api.end_streams()
        await settle()

        assert following.watched_versions == ["0", "1"]
        assert api.times("watch")[1] == pytest.approx(5, abs=0.1)


@simulated
async def test_a_stream_that_was_silent_for_long_is_resumed_at_once(
    api: FakeKubeApi, following: Following
) -> None:
    async with following.running():
        for _ in range(3):
            await settle(300)
            await api.end_streams()
        await settle()

        assert api.count("watch") == 4
        assert following.reflector.problem() is None
    assert not any(isinstance(each, RequestFailed) for each in following.observed)


@simulated
async def test_streams_that_end_at_once_are_not_opened_in_a_hot_loop(
    api: FakeKubeApi, following: Following
) -> None:
    api.are_streams_short = True

    async with following.running():
        await settle(60)

        assert api.count("watch") <= 12
        assert following.reflector.problem() == (
            "cannot watch widgets.ex.io: the server closes every stream at once (since 2025-01-01T00:00:01Z)"
        )


@simulated
async def test_streams_that_repeat_known_events_are_not_a_hot_loop(api: FakeKubeApi, following: Following) -> None:
    api.are_streams_short = True
    api.repeats_events = True
    await api.put("a")
    await api.send(Bookmark("2"))

    async with following.running():
        await settle(60)

    assert following.summary == [("Added", "a")]
    assert api.count("watch") <= 12


@simulated
async def test_versions_that_expire_at_once_are_not_a_hot_loop(api: FakeKubeApi, following: Following) -> None:
    api.failing["watch"] = EXPIRED

    async with following.running():
        await settle(60)

        assert api.count("list") + api.count("watch") <= 24
        assert "cannot watch widgets.ex.io: ResourceExpired" in (following.reflector.problem() or "")


@pytest.mark.parametrize("verb", ["list", "watch"])
@pytest.mark.parametrize("error", [RESET, ValueError("a bug in the driver"), Forbidden("no", status=403)])
@simulated
async def test_failures_are_repeated_with_growing_delays(
    api: FakeKubeApi, following: Following, verb: str, error: Exception
) -> None:
    api.fail(verb, *[error] * 5)

    async with following.running():
        await settle(60)

        assert api.times(verb) == pytest.approx([0, 1, 3, 7, 15, 23])
        assert following.reflector.has_synced


@simulated
async def test_success_resets_the_delays(api: FakeKubeApi, following: Following) -> None:
    api.fail("watch", RESET, RESET, RESET)

    async with following.running():
        await settle(10)
        await api.put("a")
        await settle()
        await api.end_streams(RESET)
        await settle(1.1)

    assert api.times("watch") == pytest.approx([0, 1, 3, 7, 11], abs=0.1)


@simulated
async def test_a_stream_with_a_sign_of_life_resets_the_delays(api: FakeKubeApi, following: Following) -> None:
    api.fail("watch", RESET, RESET, RESET)

    async with following.running():
        await settle(10)
        await api.send(Bookmark("0"))
        await settle(50)
        await api.end_streams(RESET)
        await settle(1.1)

    assert api.times("watch") == pytest.approx([0, 1, 3, 7, 61], abs=0.1)


@simulated
async def test_a_hanging_request_that_fails_does_not_reset_the_delays(
    api: FakeKubeApi, following: Following
) -> None:
    api.delays["watch"] = 20
    api.failing["watch"] = KubeUnavailable("no response")

    async with following.running():
        await settle(120)

    assert api.times("watch") == pytest.approx([0, 21, 43, 67, 95])


@pytest.mark.parametrize(("asked", "delay"), [(5, 5), (0.1, 1), (86_400, 300)])
@simulated
async def test_the_delay_that_the_server_requests_is_kept(
    api: FakeKubeApi, following: Following, asked: float, delay: float
) -> None:
    api.fail("list", KubeUnavailable("too many requests", retry_after=asked * SECOND))

    async with following.running():
        await settle(1000)

    assert api.times("list") == pytest.approx([0, delay])


@simulated
async def test_a_watch_that_keeps_failing_is_listed_again(api: FakeKubeApi, following: Following) -> None:
    api.fail("watch", *[KubeUnavailable("Too large resource version: 900, current: 3")] * 12)

    async with following.running():
        await settle(200)

        assert following.list_reasons == [ListReason.FIRST, ListReason.WATCH_FAILED]


@pytest.mark.parametrize("error", [Unauthorized("expired", status=401), Forbidden("no", status=403)])
@simulated
async def test_a_watch_without_permission_is_resumed_when_it_is_granted(
    api: FakeKubeApi, following: Following, error: KubeError
) -> None:
    api.fail("watch", error, error)

    async with following.running():
        await settle(10)

    assert following.watched_versions == ["0", "0", "0"]
    assert api.count("list") == 1


@pytest.mark.parametrize(
    "error", [ObjectNotFound("page not found", status=404), InvalidObject("invalid version", status=400)]
)
@simulated
async def test_a_rejected_watch_is_listed_again_after_a_delay(
    api: FakeKubeApi, following: Following, error: KubeError
) -> None:
    api.fail("watch", error)

    async with following.running():
        await settle(10)

    assert api.times("list") == pytest.approx([0, 1])
    assert following.list_reasons == [ListReason.FIRST, ListReason.WATCH_FAILED]


# Readiness


@pytest.mark.parametrize(
    "error",
    [
        Forbidden("widgets is forbidden", status=403),
        Unauthorized("token expired", status=401),
        ObjectNotFound("the server could not find the requested resource", status=404),
        RESET,
    ],
)
@simulated
async def test_a_kind_that_cannot_be_listed_is_shown_and_waited_for(api: FakeKubeApi, error: Exception) -> None:
    api.failing["list"] = error
    following = Following(api, namespace="prod")
    assert following.reflector.problem() == "widgets.ex.io in prod: not listed yet"

    async with following.running():
        await settle(60)
        assert following.reflector.problem() == (
            f"cannot list widgets.ex.io in prod: {type(error).__name__}: {error} (since 2025-01-01T00:00:00Z)"
        )
        assert not following.reflector.has_synced

        api.failing.clear()
        await settle(10)
        assert following.reflector.problem() is None
        assert following.reflector.has_synced


@simulated
async def test_a_broken_watch_is_a_problem_until_something_is_received(
    api: FakeKubeApi, following: Following
) -> None:
    async with following.running():
        await settle(9)
        await api.end_streams(RESET)
        await settle(0.5)
        assert following.reflector.problem() == (
            "cannot watch widgets.ex.io: KubeUnavailable: connection reset by peer (since 2025-01-01T00:00:09Z)"
        )
        await settle(5)
        assert following.reflector.problem() is not None

        await api.send(Bookmark("0"))
        await settle()
        assert following.reflector.problem() is None


@simulated
async def test_a_silent_stream_is_no_problem_after_half_a_minute(api: FakeKubeApi, following: Following) -> None:
    api.fail("watch", RESET)

    async with following.running():
        await settle(30)
        assert following.reflector.problem() is not None

        await settle(2)
        assert following.reflector.problem() is None


@simulated
async def test_a_problem_says_since_when_across_failures(api: FakeKubeApi, following: Following) -> None:
    async with following.running():
        await settle(30)
        api.failing["watch"] = Forbidden("widgets is forbidden", status=403)
        await api.end_streams(RESET)
        await settle(300)

        assert following.reflector.problem() == (
            "cannot watch widgets.ex.io: Forbidden: widgets is forbidden (since 2025-01-01T00:00:30Z)"
        )


# Resync


@simulated
async def test_a_resync_lists_again_and_reports_only_changes(api: FakeKubeApi) -> None:
    await api.put("a", size=1)
    await api.put("b", size=1)
    following = Following(api, resync=30 * SECOND)

    async with following.running():
        api.objects.pop(A)  # a change that the watch does not deliver
        await settle(95)

        assert api.times("list") == pytest.approx([0, 30, 60, 90], abs=0.1)
        assert following.list_reasons == [ListReason.FIRST, *[ListReason.RESYNC] * 3]
        assert following.reflector.relists == 3
        assert following.reflector.problem() is None
    assert following.summary == [("Added", "a"), ("Added", "b"), ("Deleted", "a")]
    assert api.open_streams == 0


@simulated
async def test_a_resync_is_due_even_while_the_watch_fails(api: FakeKubeApi) -> None:
    api.failing["watch"] = RESET
    following = Following(api, resync=30 * SECOND)

    async with following.running():
        await settle(100)

    assert api.count("list") >= 3


@simulated
async def test_a_stream_that_lasts_until_the_resync_ends_a_problem(api: FakeKubeApi) -> None:
    api.fail("watch", RESET, RESET)
    following = Following(api, resync=10 * SECOND)

    async with following.running():
        await settle(9)
        assert following.reflector.problem() is not None

        await settle(2)
        assert following.reflector.problem() is None


@simulated
async def test_a_named_object_is_looked_for_and_found_as_soon_as_it_appears(api: FakeKubeApi) -> None:
    following = Following(api, namespace="prod", field_selector="metadata.name=a", resync=30 * SECOND)

    async with following.running():
        await settle(40)
        await api.put("b")
        await api.put("a")
        await settle()

        assert following.summary == [("Added", "a")]
        assert api.times("list") == pytest.approx([0, 30], abs=0.1)


# Robustness


@simulated
async def test_a_handler_that_raises_stops_nothing(api: FakeKubeApi, caplog: pytest.LogCaptureFixture) -> None:
    def fail(change: Change[Json]) -> None:
        raise RuntimeError("a bug in the handler")

    await api.put("a", size=1)
    following = Following(api, on_change=fail)

    async with following.running():
        await api.put("b")
        await settle()

    assert following.summary == [("Added", "a"), ("Added", "b")]
    assert set(following.reflector.items()) == {A, B}
    assert [record.getMessage() for record in caplog.records].count("reflector.handler_failed") == 2


@simulated
async def test_objects_that_cannot_be_read_do_not_hide_the_others(
    api: FakeKubeApi, caplog: pytest.LogCaptureFixture
) -> None:
    def keep(kube_object: KubeObject) -> Json:
        if kube_object.get("size") == "bad":
            raise ValueError("a bug in keep")
        return kube_object.get("size")

    await api.put("a", size="bad")
    await api.put("b", size=1)
    following = Following(api, keep=keep)

    async with following.running():
        await api.put("b", size="bad")
        api.objects[C] = {"metadata": {"resourceVersion": "3", "uid": "u"}}
        await api.put("d", size=4)
        await settle()
        await api.end_streams(EXPIRED)
        await settle(5)

    assert following.summary == [("Added", "b"), ("Added", "d")]
    assert following.reflector.get(B) == 1  # the last state that could be read
    messages = {record.getMessage() for record in caplog.records}
    assert {"reflector.unreadable", "reflector.malformed"} <= messages


@simulated
async def test_stopping_closes_the_stream_at_once(api: FakeKubeApi, following: Following) -> None:
    async with following.running():
        await settle(5)
        assert api.open_streams == 1

    assert api.open_streams == 0
    assert asyncio.get_running_loop().time() == pytest.approx(5.01, abs=0.02)


@pytest.mark.parametrize("verb", ["list", "watch"])
@simulated
async def test_stopping_does_not_wait_for_a_request_or_a_delay(verb: str) -> None:
    hanging, failing = FakeKubeApi(), FakeKubeApi()
    hanging.hanging.add(verb)
    failing.failing[verb] = KubeUnavailable("overloaded", retry_after=60 * SECOND)

    for api in (hanging, failing):
        async with Following(api).running():
            await settle(1)

    assert asyncio.get_running_loop().time() == pytest.approx(2.02, abs=0.05)


@simulated
async def test_a_second_run_resumes_where_the_first_stopped(api: FakeKubeApi, following: Following) -> None:
    await api.put("a")
    async with following.running():
        pass
    await api.put("b")

    async with following.running():
        pass

    assert following.summary == [("Added", "a"), ("Added", "b")]
    assert api.count("list") == 1


@simulated
async def test_everything_is_observed(api: FakeKubeApi, following: Following) -> None:
    await api.put("a")
    api.fail("watch", RESET)

    async with following.running():
        await settle(1.5)
        stored = await api.put("b")
        await settle()

    assert following.observed == [
        Listed(ListReason.FIRST, 1),
        WatchStarted("1"),
        RequestFailed("watch", RESET, SECOND),
        WatchStarted("1"),
        EventReceived(ObjectChanged(stored)),
    ]


# Any history


class Step:
    """Something that happens to the server."""

    PUT, REMOVE, FORGET, END, BREAK, BREAK_LIST = range(6)


steps = st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abcd"), st.floats(0, 3)), max_size=30)


async def play(history: list[tuple[int, str, float]]) -> None:
    api = FakeKubeApi()
    following = Following(api)
    size = 0
    async with following.running():
        for kind, name, pause in history:
            match kind:
                case Step.PUT:
                    size += 1
                    await api.put(name, size=size)
                case Step.REMOVE if ObjectKey("prod", name) in api.objects:
                    await api.remove(name)
                case Step.FORGET:
                    api.forget_history()
                case Step.END:
                    await api.end_streams()
                case Step.BREAK:
                    await api.end_streams(RESET)
                case Step.BREAK_LIST:
                    api.fail("list chunk", RESET)
            await settle(pause)
        await settle(60)

        expected = {key: each["size"] for key, each in api.objects.items()}
        assert following.reflector.items() == expected
        assert replay(following.changes) == expected
        assert len(api.calls) < 100 + 5 * len(history)


def replay(changes: list[Change[Json]]) -> dict[ObjectKey, Json]:
    """Build the copy from the changes alone, and check that each fits the one before."""
    copy: dict[ObjectKey, Json] = {}
    for change in changes:
        match change:
            case Added(key=key, kept=kept):
                assert key not in copy
                copy[key] = kept
            case Modified(key=key, previous=previous, kept=kept):
                assert copy[key] == previous != kept
                copy[key] = kept
            case Deleted(key=key, previous=previous):
                assert copy.pop(key) == previous
    return copy


@given(steps, st.integers(0, 2**32))
def test_the_copy_and_the_changes_always_end_at_the_state_of_the_server(
    history: list[tuple[int, str, float]], order: int
) -> None:
    loop.run(play(history), order=Random(order))  # noqa: S311  # reproducible
