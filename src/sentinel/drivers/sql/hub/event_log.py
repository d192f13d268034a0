"""The log of events: readers number it.

The numbers of events have to be in the order of commits. If each transaction took its own, it would hold a lock
until its commit is on disk, so commits would follow each other: 5,000 agents that register at once would need
three times as long. So a transaction only inserts its events, and the next reader of the log numbers what is new,
under the lock of one row. An event without a number is not visible yet. The events of an instance keep their
order: its lock orders transactions, and with them the ids of events.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import takewhile
from typing import Final

from sqlalchemy import bindparam, delete, func, insert, select, update

from sentinel.drivers.sql.engine.columns import NUMBER, to_micros
from sentinel.drivers.sql.engine.statements import Row, Session, SqlDatabase, SqlValue, Statement
from sentinel.drivers.sql.hub.tables import events, log
from sentinel.ports.hub_store import HubEvent

CHANNEL: Final = "sentinel_hub_events"
"""Announced after a commit that appended events."""
_BATCH: Final = 1_000
"""How many events are numbered in one transaction."""

APPEND = Statement(insert(events).inline(), "time", "type", "subject", "data")

_limit = bindparam("limit", type_=NUMBER)
_is_new = events.c.number.is_(None)
_HAS_NEW = Statement(select(events.c.id).where(_is_new).limit(1))
_LOCK = Statement(select(log.c.number).with_for_update())
_new = (
    select(events.c.id, func.row_number().over(order_by=events.c.id).label("position"))
    .where(_is_new)
    .order_by(events.c.id)
    .limit(_limit)
    .subquery("new")
)
_NUMBER = Statement(
    update(events)
    .where(events.c.id == _new.c.id)
    .values(number=bindparam("newest", type_=NUMBER) + _new.c.position)
)
_RAISE = Statement(update(log).values(number=bindparam("newest", type_=NUMBER)))

_NEWEST = Statement(select(log.c.number))
_OLDEST = Statement(select(func.coalesce(select(func.min(events.c.number)).scalar_subquery(), log.c.number + 1)))
_READ = Statement(
    select(events.c.number, events.c.time, events.c.type, events.c.subject, events.c.data)
    .where(events.c.number > bindparam("after", type_=NUMBER))
    .order_by(events.c.number)
    .limit(_limit)
)
_OLDEST_TIMES = Statement(
    select(events.c.number, events.c.time)
    .where(events.c.number.is_not(None))
    .order_by(events.c.number)
    .limit(_limit)
)
_EXPIRE = Statement(delete(events).where(events.c.number <= bindparam("last", type_=NUMBER)))


def values(event: HubEvent) -> dict[str, SqlValue]:
    """The parameters of `APPEND`."""
    return {
        "time": to_micros(event.time),
        "type": event.type.value,
        "subject": event.subject,
        "data": event.data,
    }


class EventLog:
    """The events, as readers see them."""

    def __init__(self, database: SqlDatabase) -> None:
        self._database = database

    async def newest(self) -> int:
        return int((await self._read(_NEWEST))[0][0])

    async def oldest(self) -> int:
        return int((await self._read(_OLDEST))[0][0])

    async def read(self, after: int, limit: int) -> Sequence[Row]:
        """Return the number, time, type, subject and data of each event."""
        return await self._read(_READ, after=after, limit=limit)

    async def expire(self, before: datetime, limit: int) -> int:
        def delete_oldest(session: Session) -> int:
            oldest = session.rows(_OLDEST_TIMES, limit=limit)
            expired = [row[0] for row in takewhile(lambda row: row[1] < to_micros(before), oldest)]
            return session.run(_EXPIRE, last=expired[-1]) if expired else 0

        await self._number()
        return await self._database.write(delete_oldest)

    async def _read(self, statement: Statement, **values: SqlValue) -> Sequence[Row]:
        await self._number()
        return await self._database.read(lambda session: session.rows(statement, **values))

    async def _number(self) -> None:
        """Number all events that were committed before this call."""
        while await self._database.read(lambda session: session.rows(_HAS_NEW)):
            if await self._database.write(_number_batch) < _BATCH:
                return


def _number_batch(session: Session) -> int:
    newest = int(session.rows(_LOCK)[0][0])
    count = session.run(_NUMBER, newest=newest, limit=_BATCH)
    session.run(_RAISE, newest=newest + count)
    return count
