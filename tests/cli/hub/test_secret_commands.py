"""`sentinel hub secret`: values come from standard input, and are never shown."""

from __future__ import annotations

import pytest

from tests.cli.hub.served_hub import ServedHub

PEM = "-----BEGIN CERTIFICATE-----\nhunter2\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("stdin", "stored"),
    [(PEM, PEM), ("hunter2\n", "hunter2"), ("hunter2\r\n", "hunter2"), ("hunter2", "hunter2"), ("\n\n", "\n\n")],
)
async def test_the_value_is_standard_input(hub: ServedHub, stdin: str, stored: str) -> None:
    code, output, errors = await hub.run("secret", "set", "api-cert", stdin=stdin)

    assert (code, output, errors) == (0, "secret api-cert stored\n", "")
    assert await hub.backend.secrets.values(["api-cert"]) == {"api-cert": stored.encode()}


async def test_the_list_shows_names_and_users_only(hub: ServedHub) -> None:
    await hub.run("secret", "set", "b", stdin="hunter2")
    await hub.run("secret", "set", "a", stdin="hunter3")

    code, output, _ = await hub.run("secret", "list")

    assert code == 0
    assert [line.split()[0] for line in output.splitlines()] == ["NAME", "a", "b"]
    assert "hunter" not in output
    assert [each["name"] for each in (await hub.read("secret", "list"))["items"]] == ["a", "b"]


async def test_a_secret_is_deleted(hub: ServedHub) -> None:
    await hub.run("secret", "set", "a", stdin="hunter2")

    deleted = await hub.run("secret", "delete", "a")
    again = await hub.run("secret", "delete", "a")

    assert deleted[:2] == (0, "secret a deleted\n")
    assert (again[0], "404" in again[2]) == (1, True)


@pytest.mark.parametrize(
    ("words", "stdin"),
    [(["a b"], "x"), (["a", "hunter2"], ""), (["a"], ""), (["a"], "\n"), (["a"], "x" * 70_000)],
    ids=["name", "value as an argument", "empty", "empty line", "long"],
)
async def test_a_bad_secret_is_wrong_usage(hub: ServedHub, words: list[str], stdin: str) -> None:
    code, _, errors = await hub.run("secret", "set", *words, stdin=stdin)

    assert code == 2
    assert "expected" in errors or "unexpected" in errors
    assert await hub.backend.secrets.count_secrets() == 0


async def test_an_operator_may_not_see_secrets(hub: ServedHub) -> None:
    code, _, errors = await hub.run("secret", "list", token="operator")

    assert (code, "403" in errors) == (1, True)
