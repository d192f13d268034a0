"""The actions of the hub's REST API, and the roles that may perform them."""

from __future__ import annotations

from typing import Final

from sentinel.core.access import Action, Permissions, Role, table

READ: Final = Action("hub.read")
"""Read instances, their metrics, configurations and events."""
WRITE: Final = Action("hub.write")
"""Save and delete configurations; assign, drain and remove instances."""
SECRETS: Final = Action("hub.secrets")
"""Store and delete secrets, and read their names. No permission reads a value."""

PERMISSIONS: Final[Permissions] = table(
    "hub",
    {
        Role.VIEWER: (READ,),
        Role.OPERATOR: (Role.VIEWER, WRITE),
        Role.ADMIN: (Role.OPERATOR, SECRETS),
    },
)
"""Pulses and adapters have no permission here. Agents use gRPC, where a session speaks for one instance only."""
