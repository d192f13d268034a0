"""The deployments in which every scenario runs."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import pytest

from tests.support.loop.resource_loop import LoopResource


class Deployment(StrEnum):
    """The broker between pulse and adapters."""

    RABBITMQ = "rabbitmq"
    PUBSUB = "pubsub"
    MEMORY = "memory"


BROKERS = pytest.mark.parametrize("loop", [Deployment.RABBITMQ, Deployment.PUBSUB], indirect=True)
"""Deployments with one process per part, which can be killed and started separately."""
RABBITMQ = pytest.mark.parametrize("loop", [Deployment.RABBITMQ], indirect=True)


class MakeResource(Protocol):
    """Returns a resource that does not exist yet."""

    def __call__(self, plural: str = "clusters") -> LoopResource: ...
