"""What is said when it has come up, and how often."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sentinel.cli.client.connection import ServerConnection
from sentinel.cli.up.data_dir import DataDir
from sentinel.cli.up.plan import UpOptions, UpPlan, make_plan
from sentinel.cli.up.tokens import make_keys
from sentinel.cli.up.view import Showing, View
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import get_logger
from sentinel.runtime.probes.health import Health
from sentinel.testing.clock import ManualClock

URL = "http://127.0.0.1:1234"


async def greetings(folder: Path, *, times: int, is_live: bool = False) -> tuple[str, str]:
    """What is printed by one process whose view is built so many times; and the token for people."""
    home = DataDir(folder / "home")
    plan = make_plan(
        UpOptions(listen="0.0.0.0:0"), environ={}, database_url=home.database_url, tokens_file=home.tokens_file
    )
    assert isinstance(plan, UpPlan)
    with (
        home.occupied(),
        (folder / "out").open("w+") as stream,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "stdout", stream)
        keys = make_keys(plan, home, has_demo=False)
        assert keys.admin is not None
        view = View(
            showing=Showing(is_live=is_live),
            plan=plan,
            home=home,
            admin=keys.admin,
            health=Health(),
            clock=ManualClock(),
            log=get_logger("test"),
            stopping=Stopping(),
        )
        for _ in range(times):
            part = view.part(URL, connect=lambda: ServerConnection(server=URL))
            assert part.start is not None
            await part.start()
        view.leave_screen()
        stream.seek(0)
        return stream.read(), keys.admin.token


async def test_a_token_is_shown_once_however_often_the_view_is_built_or_the_command_started(
    tmp_path: Path,
) -> None:
    first, token = await greetings(tmp_path, times=2)
    second, again = await greetings(tmp_path, times=1)

    assert first.count(token) == 1
    assert token not in second
    assert again == token


async def test_a_token_that_was_made_and_not_shown_is_shown_at_the_next_start(tmp_path: Path) -> None:
    _, token = await greetings(tmp_path, times=0)

    shown, _ = await greetings(tmp_path, times=1)

    assert token in shown


async def test_it_does_not_say_that_it_is_up_before_it_is(tmp_path: Path) -> None:
    said, _ = await greetings(tmp_path, times=1)

    assert f"sentinel is listening at {URL}" in said
    assert "is up" not in said
    assert "try next" in said


async def test_a_terminal_keeps_where_everything_was_when_the_screen_is_gone(tmp_path: Path) -> None:
    said, _ = await greetings(tmp_path, times=1, is_live=True)

    assert f"{URL}/docs" in said
    assert str(tmp_path / "home") in said
    assert "try next" not in said
