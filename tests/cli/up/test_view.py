"""The banner, the lines and the ready file of `sentinel up`."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sentinel.cli.client.connection import ServerConnection
from sentinel.cli.up.activity import Activity
from sentinel.cli.up.data_dir import DataDir
from sentinel.cli.up.plan import UpOptions, UpPlan, make_plan
from sentinel.cli.up.view import Ready, ReadyFile, View, ViewOptions
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.listening import Address
from sentinel.runtime.log import get_logger
from sentinel.runtime.probes.health import Health
from sentinel.runtime.secrets import Redactor
from sentinel.testing.clock import START, ManualClock

URL = "http://127.0.0.1:1234"
AGENTS = Address("127.0.0.1", 5678)


class Output:
    """What a view has printed, and the admin token."""

    text = ""
    token = ""


@contextmanager
def run_view(folder: Path, output: Output, *, is_live: bool = False) -> Iterator[View]:
    """Yields the view of one run; at its end, everything that it printed is in `output`."""
    data_dir = DataDir(folder / "data")
    plan = make_plan(
        UpOptions(listen="0.0.0.0:0"),
        environ={},
        database_url=data_dir.database_url,
        tokens_file=data_dir.tokens_file,
    )
    assert isinstance(plan, UpPlan)
    with (
        data_dir.locked(),
        (folder / "out").open("w+") as stream,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "stdout", stream)
        token = data_dir.admin_token()
        view = View(
            options=ViewOptions(is_live=is_live),
            plan=plan,
            data_dir=data_dir,
            admin_token=token,
            health=Health(),
            clock=ManualClock(),
            log=get_logger("test"),
            stopping=Stopping(),
            redact=Redactor(["planted"]).redact,
        )
        yield view
        view.flush()
        stream.seek(0)
        output.text, output.token = stream.read(), token.token


async def start(folder: Path, *, times: int = 1, is_live: bool = False) -> Output:
    """Start the view this many times within one run."""
    output = Output()
    with run_view(folder, output, is_live=is_live) as view:
        for _ in range(times):
            part = view.part(URL, agents_address=AGENTS, connect=lambda: ServerConnection(server=URL))
            assert part.start is not None
            await part.start()
    return output


async def test_the_token_is_printed_once_over_all_restarts(tmp_path: Path) -> None:
    first = await start(tmp_path, times=2)
    second = await start(tmp_path)

    assert first.text.count(first.token) == 1
    assert first.token not in second.text
    assert second.token == first.token


async def test_a_token_that_was_not_printed_is_printed_at_the_next_start(tmp_path: Path) -> None:
    failed = await start(tmp_path, times=0)

    output = await start(tmp_path)

    assert failed.token in output.text


async def test_the_banner_does_not_claim_readiness(tmp_path: Path) -> None:
    output = await start(tmp_path)

    assert f"sentinel is listening at {URL}" in output.text
    assert "is up" not in output.text
    assert "try next" in output.text


async def test_the_banner_of_the_live_view_has_addresses_but_no_examples(tmp_path: Path) -> None:
    output = await start(tmp_path, is_live=True)

    assert f"{URL}/docs" in output.text
    assert str(tmp_path / "data") in output.text
    assert "try next" not in output.text


def test_control_characters_in_activities_are_escaped(tmp_path: Path) -> None:
    output = Output()

    with run_view(tmp_path, output) as view:
        view.show(Activity(at=START, source="pulse", text="clusters: no\nanswer\x1b[2J"))

    assert output.text == "2025-01-01T00:00:00Z pulse: clusters: no\\nanswer\\x1b[2J\n"


def test_secrets_in_activities_are_masked(tmp_path: Path) -> None:
    output = Output()

    with run_view(tmp_path, output) as view:
        view.show(Activity(at=START, source="dns", text="broken: {'password': 'swordfish'} with planted"))
        shown = [activity.text for activity in view.dashboard.latest(1)]

    assert output.text == "2025-01-01T00:00:00Z dns: broken: {'password': '***'} with ***\n"
    assert shown == ["broken: {'password': '***'} with ***"]


def test_checking_the_ready_file_leaves_no_trace(tmp_path: Path) -> None:
    file = tmp_path / "ready.json"
    file.write_text("of another run")

    ReadyFile(file).check_writable()

    assert file.read_text() == "of another run"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("name", ["", "no/such/folder", "x" * 300])
def test_an_unwritable_ready_file_is_refused_early(name: str, tmp_path: Path) -> None:
    with pytest.raises(OSError):
        ReadyFile(tmp_path / name).check_writable()


async def test_the_ready_file_exists_only_from_readiness_to_the_end(tmp_path: Path) -> None:
    file = tmp_path / "ready.json"
    file.write_text("of an earlier run, which was killed")
    ready = ReadyFile(file)

    async with ready.cleaned():
        is_stale = file.exists()
        ready.write(Ready("http://127.0.0.1:1", "127.0.0.1:2"))
        content, mode = file.read_text(), stat.S_IMODE(file.stat().st_mode)

    assert not is_stale
    assert content == '{"http":"http://127.0.0.1:1","grpc":"127.0.0.1:2","token":null}\n'
    assert mode & 0o077 == 0o044
    assert not file.exists()


def test_a_ready_file_with_a_token_is_private(tmp_path: Path) -> None:
    file = tmp_path / "ready.json"

    ReadyFile(file).write(Ready("http://here", "here:2", token="secret"))

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
