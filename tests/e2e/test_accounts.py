"""Users and tokens as processes see them: the commands, several servers, and no secret anywhere."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from sentinel.runtime.bearer_tokens import digest_of
from tests.support.databases import postgresql
from tests.support.databases.empty import DatabaseKind, empty_database
from tests.support.fleet.http_client import FleetHttp, Reply
from tests.support.http.scripted_server import ScriptedServer, document
from tests.support.processes.service import ApiProcess, CompletedCommand, run_command

PASSWORD = "correct-horse-battery"
OTHER = "another-staple-word"


async def add_user(
    name: str, role: str, *target: str, password: str = PASSWORD, token: str = ""
) -> CompletedCommand:
    return await run_command(
        "user",
        "add",
        name,
        "--role",
        role,
        "--password-stdin",
        *target,
        stdin=f"{password}\n".encode(),
        environ={"SENTINEL_TOKEN": token},
    )


@pytest.fixture(params=list(DatabaseKind))
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return empty_database(request.param, request, tmp_path)


@asynccontextmanager
async def serving(database: str, folder: Path) -> AsyncIterator[tuple[ApiProcess, str]]:
    """A server that only knows the accounts of its database."""
    async with ApiProcess(database, directory=folder, arguments=()) as api:
        yield api, await api.url()


@asynccontextmanager
async def two_servers(database: str, folder: Path) -> AsyncIterator[tuple[str, str]]:
    """The URLs of two servers on one database, with `ann` as an admin."""
    await add_user("ann", "admin", "--database-url", database)
    async with serving(database, folder) as (_, one), serving(database, folder) as (_, two):
        yield one, two


async def log_in(url: str, name: str, password: str = PASSWORD) -> Reply:
    async with FleetHttp(url) as client:
        return await client.call("POST", "/api/v1/auth/login", {"name": name, "password": password})


async def token_of(url: str, name: str) -> str:
    return str((await log_in(url, name)).json["token"])


async def ask(url: str, token: str, path: str = "/api/v1/auth/me") -> Reply:
    async with FleetHttp(url, token=token) as client:
        return await client.call("GET", path)


async def command(url: str, token: str, *words: str) -> Any:
    """Run a command on a server, and return its JSON output."""
    done = await run_command(*words, "--server", url, "--output", "json", environ={"SENTINEL_TOKEN": token})
    assert done.code == 0, done.stderr
    return json.loads(done.stdout)


async def stored_bytes(database: str) -> bytes:
    """Everything that the database has on disk, or in its tables."""
    if database.startswith("sqlite:///"):
        file = Path(database.removeprefix("sqlite:///"))
        return b"".join(each.read_bytes() for each in file.parent.glob(f"{file.name}*"))
    names = await postgresql.fetch(database, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    rows = [await postgresql.fetch(database, f"SELECT t::text FROM {name} t") for (name,) in names]  # noqa: S608
    return repr(rows).encode()


async def test_a_server_starts_once_its_database_has_a_user(database: str, tmp_path: Path) -> None:
    before = await run_command("api", "--listen", "127.0.0.1:0", "--database-url", database)

    added = await add_user("ann", "admin", "--database-url", database)

    assert (before.code, added.code) == (2, 0), (before.stderr, added.stderr)
    assert "sentinel user add" in before.stderr
    assert added.stdout == "user ann added with the role admin\n"
    async with serving(database, tmp_path) as (_, url):
        assert (await ask(url, await token_of(url, "ann"))).json == {"name": "ann", "role": "admin"}


async def test_a_token_in_the_database_lets_a_server_start(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'fleet.db'}"

    issued = await run_command("token", "new", "--name", "ci", "--role", "viewer", "--database-url", database)

    assert issued.code == 0, issued.stderr
    async with serving(database, tmp_path) as (_, url):
        assert (await ask(url, issued.stdout.strip())).json == {"name": "ci", "role": "viewer"}


async def test_the_commands_manage_users_and_tokens_of_a_server(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'fleet.db'}"
    await add_user("ann", "admin", "--database-url", database)
    async with serving(database, tmp_path) as (_, url):
        ann = await token_of(url, "ann")

        locked = await run_command("user", "list", "--database-url", database)
        added = await add_user("ben", "viewer", "--server", url, token=ann)
        ben = await token_of(url, "ben")
        promoted = await command(url, ann, "user", "set-role", "ben", "operator")
        listed = await command(url, ann, "user", "list")
        issued = await command(url, ann, "token", "new", "--name", "ci", "--role", "pulse", "--expires-in", "1h")
        tokens = await command(url, ann, "token", "list")
        used = await ask(url, issued["token"])
        revoked = await command(url, ann, "token", "revoke", "--id", issued["id"])
        refused = await ask(url, issued["token"])
        removed = await command(url, ann, "user", "remove", "ben")
        last = await run_command("user", "remove", "ann", "--server", url, environ={"SENTINEL_TOKEN": ann})
        denied = await run_command("user", "list", "--server", url, environ={"SENTINEL_TOKEN": ben})

    assert (locked.code, added.code) == (2, 0)
    assert "in use" in locked.stderr
    assert "--server" in locked.stderr
    assert promoted["role"] == "operator"
    assert [(each["name"], each["role"]) for each in listed["users"]] == [("ann", "admin"), ("ben", "operator")]
    assert (
        [each["id"] for each in tokens["tokens"]] == [each["id"] for each in revoked["tokens"]] == [issued["id"]]
    )
    assert (used.status, refused.status) == (200, 401)
    assert removed == {"name": "ben"}
    assert (last.code, denied.code) == (1, 1)
    assert "last admin" in last.stderr
    assert "401" in denied.stderr


async def test_a_server_accepts_tokens_of_published_keys(tmp_path: Path) -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    published = json.loads(jwt.get_algorithm_by_name("EdDSA").to_jwk(key.public_key())) | {"kid": "one"}
    claims = {"sub": "ops", "role": "operator", "iss": "https://issuer.example", "aud": "fleet"}

    def signed(**changes: str) -> str:
        return jwt.encode(claims | changes, key, algorithm="EdDSA", headers={"kid": "one"})

    async with ScriptedServer(lambda request: document({"keys": [published]})) as issuer:
        arguments = ("--jwks-url", f"{issuer.url}/keys", "--jwt-issuer", claims["iss"], "--jwt-audience", "fleet")
        database = f"sqlite:///{tmp_path / 'fleet.db'}"
        async with ApiProcess(database, directory=tmp_path, arguments=arguments) as api:
            url = await api.url()
            replies = [await ask(url, signed(**changes)) for changes in ({}, {"iss": "x"}, {"aud": "x"})]

    assert [reply.status for reply in replies] == [200, 401, 401]
    assert replies[0].json == {"name": "ops", "role": "operator"}


async def test_servers_on_one_database_see_a_revocation_within_a_second(
    fresh_postgresql_database: str, tmp_path: Path
) -> None:
    async with two_servers(fresh_postgresql_database, tmp_path) as (one, two):
        ann = await token_of(one, "ann")
        statuses = dict[str, int]()

        async with FleetHttp(one, token=ann) as admin:
            issued = (await admin.call("POST", "/api/v1/tokens", {"name": "ci", "role": "viewer"})).json
            users = "/api/v1/users"
            for name in ("ben", "cid", "dan"):
                added = {"name": name, "role": "viewer", "password": PASSWORD}
                assert (await admin.call("POST", users, added)).status == 201
            signed_in = {name: await token_of(one, name) for name in ("ben", "cid", "dan")}
            for token in (issued["token"], *signed_in.values()):
                assert (await ask(two, token)).status == 200

            changes = {
                "token": ("DELETE", f"/api/v1/tokens/{issued['id']}", None, issued["token"]),
                "removal": ("DELETE", f"{users}/ben", None, signed_in["ben"]),
                "role": ("PATCH", f"{users}/cid", {"role": "operator"}, signed_in["cid"]),
                "password": ("PATCH", f"{users}/dan", {"password": OTHER}, signed_in["dan"]),
            }
            for what, (method, path, body, token) in changes.items():
                assert (await ask(two, token)).status == 200, what
                assert (await admin.call(method, path, body)).status in (200, 204)
                await asyncio.sleep(1)
                statuses[what] = (await ask(two, token)).status

    assert statuses == {"token": 401, "removal": 401, "role": 401, "password": 401}


async def test_servers_on_one_database_share_the_limit_of_failed_sign_ins(
    fresh_postgresql_database: str, tmp_path: Path
) -> None:
    async with two_servers(fresh_postgresql_database, tmp_path) as (one, two):
        guesses = [log_in(url, "ann", f"{OTHER}-{number}") for number in range(10) for url in (one, two)]
        replies = await asyncio.gather(*guesses)
        after = [await log_in(url, "ann") for url in (one, two)]

    statuses = [reply.status for reply in replies]
    assert (statuses.count(401), statuses.count(429)) == (5, 15)
    assert [reply.status for reply in after] == [429, 429]
    assert all(0 < int(reply.headers["Retry-After"]) <= 60 for reply in after)


async def test_no_secret_is_in_a_log_a_response_or_the_database(database: str, tmp_path: Path) -> None:
    added = await add_user("ann", "admin", "--database-url", database)
    replies: list[Reply] = []
    async with serving(database, tmp_path) as (api, url):
        ann = await token_of(url, "ann")
        async with FleetHttp(url, token=ann) as admin:

            async def call(method: str, path: str, body: object = None) -> Reply:
                replies.append(await admin.call(method, f"/api/v1/{path}", body))
                return replies[-1]

            await call("POST", "users", {"name": "ben", "role": "viewer", "password": OTHER})
            await call("PATCH", "users/ben", {"password": f"{OTHER}-2"})
            await call("POST", "users", {"name": "ben", "role": "viewer", "password": OTHER})
            await call("POST", "users", {"name": "bad name", "role": "viewer", "password": OTHER})
            issued = (await admin.call("POST", "/api/v1/tokens", {"name": "ci", "role": "viewer"})).json
            replies.append(await log_in(url, "ben", OTHER))
            replies.append(await log_in(url, OTHER, PASSWORD))
            for path in ("users", "users/ben", "tokens", f"tokens/{issued['id']}", "audit", "auth/me", "nowhere"):
                await call("GET", path)
            replies.append(await ask(url, issued["token"][:-1]))
            kept = await stored_bytes(database)
        assert await api.stop() == 0
    kept += await stored_bytes(database)

    secrets = [PASSWORD, OTHER, ann, issued["token"]]
    told = [*(reply.content for reply in replies), bytes(api.stderr), bytes(api.stdout), added.stderr.encode()]
    for secret in secrets:
        assert not [each for each in (*told, kept) if secret.encode() in each], secret
        assert hashlib.sha256(secret.encode()).hexdigest().encode() not in b"".join(told)
    assert b"argon2id" in kept
    assert not [each for each in told if b"argon2id" in each]
    digest = digest_of(issued["token"])
    assert digest in kept or digest.hex().encode() in kept  # the search would find what is there
