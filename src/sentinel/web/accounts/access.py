"""The actions on accounts, and the roles that may perform them."""

from __future__ import annotations

from typing import Final

from sentinel.core.access import Action, Permissions, Role, table

USE: Final = Action("accounts.use")
"""Read who the token stands for, and sign out."""
MANAGE_USERS: Final = Action("accounts.manage-users")
MANAGE_TOKENS: Final = Action("accounts.manage-tokens")

PERMISSIONS: Final[Permissions] = table(
    "accounts",
    {
        Role.VIEWER: (USE,),
        Role.OPERATOR: (USE,),
        Role.ADMIN: (USE, MANAGE_USERS, MANAGE_TOKENS),
        Role.PULSE: (USE,),
        Role.ADAPTER: (USE,),
    },
)
"""Agents have no permission here: they talk to the hub over gRPC."""
