"""The page about the public HyperFleet, run as it says, against stand-ins for the public systems.

The commands run as on the page, with other addresses: those of the stand-ins, and an exchange for this test only.
`sentinel run` serves no metrics and no probes here, because their default ports may be in use.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from tests.e2e import tutorial_page
from tests.e2e.public_api import MAX_SIZE, ROOT, PublicApi, created
from tests.e2e.tutorial_page import Action
from tests.e2e.tutorial_terminal import Terminal, TutorialRunner
from tests.support.brokers.rabbitmq import Inbox, open_inbox, unique
from tests.support.fleet.http_client import FleetHttp
from tests.support.processes.service import ApiProcess, run_command
from tools.services.server import free_port

CHECKOUT = Path(__file__).parents[2]
PAGE = CHECKOUT / "docs" / "how-to" / "work-with-public-hyperfleet.md"
KINDS = [{"plural": "clusters", "kind": "Cluster", "required_adapters": ["validation"]}]
PUBLIC_NAMES = ("--insecure", "--set", "public_condition_names=true")


class OwnerReference(msgspec.Struct, frozen=True):
    id: str
    kind: str
    href: str


class AdapterEventData(msgspec.Struct, frozen=True):
    """The data of an event as the public adapters decode it: a text is no number."""

    id: str
    kind: str
    href: str
    generation: int
    owner_references: OwnerReference | None = None


class AdapterEvent(msgspec.Struct, frozen=True):
    """A message's body as the public broker library decodes it."""

    specversion: str
    type: str
    source: str
    id: str
    data: AdapterEventData


def decoded(body: bytes) -> AdapterEvent:
    return msgspec.json.decode(body, type=AdapterEvent, strict=True)


@pytest.fixture
async def public_api() -> AsyncIterator[PublicApi]:
    at = datetime.now(UTC).isoformat()
    owner = {"id": "cls-1", "kind": "Cluster", "href": f"{ROOT}/clusters/cls-1"}
    resources = {
        "clusters": [
            created("clusters", "cls-1", kind="Cluster", at=at, region="us-east"),
            created("clusters", "cls-2", kind="Cluster", at=at, region="us-west"),
        ],
        "nodepools": [created("nodepools", "np-1", kind="NodePool", at=at, owner=owner)],
    }
    async with PublicApi(resources) as server:
        yield server


async def run_page(page: str, folder: Path) -> None:
    """Run all commands of the page in two terminals. The command `sentinel` is that of this checkout."""
    (folder / "bin").mkdir()
    (folder / "bin" / "sentinel").write_text(f'#!/bin/sh\nexec {sys.executable} -m sentinel.cli "$@"\n')
    (folder / "bin" / "sentinel").chmod(0o755)
    environ = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "HOME": str(folder),
        "PWD": str(folder),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
    }
    async with (
        Terminal(folder=folder, environ=environ, environ_file=folder / ".first") as first,
        Terminal(folder=folder, environ=environ, environ_file=folder / ".second") as second,
    ):
        runner = TutorialRunner({"first": first, "second": second}, rewrite=lambda line: line)
        await runner.run(tutorial_page.parse(page))


async def test_every_command_of_the_page_does_what_it_says(
    public_api: PublicApi, rabbitmq_url: str, tmp_path: Path
) -> None:
    prefix = unique("hyperfleet")
    page = PAGE.read_text()
    for on_the_page, here in {
        "http://hyperfleet-api:8000": public_api.url,
        "amqp://guest:guest@rabbitmq:5672/": rabbitmq_url,
        "hyperfleet-system": prefix,
        "127.0.0.1:8000": f"127.0.0.1:{free_port()}",
        "$ sentinel run ": "$ sentinel run --metrics-bind-address=0 --health-probe-bind-address=0 ",
    }.items():
        assert on_the_page in page
        page = page.replace(on_the_page, here)

    async with AsyncExitStack() as stack:
        inboxes: list[Inbox] = []
        for plural in ("clusters", "nodepools"):
            exchange = f"{prefix}-{plural}"  # as an adapter declares it, with the values of the public charts
            queue = open_inbox(
                rabbitmq_url, exchange=exchange, exchange_type="topic", queue=f"{exchange}-validation"
            )
            inboxes.append(await stack.enter_async_context(queue))
        await run_page(page, tmp_path)
        clusters, nodepools = [
            [decoded(message.body) for message in await inbox.receive_all()] for inbox in inboxes
        ]

    assert {event.data for event in clusters} == {
        AdapterEventData("cls-1", "Cluster", f"{ROOT}/clusters/cls-1", 1)
    }
    assert {event.data for event in nodepools} == {
        AdapterEventData(
            "np-1",
            "NodePool",
            f"{ROOT}/nodepools/np-1",
            1,
            OwnerReference("cls-1", "Cluster", f"{ROOT}/clusters/cls-1"),
        )
    }
    assert {event.type for event in clusters} == {"com.redhat.hyperfleet.cluster.reconcile"}
    assert all(int(query["size"]) <= MAX_SIZE and "labels" not in query for query in public_api.queries)
    assert "labels.region='us-east'" in {query.get("search") for query in public_api.queries}


