"""The log of changes on SQL. `change_statements` says how changes are numbered."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Final

import msgspec

from sentinel.core.fleet import change_position
from sentinel.core.fleet.change_position import Position, PositionLost
from sentinel.drivers.sql.engine.columns import to_micros
from sentinel.drivers.sql.engine.statements import Row, Session, SqlDatabase, SqlValue
from sentinel.drivers.sql.fleet import change_statements as statements
from sentinel.drivers.sql.fleet import rows
from sentinel.ports.change_log import ChangedResource, ChangePage, CurrentResource

CHANNEL: Final = "sentinel_fleet_changes"
"""Announced after a commit that wrote changes."""
_START: Final = Position("00000000", 1)


class _Excerpt(msgspec.Struct, frozen=True):
    """Rows that a position does not include, and the state of the log when they were read."""

    newest: Position
    expired: int
    found: Sequence[Row]


def values(resource: ChangedResource, *, may_leave: bool) -> dict[str, SqlValue]:
    """The parameters of the statements that insert a change."""
    return {
        "change_resource_id": resource.resource_id,
        "change_plural": resource.plural,
        "change_parent": resource.parent,
        "change_may_leave": may_leave,
        "change_time": time.time_ns() // 1000,
    }


class SqlChangeLog:
    """`ports.change_log.ChangeLog` in a SQL database."""

    def __init__(self, database: SqlDatabase) -> None:
        self._database = database

    async def newest(self) -> Position:
        return await self._database.read(_newest)

    async def read(self, after: Position, *, limit: int) -> ChangePage:
        def read(session: Session) -> ChangePage:
            excerpt = _read(session, after, limit=limit)
            change_position.check(after, newest=excerpt.newest, expired=excerpt.expired)
            return _page(session, after, excerpt, limit)

        return await self._database.read(read)

    async def current(self, resource_ids: Collection[str]) -> Mapping[str, CurrentResource]:
        def read(session: Session) -> dict[str, CurrentResource]:
            found: dict[str, CurrentResource] = {}
            wanted = list(resource_ids)
            for start in range(0, len(wanted), statements.CURRENT_BATCH):
                batch = wanted[start : start + statements.CURRENT_BATCH]
                batch += batch[-1:] * (statements.CURRENT_BATCH - len(batch))
                found |= {
                    row[0]: CurrentResource(row[1], row[2], rows.decode_texts(row[3]), row[4])
                    for row in session.rows(
                        statements.CURRENT, **{f"id_{index}": each for index, each in enumerate(batch)}
                    )
                }
            return found

        return await self._database.read(read)

    async def expire(self, before: datetime, *, limit: int) -> int:
        def delete(session: Session) -> int:
            last = session.rows(statements.LAST_EXPIRED, before=to_micros(before), limit=limit)[0][0]
            if last is None:
                return 0
            session.run(statements.NOTE_EXPIRED, expired=last)
            return session.run(statements.EXPIRE, expired=last)

        return await self._database.write(delete)

    def wakeups(self) -> AbstractAsyncContextManager[asyncio.Event]:
        return self._database.listening(CHANNEL)


def _newest(session: Session) -> Position:
    return _read(session, _START, limit=0).newest


def _read(session: Session, after: Position, *, limit: int) -> _Excerpt:
    if session.numbers_transactions:
        return _read_on_postgresql(session, after, limit=limit)
    identity, expired, last = session.rows(statements.HEAD_ON_SQLITE)[0]
    if after.next - 1 not in (0, expired) and not session.rows(statements.EXISTS, number=after.next - 1):
        # A position is that of a change. Changes are missing where a backup was restored.
        raise PositionLost("not a position of this log")
    found = session.rows(statements.READ_ON_SQLITE, next=after.next, limit=limit)
    return _Excerpt(Position(_log(identity), last + 1), expired, found)


def _read_on_postgresql(session: Session, after: Position, *, limit: int) -> _Excerpt:
    found = session.rows(
        statements.READ_ON_POSTGRESQL, next=after.next, open=",".join(map(str, after.open)), limit=limit
    )
    identity, expired, snapshot = found[0][:3]
    _, following, unseen = snapshot.split(":")
    newest = Position(_log(identity), int(following), tuple(map(int, filter(None, unseen.split(",")))))
    return _Excerpt(newest, expired, [row[3:] for row in found if row[3] is not None])


def _page(session: Session, after: Position, excerpt: _Excerpt, limit: int) -> ChangePage:
    newest, found = excerpt.newest, list(excerpt.found)
    is_complete = sum(row[0] >= after.next for row in found) < limit
    if not is_complete:
        # The last transaction may have more changes than were read.
        last = found[-1][0]
        found = [row for row in found if row[0] != last] or list(
            session.rows(statements.READ_TRANSACTION, number=last)
        )
    changes = [(row[0], ChangedResource(*row[1:4]), bool(row[4])) for row in found]
    return ChangePage.of_rows(changes, after=after, newest=newest, is_complete=is_complete)


def _log(identity: str) -> str:
    return f"{zlib.crc32(identity.encode()):08x}"
