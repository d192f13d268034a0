"""Which worlds there are to play a scenario in, and the names that tests use for them."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import pytest

from tests.support.loop.resource_loop import Subject


class World(StrEnum):
    """What is between pulse and adapters."""

    RABBITMQ = "rabbitmq"
    PUBSUB = "pubsub"
    MEMORY = "memory"


BROKERS = pytest.mark.parametrize("loop", [World.RABBITMQ, World.PUBSUB], indirect=True)
"""Where every part is a process of its own, which can go and come while the others stay."""
RABBITMQ = pytest.mark.parametrize("loop", [World.RABBITMQ], indirect=True)


class Make(Protocol):
    """Makes a resource that is not there yet."""

    def __call__(self, plural: str = "clusters") -> Subject: ...
