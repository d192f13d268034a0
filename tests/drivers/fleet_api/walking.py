"""Building readers of a fleet, and walking it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from sentinel.core.labels import Selector, SelectorParam
from sentinel.drivers.fleet_api.connection import connect
from sentinel.drivers.fleet_api.fleet_reader import HttpFleetReader
from sentinel.ports.fleet import FetchError, FleetPage
from sentinel.runtime.backoff import Backoff
from tests.support.fleet.fake_api import FleetRequest

MILLISECOND = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
SECRET = "s3cret-t0ken"
TWICE = Backoff(initial=MILLISECOND, factor=1e9, maximum=timedelta(days=1))
"""Allows exactly two attempts at a page: the second delay exceeds every deadline."""

MakeReader = Callable[..., HttpFleetReader]


def build_reader(
    endpoint: str,
    *,
    token: str = "",
    token_file: Path | None = None,
    ca_file: Path | None = None,
    gzip: bool = False,
    **changes: Any,
) -> HttpFleetReader:
    """A reader of clusters with two resources per page and fast retries, and with these changes."""
    client = connect(
        endpoint=endpoint,
        user_agent="hyperfleet-sentinel/1.2.3",
        keep_alive=60 * SECOND,
        token=token,
        token_file=token_file,
        ca_file=ca_file,
        gzip=gzip,
    )
    arguments: dict[str, Any] = {
        "resource_type": "clusters",
        "selector": Selector(),
        "selector_param": SelectorParam.LABELS,
        "page_size": 2,
        "timeout": 30 * SECOND,
        "retry_for": 30 * SECOND,  # less than the minute that a server asks for in the contract suite
        "backoff": Backoff(initial=MILLISECOND, maximum=4 * MILLISECOND),
    }
    return HttpFleetReader(client, **arguments | changes)


async def walk(reader: HttpFleetReader) -> list[FleetPage]:
    return [page async for page in reader.walk()]


async def fetch_ids(reader: HttpFleetReader) -> list[str]:
    return [resource.observation.id for page in await walk(reader) for resource in page.resources]


async def failure(reader: HttpFleetReader) -> str:
    """Walk, and return the text of the error."""
    with pytest.raises(FetchError) as caught:
        await walk(reader)
    return str(caught.value)


def queries(received: Iterable[FleetRequest]) -> list[dict[str, str]]:
    return [dict(parse_qsl(urlsplit(request.target).query)) for request in received]
