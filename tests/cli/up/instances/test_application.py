"""The application behind the proxies, over real connections."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack

from sentinel.cli.up.instances.application import application_part
from sentinel.cli.up.instances.ports import Ports
from sentinel.runtime.log import get_logger
from tests.support.processes.up import get
from tools.services.server import free_port


async def test_one_release_works_and_of_the_next_every_other_request_fails() -> None:
    ports = Ports(free_port() - 98)
    part = application_part(ports, log=get_logger("test"))
    assert part.start is not None
    assert part.close is not None

    async with AsyncExitStack() as stack:
        stack.push_async_callback(part.close)
        await part.start()
        body = (await get(f"http://127.0.0.1:{ports.upstream}/", **{"X-Greeting": "good day"}))[1]
        working = Counter([(await get(f"http://127.0.0.1:{ports.upstream}/any"))[0] for _ in range(10)])
        broken = Counter([(await get(f"http://127.0.0.1:{ports.next_upstream}/any"))[0] for _ in range(10)])

    assert body == b"good day from the application\n"
    assert working == {200: 10}
    assert broken == {200: 5, 500: 5}
