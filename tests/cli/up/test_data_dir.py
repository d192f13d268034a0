"""The data directory: its tokens, their modes, and its lock."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from sentinel.cli.up.data_dir import DataDir, UnusableDataDir, default_folder
from sentinel.core.access import Identity, Role
from sentinel.drivers.identity.tokens_file import TokensFile


def make_data_dir(folder: Path) -> DataDir:
    """A data directory that was locked once, and so exists."""
    data_dir = DataDir(folder)
    with data_dir.locked():
        return data_dir


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_a_token_is_created_once_and_accepted_by_the_api(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"

    created = make_data_dir(folder).part_token("adapter-dns", role=Role.ADAPTER, adapter="dns")
    again = make_data_dir(folder).part_token("adapter-dns", role=Role.ADAPTER, adapter="dns")

    assert again.token == created.token
    known = await TokensFile(DataDir(folder).tokens_file).identify(created.token)
    assert known == Identity("adapter-dns", Role.ADAPTER, "dns")


def test_files_and_folders_are_private(tmp_path: Path) -> None:
    data_dir = make_data_dir(tmp_path / "data")

    part, admin = data_dir.part_token("pulse", role=Role.PULSE), data_dir.admin_token()

    assert [mode(each) for each in (data_dir.folder, part.path.parent)] == [0o700, 0o700]
    assert [mode(each) for each in (part.path, admin.path, data_dir.tokens_file)] == [0o600, 0o600, 0o600]


def test_a_token_file_is_made_private_again(tmp_path: Path) -> None:
    token = make_data_dir(tmp_path).part_token("pulse", role=Role.PULSE)
    token.path.chmod(0o644)

    make_data_dir(tmp_path).part_token("pulse", role=Role.PULSE)

    assert mode(token.path) == 0o600


def test_a_revoked_token_is_replaced(tmp_path: Path) -> None:
    data_dir = make_data_dir(tmp_path)
    before = data_dir.part_token("pulse", role=Role.PULSE)
    data_dir.tokens_file.unlink()

    after = data_dir.part_token("pulse", role=Role.PULSE)

    assert after.token != before.token
    assert after.path.read_text().strip() == after.token


def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    make_data_dir(tmp_path)

    assert mode(tmp_path) == 0o755


def test_a_path_that_is_not_a_folder_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    with pytest.raises(UnusableDataDir, match=str(file)):
        make_data_dir(file)


def test_nothing_is_created_before_it_is_locked(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path / "data")

    assert data_dir.tokens_file.parent == tmp_path / "data"
    assert list(tmp_path.iterdir()) == []


def test_it_can_be_locked_only_once_at_a_time(tmp_path: Path) -> None:
    with (
        DataDir(tmp_path).locked(),
        pytest.raises(UnusableDataDir, match="is in use"),
        DataDir(tmp_path).locked(),
    ):
        pass

    with DataDir(tmp_path).locked():
        pass


def test_a_token_is_marked_as_shown_until_it_is_replaced(tmp_path: Path) -> None:
    data_dir = make_data_dir(tmp_path)
    token = data_dir.admin_token()
    before = data_dir.was_shown(token)
    data_dir.mark_shown(token)

    assert (before, DataDir(tmp_path).was_shown(data_dir.admin_token())) == (False, True)
    data_dir.tokens_file.unlink()
    assert not data_dir.was_shown(data_dir.admin_token())


def test_an_invalid_tokens_file_is_refused(tmp_path: Path) -> None:
    data_dir = make_data_dir(tmp_path)
    data_dir.tokens_file.write_text("tokens: nonsense\n")

    with pytest.raises(UnusableDataDir, match=r"tokens\.yaml"):
        data_dir.admin_token()


def test_a_token_is_not_in_its_repr(tmp_path: Path) -> None:
    token = make_data_dir(tmp_path).admin_token()

    assert token.token not in repr(token)


def test_the_default_folder_follows_the_xdg_rules() -> None:
    assert default_folder({"XDG_DATA_HOME": "/data"}) == Path("/data/sentinel")
    assert default_folder({"XDG_DATA_HOME": "relative"}) == default_folder({})
    assert default_folder({}) == Path.home() / ".local" / "share" / "sentinel"
