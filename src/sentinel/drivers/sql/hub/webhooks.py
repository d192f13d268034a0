"""What webhooks deliver, in SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from sentinel.drivers.sql.engine.columns import NUMBER, TEXT, from_micros, required, to_micros
from sentinel.drivers.sql.engine.statements import Row, Session, SqlDatabase, SqlValue, Statement
from sentinel.drivers.sql.transaction import SqlTransaction, transact
from sentinel.ports.hub_store import HubEvent, HubEventType
from sentinel.ports.webhook_store import Delivery, WebhookTransaction

T = TypeVar("T")

metadata = sa.MetaData()

webhooks = sa.Table(
    "hub_webhooks",
    metadata,
    *required(TEXT, "name", "holder"),
    *required(NUMBER, "position", "lease_until"),
    sa.PrimaryKeyConstraint("name", name="hub_webhooks_name"),
    sqlite_with_rowid=False,
)
deliveries = sa.Table(
    "hub_webhook_deliveries",
    metadata,
    sa.Column("id", NUMBER, autoincrement=True, nullable=False),
    sa.Column("webhook", TEXT, nullable=False),
    *required(NUMBER, "number", "time"),
    *required(TEXT, "type", "subject"),
    sa.Column("data", sa.LargeBinary, nullable=False),
    *required(NUMBER, "attempts", "next_time"),
    sa.Column("error", TEXT, nullable=False),
    sa.Column("failed_time", NUMBER, nullable=True),
    sa.PrimaryKeyConstraint("id", name="hub_webhook_deliveries_id"),
    sa.Index("hub_webhook_deliveries_by_webhook", "webhook", "next_time"),
)

_NO_TIME: Final = 0
_columns = deliveries.c
_of = _columns.id == sa.bindparam("of", type_=NUMBER)
_limit = sa.bindparam("limit", type_=NUMBER)
_webhook = _columns.webhook == sa.bindparam("webhook", type_=TEXT)
_is_pending = _columns.failed_time.is_(None)
_is_dead = _columns.failed_time.is_not(None)


def _values(*names: str) -> dict[str, sa.BindParameter[Any]]:
    return {name: sa.bindparam(name, type_=_columns[name].type) for name in names}


_name = webhooks.c.name == sa.bindparam("name", type_=TEXT)
_LOCK_HOOK = Statement(sa.select(webhooks).where(_name).with_for_update())
_ADD_HOOK = Statement(
    sa.text(
        "INSERT INTO hub_webhooks (name, holder, position, lease_until) "
        "VALUES (:name, :holder, :position, :lease_until) ON CONFLICT DO NOTHING"
    ).bindparams(*(sa.bindparam(each.name, type_=each.type) for each in webhooks.c))
)
_LEASE = Statement(
    sa.update(webhooks)
    .where(_name)
    .values(
        holder=sa.bindparam("new_holder", type_=TEXT), lease_until=sa.bindparam("new_lease_until", type_=NUMBER)
    )
)
_RELEASE = Statement(
    sa.update(webhooks)
    .where(_name, webhooks.c.holder == sa.bindparam("of_holder", type_=TEXT))
    .values(lease_until=_NO_TIME)
)
_MOVE = Statement(
    sa.update(webhooks)
    .where(_name, webhooks.c.position == sa.bindparam("after", type_=NUMBER))
    .values(position=sa.bindparam("new_position", type_=NUMBER))
)
_ADD = Statement(sa.insert(deliveries).inline(), *(each.name for each in deliveries.c if each.name != "id"))
_DUE = Statement(
    sa.select(deliveries)
    .where(_webhook, _is_pending, _columns.next_time <= sa.bindparam("now", type_=NUMBER))
    .order_by(_columns.id)
    .limit(_limit)
)
_SAVE = Statement(
    sa.update(deliveries).where(_of).values(_values("attempts", "next_time", "error", "failed_time"))
)
_REMOVE = Statement(sa.delete(deliveries).where(_of))
_COUNT_PENDING = Statement(sa.select(sa.func.count()).select_from(deliveries).where(_webhook, _is_pending))
_COUNT_DEAD = Statement(sa.select(sa.func.count()).select_from(deliveries).where(_is_dead))
_DEAD = Statement(
    sa.select(deliveries)
    .where(_is_dead, _columns.id > sa.bindparam("after", type_=NUMBER))
    .order_by(_columns.id)
    .limit(_limit)
)
_LOCK_DEAD = Statement(sa.select(deliveries).where(_of, _is_dead).with_for_update())
_expired = (
    sa.select(_columns.id)
    .where(_columns.failed_time < sa.bindparam("before", type_=NUMBER))
    .order_by(_columns.id)
    .limit(_limit)
)
_EXPIRE = Statement(sa.delete(deliveries).where(_columns.id.in_(_expired)))


class SqlWebhookTransaction(SqlTransaction):
    """`ports.webhook_store.WebhookTransaction` in a SQL database."""

    def dead_letter(self, delivery_id: int) -> Delivery | None:
        found = self._rows(_LOCK_DEAD, of=delivery_id)
        return _delivery(found[0]) if found else None

    def save_delivery(self, delivery: Delivery) -> None:
        self._run(_SAVE, _outcome(delivery))

    def remove_delivery(self, delivery_id: int) -> None:
        self._run(_REMOVE, {"of": delivery_id})


class SqlWebhookStore:
    """`ports.webhook_store.WebhookStore` in a SQL database."""

    def __init__(self, database: SqlDatabase) -> None:
        self._database = database

    async def acquire(
        self, webhook: str, holder: str, *, now: datetime, until: datetime, newest: int
    ) -> int | None:
        def work(session: Session) -> int | None:
            session.run(_ADD_HOOK, name=webhook, holder=holder, position=newest, lease_until=_NO_TIME)
            [(_, held_by, position, lease_until)] = session.rows(_LOCK_HOOK, name=webhook)
            if held_by != holder and lease_until > to_micros(now):
                return None
            session.run(_LEASE, name=webhook, new_holder=holder, new_lease_until=to_micros(until))
            return int(position)

        return await self._database.write(work)

    async def release(self, webhook: str, holder: str) -> None:
        await self._database.write(lambda session: session.run(_RELEASE, name=webhook, of_holder=holder))

    async def copy(self, webhook: str, deliveries: Sequence[Delivery], *, after: int, position: int) -> bool:
        def work(session: Session) -> bool:
            if not session.run(_MOVE, name=webhook, after=after, new_position=position):
                return False
            session.run_many(_ADD, [_new(each) for each in deliveries])
            return True

        return await self._database.write(work)

    async def due(self, webhook: str, now: datetime, *, limit: int) -> Sequence[Delivery]:
        found = await self._rows(_DUE, webhook=webhook, now=to_micros(now), limit=limit)
        return [_delivery(row) for row in found]

    async def save(self, delivery: Delivery) -> None:
        await self._database.write(lambda session: session.run(_SAVE, **_outcome(delivery)))

    async def remove(self, delivery_id: int) -> None:
        await self._database.write(lambda session: session.run(_REMOVE, of=delivery_id))

    async def count_pending(self, webhook: str) -> int:
        return int((await self._rows(_COUNT_PENDING, webhook=webhook))[0][0])

    async def count_dead_letters(self) -> int:
        return int((await self._rows(_COUNT_DEAD))[0][0])

    async def dead_letters(self, *, after: int, limit: int) -> Sequence[Delivery]:
        return [_delivery(row) for row in await self._rows(_DEAD, after=after, limit=limit)]

    async def transact(self, work: Callable[[WebhookTransaction], T]) -> T:
        return await transact(self._database, SqlWebhookTransaction, work)

    async def expire_dead_letters(self, before: datetime, *, limit: int) -> int:
        return await self._database.write(
            lambda session: session.run(_EXPIRE, before=to_micros(before), limit=limit)
        )

    async def _rows(self, statement: Statement, **values: SqlValue) -> Sequence[Row]:
        return await self._database.read(lambda session: session.rows(statement, **values))


def _new(delivery: Delivery) -> dict[str, SqlValue]:
    event = delivery.event
    values = _outcome(delivery)
    del values["of"]
    return {
        **values,
        "webhook": delivery.webhook,
        "number": event.number,
        "time": to_micros(event.time),
        "type": event.type.value,
        "subject": event.subject,
        "data": event.data,
    }


def _outcome(delivery: Delivery) -> dict[str, SqlValue]:
    """The parameters of `_SAVE`."""
    return {
        "of": delivery.id,
        "attempts": delivery.attempts,
        "next_time": to_micros(delivery.next_time),
        "error": delivery.error,
        "failed_time": None if delivery.failed_time is None else to_micros(delivery.failed_time),
    }


def _delivery(row: Row) -> Delivery:
    """Decode a row of all columns."""
    delivery_id, webhook, number, time, event_type, subject, data, attempts, next_time, error, failed = row
    return Delivery(
        id=delivery_id,
        webhook=webhook,
        event=HubEvent(
            number=number,
            time=from_micros(time),
            type=HubEventType(event_type),
            subject=subject,
            data=bytes(data),
        ),
        attempts=attempts,
        next_time=from_micros(next_time),
        error=error,
        failed_time=None if failed is None else from_micros(failed),
    )
