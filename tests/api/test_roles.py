"""Permissions: every route with every role."""

from __future__ import annotations

import pytest

from sentinel.core.access import Identity, Role
from sentinel.web.routing import Open
from tests.api.every_route import Family
from tests.support.fleet.api_client import ApiClient
from tests.support.fleet.http_client import ROOT

HUMAN_ROLES = {Role.VIEWER, Role.OPERATOR, Role.ADMIN}
READERS = HUMAN_ROLES | {Role.PULSE, Role.ADAPTER}
WRITERS = {Role.OPERATOR, Role.ADMIN}

IDENTITIES = [Identity(role.value, role, "dns" if role is Role.ADAPTER else "") for role in Role]

FLAT_AND_NESTED: dict[tuple[str, str], tuple[set[Role], int]] = {
    ("GET", ""): (READERS, 200),
    ("POST", ""): (WRITERS, 201),
    ("GET", "/{id}"): (READERS, 200),
    ("PATCH", "/{id}"): (WRITERS, 200),
    ("DELETE", "/{id}"): (WRITERS, 202),
    ("GET", "/{id}/statuses"): (READERS, 200),
    ("POST", "/{id}/statuses"): ({Role.ADAPTER}, 201),
    ("PUT", "/{id}/statuses"): ({Role.ADAPTER}, 201),
    ("POST", "/{id}/force-delete"): ({Role.ADMIN}, 409),
}
"""The permitted roles and the response status, for a live resource."""
FLAT_ONLY: dict[tuple[str, str], tuple[set[Role], int]] = {
    **{("GET", f"/{{id}}/{view}"): (READERS, 200) for view in ("statuses/discarded", "waiting", "history")},
    **{("POST", f"/{{id}}/{action}"): (WRITERS, 202) for action in ("pulse", "pause", "resume")},
}
ALL_KINDS: dict[tuple[str, str], tuple[set[Role], int]] = {
    ("GET", f"{ROOT}/kinds"): (READERS, 200),
    ("GET", f"{ROOT}/resources/{{id}}"): (READERS, 200),
    ("GET", f"{ROOT}/resources/{{id}}/waiting"): (READERS, 200),
    ("GET", "/api/v1/audit"): ({Role.ADMIN}, 200),
}


def matrix() -> dict[tuple[str, str], tuple[set[Role], int]]:
    """Return every route with its roles, listed here instead of derived from the route table."""
    found = dict(ALL_KINDS)
    for flat in ("clusters", "nodepools", "machines", "manifests"):
        for (method, rest), who in (FLAT_AND_NESTED | FLAT_ONLY).items():
            found[method, f"{ROOT}/{flat}{rest}"] = who
    for nested in ("clusters/{parent_id}/nodepools", "nodepools/{parent_id}/machines"):
        for (method, rest), who in FLAT_AND_NESTED.items():
            found[method, f"{ROOT}/{nested}{rest}"] = who
    return found


ROUTES = list(matrix().items())


def test_every_route_is_in_the_matrix_and_has_an_action() -> None:
    routes = ApiClient().routes

    assert {(route.method.value, route.path) for route in routes} == set(matrix())
    assert not [route.path for route in routes if isinstance(route.action, Open)]


@pytest.mark.parametrize("role", list(Role))
async def test_a_role_may_do_exactly_what_the_matrix_says(role: Role) -> None:
    async with ApiClient(identities=IDENTITIES) as fleet:
        for number, ((method, path), (permitted, status)) in enumerate(ROUTES):
            family = Family(fleet, number)
            await family.create(token="admin")

            reply = await family.try_route(method, path, token=role.value)

            if role in permitted:
                assert reply.status == status, (method, path, reply)
            else:
                reply.assert_problem(403, code="HYPERFLEET-AUZ-001")


