"""A client that announces a body and sends it slowly or not at all."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from sentinel.testing.loop import simulated
from sentinel.web import body
from sentinel.web.asgi import Message, Receive
from sentinel.web.body import Body
from sentinel.web.middleware import REQUEST_TIMEOUT
from sentinel.web.problem import Problem


async def rejection(receive: Receive) -> Problem:
    headers = {"content-length": "100", "content-type": "application/json"}
    with pytest.raises(Problem) as rejected:
        await body.read(receive, headers, Body(type=object, limit=1000))
    return rejected.value


@simulated
async def test_a_body_that_does_not_arrive_is_a_408() -> None:
    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    assert (await rejection(receive)).status == 408


@simulated
async def test_a_slow_body_times_out_before_the_request_does() -> None:
    waited = timedelta(0)

    async def receive() -> Message:
        nonlocal waited
        pause = timedelta(seconds=6)
        await asyncio.sleep(pause.total_seconds())
        waited += pause
        return {"type": "http.request", "body": b" ", "more_body": True}

    assert (await rejection(receive)).status == 408
    assert timedelta(0) < waited < REQUEST_TIMEOUT - timedelta(seconds=5)
