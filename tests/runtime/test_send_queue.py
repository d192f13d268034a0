"""Notifications that are sent in the background."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from sentinel.runtime.backoff import Backoff
from sentinel.runtime.send_queue import SendFailure, SendQueue
from sentinel.testing.loop import SimulatedClock, simulated

TIMEOUT = timedelta(seconds=2)


class Sending:
    """A queue, with the results of its attempts in their order."""

    def __init__(self, *results: SendFailure | None) -> None:
        self.results = list(results)
        self.attempts: list[str] = []
        self.hangs = False
        self.dropped: list[tuple[str, BaseException | str]] = []
        self.queue = SendQueue[str](
            self.send,
            on_drop=lambda item, error: self.dropped.append((item, error)),
            max_waiting=2,
            attempts=3,
            backoff=Backoff(initial=timedelta(seconds=1), maximum=timedelta(seconds=1)),
            jitter=lambda: 0,
            clock=SimulatedClock(),
        )

    async def send(self, item: str) -> SendFailure | None:
        self.attempts.append(item)
        if self.hangs:
            await asyncio.Event().wait()
        return self.results.pop(0) if self.results else None


@simulated
async def test_a_full_queue_returns_the_oldest_item() -> None:
    queue = Sending().queue

    assert [queue.add(item) for item in "abc"] == [None, None, "a"]


@simulated
async def test_an_item_is_sent_again_until_it_succeeds() -> None:
    sending = Sending(SendFailure("busy", is_final=False))
    sending.queue.add("a")

    sender = asyncio.create_task(sending.queue.send_all())
    await asyncio.sleep(10)
    sender.cancel()

    assert (sending.attempts, sending.dropped) == (["a", "a"], [])


@simulated
async def test_an_item_is_dropped_after_a_final_failure_or_all_attempts() -> None:
    sending = Sending(SendFailure("no", is_final=True), *[SendFailure("busy", is_final=False)] * 3)
    sending.queue.add("a")
    sending.queue.add("b")

    sender = asyncio.create_task(sending.queue.send_all())
    await asyncio.sleep(10)
    sender.cancel()

    assert sending.attempts == ["a", "b", "b", "b"]
    assert sending.dropped == [("a", "no"), ("b", "busy")]


@simulated
async def test_flushing_tries_each_item_once() -> None:
    sending = Sending(SendFailure("busy", is_final=False))
    sending.queue.add("a")
    sending.queue.add("b")

    assert await sending.queue.flush(TIMEOUT) == 0

    assert (sending.attempts, sending.dropped) == (["a", "b"], [("a", "busy")])


@simulated
async def test_flushing_drops_what_is_left_when_the_time_is_over() -> None:
    sending = Sending()
    sending.hangs = True
    sending.queue.add("a")
    sending.queue.add("b")

    assert await sending.queue.flush(TIMEOUT) == 2
    assert await sending.queue.flush(TIMEOUT) == 0
