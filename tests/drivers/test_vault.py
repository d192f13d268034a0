"""Secrets from Vault's key-value store in version 2, as its HTTP API documents it.

With SENTINEL_TEST_VAULT_ADDR and SENTINEL_TEST_VAULT_TOKEN they are also read from that Vault or OpenBao. A store
of version 2 is mounted at `secret` there, as with `-dev`; the tests write `secret/sentinel-tests/tls`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import pytest

from sentinel.drivers.vault import VaultReader
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.runtime.secrets import Secret
from tests.support.http.scripted_server import ReceivedRequest, ScriptedResponse, ScriptedServer, document

TOKEN = "hvs.CAESIJ-not-a-real-token"
PATH = "secret/data/sentinel-tests/tls"
STORED: dict[str, dict[str, object]] = {PATH: {"key": "-----BEGIN KEY-----\n…", "port": 1}}
GIVEN = os.environ.get("SENTINEL_TEST_VAULT_ADDR", "")


class Server(msgspec.Struct, frozen=True):
    """A Vault that has the secrets."""

    url: str
    token: str


@asynccontextmanager
async def scripted_vault() -> AsyncIterator[Server]:
    async with ScriptedServer(vault) as server:
        yield Server(server.url, TOKEN)


@asynccontextmanager
async def given_vault() -> AsyncIterator[Server]:
    """Write the secrets to it as their newest versions."""
    server = Server(GIVEN, os.environ.get("SENTINEL_TEST_VAULT_TOKEN", ""))
    async with aiohttp.ClientSession(headers={"X-Vault-Token": server.token}, raise_for_status=True) as client:
        for path, data in STORED.items():
            for version in ({"key": "old"}, data):
                async with client.post(f"{server.url}/v1/{path}", json={"data": version}):
                    pass
    yield server


@pytest.fixture(params=[scripted_vault, *([given_vault] if GIVEN else [])])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    async with request.param() as found:
        yield found


def vault(request: ReceivedRequest) -> ScriptedResponse:
    """Respond as Vault does."""
    if request.headers.get("X-Vault-Token") != TOKEN:
        return document({"errors": ["permission denied"]}, 403)
    data = STORED.get(request.path.removeprefix("/v1/"))
    if data is None:
        return document({"errors": []}, 404)
    return document({"request_id": "r", "data": {"data": data, "metadata": {"version": 3}}})


def reader(url: str) -> VaultReader:
    return VaultReader(address=url, token=Secret(TOKEN), namespace="team", user_agent="tests")


async def test_a_field_of_the_newest_version_is_read(server: Server) -> None:
    client = VaultReader(address=server.url, token=Secret(server.token), user_agent="tests")

    value = await client.read(PATH, "key")
    await client.close()

    assert value == "-----BEGIN KEY-----\n…".encode()


async def test_the_namespace_is_sent() -> None:
    async with ScriptedServer(vault) as server:
        client = reader(server.url)
        await client.read(PATH, "key")
        await client.close()

    assert server.requests[0].headers["X-Vault-Namespace"] == "team"


@pytest.mark.parametrize(
    ("path", "field", "token", "message"),
    [
        (PATH, "cert", None, "there is no field cert"),
        (PATH, "port", None, "expected text in the field port"),
        ("secret/data/sentinel-tests/other", "key", None, "there is no such secret"),
        (PATH, "key", "hvs.wrong", "VAULT_TOKEN does not allow it"),
        ("secret/../sys/seal", "key", None, "expected the path of a secret"),
    ],
)
async def test_what_is_not_handed_out_is_explained(
    server: Server, path: str, field: str, token: str | None, message: str
) -> None:
    client = VaultReader(address=server.url, token=Secret(token or server.token), user_agent="tests")

    with pytest.raises(Misconfigured, match=message) as raised:
        await client.read(path, field)
    await client.close()

    assert server.token not in str(raised.value)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"data": {"key": "v"}}', b'{"data": null}', b'{"data": {"data": null}}']
)
async def test_another_kind_of_store_is_recognized(body: bytes) -> None:
    async with ScriptedServer(lambda request: ScriptedResponse(200, body)) as server:
        client = reader(server.url)
        with pytest.raises(Misconfigured, match="expected a secret of a key-value store in version 2"):
            await client.read("secret/api/tls", "key")
        await client.close()


async def test_a_server_error_is_named() -> None:
    async with ScriptedServer(lambda request: ScriptedResponse(500)) as server:
        client = reader(server.url)
        with pytest.raises(Misconfigured, match="responded 500"):
            await client.read(PATH, "key")
        await client.close()


async def test_a_vault_that_is_away_is_unavailable() -> None:
    async with ScriptedServer(vault) as server:
        url = server.url
    client = reader(url)

    with pytest.raises(Unavailable, match="Vault: "):
        await client.read(PATH, "key")
    await client.close()


async def test_an_endless_response_is_not_read_whole() -> None:
    async with ScriptedServer(lambda request: ScriptedResponse(200, bytes(3 * 1024 * 1024))) as server:
        client = reader(server.url)
        with pytest.raises(Unavailable, match="expected a response of at most"):
            await client.read(PATH, "key")
        await client.close()


@pytest.mark.parametrize(
    "address", ["vault:8200", "https://me:hunter2@vault:8200", "https://vault/?token=hunter2"]
)
def test_an_invalid_address_is_named_and_not_shown(address: str) -> None:
    with pytest.raises(Misconfigured, match=r"^VAULT_ADDR: expected ") as caught:
        reader(address)

    assert "hunter2" not in str(caught.value)
