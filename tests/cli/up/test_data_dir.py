"""What is kept in the data directory, and for whose eyes."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from sentinel.cli.up.data_dir import DataDir, UnusableDataDir, default_folder
from sentinel.core.access import Identity, Role
from sentinel.drivers.identity.tokens_file import TokensFile


def make(folder: Path) -> DataDir:
    """A data directory that somebody has lived in."""
    home = DataDir(folder)
    with home.occupied():
        return home


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


async def test_a_token_is_made_once_and_accepted_by_the_api(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"

    made = make(folder).part_token("adapter-dns", role=Role.ADAPTER, adapter="dns")
    again = make(folder).part_token("adapter-dns", role=Role.ADAPTER, adapter="dns")

    assert again.token == made.token
    known = await TokensFile(DataDir(folder).tokens_file).identify(made.token)
    assert known == Identity("adapter-dns", Role.ADAPTER, "dns")


def test_everything_is_for_its_owner_alone(tmp_path: Path) -> None:
    home = make(tmp_path / "home")

    part, admin = home.part_token("pulse", role=Role.PULSE), home.admin_token()

    assert [mode(each) for each in (home.folder, part.file.parent)] == [0o700, 0o700]
    assert [mode(each) for each in (part.file, admin.file, home.tokens_file)] == [0o600, 0o600, 0o600]


def test_a_file_that_was_opened_up_is_closed_again(tmp_path: Path) -> None:
    kept = make(tmp_path).part_token("pulse", role=Role.PULSE)
    kept.file.chmod(0o644)

    make(tmp_path).part_token("pulse", role=Role.PULSE)

    assert mode(kept.file) == 0o600


def test_a_token_that_was_revoked_is_made_anew(tmp_path: Path) -> None:
    home = make(tmp_path)
    before = home.part_token("pulse", role=Role.PULSE)
    home.tokens_file.unlink()

    after = home.part_token("pulse", role=Role.PULSE)

    assert after.token != before.token
    assert after.file.read_text().strip() == after.token


def test_a_folder_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    make(tmp_path)

    assert mode(tmp_path) == 0o755


def test_a_place_that_is_no_folder_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    with pytest.raises(UnusableDataDir, match=str(file)):
        make(file)


def test_nothing_is_made_before_somebody_moves_in(tmp_path: Path) -> None:
    home = DataDir(tmp_path / "home")

    assert home.tokens_file.parent == tmp_path / "home"
    assert list(tmp_path.iterdir()) == []


def test_two_cannot_live_in_one_at_a_time(tmp_path: Path) -> None:
    with (
        DataDir(tmp_path).occupied(),
        pytest.raises(UnusableDataDir, match="is in use"),
        DataDir(tmp_path).occupied(),
    ):
        pass

    with DataDir(tmp_path).occupied():
        pass


def test_it_is_remembered_which_token_was_shown(tmp_path: Path) -> None:
    home = make(tmp_path)
    kept = home.admin_token()
    before = home.was_shown(kept)
    home.mark_shown(kept)

    assert (before, DataDir(tmp_path).was_shown(home.admin_token())) == (False, True)
    home.tokens_file.unlink()
    assert not home.was_shown(home.admin_token())


def test_a_tokens_file_that_is_none_is_named(tmp_path: Path) -> None:
    home = make(tmp_path)
    home.tokens_file.write_text("tokens: nonsense\n")

    with pytest.raises(UnusableDataDir, match=r"tokens\.yaml"):
        home.admin_token()


def test_a_token_is_not_in_its_representation(tmp_path: Path) -> None:
    kept = make(tmp_path).admin_token()

    assert kept.token not in repr(kept)


def test_without_a_word_it_is_where_programs_keep_their_data() -> None:
    assert default_folder({"XDG_DATA_HOME": "/data"}) == Path("/data/sentinel")
    assert default_folder({"XDG_DATA_HOME": "relative"}) == default_folder({})
    assert default_folder({}) == Path.home() / ".local" / "share" / "sentinel"