def test_the_page_is_linked_and_its_links_are_valid() -> None:
    missing = [link for link in tutorial_page.links(PAGE.read_text()) if not (PAGE.parent / link).is_file()]

    assert missing == []
    assert f"({PAGE.relative_to(CHECKOUT)})" in (CHECKOUT / "README.md").read_text()


def test_without_native_types_a_public_adapter_cannot_read_the_event() -> None:
    data = {"id": "cls-1", "kind": "Cluster", "href": "", "generation": "1"}
    event = {"specversion": "1.0", "type": "t", "source": "s", "id": "1", "data": data}

    with pytest.raises(msgspec.ValidationError, match="generation"):
        decoded(msgspec.json.encode(event))


async def test_too_large_a_page_is_explained_in_the_words_of_the_public_api(
    public_api: PublicApi, tmp_path: Path
) -> None:
    steps = tutorial_page.parse(PAGE.read_text().replace("http://hyperfleet-api:8000", public_api.url))
    (config,) = [step for step in steps if not isinstance(step, Action) and step.name == "clusters.yaml"]
    (tmp_path / "clusters.yaml").write_text(config.content)

    ended = await run_command(
        "explain", "--config", tmp_path / "clusters.yaml", "--set", "hyperfleet_api.page_size=500"
    )

    assert ended.code == 1
    assert "400 Bad Request: Invalid query parameters: size: size must be at most 100" in ended.stderr


# --- the public Sentinel on our API ------------------------------------------------------------------------------


class PublicCondition(msgspec.Struct, frozen=True):
    type: str
    status: str
    observed_generation: int
    last_updated_time: datetime | None = None


class PublicStatus(msgspec.Struct, frozen=True):
    conditions: list[PublicCondition]


class PublicResource(msgspec.Struct, frozen=True):
    """A resource as the public Sentinel decodes it."""

    id: str
    href: str
    kind: str
    generation: int
    created_time: datetime
    updated_time: datetime
    status: PublicStatus
    labels: dict[str, str] = {}


class PublicPage(msgspec.Struct, frozen=True):
    page: int
    size: int
    total: int
    items: list[PublicResource]


async def fetched(url: str, **parameters: str) -> list[PublicResource]:
    """Read the clusters like the public Sentinel: by page number, until the total is reached."""
    found: list[PublicResource] = []
    async with aiohttp.ClientSession() as session:
        for number in range(1, 100):
            query: dict[str, Any] = {"page": number, "size": 20, **parameters}
            async with session.get(f"{url}{ROOT}/clusters", params=query) as response:
                assert response.status == 200, await response.text()
                page = msgspec.json.decode(await response.read(), type=PublicPage, strict=True)
            found += page.items
            if len(found) >= page.total or not page.items:
                break
    return found


def publishes(resource: PublicResource, now: datetime) -> bool:
    """Decide with the default rules of the public Sentinel."""
    reconciled = next((each for each in resource.status.conditions if each.type == "Reconciled"), None)
    updated = None if reconciled is None else reconciled.last_updated_time
    if reconciled is None or updated is None:
        return resource.generation > 0
    max_age = timedelta(minutes=30) if reconciled.status == "True" else timedelta(seconds=10)
    return resource.generation > reconciled.observed_generation or now - updated > max_age


@pytest.mark.parametrize(("arguments", "is_storm"), [(PUBLIC_NAMES, False), (("--insecure",), True)])
async def test_only_with_public_names_the_public_sentinel_publishes_by_age(
    arguments: tuple[str, ...], is_storm: bool, tmp_path: Path
) -> None:
    database = f"sqlite:///{tmp_path / 'fleet.db'}"
    async with ApiProcess(database, kinds=KINDS, directory=tmp_path, arguments=arguments) as process:
        url = await process.url()
        async with FleetHttp(url) as fleet:
            await fleet.create("oslo", id="c1")
            await fleet.report("clusters/c1", "validation")
        (cluster,) = await fetched(url)

    now = datetime.now(UTC)
    assert publishes(cluster, now) is is_storm
    assert publishes(cluster, now + timedelta(minutes=31))


async def test_the_search_of_the_public_sentinel_selects_on_our_api(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'fleet.db'}"
    async with ApiProcess(database, kinds=KINDS, directory=tmp_path, arguments=PUBLIC_NAMES) as process:
        url = await process.url()
        async with FleetHttp(url) as fleet:
            for n in range(45):
                region = "us-east" if n % 2 else "us-west"
                await fleet.create(f"c{n}", id=f"c{n}", labels={"region": region, "owner": "ops"})
        found = await fetched(url, search="labels.owner='ops' and labels.region='us-east' and name!='o''neil'")

    assert sorted(each.id for each in found) == sorted(f"c{n}" for n in range(45) if n % 2)
