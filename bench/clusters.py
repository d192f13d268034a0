"""Clusters of a fleet API on SQLite, and the pulse that publishes their events only when they change."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import aiohttp

from tests.support.fleet.http_client import ROOT
from tests.support.processes.service import ApiProcess

_CREATORS = 8


def sqlite_api(directory: Path, *, required_adapters: Sequence[str]) -> ApiProcess:
    """Return a process that serves clusters which need these adapters."""
    kinds = ({"plural": "clusters", "kind": "Cluster", "required_adapters": list(required_adapters)},)
    return ApiProcess(f"sqlite:///{directory}/fleet.db", kinds=kinds, directory=directory)


def pulse_configuration(endpoint: str, *, poll_interval: str) -> dict[str, object]:
    """Return the settings of a pulse in which max ages play no part: they are longer than a benchmark."""
    return {
        "resource_type": "clusters",
        "poll_interval": poll_interval,
        "max_age_not_ready": "12h",
        "max_age_ready": "24h",
        "hyperfleet_api": {"endpoint": endpoint, "page_size": 500},
    }


async def create(session: aiohttp.ClientSession, count: int) -> list[str]:
    """Create clusters with several concurrent clients. Returns the ids."""
    numbers = iter(range(count))
    ids: list[str] = []

    async def creator() -> None:
        for number in numbers:
            body = {"name": f"cluster-{number}", "labels": {"region": "us-east"}, "spec": {"replicas": 3}}
            async with session.post(f"{ROOT}/clusters", json=body) as response:
                assert response.status == 201, await response.text()
                ids.append((await response.json())["id"])

    async with asyncio.TaskGroup() as group:
        for _ in range(_CREATORS):
            group.create_task(creator())
    return ids
