"""The actions of the fleet API, and the roles that may perform them."""

from __future__ import annotations

from typing import Final

from sentinel.core.access import Action, Permissions, Role, table

READ: Final = Action("fleet.read")
"""Read resources and statuses."""
WRITE: Final = Action("fleet.write")
"""Create, patch, delete, pulse, pause and resume resources."""
FORCE_DELETE: Final = Action("fleet.force-delete")
REPORT: Final = Action("fleet.report")
"""Report on a resource as the adapter that the report names."""

PERMISSIONS: Final[Permissions] = table(
    "fleet",
    {
        Role.VIEWER: (READ,),
        Role.OPERATOR: (Role.VIEWER, WRITE),
        Role.ADMIN: (Role.OPERATOR, FORCE_DELETE),
        Role.PULSE: (READ,),
        Role.ADAPTER: (READ, REPORT),
    },
)
"""Only adapters may report; even an admin may not. Agents have no permission here: they talk to the hub."""