async def test_a_missing_or_wrong_token_is_a_401_everywhere() -> None:
    async with ApiClient(identities=IDENTITIES) as fleet:
        family = Family(fleet, 0)
        await family.create(token="admin")
        before = (await fleet.call("GET", "/api/v1/audit", token="admin")).content
        for (method, path), _ in ROUTES:
            for headers, code, challenge in (
                ({}, "HYPERFLEET-AUT-001", "Bearer"),
                ({"Authorization": "Basic YWRtaW46YWRtaW4="}, "HYPERFLEET-AUT-001", "Bearer"),
                ({"Authorization": "admin"}, "HYPERFLEET-AUT-001", "Bearer"),
                ({"Authorization": "Bearer guess"}, "HYPERFLEET-AUT-002", 'Bearer error="invalid_token"'),
                ({"Authorization": f"Bearer {'x' * 9000}"}, "HYPERFLEET-AUT-002", 'Bearer error="invalid_token"'),
            ):
                reply = await family.try_route(method, path, headers=headers)

                reply.assert_problem(401, code=code)
                assert reply.headers["www-authenticate"] == challenge
        assert (await fleet.call("GET", "/api/v1/audit", token="admin")).content == before


async def test_an_insecure_server_permits_everything(fleet: ApiClient) -> None:
    for number, ((method, path), (_, status)) in enumerate(ROUTES):
        family = Family(fleet, number)
        await family.create()

        reply = await family.try_route(method, path)

        assert reply.status == status, (method, path, reply)


async def test_an_adapter_reports_only_as_itself() -> None:
    async with ApiClient(identities=IDENTITIES) as fleet:
        family = Family(fleet, 0)
        await family.create(token="admin")
        path = "clusters/clusters-0/statuses"

        (await fleet.call("POST", path, fleet.report("validation"), token="adapter")).assert_problem(403)
        assert (await fleet.call("POST", path, fleet.report("dns"), token="adapter")).status == 201
        listed = (await fleet.call("GET", path, token="adapter")).json["items"]
        assert [item["adapter"] for item in listed] == ["dns"]


async def test_an_adapter_token_without_a_name_cannot_report() -> None:
    async with ApiClient(identities=[*IDENTITIES, Identity("nameless", Role.ADAPTER)]) as fleet:
        await Family(fleet, 0).create(token="admin")

        for adapter in ("", "dns"):
            reply = await fleet.call(
                "POST", "clusters/clusters-0/statuses", fleet.report(adapter), token="nameless"
            )
            assert reply.status in (400, 403)


async def test_an_insecure_server_accepts_any_adapter_name(fleet: ApiClient) -> None:
    await fleet.create("clusters", "one", id="one")

    assert (await fleet.reports("clusters/one", "dns", "validation", "anything")).status == 201
    assert (await fleet.get("/api/v1/audit"))["items"][0]["actor"] == "anonymous"


async def test_a_403_does_not_reveal_whether_a_resource_exists() -> None:
    async with ApiClient(identities=IDENTITIES) as fleet:
        await Family(fleet, 0).create(token="admin")

        there, missing = [
            (await fleet.call("PATCH", f"clusters/{each}", {"spec": "not even an object"}, token="viewer")).json
            for each in ("clusters-0", "missing")
        ]

        assert there == missing


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "fleet.example.com"}, 421),
        ({"Host": "127.0.0.1.example.com"}, 421),
        ({"Host": ""}, 421),
        ({"Origin": "https://example.com"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "127.0.0.1:8000", "Origin": "http://localhost:3000"}, 403),
        ({"Host": "127.0.0.1:8000", "Origin": "http://127.0.0.1:8000"}, 200),
        ({"Host": "[::1]:8000"}, 200),
    ],
)
async def test_an_insecure_server_rejects_other_sites(
    fleet: ApiClient, headers: dict[str, str], status: int
) -> None:
    reply = await fleet.call("GET", "clusters", headers=headers)

    assert reply.status == status


async def test_a_secure_server_accepts_any_host() -> None:
    async with ApiClient(identities=IDENTITIES) as fleet:
        reply = await fleet.call(
            "GET", "clusters", token="viewer", headers={"Host": "fleet.example.com", "Origin": "https://x.example"}
        )

        assert reply.status == 200


async def test_unsupported_methods_are_rejected(fleet: ApiClient) -> None:
    for path in ("clusters", "clusters/one", "clusters/one/statuses", "resources/one", "/api/v1/audit"):
        for method in ("POST", "PUT", "PATCH", "DELETE", "TRACE"):
            where = path if path.startswith("/") else f"{ROOT}/{path}"
            template = where.replace("/one", "/{id}")
            if (method, template) in matrix():
                continue
            reply = await fleet.call(method, path)
            reply.assert_problem(405)
            assert "GET" in reply.headers["allow"]
