"""A chain of adapters costs no max age a link: each hears when the one before it is done.

In one process, where that is on from the start; what it takes of the API and the pulse is the same everywhere.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.loop.in_one_process import UpLoop
from tests.support.loop.resource_loop import SETTINGS

PATIENT = {
    **SETTINGS,
    "SENTINEL_PULSE_ON_PROGRESS": "true",
    "SENTINEL_MAX_AGE_NOT_READY": "10m",
    "SENTINEL_MAX_AGE_READY": "30m",
}
NEW_SPEC, PROGRESSED = "generation changed - new spec to reconcile", "adapter progressed"


async def test_an_adapter_that_waits_for_another_is_told_when_that_is_done_and_nobody_is_told_for_ever(
    tmp_path: Path,
) -> None:
    async with UpLoop(tmp_path, PATIENT) as loop:
        cluster = loop.subject()
        loop.workshop.hold("quota", cluster.id)
        await cluster.create(chained=True)
        waiting = await cluster.until_evaluated("zones", since=0)
        mark = loop.workshop.mark()

        await loop.workshop.release()
        (look, *_) = await loop.workshop.until(cluster.id, since=mark)
        await cluster.until_ready()
        await cluster.until(lambda now: now.last_updated_time >= look.time)
        await loop.polls("clusters", 3)
        reasons = [event.reason for event in loop.published(cluster.id)]

    assert waiting.reason == "PreconditionsNotMet"
    assert look.is_met
    assert reasons[:2] == [NEW_SPEC, PROGRESSED]
    assert reasons[2:] in ([], [PROGRESSED]), "the last one done is news as well, once"
