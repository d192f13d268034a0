"""Tables of permissions, and how those of several components are combined."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sentinel.core.access import (
    ANONYMOUS,
    Action,
    BadPermissions,
    Identity,
    Permission,
    Permissions,
    Role,
    combine,
    may_report_as,
    table,
    verb,
)

READ, WRITE, PURGE = Action("things.read"), Action("things.write"), Action("things.purge")
THINGS = table(
    "things",
    {
        Role.PULSE: (),
        Role.VIEWER: (READ,),
        Role.OPERATOR: (Role.VIEWER, WRITE),
        Role.ADMIN: (Role.OPERATOR, PURGE),
    },
)

actions_of_things = st.sets(st.sampled_from([READ, WRITE, PURGE]))
grants = st.dictionaries(st.sampled_from(Role), actions_of_things)


def test_a_role_in_a_row_grants_all_its_actions() -> None:
    assert THINGS.rows == {
        Permission(Role.VIEWER, READ),
        Permission(Role.OPERATOR, READ),
        Permission(Role.OPERATOR, WRITE),
        Permission(Role.ADMIN, READ),
        Permission(Role.ADMIN, WRITE),
        Permission(Role.ADMIN, PURGE),
    }


@given(viewer=actions_of_things, operator=actions_of_things, admin=actions_of_things)
def test_a_role_that_includes_another_may_do_all_of_its_actions(
    viewer: set[Action], operator: set[Action], admin: set[Action]
) -> None:
    permissions = table(
        "things",
        {Role.VIEWER: viewer, Role.OPERATOR: (Role.VIEWER, *operator), Role.ADMIN: (Role.OPERATOR, *admin)},
    )

    def permitted(role: Role) -> set[Action]:
        return {row.action for row in permissions.rows if row.role is role}

    assert permitted(Role.VIEWER) == viewer
    assert permitted(Role.OPERATOR) == viewer | operator
    assert permitted(Role.ADMIN) == viewer | operator | admin


@given(grants=grants, role=st.sampled_from(Role), action=st.sampled_from([READ, WRITE, PURGE]))
def test_an_identity_may_do_only_what_its_role_permits(
    grants: dict[Role, set[Action]], role: Role, action: Action
) -> None:
    permissions = table("things", grants)

    is_permitted = action in grants.get(role, ())
    assert permissions.permits(Identity("jo", role, adapter="dns"), action) is is_permitted
    assert (role in permissions.roles(action)) is is_permitted


@pytest.mark.parametrize("action", [READ, WRITE, PURGE, Action("things.unheard-of")])
def test_anonymous_may_do_everything_on_an_insecure_server(action: Action) -> None:
    assert THINGS.permits(ANONYMOUS, action)
    assert Permissions().permits(ANONYMOUS, action)


@pytest.mark.parametrize("role", Role)
def test_an_empty_table_permits_nothing(role: Role) -> None:
    assert not Permissions().permits(Identity("jo", role), READ)


def test_roles_come_in_one_order_and_actions_only_where_permitted() -> None:
    assert THINGS.roles(READ) == (Role.VIEWER, Role.OPERATOR, Role.ADMIN)
    assert THINGS.roles(PURGE) == (Role.ADMIN,)
    assert THINGS.roles(Action("things.unheard-of")) == ()
    assert THINGS.actions == {READ, WRITE, PURGE}


@pytest.mark.parametrize(
    "grants",
    [
        {Role.OPERATOR: (Role.VIEWER,), Role.VIEWER: (READ,)},
        {Role.OPERATOR: (Role.VIEWER, READ)},
        {Role.VIEWER: (READ, Role.VIEWER)},
    ],
)
def test_a_row_includes_only_a_role_whose_row_comes_before(grants: dict[Role, tuple[Action | Role, ...]]) -> None:
    with pytest.raises(BadPermissions, match="expected the row of viewer before this one"):
        table("things", grants)


@pytest.mark.parametrize(
    "action",
    ["read", "fleet.read", "things", "things.", ".read", "things.Read", "things.re ad", "thingsx.read", ""],
)
def test_an_action_must_be_named_after_its_component(action: str) -> None:
    with pytest.raises(BadPermissions, match=f'"things.read", got "{action}"'):
        table("things", {Role.VIEWER: (Action(action),)})


@given(first=grants, second=grants)
def test_a_combined_table_permits_what_one_of_its_tables_permits(
    first: dict[Role, set[Action]], second: dict[Role, set[Action]]
) -> None:
    things = table("things", first)
    others = table("others", {role: {_renamed(each) for each in given} for role, given in second.items()})

    both = combine(things, others)

    assert both.rows == things.rows | others.rows
    assert combine(others, things) == both


@example(first={Role.PULSE: {READ}}, second={Role.PULSE: {READ}})
@given(first=grants, second=grants)
def test_an_action_with_rows_in_two_tables_is_rejected(
    first: dict[Role, set[Action]], second: dict[Role, set[Action]]
) -> None:
    tables = table("things", first), table("things", second)

    if twice := tables[0].actions & tables[1].actions:
        with pytest.raises(BadPermissions) as caught:
            combine(*tables)
        assert all(action in str(caught.value) for action in twice)
    else:
        assert combine(*tables).rows == tables[0].rows | tables[1].rows


def test_no_tables_combine_to_one_that_permits_nothing() -> None:
    assert combine() == Permissions()


def test_error_messages_show_the_verb_without_its_component() -> None:
    assert verb(Action("fleet.force-delete")) == "force-delete"


def test_an_adapter_may_report_only_as_itself() -> None:
    dns = Identity("dns-token", Role.ADAPTER, "dns")

    assert may_report_as(dns, "dns")
    assert not may_report_as(dns, "validation")
    assert not may_report_as(Identity("root", Role.ADMIN), "dns")
    assert not may_report_as(Identity("dns", Role.OPERATOR, "dns"), "dns")
    assert may_report_as(ANONYMOUS, "dns")


def _renamed(action: Action) -> Action:
    return Action(action.replace("things.", "others."))
