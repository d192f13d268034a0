"""Dead letters of webhooks over REST."""

from __future__ import annotations

import msgspec
import pytest

from tests.contract.webhook_store import copied, dead, delivery
from tests.hub.rest.rest_hub import RestHub

PATH = "webhooks/dead-letters"


async def dead_letters(hub: RestHub, count: int = 3) -> list[str]:
    """Store dead letters, and return their ids."""
    found = await copied(hub.backend.webhooks, *(delivery(8 + number) for number in range(count)))
    for each in found:
        await hub.backend.webhooks.save(dead(each))
    return [str(each.id) for each in found]


async def test_they_are_listed_in_pages(hub: RestHub) -> None:
    ids = await dead_letters(hub)

    first = (await hub.call("GET", PATH, query="size=2", token="viewer")).json
    second = (await hub.call("GET", PATH, query=f"size=2&after={first['next']}")).json

    assert [each["id"] for each in first["items"] + second["items"]] == ids
    assert (first["size"], first["total"], second["next"]) == (2, 3, None)
    assert first["items"][0] == {
        "id": ids[0],
        "webhook": "hooks.example-1",
        "type": "config.version",
        "subject": "edge@8",
        "event": 8,
        "event_time": "2026-03-01T12:00:00.142857Z",
        "attempts": 12,
        "error": "500",
        "failed_time": "2026-03-01T12:00:00Z",
    }


async def test_one_is_sent_once_more(hub: RestHub) -> None:
    [first, _, _] = await dead_letters(hub)

    response = await hub.call("POST", f"{PATH}/{first}/retry", token="operator")

    [again] = await hub.backend.webhooks.due("hooks.example-1", hub.clock.now(), limit=10)
    assert response.status == 202
    assert msgspec.structs.replace(again, id=0).attempts == 0
    assert (await hub.call("GET", PATH)).json["total"] == 2
    [entry] = await hub.audit()
    assert (entry.action, entry.kind, entry.resource_id) == ("retry", "dead_letter", first)


async def test_one_is_deleted(hub: RestHub) -> None:
    [first, _, _] = await dead_letters(hub)

    assert (await hub.call("DELETE", f"{PATH}/{first}")).status == 204
    assert (await hub.call("DELETE", f"{PATH}/{first}")).status == 404
    assert (await hub.call("POST", f"{PATH}/{first}/retry")).status == 404


@pytest.mark.parametrize("name", ["0", "x", "9" * 40, "-1", "²"])
async def test_what_is_no_id_is_not_found(hub: RestHub, name: str) -> None:
    assert (await hub.call("DELETE", f"{PATH}/{name}")).status in (400, 404)


async def test_a_viewer_changes_nothing(hub: RestHub) -> None:
    [first, _, _] = await dead_letters(hub)

    assert (await hub.call("DELETE", f"{PATH}/{first}", token="viewer")).status == 403
    assert (await hub.call("POST", f"{PATH}/{first}/retry", token="viewer")).status == 403
