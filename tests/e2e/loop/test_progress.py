"""With pulse_on_progress, a chain of adapters does not wait for the max age at each link.

It runs in one process, where the setting is on by default; API and pulse behave the same everywhere.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.loop.in_one_process import UpLoop
from tests.support.loop.resource_loop import SETTINGS

LONG_MAX_AGES = {
    **SETTINGS,
    "SENTINEL_PULSE_ON_PROGRESS": "true",
    "SENTINEL_MAX_AGE_NOT_READY": "10m",
    "SENTINEL_MAX_AGE_READY": "30m",
}
NEW_SPEC, PROGRESSED = "generation changed - new spec to reconcile", "adapter progressed"


async def test_a_waiting_adapter_gets_one_event_when_its_dependency_is_done(
    tmp_path: Path,
) -> None:
    async with UpLoop(tmp_path, LONG_MAX_AGES) as loop:
        cluster = loop.resource()
        loop.backend.hold("quota", cluster.id)
        await cluster.create(chained=True)
        waiting = await cluster.until_evaluated("zones", since=0)
        mark = loop.backend.mark()

        await loop.backend.release()
        (call, *_) = await loop.backend.until_called(cluster.id, since=mark)
        await cluster.until_ready()
        await cluster.until(lambda now: now.last_updated_time >= call.time)
        await loop.until_polled("clusters", 3)
        reasons = [event.reason for event in loop.published(cluster.id)]

    assert waiting.reason == "PreconditionsNotMet"
    assert call.is_met
    assert reasons[:2] == [NEW_SPEC, PROGRESSED]
    assert reasons[2:] in ([], [PROGRESSED]), "the progress of the last adapter may cause one more event"
