"""Secrets from Vault's key-value store in version 2, as its HTTP API documents it."""

from __future__ import annotations

import pytest

from sentinel.drivers.vault import VaultReader
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.runtime.secrets import Secret
from tests.support.http.scripted_server import ReceivedRequest, ScriptedResponse, ScriptedServer, document

TOKEN = "hvs.CAESIJ-not-a-real-token"
STORED: dict[str, dict[str, object]] = {"secret/data/api/tls": {"key": "-----BEGIN KEY-----\n…", "port": 1}}


def vault(request: ReceivedRequest) -> ScriptedResponse:
    """Respond as Vault does."""
    if request.headers.get("X-Vault-Token") != TOKEN:
        return document({"errors": ["permission denied"]}, 403)
    data = STORED.get(request.path.removeprefix("/v1/"))
    if data is None:
        return document({"errors": []}, 404)
    return document({"request_id": "r", "data": {"data": data, "metadata": {"version": 3}}})


def reader(url: str, token: str = TOKEN) -> VaultReader:
    return VaultReader(address=url, token=Secret(token), namespace="team", user_agent="tests")


async def test_a_field_of_the_newest_version_is_read() -> None:
    async with ScriptedServer(vault) as server:
        client = reader(server.url)
        value = await client.read("secret/data/api/tls", "key")
        await client.close()

    assert value == "-----BEGIN KEY-----\n…".encode()
    assert server.requests[0].headers["X-Vault-Namespace"] == "team"


@pytest.mark.parametrize(
    ("path", "field", "token", "message"),
    [
        ("secret/data/api/tls", "cert", TOKEN, "there is no field cert"),
        ("secret/data/api/tls", "port", TOKEN, "expected text in the field port"),
        ("secret/data/other", "key", TOKEN, "there is no such secret"),
        ("secret/data/api/tls", "key", "hvs.wrong", "VAULT_TOKEN does not allow it"),
        ("secret/../sys/seal", "key", TOKEN, "expected the path of a secret"),
    ],
)
async def test_what_is_not_handed_out_is_explained(path: str, field: str, token: str, message: str) -> None:
    async with ScriptedServer(vault) as server:
        client = reader(server.url, token)
        with pytest.raises(Misconfigured, match=message) as raised:
            await client.read(path, field)
        await client.close()

    assert TOKEN not in str(raised.value)


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
            await client.read("secret/data/api/tls", "key")
        await client.close()


async def test_a_vault_that_is_away_is_unavailable() -> None:
    async with ScriptedServer(vault) as server:
        url = server.url
    client = reader(url)

    with pytest.raises(Unavailable, match="Vault: "):
        await client.read("secret/data/api/tls", "key")
    await client.close()


async def test_an_endless_response_is_not_read_whole() -> None:
    async with ScriptedServer(lambda request: ScriptedResponse(200, bytes(3 * 1024 * 1024))) as server:
        client = reader(server.url)
        with pytest.raises(Unavailable, match="expected a response of at most"):
            await client.read("secret/data/api/tls", "key")
        await client.close()


@pytest.mark.parametrize(
    "address", ["vault:8200", "https://me:hunter2@vault:8200", "https://vault/?token=hunter2"]
)
def test_an_invalid_address_is_named_and_not_shown(address: str) -> None:
    with pytest.raises(Misconfigured, match=r"^VAULT_ADDR: expected ") as caught:
        reader(address)

    assert "hunter2" not in str(caught.value)
