"""The permissions of the fleet API and of every server."""

from __future__ import annotations

import pytest

from sentinel.api.access import FORCE_DELETE, READ, REPORT, WRITE
from sentinel.api.kinds import DEFAULT
from sentinel.api.settings import FleetApiSettings
from sentinel.cli.wiring.api import build_api
from sentinel.cli.wiring.server import audit_component, build_database
from sentinel.core.access import ANONYMOUS, Action, Identity, Role, combine
from sentinel.drivers.sql.audit import SqlAuditLog
from sentinel.runtime.clock import SystemClock
from sentinel.web.audit import READ_AUDIT, Auditor
from sentinel.web.identity import UNAUTHENTICATED
from tests.api.every_route import Family
from tests.support.fleet.api_client import PERMISSIONS, ApiClient

ACTIONS = [READ, WRITE, FORCE_DELETE, REPORT, READ_AUDIT]
ALLOWED: dict[Role, set[Action]] = {
    Role.VIEWER: {READ},
    Role.OPERATOR: {READ, WRITE},
    Role.ADMIN: {READ, WRITE, FORCE_DELETE, READ_AUDIT},
    Role.PULSE: {READ},
    Role.ADAPTER: {READ, REPORT},
    Role.AGENT: set(),
}


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("action", ACTIONS)
def test_each_role_may_do_what_it_is_for_and_nothing_else(role: Role, action: Action) -> None:
    assert PERMISSIONS.permits(Identity("alice", role), action) is (action in ALLOWED[role])


@pytest.mark.parametrize("action", ACTIONS)
def test_anonymous_may_do_everything_on_an_insecure_server(action: Action) -> None:
    assert PERMISSIONS.permits(ANONYMOUS, action)


@pytest.mark.parametrize(
    ("lesser", "greater"), [(Role.VIEWER, Role.OPERATOR), (Role.OPERATOR, Role.ADMIN), (Role.PULSE, Role.ADAPTER)]
)
def test_a_higher_role_may_do_all_that_a_lower_one_may(lesser: Role, greater: Role) -> None:
    assert ALLOWED[lesser] < ALLOWED[greater]
    for action in PERMISSIONS.actions:
        roles = PERMISSIONS.roles(action)
        assert lesser not in roles or greater in roles


def test_only_adapters_report_and_agents_have_no_permission() -> None:
    assert PERMISSIONS.roles(REPORT) == (Role.ADAPTER,)
    assert not any(Role.AGENT in PERMISSIONS.roles(action) for action in PERMISSIONS.actions)
    assert not any(PERMISSIONS.permits(UNAUTHENTICATED, action) for action in PERMISSIONS.actions)


def test_every_permitted_action_is_used_by_a_route() -> None:
    assert {route.action for route in ApiClient().routes} == PERMISSIONS.actions == set(ACTIONS)


def test_the_server_is_built_with_these_permissions() -> None:
    database = build_database(FleetApiSettings())
    api = build_api(FleetApiSettings(), kinds=DEFAULT, database=database, auditor=Auditor(), clock=SystemClock())

    served = (api.web, audit_component(SqlAuditLog(database)))

    assert combine(*(component.permissions for component in served)) == PERMISSIONS


@pytest.mark.parametrize(
    ("request_line", "action"),
    [
        ("GET clusters", "read"),
        ("POST clusters", "write"),
        ("POST clusters/clusters-0/statuses", "report"),
        ("POST clusters/clusters-0/force-delete", "force-delete"),
        ("GET /api/v1/audit", "audit"),
    ],
)
async def test_a_403_names_role_caller_and_action(request_line: str, action: str) -> None:
    async with ApiClient(identities=[Identity("edge", Role.AGENT), Identity("admin", Role.ADMIN)]) as fleet:
        await Family(fleet, 0).create(token="admin")

        reply = await fleet.call(*request_line.split(), token="edge")

        problem = reply.assert_problem(403, code="HYPERFLEET-AUZ-001")
        assert problem["detail"] == f"the role agent of edge may not {action}"
