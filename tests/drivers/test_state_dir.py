"""What an agent keeps on disk, and in memory for tests: the same promises."""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sentinel.core.agent.apply import Apply, Step
from sentinel.core.agent.orders import Order, OrderKey, Report, ReportState, Source, Task
from sentinel.core.agent.state import AgentState, Applied, Attempt
from sentinel.drivers.state_dir import FolderState
from sentinel.ports.state_dir import StateDir, StateDirFailure
from sentinel.runtime.log import get_logger
from sentinel.testing.state_dir import MemoryStateDir
from tests.support.agent.disks import no_space_for_files, read_only, small_disk

NOW = datetime(2025, 1, 1, tzinfo=UTC)
TASK = Task(
    version="api@2",
    hash="h2",
    order=Order(deployment_id="d-1", is_rollback=True, deadline=NOW),
    source=Source.EVENT,
    marker="e1",
)
STATE = AgentState(
    applied=Applied(version="api@1", hash="h1", file_hash="f1", secrets={"secret:a": "/x"}, applied=NOW),
    waiting=TASK,
    apply=Apply(task=TASK, attempts=3, step=Step.CHECKING, candidate="f2"),
    attempt=Attempt(version="api@2", markers=("event e1",)),
    orders=(Report(order=OrderKey("d-1", True), state=ReportState.VALIDATING),),
    reports=(Report(order=OrderKey("d-1", True), state=ReportState.FAILED, message="no"),),
)


@pytest.fixture(params=["folder", "memory"])
def state_dir(request: pytest.FixtureRequest, tmp_path: Path) -> StateDir:
    return MemoryStateDir() if request.param == "memory" else folder_state(tmp_path / "state")


def folder_state(folder: Path) -> FolderState:
    return FolderState(folder, log=get_logger("agent"))


def content(path: Path) -> bytes:
    return path.read_bytes()


def damage(path: str) -> None:
    Path(path).write_bytes(b"")


def names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_a_state_is_as_it_was_saved(state_dir: StateDir) -> None:
    assert await state_dir.load() == AgentState()

    await state_dir.save(STATE)

    assert await state_dir.load() == STATE


async def test_the_applied_text_is_kept(state_dir: StateDir) -> None:
    assert await state_dir.load_applied() is None

    await state_dir.save_applied("system\r\n")

    assert await state_dir.load_applied() == "system\r\n"


async def test_an_id_is_made_once(state_dir: StateDir) -> None:
    assert state_dir.instance_id() == state_dir.instance_id() != ""


async def test_another_value_of_a_secret_gets_another_file(state_dir: StateDir) -> None:
    first = await state_dir.put_secrets({"secret:key": b"1", "vault:a/b#c": b"2"})
    second = await state_dir.put_secrets({"secret:key": b"3"})

    assert await state_dir.put_secrets({"secret:key": b"1"}) == {"secret:key": first["secret:key"]}
    assert len({*first.values(), *second.values()}) == 3
    assert state_dir.stable_path("secret:key") != state_dir.stable_path("secret-key")


async def test_secrets_are_private_files_behind_paths_that_stay(tmp_path: Path) -> None:
    state = folder_state(tmp_path / "state")
    stable = Path(state.stable_path("secret:key"))
    old, new = await state.put_secrets({"secret:key": b"1"}), await state.put_secrets({"secret:key": b"2"})

    await state.use_secrets(old)
    before = content(stable)
    await state.use_secrets(new)

    assert (before, content(stable)) == (b"1", b"2")
    assert {mode(each) for each in stable.parent.glob("*")} == {0o600}
    assert mode(stable.parent) == mode(stable.parent.parent) == 0o700


