"""`sentinel hub instances`: what it prints, and what it changes."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import yaml

from sentinel.core.hub.states import State
from tests.cli.hub.served_hub import ServedHub
from tests.hub.rest.rest_hub import VALID
from tests.support.hub.store_records import full_instance, heartbeats, instance


async def test_the_table_shows_what_runs_and_what_should(hub: ServedHub) -> None:
    await hub.add(full_instance("edge-1"), instance("edge-2", State.OFFLINE))

    code, output, _ = await hub.run("instances", "list")

    header, first, second = (re.split("  +", line) for line in output.splitlines())
    assert code == 0
    assert header[:6] == ["ID", "NAME", "STATE", "CURRENT", "ASSIGNED", "SYNC"]
    assert first[:1] + first[2:6] == ["edge-1", "draining", "api@7", "api@8", "no"]
    assert second[2:6] == ["offline", "-", "-", "yes"]
    assert "\x1b" not in output


async def test_the_list_is_selected_by_labels_and_state(hub: ServedHub) -> None:
    await hub.add(instance("a", labels={"zone": "1"}), instance("b"), instance("c", State.REMOVED))

    by_label = await hub.read("instances", "list", "--selector", "zone=1")
    removed = await hub.read("instances", "list", "--state", "removed")

    assert [each["id"] for each in by_label["items"]] == ["a"]
    assert [each["id"] for each in removed["items"]] == ["c"]


async def test_one_instance_is_printed_whole(hub: ServedHub) -> None:
    await hub.add(full_instance("edge-1"))

    code, output, _ = await hub.run("instances", "get", "edge-1")

    assert code == 0
    assert yaml.safe_load(output) == await hub.read("instances", "get", "edge-1")


async def test_a_version_is_assigned_and_taken_back(hub: ServedHub) -> None:
    await hub.push("edge", VALID)
    await hub.add(instance("edge-1"))

    assigned = await hub.run("instances", "assign", "edge-1", "edge@1")
    after = await hub.read("instances", "get", "edge-1")
    removed = await hub.run("instances", "assign", "edge-1", "--none")

    assert assigned[:2] == (0, "instance edge-1: edge@1 assigned\n")
    assert after["assigned"] == "edge@1"
    assert removed[:2] == (0, "instance edge-1: nothing assigned\n")
    assert (await hub.read("instances", "get", "edge-1"))["assigned"] is None


@pytest.mark.parametrize("words", [("edge",), ("edge@0",), (), ("edge@1", "--none")])
async def test_a_bad_assignment_is_wrong_usage(hub: ServedHub, words: tuple[str, ...]) -> None:
    code, _, errors = await hub.run("instances", "assign", "edge-1", *words)

    assert code == 2
    assert "edge@3" in errors


async def test_an_instance_is_drained_and_removed(hub: ServedHub) -> None:
    await hub.add(instance("edge-1"), instance("edge-2", State.OFFLINE))

    drained = await hub.run("instances", "drain", "edge-1", "--reason", "moved")
    removed = await hub.run("instances", "remove", "edge-2")

    assert drained[:2] == (0, "instance edge-1 is draining\n")
    assert removed[:2] == (0, "instance edge-2 is removed\n")
    assert (await hub.audit())[1].detail == "moved"


async def test_what_leaves_is_printed_for_scripts(hub: ServedHub) -> None:
    await hub.add(instance("edge-1"), instance("edge-2", State.OFFLINE))

    drained = await hub.read("instances", "drain", "edge-1")
    removed = await hub.read("instances", "remove", "edge-2")

    assert [(each["id"], each["state"]) for each in (drained, removed)] == [
        ("edge-1", "draining"),
        ("edge-2", "removed"),
    ]


async def test_a_watched_list_is_drawn_again_when_it_changes(hub: ServedHub) -> None:
    edge = instance("edge-1")
    await hub.add(edge, instance("edge-2", State.OFFLINE))
    await hub.store.flush([heartbeats(edge, 1, message="serving")])
    terminal, command_side = pty.openpty()
    process = await hub.watching("instances", stdout=command_side, stderr=command_side)
    os.close(command_side)

    first = await read_until(terminal, b"edge-2")
    await hub.restart(meanwhile=read_until(terminal, b"trying again"))
    await hub.store.flush([heartbeats(edge, 2, message="two of three")])
    await read_until(terminal, b"two of three")
    await hub.call("POST", "instances/edge-1/drain", {})
    last = await read_until(terminal, b"\x1b[35medge-1")
    process.send_signal(signal.SIGINT)
    code = await process.wait()
    os.close(terminal)

    assert (b"\x1b[32medge-1" in first, b"\x1b[31medge-2" in first) == (True, True)
    assert last.rindex(b"\x1b[H\x1b[2J") < last.index(b"\x1b[35medge-1")
    assert code == 0


@pytest.mark.parametrize("output", ["json", "yaml"])
async def test_each_list_of_a_watch_can_be_read_by_itself(hub: ServedHub, output: str) -> None:
    await hub.add(instance("edge-1"))
    process = await hub.watching("instances", f"--output={output}", stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None

    first = await read_list(process.stdout, output)
    await hub.call("POST", "instances/edge-1/drain", {})
    second = await read_list(process.stdout, output)
    process.send_signal(signal.SIGINT)
    code = await process.wait()

    assert [each["items"][0]["state"] for each in (first, second)] == ["online", "draining"]
    assert (first["total"], code) == (1, 0)


async def read_list(stream: asyncio.StreamReader, output: str) -> Any:
    """A line of JSON, or a document of YAML, whose last member is `metrics`."""
    async with asyncio.timeout(60):
        if output == "json":
            return json.loads(await stream.readline())
        text = (await stream.readuntil(b"metrics: null\n")).decode()
    (document,) = yaml.safe_load_all(text)
    assert text.startswith("---\n")
    return document


async def test_a_screen_shows_how_the_time_passes(hub: ServedHub) -> None:
    now = datetime.now(UTC)
    edge = instance("edge-1")
    seen = msgspec.structs.replace(edge, life=msgspec.structs.replace(edge.life, last_seen=now))
    await hub.add(seen)
    terminal, command_side = pty.openpty()
    process = await hub.watching("instances", stdout=command_side)
    os.close(command_side)

    drawn = b""
    async with asyncio.timeout(60):
        while len(ages := re.findall(rb"(\d+)s ago", drawn)) < 2:
            drawn += await asyncio.to_thread(os.read, terminal, 65_536)
    process.send_signal(signal.SIGINT)
    await process.wait()
    os.close(terminal)

    assert int(ages[0]) < int(ages[1])


async def read_until(terminal: int, text: bytes) -> bytes:
    output = b""
    async with asyncio.timeout(60):
        while text not in output:
            output += await asyncio.to_thread(os.read, terminal, 65_536)
    return output


async def test_a_refusal_is_exit_1_with_its_reason(hub: ServedHub) -> None:
    unknown = await hub.run("instances", "get", "x")
    forbidden = await hub.run("instances", "drain", "x", token="viewer")

    assert unknown == (1, "", 'refused (404): there is no instance "x"\n')
    assert (forbidden[0], "403" in forbidden[2]) == (1, True)
