"""What publishers and subscribers share: they are opened and closed, and their connections can be lost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar


class BrokerClient(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...


Client = TypeVar("Client", bound=BrokerClient)


@asynccontextmanager
async def opened(client: Client) -> AsyncIterator[Client]:
    await client.open()
    try:
        yield client
    finally:
        await client.close()


class LosesConnections(ABC):
    """A broker whose connections can be cut."""

    @abstractmethod
    async def cut(self) -> None:
        """Close all connections and accept none."""

    @abstractmethod
    async def heal(self) -> None:
        """Accept connections again."""