async def test_secrets_that_are_not_used_any_more_are_deleted(tmp_path: Path) -> None:
    state = folder_state(tmp_path / "state")
    await state.forget_secrets({})  # there is no folder yet
    await state.put_secrets({"secret:key": b"1"})
    new = await state.put_secrets({"secret:key": b"2"})
    await state.use_secrets(new)

    await state.forget_secrets(new)

    stable = Path(state.stable_path("secret:key"))
    assert content(stable) == b"2"
    assert names_in(stable.parent) == sorted((stable.name, Path(new["secret:key"]).name))


async def test_a_damaged_file_of_a_secret_is_written_again(tmp_path: Path) -> None:
    state = folder_state(tmp_path / "state")
    files = await state.put_secrets({"secret:key": b"1"})
    damage(files["secret:key"])

    await state.put_secrets({"secret:key": b"1"})

    assert content(Path(files["secret:key"])) == b"1"


@pytest.mark.parametrize("content", [b"", b"{", b'{"applied": 1}', b"\xff", b"[]"])
async def test_a_damaged_state_is_an_empty_one(tmp_path: Path, content: bytes) -> None:
    state = folder_state(tmp_path)
    (tmp_path / "state.json").write_bytes(content)
    (tmp_path / "applied.kdl").write_bytes(b"\xff")

    assert await state.load() == AgentState()
    assert await state.load_applied() is None


async def test_fields_of_a_newer_agent_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('{"interruptions": 2, "later": true}')

    assert await folder_state(tmp_path).load() == AgentState(interruptions=2)


@pytest.mark.parametrize("content", ["", "two\nlines", "x" * 300])
def test_a_damaged_id_is_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / "instance_id").write_text(content)

    made = folder_state(tmp_path).instance_id()

    assert made == folder_state(tmp_path).instance_id()
    assert made != content


async def test_a_full_disk_keeps_what_was_saved(tmp_path: Path) -> None:
    state = folder_state(tmp_path)
    await state.save(STATE)

    with no_space_for_files():
        for action in (
            state.save(AgentState()),
            state.save_applied("text"),
            state.put_secrets({"secret:key": b"1"}),
        ):
            with pytest.raises(StateDirFailure, match=r"cannot write .*: file too large"):
                await action

    assert await state.load() == STATE


async def test_a_read_only_folder_is_a_failure(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        state = folder_state(disk / "state")
        files = await state.put_secrets({"secret:key": b"1"})
        with read_only(disk):
            for action in (state.save(STATE), state.use_secrets(files), state.put_secrets({"secret:key": b"2"})):
                with pytest.raises(StateDirFailure, match="read-only file system"):
                    await action
            with pytest.raises(StateDirFailure, match="read-only file system"):
                state.instance_id()
            await state.forget_secrets({})

            assert await state.load() == AgentState()


@pytest.mark.parametrize("kind", ["folder", "memory"])
async def test_secrets_that_are_in_use_already_need_no_space(kind: str, tmp_path: Path) -> None:
    state: StateDir = MemoryStateDir() if kind == "memory" else folder_state(tmp_path)
    files = await state.put_secrets({"secret:key": b"1"})
    await state.use_secrets(files)

    with no_space_for_files():
        if isinstance(state, MemoryStateDir):
            state.is_full = True
        assert await state.put_secrets({"secret:key": b"1"}) == files
        await state.use_secrets(files)
        with pytest.raises(StateDirFailure):
            await state.put_secrets({"secret:key": b"2"})


async def test_secrets_that_are_in_use_already_are_not_linked_again(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        state = folder_state(disk / "state")
        files = await state.put_secrets({"secret:key": b"1"})
        await state.use_secrets(files)
        with read_only(disk):
            await state.use_secrets(files)

            assert content(Path(state.stable_path("secret:key"))) == b"1"


async def test_a_state_that_cannot_be_read_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "state.json").mkdir()
    (tmp_path / "instance_id").mkdir()

    with pytest.raises(StateDirFailure, match="cannot read"):
        await folder_state(tmp_path).load()
    with pytest.raises(StateDirFailure, match="cannot read"):
        folder_state(tmp_path).instance_id()
