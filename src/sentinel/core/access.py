"""Access control: identities with roles, and permissions as rows from role to action.

People and machines, and all servers, use one model. A component names its actions and passes its table to the
application, like its routes and its migrations:

    READ, WRITE = Action("fleet.read"), Action("fleet.write")

    PERMISSIONS = table(
        "fleet",
        {
            Role.VIEWER: (READ,),
            Role.OPERATOR: (Role.VIEWER, WRITE),
        },
    )

An application combines the tables of its components into one. Everything without a row is denied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple, NewType

import msgspec


class Role(StrEnum):
    """The role of an identity."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    PULSE = "pulse"
    ADAPTER = "adapter"
    AGENT = "agent"


Action = NewType("Action", str)
"""An operation that needs permission, as `<component>.<verb>`: `fleet.write`. Error messages show the verb."""

_ACTION = re.compile(r"[a-z][a-z0-9-]*\.[a-z][a-z0-9-]*")


class Identity(msgspec.Struct, frozen=True):
    """The caller of a request."""

    name: str
    role: Role
    adapter: str = ""
    """The adapter that an identity with the role adapter may report as."""
    instance: str = ""
    """The only instance that an identity with the role agent may register; empty for any."""
    is_anonymous: bool = False
    """Whether the request came without a token to an insecure server. Such a caller may do everything."""


ANONYMOUS: Final = Identity("anonymous", Role.ADMIN, is_anonymous=True)


class BadPermissions(ValueError):
    """An invalid table of permissions, or two that conflict: a programming error."""


class Permission(NamedTuple):
    """A role and an action it may perform. A tuple, because every request looks one up and tuples hash fast."""

    role: Role
    action: Action


class Permissions(msgspec.Struct, frozen=True):
    """A table of permissions. Components write theirs with `table`."""

    rows: frozenset[Permission] = frozenset()

    def permits(self, identity: Identity, action: Action) -> bool:
        """Return whether this identity may perform the action; `may_report_as` decides for which adapter."""
        return identity.is_anonymous or (identity.role, action) in self.rows

    def roles(self, action: Action) -> tuple[Role, ...]:
        """Return the roles that may perform the action, in the order of `Role`."""
        return tuple(role for role in Role if (role, action) in self.rows)

    @property
    def actions(self) -> frozenset[Action]:
        """The actions that at least one role may perform."""
        return frozenset(row.action for row in self.rows)


def table(component: str, grants: Mapping[Role, Iterable[Action | Role]]) -> Permissions:
    """Return the table of one component, from the actions that it grants to each role.

    A role in place of an action stands for all actions of that role, whose own row must come first. Raises
    `BadPermissions` for any other role, and for an action that is not named after the component.
    """
    granted: dict[Role, frozenset[Action]] = {}
    for role, given in grants.items():
        actions: set[Action] = set()
        for each in given:
            if not isinstance(each, Role):
                actions.add(_checked(each, component))
            elif each in granted:
                actions |= granted[each]
            else:
                raise BadPermissions(f"{component}, {role}: expected the row of {each} before this one")
        granted[role] = frozenset(actions)
    return Permissions(frozenset(Permission(role, action) for role in granted for action in granted[role]))


def combine(*tables: Permissions) -> Permissions:
    """Return the rows of all tables as one table.

    Raises `BadPermissions` if two tables have rows for the same action: only one component defines its roles.
    """
    claimed: set[Action] = set()
    for each in tables:
        if duplicates := claimed & each.actions:
            raise BadPermissions(f"{', '.join(sorted(duplicates))}: expected rows in one table, got rows in two")
        claimed |= each.actions
    return Permissions(frozenset().union(*(each.rows for each in tables)))


def verb(action: Action) -> str:
    """Return the name of the action in error messages: `write` for `fleet.write`."""
    return action.partition(".")[2]


def may_report_as(identity: Identity, adapter: str) -> bool:
    """Return whether this identity may report as this adapter."""
    return identity.is_anonymous or (identity.role is Role.ADAPTER and identity.adapter == adapter)


def _checked(action: Action, component: str) -> Action:
    if _ACTION.fullmatch(action) is None or not action.startswith(f"{component}."):
        raise BadPermissions(f'expected an action such as "{component}.read", got "{action}"')
    return action
