"""Who may do what."""

from __future__ import annotations

import pytest

from sentinel.core.access import ANONYMOUS, Action, Identity, Role, permits, speaks_for

ALLOWED = {
    Role.VIEWER: {Action.READ},
    Role.OPERATOR: {Action.READ, Action.WRITE},
    Role.ADMIN: {Action.READ, Action.WRITE, Action.FORCE_DELETE, Action.AUDIT},
    Role.PULSE: {Action.READ},
    Role.ADAPTER: {Action.READ, Action.REPORT},
    Role.AGENT: set(),
}


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("action", Action)
def test_each_role_may_do_what_it_is_for_and_nothing_else(role: Role, action: Action) -> None:
    assert permits(Identity("somebody", role), action) is (action in ALLOWED[role])


@pytest.mark.parametrize("action", Action)
def test_nobody_in_particular_may_do_everything_where_there_is_no_protection(action: Action) -> None:
    assert permits(ANONYMOUS, action)


def test_an_adapter_speaks_for_itself_alone() -> None:
    dns = Identity("dns-token", Role.ADAPTER, "dns")

    assert speaks_for(dns, "dns")
    assert not speaks_for(dns, "validation")
    assert not speaks_for(Identity("root", Role.ADMIN), "dns")
    assert not speaks_for(Identity("dns", Role.OPERATOR, "dns"), "dns")
    assert speaks_for(ANONYMOUS, "dns")
