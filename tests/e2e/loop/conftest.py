"""The worlds in which every scenario is played, each started once for all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import assert_never

import pytest
import pytest_asyncio

from tests.support.brokers.pubsub import private_emulator
from tests.support.brokers.rabbitmq import PrivateRabbitMQ
from tests.support.loop.deployments import Make, World
from tests.support.loop.in_one_process import UpLoop
from tests.support.loop.processes import ProcessLoop, PubSubBroker, RabbitMQBroker
from tests.support.loop.resource_loop import Loop, Subject


@pytest_asyncio.fixture(scope="package", loop_scope="package", params=list(World))
async def loop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Loop]:
    """A loop that runs; whatever a test stops of it is started again before the next one."""
    world = World(request.param)
    directory = tmp_path_factory.mktemp(world)
    running: Loop
    match world:
        case World.RABBITMQ:
            node: PrivateRabbitMQ = request.getfixturevalue("private_rabbitmq")
            async with ProcessLoop(directory, RabbitMQBroker(node)) as running:
                yield running
        case World.PUBSUB:
            with private_emulator() as emulator:
                async with ProcessLoop(directory, PubSubBroker(emulator)) as running:
                    yield running
        case World.MEMORY:
            async with UpLoop(directory) as running:
                yield running
        case _:
            assert_never(world)


@pytest_asyncio.fixture(loop_scope="package")
async def subject(loop: Loop) -> AsyncIterator[Make]:
    """Resources of this test's own, by their plural; gone afterwards."""
    made: list[Subject] = []

    def make(plural: str = "clusters") -> Subject:
        made.append(loop.subject(plural))
        return made[-1]

    yield make
    await loop.workshop.release()
    await loop.mend()
    for each in made:
        await each.remove()
    assert not loop.faults()
