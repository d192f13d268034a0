"""Permissions: every route of the hub's server with every role, and without a token."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Final

import pytest

from sentinel.cli.wiring.accounts import build_accounts
from sentinel.cli.wiring.hub import build_sql_hub
from sentinel.cli.wiring.server import audit_component, build_database
from sentinel.core.access import Identity, Role
from sentinel.drivers.sql.audit import SqlAuditLog
from sentinel.drivers.sql.engine.statements import SqlDatabase
from sentinel.hub.settings import HubSettings
from sentinel.ports.audit import AuditQuery
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.listening import Address
from sentinel.runtime.log import get_logger
from sentinel.runtime.secrets import Secret
from sentinel.testing.identities import MemoryIdentities
from sentinel.web.app import Component, build_app
from sentinel.web.audit import Auditor
from sentinel.web.identity import Guard
from sentinel.web.routing import Open, Route
from tests.web.asgi_client import ReceivedResponse, call
from tests.web.rest_caller import ROOT

EVERYONE: Final = frozenset(Role)
READERS: Final = frozenset((Role.VIEWER, Role.OPERATOR, Role.ADMIN))
WRITERS: Final = frozenset((Role.OPERATOR, Role.ADMIN))
ADMINS: Final = frozenset((Role.ADMIN,))

BY_COLLECTION: Final = {
    "instances": (READERS, WRITERS),
    "configs": (READERS, WRITERS),
    "deployments": (READERS, WRITERS),
    "events": (READERS, WRITERS),
    "webhooks": (READERS, WRITERS),
    "secrets": (ADMINS, ADMINS),
    "users": (ADMINS, ADMINS),
    "tokens": (ADMINS, ADMINS),
    "audit": (ADMINS, ADMINS),
}
"""Who may read, and who may do anything else, by the first segment of the path."""
EXCEPTIONS: Final = {
    ("POST", "configs/validate"): READERS,
    ("POST", "auth/login"): EVERYONE,
    ("POST", "auth/logout"): EVERYONE - {Role.AGENT},
    ("GET", "auth/me"): EVERYONE - {Role.AGENT},
}


def permitted(route: Route) -> Collection[Role]:
    """Return who may call a route. A route of a new collection has to be listed here first."""
    path = route.path.removeprefix(f"{ROOT}/")
    if (route.method.value, path) in EXCEPTIONS:
        return EXCEPTIONS[route.method.value, path]
    readers, writers = BY_COLLECTION[path.partition("/")[0]]
    return readers if route.method.value == "GET" else writers


class HubApplication:
    """All routes of `sentinel hub serve`. The token of each role is its name."""

    def __init__(self, database: SqlDatabase, settings: HubSettings) -> None:
        clock, auditor = SystemClock(), Auditor()
        hub = build_sql_hub(
            settings,
            database=database,
            identities=(),
            ignores_unknown_tokens=False,
            address=Address("127.0.0.1", 0),
            auditor=auditor,
            clock=clock,
        )
        accounts = build_accounts(database, auditor=auditor, clock=clock)
        self.audit = SqlAuditLog(database)
        components: list[Component] = [hub.component.web, accounts.web, audit_component(self.audit)]
        self.routes = [route for component in components for route in component.routes]
        known = MemoryIdentities({role.value: Identity(f"some-{role}", role) for role in Role})
        self.app = build_app(components=components, guard=Guard(identities=[known]), log=get_logger("test"))

    async def status(self, route: Route, token: str) -> int:
        """Call a route about nothing that exists, with a body that no route accepts."""
        path = re.sub(r"\{[a-z_]+\}", "absent", route.path)
        headers = {"authorization": f"Bearer {token}"} if token else {}
        headers["last-event-id"] = "none"  # a stream that is permitted would not end
        body = b""
        if route.body is not None:
            body = b"{"
            headers |= {"content-type": route.body.content_types[0], "content-length": "1"}
        response: ReceivedResponse = await call(self.app, route.method, path, headers=headers, body=body)
        return response.status


@pytest.fixture
async def application(tmp_path: Path) -> AsyncIterator[HubApplication]:
    settings = HubSettings(database_url=Secret(f"sqlite:///{tmp_path / 'hub.db'}"))
    database = build_database(settings)
    await database.open()
    yield HubApplication(database, settings)
    await database.close()


async def test_every_role_may_do_what_the_specification_says(application: HubApplication) -> None:
    for route in application.routes:
        expected = {role: role in permitted(route) for role in Role}

        statuses = {role: await application.status(route, role.value) for role in Role}

        assert {role: status != 403 for role, status in statuses.items()} == expected, (route.method, route.path)


async def test_without_a_valid_token_nothing_but_login_answers(application: HubApplication) -> None:
    is_open = {route.path for route in application.routes if isinstance(route.action, Open)}

    for route in application.routes:
        if route.path not in is_open:
            statuses = [await application.status(route, token) for token in ("", "guess", "x" * 9000)]
            assert statuses == [401, 401, 401], (route.method, route.path)

    assert is_open == {f"{ROOT}/auth/login"}
    assert await application.audit.find(AuditQuery(limit=1)) == []
