"""The deployments in which every scenario runs, each started once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import assert_never

import pytest
import pytest_asyncio

from tests.support.brokers.pubsub import private_emulator
from tests.support.brokers.rabbitmq import PrivateRabbitMQ
from tests.support.loop.deployments import Deployment, MakeResource
from tests.support.loop.in_one_process import UpLoop
from tests.support.loop.processes import ProcessLoop, PubSubBroker, RabbitMQBroker
from tests.support.loop.resource_loop import LoopResource, ResourceLoop


@pytest_asyncio.fixture(scope="package", loop_scope="package", params=list(Deployment))
async def loop(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ResourceLoop]:
    """A running loop; parts that a test stops are started again before the next test."""
    deployment = Deployment(request.param)
    directory = tmp_path_factory.mktemp(deployment)
    running: ResourceLoop
    match deployment:
        case Deployment.RABBITMQ:
            node: PrivateRabbitMQ = request.getfixturevalue("private_rabbitmq")
            async with ProcessLoop(directory, RabbitMQBroker(node)) as running:
                yield running
        case Deployment.PUBSUB:
            with private_emulator() as emulator:
                async with ProcessLoop(directory, PubSubBroker(emulator)) as running:
                    yield running
        case Deployment.MEMORY:
            async with UpLoop(directory) as running:
                yield running
        case _:
            assert_never(deployment)


@pytest_asyncio.fixture(loop_scope="package")
async def make_resource(loop: ResourceLoop) -> AsyncIterator[MakeResource]:
    """Make resources of this test, which are removed afterwards."""
    made: list[LoopResource] = []

    def make(plural: str = "clusters") -> LoopResource:
        made.append(loop.resource(plural))
        return made[-1]

    yield make
    await loop.backend.release()
    await loop.start_missing()
    for each in made:
        await each.remove()
    assert not loop.new_tracebacks()
