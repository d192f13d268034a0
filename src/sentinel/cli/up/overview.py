"""How the fleet stands, read through the API every moment: for the screen, and to tell what became ready.

A pulse reads only what its decision needs, and an adapter one resource at a time; names, conditions and what each
resource waits for are in neither's reports. So they are read like any client reads them. Of a large kind only the
first page is: nobody watches a thousand rows. How many of the rest are ready is known from their pulse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import msgspec

from sentinel.cli.client import rows
from sentinel.cli.client.connection import ServerConnection
from sentinel.cli.client.fleet import FleetClient, ListPage, read
from sentinel.cli.client.rows import Item
from sentinel.cli.up.dashboard_state import DashboardState, Shelf
from sentinel.cli.up.narration import Activity, Tell, Tone
from sentinel.core.fleet.documents import KindRules
from sentinel.drivers.rest.errors import ServerError
from sentinel.ports.clock import Clock
from sentinel.runtime.lifecycle.stopping import Stopping

_EVERY = timedelta(seconds=1)
_AT_MOST = 500


class _Standing(msgspec.Struct, frozen=True):
    """What is worth a word when it changes."""

    is_ready: bool
    generation: int
    is_deleting: bool


class Overview:
    """Reads the kinds that are watched, puts them on the board, and tells what changed."""

    def __init__(
        self,
        *,
        kinds: Sequence[KindRules],
        board: DashboardState,
        tell: Tell,
        clock: Clock,
        connect: Callable[[], ServerConnection],
    ) -> None:
        self._kinds = kinds
        self._board = board
        self._tell = tell
        self._clock = clock
        self._connect = connect
        self._standing: dict[str, dict[str, _Standing]] = {}

    async def run(self, stopping: Stopping) -> None:
        """Goes on until it is asked to stop. An API that does not answer now will be asked again."""
        async with self._connect() as connection:
            fleet = FleetClient(connection)
            while not await stopping.interrupts(self._look(fleet)):
                if await stopping.interrupts(self._clock.sleep(_EVERY)):
                    return

    async def _look(self, fleet: FleetClient) -> None:
        for kind in self._kinds:
            query = {"size": str(_AT_MOST), "fields": rows.FIELDS, "order": "created_time"}
            try:
                page = read(await fleet.page(kind.plural, query), ListPage)
                items = [rows.read(each) for each in page.items]
            except ServerError:
                return  # readiness says what is wrong
            self._board.put_up(Shelf(kind.plural, kind.required_adapters, items, page.total))
            self._tell_changes(kind, items, is_whole=page.next is None)

    def _tell_changes(self, kind: KindRules, items: Sequence[Item], *, is_whole: bool) -> None:
        before = self._standing.get(kind.plural)
        now = {item.id: _Standing(item.is_ready, item.generation, item.deleted_time is not None) for item in items}
        self._standing[kind.plural] = now
        if before is None:
            return  # how it was found is no news
        names = {item.id: item.name for item in items}
        for resource_id, standing in now.items():
            if (earlier := before.get(resource_id)) != standing:
                words = _news(kind, earlier, standing)
                if words is not None:
                    self._say(resource_id, names[resource_id], *words)
        if is_whole:
            for resource_id in before.keys() - now.keys():
                self._say(resource_id, self._board.name_of(resource_id), f"{kind.kind} is gone", Tone.GOOD)

    def _say(self, resource_id: str, name: str, text: str, tone: Tone) -> None:
        at = self._clock.now()
        self._tell(Activity(at=at, source="fleet", resource_id=resource_id, name=name, text=text, tone=tone))


def _news(kind: KindRules, before: _Standing | None, now: _Standing) -> tuple[str, Tone] | None:
    if before is None:
        return f"{kind.kind} is new", Tone.PLAIN
    if now.is_deleting:
        return (f"{kind.kind} is being deleted", Tone.WAITING) if not before.is_deleting else None
    if now.is_ready and not (before.is_ready and before.generation == now.generation):
        return f"{kind.kind} is ready at generation {now.generation}", Tone.GOOD
    if before.is_ready and not now.is_ready:
        return f"{kind.kind} is not ready at generation {now.generation}", Tone.WAITING
    return None
