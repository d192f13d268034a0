"""`sentinel hub config list|get|push|diff` on a hub."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.hub.served_hub import ServedHub
from tests.hub.rest.rest_hub import VALID, WITH_OTHER_LISTENER, WITH_OTHER_ROUTE


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "edge.kdl"
    path.write_text(VALID)
    return path


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken.kdl"
    path.write_text(VALID.replace('"127.0.0.1:8088"', "true"))
    return path


async def test_a_file_becomes_the_first_version_then_the_next(hub: ServedHub, file: Path) -> None:
    first = await hub.run("config", "push", "edge", file, "--summary", "begin")
    second = await hub.run("config", "push", "edge", "-", stdin=WITH_OTHER_LISTENER)

    assert first[:2] == (0, "edge@1 saved\n")
    assert second[:2] == (0, "edge@2 saved; the proxy has to restart for it\n")
    listed = await hub.read("config", "list", "edge")
    assert [(each["version"], each["change_summary"]) for each in listed["items"]] == [(2, ""), (1, "begin")]


async def test_standard_input_is_pushed(hub: ServedHub) -> None:
    code, output, _ = await hub.run("config", "push", "edge", "-", stdin=VALID)

    assert (code, output) == (0, "edge@1 saved\n")


async def test_an_earlier_version_is_saved_once_more(hub: ServedHub) -> None:
    await hub.push("edge", VALID, WITH_OTHER_ROUTE)

    saved = await hub.read("config", "push", "edge", "--copy-of", "1")

    assert (saved["version"], saved["content"]) == (3, VALID)


async def test_an_invalid_file_is_drawn_and_not_saved(hub: ServedHub, broken: Path) -> None:
    code, output, errors = await hub.run("config", "push", "edge", broken)

    assert (code, output) == (2, "")
    assert f"{broken}:5:30: error:" in errors
    assert "write #true" in errors
    assert errors.splitlines()[-1].startswith(f"{broken}: not saved")
    assert (await hub.read("config", "list"))["items"] == []


@pytest.mark.parametrize("words", [(), ("missing.kdl",), ("-", "--copy-of", "1")])
async def test_nothing_to_push_is_wrong_usage(hub: ServedHub, words: tuple[str, ...]) -> None:
    code, _, errors = await hub.run("config", "push", "edge", *words)

    assert code == 2
    assert "expected" in errors


@pytest.mark.parametrize("words", [("push", "bad id", "-"), ("push", "", "-"), ("list", "a/b"), ("get", "a@b")])
async def test_what_cannot_name_a_configuration_is_wrong_usage(hub: ServedHub, words: tuple[str, ...]) -> None:
    code, _, errors = await hub.run("config", *words, stdin=VALID)

    assert code == 2
    assert f'expected a configuration such as edge, got "{words[1]}"' in errors.replace(", or edge@3,", ",")


async def test_the_text_of_a_version_is_printed_as_it_is(hub: ServedHub) -> None:
    await hub.push("edge", VALID, WITH_OTHER_ROUTE)

    latest = await hub.run("config", "get", "edge")
    first = await hub.run("config", "get", "edge@1")

    assert (latest[:2], first[:2]) == ((0, WITH_OTHER_ROUTE), (0, VALID))
    assert (await hub.read("config", "get", "edge@2"))["version"] == 2
    assert (await hub.run("config", "get", "a b"))[0] == 2
    assert (await hub.run("config", "get", "edge@9"))[0] == 1


async def test_configurations_are_listed(hub: ServedHub) -> None:
    await hub.push("edge", VALID, WITH_OTHER_ROUTE)

    code, output, _ = await hub.run("config", "list")

    assert code == 0
    assert output.splitlines()[1].split()[:3] == ["edge", "2", "0"]


@pytest.mark.parametrize(("words", "numbers"), [((), [1, 2]), (("edge",), [[1], [2, 1]])], ids=["all", "one"])
async def test_watched_lists_follow_what_is_saved(
    hub: ServedHub, words: tuple[str, ...], numbers: Sequence[object]
) -> None:
    await hub.push("edge", VALID)
    process = await hub.watching("config", *words, "--output=json", stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None

    async with asyncio.timeout(60):
        lists = [json.loads(await process.stdout.readline())["items"]]
        await hub.call("POST", "configs/edge/versions", {"content": WITH_OTHER_ROUTE})
        lists.append(json.loads(await process.stdout.readline())["items"])
    process.send_signal(signal.SIGINT)
    code = await process.wait()

    if words:
        seen: Sequence[object] = [[each["version"] for each in items] for items in lists]
    else:
        seen = [items[0]["latest_version"] for items in lists]
    assert (seen, code) == (numbers, 0)


async def test_a_difference_is_printed(hub: ServedHub) -> None:
    await hub.push("edge", VALID, WITH_OTHER_ROUTE, WITH_OTHER_LISTENER)

    code, output, errors = await hub.run("config", "diff", "edge@2")
    with_first = await hub.read("config", "diff", "edge@3", "1")

    assert (code, errors) == (0, "")
    assert output.startswith("--- edge@1\n+++ edge@2\n")
    assert '+        matches { path "/ready" }' in output
    assert with_first["restart_required"] is True
