"""A small component that uses only shared code: notes, with audit entries and idempotency keys."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
from sqlalchemy import Column, MetaData, PrimaryKeyConstraint, Table, Text, bindparam, insert, select

from sentinel.cli.wiring.server import BuiltComponent
from sentinel.core.access import Action, Role, table
from sentinel.drivers.sql.engine.statements import SqlDatabase, Statement
from sentinel.drivers.sql.history import HISTORY
from sentinel.drivers.sql.transaction import SqlTransaction, transact
from sentinel.ports.clock import Clock
from sentinel.ports.database import AlreadyExists
from sentinel.runtime.lifecycle.part import Part
from sentinel.web import idempotency
from sentinel.web.app import Component
from sentinel.web.audit import Auditor
from sentinel.web.body import Body
from sentinel.web.errors import Conflict, NotFound
from sentinel.web.routing import Method, Parameter, Request, Response, ResponseSpec, Route

READ, WRITE = Action("toy.read"), Action("toy.write")
PERMISSIONS = table("toy", {Role.VIEWER: (READ,), Role.OPERATOR: (Role.VIEWER, WRITE)})
MIGRATED = HISTORY.followed_by("toy_0001", folder=Path(__file__).parent / "toy_migrations")

notes = Table(
    "toy_notes",
    MetaData(),
    Column("name", Text, nullable=False),
    Column("text", Text, nullable=False),
    PrimaryKeyConstraint("name", name="toy_notes_name"),
)
_INSERT = Statement(insert(notes).inline(), "name", "text")
_SELECT = Statement(select(notes.c.text).where(notes.c.name == bindparam("name")))


class NameTaken(AlreadyExists):
    """A note with this name exists."""


class Transaction(SqlTransaction):
    errors_by_constraint = {"toy_notes_name": NameTaken}  # noqa: RUF012  # declared as a ClassVar in the base class

    def add(self, note: Note) -> None:
        self._run(_INSERT, {"name": note.name, "text": note.text})


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A note."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    text: str


class Notes:
    """The service and its handlers."""

    def __init__(self, database: SqlDatabase, *, auditor: Auditor, clock: Clock) -> None:
        self._database = database
        self._auditor = auditor
        self._clock = clock

    async def create(self, request: Request) -> Response:
        note = await request.decode(Note)
        key = idempotency.read(request, "notes", note)
        now = self._clock.now()

        def work(transaction: Transaction) -> bytes:
            if (earlier := idempotency.recall(transaction, key)) is not None:
                return earlier.body
            body = msgspec.json.encode(note)
            transaction.add(note)
            transaction.record(
                self._auditor.entry(request.caller, action="create", kind="note", resource_id=note.name, now=now)
            )
            idempotency.remember(transaction, key, version=0, body=body, now=now)
            return body

        try:
            body = await idempotency.attempt(key, partial(transact, self._database, Transaction, work))
        except NameTaken:
            raise Conflict(f'a note with the name "{note.name}" exists') from None
        return Response(201, body)

    async def get(self, request: Request) -> Response:
        name = request.path["name"]
        found = await self._database.read(lambda session: session.rows(_SELECT, name=name))
        if not found:
            raise NotFound(f'no note "{name}"')
        return Response(200, msgspec.json.encode(Note(name, found[0][0])))

    def routes(self) -> list[Route]:
        return [
            Route(
                method=Method.POST,
                path="/api/v1/notes",
                action=WRITE,
                handler=self.create,
                summary="Create a note",
                tag="notes",
                headers=(idempotency.PARAMETER,),
                body=Body(type=Note),
                responses=(ResponseSpec(status=201, description="Created.", type=Note),),
                problems=(409, 422),
            ),
            Route(
                method=Method.GET,
                path="/api/v1/notes/{name}",
                path_parameters=(Parameter(name="name", description="The name of the note."),),
                action=READ,
                handler=self.get,
                summary="Read a note",
                tag="notes",
                responses=(ResponseSpec(status=200, description="The note.", type=Note),),
                problems=(404,),
            ),
        ]


def build_notes(database: SqlDatabase, *, auditor: Auditor, clock: Clock) -> BuiltComponent:
    service = Notes(database, auditor=auditor, clock=clock)
    web = Component(routes=service.routes(), permissions=PERMISSIONS)
    return BuiltComponent(part=Part(name="notes", loops=()), web=web)
