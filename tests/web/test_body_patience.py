"""A client that announces a body and does not send it."""

from __future__ import annotations

import asyncio

import pytest

from sentinel.testing.loop import run
from sentinel.web import body
from sentinel.web.asgi import Message
from sentinel.web.problem import Problem


def test_a_body_that_does_not_come_is_the_clients_fault() -> None:
    async def silent() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    async def read() -> None:
        await body.read(
            silent,
            {"content-length": "100", "content-type": "application/json"},
            content_types=("application/json",),
            limit=1000,
            is_required=True,
        )

    with pytest.raises(Problem) as refused:
        run(read())

    assert refused.value.status == 408
