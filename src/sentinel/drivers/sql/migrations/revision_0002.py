"""One audit and one table of idempotency keys for all components; the fleet's own rows move there.

An audit entry now names the kind instead of the plural, and the generation in its detail.
"""

from __future__ import annotations

import msgspec
import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")

DEFAULT_KINDS = {"clusters": "Cluster", "nodepools": "NodePool", "manifests": "Manifest", "workloads": "Workload"}
GENERATION_MATTERS = ("create", "patch", "delete", "remove")

_old = sa.table(
    "fleet_audit",
    *(
        sa.column(name, TEXT)
        for name in ("id", "actor", "role", "address", "action", "plural", "resource_id", "detail", "request_id")
    ),
    sa.column("time", NUMBER),
    sa.column("generation", NUMBER),
)
_resources = sa.table(
    "fleet_resources",
    sa.column("plural", TEXT),
    sa.column("created_time", NUMBER),
    sa.column("document", sa.LargeBinary),
)


class _Document(msgspec.Struct):
    kind: str


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        # An older server may still run; it must not write rows after they were copied.
        op.execute("LOCK TABLE fleet_audit, fleet_answers IN ACCESS EXCLUSIVE MODE")
    audit = op.create_table(
        "audit_entries",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("time", NUMBER, nullable=False),
        sa.Column("actor", TEXT, nullable=False),
        sa.Column("role", TEXT, nullable=False),
        sa.Column("address", TEXT, nullable=False),
        sa.Column("action", TEXT, nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("resource_id", TEXT, nullable=False),
        sa.Column("request_id", TEXT, nullable=False),
        sa.Column("detail", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="audit_entries_id"),
        sqlite_with_rowid=False,
    )
    _move_entries(op.get_bind(), audit)
    op.drop_table("fleet_audit")
    # After the rows: building an index once is cheaper than updating it for every row.
    op.create_index("audit_entries_by_actor", "audit_entries", ["actor", "id"])
    op.create_index("audit_entries_by_action", "audit_entries", ["action", "id"])
    op.create_index("audit_entries_by_resource", "audit_entries", ["resource_id", "id"])
    keys = op.create_table(
        "idempotency_keys",
        sa.Column("actor", TEXT, nullable=False),
        sa.Column("key", TEXT, nullable=False),
        sa.Column("fingerprint", TEXT, nullable=False),
        sa.Column("time", NUMBER, nullable=False),
        sa.Column("version", NUMBER, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("actor", "key", name="idempotency_keys_key"),
    )
    answers = sa.table("fleet_answers", *(sa.column(column.name, column.type) for column in keys.c))
    op.execute(keys.insert().inline().from_select(keys.c.keys(), sa.select(answers)))
    op.drop_table("fleet_answers")
    op.create_index("idempotency_keys_by_time", "idempotency_keys", ["time"])


def _move_entries(connection: sa.Connection, audit: sa.Table) -> None:
    """Copy the entries in one statement: millions of them would be slow to pass through this process."""
    kinds = _kinds(connection)
    kind = sa.case(kinds, value=_old.c.plural, else_=_old.c.plural) if kinds else _old.c.plural
    detail = sa.case(
        (
            sa.and_(_old.c.action.in_(GENERATION_MATTERS), _old.c.generation > 0, _old.c.detail == ""),
            sa.literal("generation ", TEXT) + sa.cast(_old.c.generation, TEXT),
        ),
        else_=_old.c.detail,
    )
    moved = {
        "id": _old.c.id,
        "time": _old.c.time,
        "actor": _old.c.actor,
        "role": _old.c.role,
        "address": _old.c.address,
        "action": _old.c.action,
        "kind": kind,
        "resource_id": _old.c.resource_id,
        "request_id": _old.c.request_id,
        "detail": detail,
    }
    entries = sa.select(*moved.values()).order_by(_old.c.id)
    connection.execute(audit.insert().inline().from_select(list(moved), entries))


def _kinds(connection: sa.Connection) -> dict[str, str]:
    """The kind of each plural in the audit: from an existing resource, else the default, else absent."""
    kinds: dict[str, str] = {}
    for plural in connection.scalars(sa.select(_old.c.plural).distinct()).all():
        newest = (
            sa.select(_resources.c.document)
            .where(_resources.c.plural == plural)
            .order_by(_resources.c.created_time.desc())
            .limit(1)
        )
        document = connection.scalar(newest)
        if document is not None:
            kinds[plural] = msgspec.json.decode(document, type=_Document).kind
        elif plural in DEFAULT_KINDS:
            kinds[plural] = DEFAULT_KINDS[plural]
    return kinds
