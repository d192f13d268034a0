"""A client that announces a body and does not send it, or hardly."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from sentinel.testing.loop import run
from sentinel.web import body
from sentinel.web.asgi import Message, Receive
from sentinel.web.body import Body
from sentinel.web.middleware import REQUEST_TIMEOUT
from sentinel.web.problem import Problem


def refusal(receive: Receive) -> Problem:
    """Of a body that comes like this."""

    async def read() -> None:
        headers = {"content-length": "100", "content-type": "application/json"}
        await body.read(receive, headers, Body(type=object, limit=1000))

    with pytest.raises(Problem) as refused:
        run(read())
    return refused.value


def test_a_body_that_does_not_come_is_the_clients_fault() -> None:
    async def silent() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    assert refusal(silent).status == 408


def test_a_body_that_comes_byte_by_byte_is_given_up_before_the_request_is() -> None:
    waited = timedelta(0)

    async def dripping() -> Message:
        nonlocal waited
        pause = timedelta(seconds=6)
        await asyncio.sleep(pause.total_seconds())
        waited += pause
        return {"type": "http.request", "body": b" ", "more_body": True}

    assert refusal(dripping).status == 408
    assert timedelta(0) < waited < REQUEST_TIMEOUT - timedelta(seconds=5)
