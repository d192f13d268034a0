"""The permissions that every server needs, besides those of its components.

The audit has one route for all components, so its permission belongs to none of them.
"""

from __future__ import annotations

from typing import Final

from sentinel.core.access import Action, Permissions, Role, table

AUDIT: Final = Action("server.audit")
"""Read who has written what."""

PERMISSIONS: Final[Permissions] = table("server", {Role.ADMIN: (AUDIT,)})
