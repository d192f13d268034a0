"""Every route with every role and every kind of credential, from the tables that the server is built from."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import jwt
import pytest

from sentinel.api.kinds import DEFAULT
from sentinel.api.settings import FleetApiSettings
from sentinel.cli.wiring.accounts import BuiltAccounts, build_accounts
from sentinel.cli.wiring.api import build_api
from sentinel.cli.wiring.server import audit_component, build_database, build_guard, configured_identities
from sentinel.core.access import Identity, Permissions, Role, combine
from sentinel.drivers.identity import token_editing
from sentinel.drivers.sql.audit import SqlAuditLog
from sentinel.drivers.sql.engine.statements import SqlDatabase
from sentinel.ports.identity_store import IdentityTransaction, IssuedToken, SignIn, User
from sentinel.runtime.bearer_tokens import digest_of, new_token
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.log import get_logger
from sentinel.runtime.secrets import Secret
from sentinel.web.accounts.users import ROLES
from sentinel.web.app import Component, build_app
from sentinel.web.asgi import App
from sentinel.web.audit import Auditor
from sentinel.web.routing import Open, Route
from tests.web.asgi_client import ReceivedResponse, call

SECRET = "0123456789abcdef0123456789abcdef"
LOG = get_logger("test")
OPEN_ROUTES = {"/api/v1/auth/login"}


class BuiltApplication:
    """The application of `sentinel api`, with its tables."""

    def __init__(self, database: SqlDatabase, settings: FleetApiSettings) -> None:
        clock, auditor = SystemClock(), Auditor()
        self.file_tokens: list[tuple[Role, str]] = []
        self.accounts: BuiltAccounts = build_accounts(database, auditor=auditor, clock=clock)
        fleet = build_api(settings, kinds=DEFAULT, database=database, auditor=auditor, clock=clock)
        components: list[Component] = [fleet.web, self.accounts.web, audit_component(SqlAuditLog(database))]
        self.routes: list[Route] = [route for component in components for route in component.routes]
        self.permissions: Permissions = combine(*(component.permissions for component in components))
        known = configured_identities(settings, log=LOG)
        guard = build_guard(settings, known=known, stored=self.accounts.identities)
        self.app: App = build_app(components=components, guard=guard, log=LOG)

    def roles(self, route: Route) -> tuple[Role, ...]:
        return tuple(Role) if isinstance(route.action, Open) else self.permissions.roles(route.action)

    async def request(self, route: Route, token: str = "") -> ReceivedResponse:
        """Send a request that names nothing that exists, so that no request changes anything for the others."""
        path = re.sub(r"\{[a-z_]+\}", "absent", route.path)
        headers = {"authorization": f"Bearer {token}"} if token else {}
        body = b""
        if route.body is not None:
            body = b"{"  # authorization comes before the body, which no route accepts
            headers |= {"content-type": route.body.content_types[0], "content-length": "1"}
        return await call(self.app, route.method, path, headers=headers, body=body)


def settings_with(folder: Path, **more: object) -> FleetApiSettings:
    return FleetApiSettings(database_url=Secret(f"sqlite:///{folder / 'fleet.db'}"), **more)  # type: ignore[arg-type]  # of any setting


def identity_of(role: Role, name: str) -> Identity:
    return Identity(f"{name}-{role}", role, adapter="dns" if role is Role.ADAPTER else "")


def file_tokens(file: Path) -> Iterator[tuple[Role, str]]:
    for role in Role:
        who = identity_of(role, "file")
        yield role, token_editing.add_token(file, name=who.name, role=role, adapter=who.adapter, instance="")


def web_tokens() -> Iterator[tuple[Role, str]]:
    for role in Role:
        who = identity_of(role, "jwt")
        claims = {"sub": who.name, "role": role.value} | ({"adapter": who.adapter} if who.adapter else {})
        yield role, jwt.encode(claims, SECRET, algorithm="HS256")


def stored_tokens(transaction: IdentityTransaction) -> Iterator[tuple[Role, str]]:
    """Tokens of every role, and sign-ins of users of every role that users have."""
    now = SystemClock().now()
    for number, role in enumerate(Role):
        who, text = identity_of(role, "stored"), new_token()
        transaction.add_token(
            IssuedToken(
                id=str(number),
                name=who.name,
                role=role,
                adapter=who.adapter,
                digest=digest_of(text),
                created_time=now,
                created_by="test",
            )
        )
        yield role, text
    for role in ROLES:
        user = User(
            name=f"user-{role}",
            role=role,
            password_hash="",
            created_time=now,
            created_by="test",
            updated_time=now,
        )
        transaction.add_user(user)
        text = new_token()
        end = now.replace(year=now.year + 1)
        transaction.add_sign_in(SignIn(digest=digest_of(text), user=user.name, created_time=now, expires_time=end))
        yield role, text


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[BuiltApplication]:
    tokens, key = tmp_path / "tokens.yaml", tmp_path / "key"
    given = list(file_tokens(tokens))
    key.write_text(SECRET)
    async with running(settings_with(tmp_path, tokens_file=tokens, jwt_key_file=key)) as built:
        built.file_tokens = given
        yield built


@pytest.fixture
async def insecure_server(tmp_path: Path) -> AsyncIterator[BuiltApplication]:
    async with running(settings_with(tmp_path, insecure=True)) as built:
        yield built


@asynccontextmanager
async def running(settings: FleetApiSettings) -> AsyncIterator[BuiltApplication]:
    database = build_database(settings)
    await database.open()
    yield BuiltApplication(database, settings)
    await database.close()


async def test_every_role_may_do_exactly_what_its_rows_say(server: BuiltApplication) -> None:
    stored = await server.accounts.store.transact(lambda transaction: list(stored_tokens(transaction)))
    given = [*server.file_tokens, *web_tokens(), *stored]

    denied = set()
    for route in sorted(server.routes, key=lambda route: route.path.endswith("/logout")):  # it ends sign-ins
        permitted = server.roles(route)
        for role, token in given:
            status = (await server.request(route, token)).status
            assert status != 401 or isinstance(route.action, Open), (route.method, route.path, role)
            assert (status != 403) is (role in permitted), (route.method, route.path, role, status)
            if status == 403:
                denied.add(role)

    assert len(given) == 3 * len(Role) + len(ROLES)
    assert denied == set(Role)


async def test_without_a_valid_token_every_route_but_login_is_a_401(server: BuiltApplication) -> None:
    assert {route.path for route in server.routes if isinstance(route.action, Open)} == OPEN_ROUTES
    for route in server.routes:
        if route.path not in OPEN_ROUTES:
            for token in ("", new_token(), "guess", jwt.encode({"sub": "a", "role": "admin"}, "x" * 32)):
                assert (await server.request(route, token)).status == 401, (route.method, route.path)


async def test_an_insecure_server_permits_everything_to_everyone(insecure_server: BuiltApplication) -> None:
    for route in insecure_server.routes:
        for token in ("", "of-another-server", new_token()):
            response = await insecure_server.request(route, token)
            assert response.status not in (401, 403), (route.method, route.path, token)


async def test_an_insecure_server_knows_the_tokens_of_its_database(insecure_server: BuiltApplication) -> None:
    server = insecure_server
    given = await server.accounts.store.transact(lambda work: list(stored_tokens(work)))
    (users,) = [route for route in server.routes if (route.method, route.path) == ("GET", "/api/v1/users")]

    statuses = {role: (await server.request(users, token)).status for role, token in given}

    assert statuses == {role: 200 if role is Role.ADMIN else 403 for role in Role}


def test_only_admins_manage_users_tokens_and_read_the_audit(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, insecure=True)
    server = BuiltApplication(build_database(settings), settings)

    for route in server.routes:
        if re.match(r"/api/v1/(users|tokens|audit)", route.path):
            assert server.roles(route) == (Role.ADMIN,)
    agents = [route.path for route in server.routes if Role.AGENT in server.roles(route)]
    assert set(agents) == OPEN_ROUTES
