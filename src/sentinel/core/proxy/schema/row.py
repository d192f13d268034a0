"""The shape of the table: a row for every node that the proxy's configuration may contain.

A row says all that is known about a node: what may stand on its line, what may stand in its block, and what the
proxy does with it. Validation, suggestions and the reference read rows; to add a field is to add a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from sentinel.core.kdl import Scalar
from sentinel.core.proxy.problem import Severity
from sentinel.core.proxy.schema.types import TEXT, ValueType


class Kind(StrEnum):
    """What has an id that others refer to."""

    LISTENER = "listener"
    ROUTE = "route"
    UPSTREAM = "upstream"
    FILTER = "filter"
    AGENT = "agent"
    NAMESPACE = "namespace"
    SERVICE = "service"


class Repeated(StrEnum):
    """What the proxy makes of a node that is there twice."""

    FIRST = "first"
    """It reads the first and ignores the others."""
    LAST = "last"
    """It reads the last and ignores the others."""
    ALL = "all"
    """It reads all of them."""


class Entry(msgspec.Struct, frozen=True, eq=False):
    """An argument or a property."""

    type: ValueType = TEXT
    name: str = ""
    """The name of a property; what an argument means."""
    is_required: bool = True
    is_many: bool = False
    """Whether further arguments are values, too."""
    refers_to: Kind | None = None


class When(msgspec.Struct, frozen=True):
    """A condition on a sibling: that its first argument is one of these values."""

    sibling: str
    values: tuple[str, ...]


class Row(msgspec.Struct, frozen=True, eq=False):
    """A node that may stand in a block."""

    name: str
    description: str
    arguments: tuple[Entry, ...] = ()
    properties: tuple[Entry, ...] = ()
    rows: tuple[Row, ...] = ()
    """What may stand in its block."""
    default: Scalar = None
    """What the proxy uses if the node is missing."""
    is_required: bool = False
    required_when: When | None = None
    """Required only then."""
    unless: tuple[str, ...] = ()
    """Siblings that make a required node unnecessary."""
    needs: tuple[str, ...] = ()
    """Siblings without any of which the proxy ignores it."""
    read_when: When | None = None
    """Read only then; otherwise the proxy ignores it."""
    repeated: Repeated = Repeated.FIRST
    unknown: Severity = Severity.WARNING
    """What an unknown node in its block is."""
    is_open: bool = False
    """Whether its block may contain anything: names of headers, settings of an agent."""
    open_when: When | None = None
    """Whether unknown nodes are not judged if a child of it has one of these values."""
    open_names: ValueType | None = None
    """What every node of an open block has as its name."""
    open_values: Entry | None = None
    """What every node of an open block has as its argument. Nothing else on the line of the block is read."""
    at_least_one: tuple[tuple[str, ...], ...] = ()
    """Groups of children. One child of each group must be present."""
    at_most_one: tuple[tuple[str, ...], ...] = ()
    """Groups of children. At most one child of each group may be present."""
    one_property: bool = False
    """Whether exactly one of its properties must be there."""
    value_name: str | None = None
    """The node's value is its argument, or the property or child of this name. One of them must be there."""
    defines: Kind | None = None
    """What its first argument is the id of."""
    only: str | None = None
    """The only value that the proxy accepts, although it knows others."""
    unread_block: str | None = None
    """What to write instead of a block, which the proxy does not read here."""
    is_read: bool = True
    """False for a node that people write and the proxy ignores."""
    instead: str | None = None
    """The name of the sibling to write instead of one that is not read or deprecated."""
    uses: str = ""
    """What the proxy uses instead of one that is not read, if it is not a sibling."""
    advice: str = ""
    """What to write instead then."""
    is_deprecated: bool = False
    needs_restart: bool = False
    """Whether a change takes effect only after a restart of the proxy."""
    implemented: bool = False
    """Whether `sentinel proxy` implements it. The proxy of the fleet implements everything that it reads."""
    children: dict[str, Row] = msgspec.field(default_factory=dict)
    """`rows` by name."""
    demanded: dict[str, Row] = msgspec.field(default_factory=dict)
    """Those of the children that may be required, by name."""

    def __post_init__(self) -> None:
        for each in self.rows:
            self.children[each.name] = each
            if each.is_required or each.required_when is not None:
                self.demanded[each.name] = each


def value(
    type_: ValueType, *, name: str = "", is_many: bool = False, refers_to: Kind | None = None
) -> tuple[Entry, ...]:
    """Return the arguments of a node with one value, or with one or more of them."""
    return (Entry(type_, name, is_many=is_many, refers_to=refers_to),)


def unread(name: str, *, instead: str | None = None, uses: str = "", advice: str = "") -> Row:
    """Return the row of a node that people write and the proxy ignores, whatever it contains.

    Either it reads a sibling `instead`, or it `uses` something else, and `advice` says what sets that.
    """
    description = f"Not read. Write {advice or f'`{instead}`'}."
    return Row(name, description, is_read=False, instead=instead, uses=uses, advice=advice, is_open=True)


def walk(rows: tuple[Row, ...], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Row]]:
    """Yield every row with the names that lead to it, in the order of the table."""
    for each in rows:
        here = (*path, each.name)
        yield here, each
        yield from walk(each.rows, here)
